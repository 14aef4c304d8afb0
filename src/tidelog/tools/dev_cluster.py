"""A cluster for development: one ZooKeeper server and some brokers, on this machine.

    DIR/zookeeper/      ZooKeeper's files
    DIR/broker-N/       the log directory of broker N

Brokers are numbered from 1 on and listen on the first free ports from the one asked for on (0: any
that are free); ZooKeeper takes the next one. Everything is started at once and stopped brokers
first: they hand over their leaderships through ZooKeeper. What brokers log goes to one stream, each
line under its broker's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from tidelog.tools.child_broker import ChildBroker
from tidelog.tools.free_ports import HOST, free_ports
from tidelog.tools.local_coordination import local_coordination

SESSION_TIMEOUT_MS: Final = 6_000
REPLICATION_FACTOR_MAX: Final = 3


class DevCluster:
    def __init__(
        self,
        directory: Path,
        broker_count: int,
        first_port: int,
        overrides: Mapping[str, str],
        log_level: str,
    ) -> None:
        *self._ports, zookeeper_port = free_ports(first_port, broker_count + 1)
        self.zookeeper = local_coordination(directory, zookeeper_port)
        self.brokers = [
            ChildBroker(
                number,
                {
                    **broker_settings(broker_count),
                    "broker.id": str(number),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "log.dirs": str(directory / f"broker-{number}"),
                    "zookeeper.connect": self.zookeeper.address,
                    **overrides,
                },
                ("--log-level", log_level),
            )
            for number, port in enumerate(self._ports, 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def start(self, log: IO[str]) -> None:
        """Returns when all serve; StartupError, with everything stopped, if one cannot."""
        try:
            self.zookeeper.spawn()
            self.zookeeper.wait_until_ready()
            for broker in self.brokers:
                broker.spawn(log)
            for broker in self.brokers:
                broker.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[int]:
        """The exit codes of the brokers. One after another: each can hand over to the rest."""
        codes = [broker.stop() for broker in self.brokers]
        self.zookeeper.stop()
        return codes


def broker_settings(broker_count: int) -> dict[str, str]:
    """What is different from Kafka's defaults: as much replication as there are brokers for."""
    factor = min(REPLICATION_FACTOR_MAX, broker_count)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
        "min.insync.replicas": str(max(1, factor - 1)),
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }
