"""The network of a cluster under test: every link goes through a process that can cut it.

Parties are "broker-1".., "zookeeper" and "clients". Brokers reach each other at their INTERNAL
listener and clients reach them at CLIENTS; both advertise ports of the relay, and each broker has a
port of its own for ZooKeeper (`relay_process`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from itertools import permutations

from tests.support.broker_process import dies_with_us
from tests.support.relay_process import LinkPlan

CLIENTS = "clients"
ZOOKEEPER = "zookeeper"


def broker_name(number: int) -> str:
    return f"broker-{number}"


class BrokerPorts:
    """Where a broker listens, and where the others find it."""

    def __init__(self, clients: int, internal: int) -> None:
        self.clients = clients
        self.internal = internal
        self.advertised_clients = 0
        self.advertised_internal = 0
        self.zookeeper = 0

    def overrides(self) -> dict[str, str]:
        def listeners(clients: int, internal: int) -> str:
            return f"CLIENTS://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal}"

        return {
            "listeners": listeners(self.clients, self.internal),
            "advertised.listeners": listeners(self.advertised_clients, self.advertised_internal),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper}",
        }


class ClusterNetwork:
    def __init__(self, brokers: Mapping[int, BrokerPorts], zookeeper_port: int) -> None:
        plans: list[LinkPlan] = []
        for number, broker in brokers.items():
            name = broker_name(number)
            plans += [
                LinkPlan(CLIENTS, name, broker.clients),
                LinkPlan(None, name, broker.internal),
                LinkPlan(name, ZOOKEEPER, zookeeper_port),
            ]
        self._process = subprocess.Popen(
            dies_with_us(
                [sys.executable, "-m", "tests.support.relay_process", json.dumps(plans)],
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ports = iter(json.loads(self._answer()))
        for broker in brokers.values():
            broker.advertised_clients = next(ports)
            broker.advertised_internal = next(ports)
            broker.zookeeper = next(ports)

    def block(self, source: str, sink: str) -> None:
        """Silence, one way."""
        self._say(f"block {source} {sink}")

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Silence between two sides, both ways."""
        for one in some:
            for other in others:
                for source, sink in permutations((one, other)):
                    self.block(source, sink)

    def sever(self, one: str, other: str) -> None:
        """Connections are reset, and refused until the network is healed."""
        self._say(f"sever {one} {other}")

    def heal(self) -> None:
        self._say("heal")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done\n"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()
