"""A broker that some clients reach only over links that a test can cut.

Each link leads to a listener of its own, and what the broker advertises there is the link, so a
client cannot get around it. The first listener has no link: it is for whoever checks the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.cuttable_link import CuttableLink
from tidelog.tools.free_ports import free_ports

DIRECT = "DIRECT"


class LinkedBroker:
    def __init__(
        self, directory: Path, names: Sequence[str], overrides: Mapping[str, str] | None = None
    ) -> None:
        direct, *ports = free_ports(0, 1 + len(names))
        self.links = {name: CuttableLink(port) for name, port in zip(names, ports, strict=True)}
        listening = {DIRECT: direct, **dict(zip(names, ports, strict=True))}
        advertised = {DIRECT: direct, **{name: link.port for name, link in self.links.items()}}
        self.process = BrokerProcess(
            directory,
            {
                "listeners": _listeners(listening),
                "advertised.listeners": _listeners(advertised),
                "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in listening),
                "inter.broker.listener.name": DIRECT,
                **(overrides or {}),
            },
        )

    @property
    def bootstrap(self) -> str:
        """Without a link."""
        return self.process.bootstrap

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self.process.kill()


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
