"""A cluster for development: one ZooKeeper server and some brokers, on this machine.

    DIR/zookeeper/      ZooKeeper's files
    DIR/broker-N/       the log directory of broker N

Brokers are numbered from 1 on and listen on the first free ports from the one asked for on (0: any
that are free); ZooKeeper takes the next one. Their metrics are on ports from 9308 on. Everything is
started at once and stopped brokers first: they hand over their leaderships through ZooKeeper. What
brokers log goes to one stream, each line under its broker's name.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from tidelog.broker_process import BrokerProcess
from tidelog.errors import StartupError
from tidelog.tools.free_ports import HOST, free_ports
from tidelog.tools.zookeeper_server import ServerSettings, ZooKeeperServer

SESSION_TIMEOUT_MS: Final = 6_000
REPLICATION_FACTOR_MAX: Final = 3
METRICS_KEY: Final = "tidelog.metrics.listener"
METRICS_PORT: Final = 9308  # of the first broker, if it is free; kafka_exporter has the same
BROKER_STOP_TIMEOUT_S: Final = 30.0


class DevCluster:
    def __init__(
        self, directory: Path, broker_count: int, first_port: int, overrides: Mapping[str, str]
    ) -> None:
        if first_port:
            *broker_ports, zookeeper_port = free_ports(first_port, broker_count + 1)
            metrics_ports = free_ports(METRICS_PORT, broker_count)
        else:  # in one call, so that no port is found twice
            ports = free_ports(0, 2 * broker_count + 1)
            broker_ports, zookeeper_port = ports[:broker_count], ports[broker_count]
            metrics_ports = ports[broker_count + 1 :]
        self.zookeeper = ZooKeeperServer(ServerSettings(directory / "zookeeper", zookeeper_port))
        self.brokers = [
            DevBroker(
                number,
                port,
                {
                    **broker_settings(broker_count),
                    "broker.id": str(number),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "log.dirs": str(directory / f"broker-{number}"),
                    "zookeeper.connect": self.zookeeper.address,
                    METRICS_KEY: f"http://{HOST}:{metrics_port}",
                    **overrides,
                },
            )
            for number, (port, metrics_port) in enumerate(
                zip(broker_ports, metrics_ports, strict=True), 1
            )
        ]
        self.metrics_urls = [f"http://{HOST}:{port}/metrics" for port in metrics_ports]
        if METRICS_KEY in overrides:  # their ports are not known here
            self.metrics_urls = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    def start(self, log: IO[str], log_level: str) -> None:
        """Returns when all serve; StartupError, with everything stopped, if one cannot."""
        try:
            self.zookeeper.spawn()
            self.zookeeper.wait_until_ready()
            for broker in self.brokers:
                broker.spawn(log, log_level)
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


class DevBroker:
    """One of the cluster's brokers, in a process of its own."""

    def __init__(self, broker_id: int, port: int, overrides: Mapping[str, str]) -> None:
        self.broker_id = broker_id
        self.port = port
        self._overrides = overrides
        self._process: BrokerProcess | None = None
        self._copier: threading.Thread | None = None
        self._last_words = ""

    @property
    def name(self) -> str:
        return f"broker {self.broker_id}"

    def spawn(self, log: IO[str], log_level: str) -> None:
        self._process = BrokerProcess(
            self._overrides, "--log-level", log_level, stderr=subprocess.PIPE
        )
        self._copier = threading.Thread(
            target=self._copy, args=(self._process.log, log), daemon=True
        )
        self._copier.start()

    def _copy(self, lines: IO[str], log: IO[str]) -> None:
        for line in lines:
            self._last_words = line.strip()
            log.write(f"{self.name} | {line}")
            log.flush()

    def wait_until_ready(self) -> None:
        """Raises what it said last when it cannot."""
        assert self._process is not None
        if not self._process.wait_until_ready():
            self._process.wait()
            assert self._copier is not None
            self._copier.join()
            words = self._last_words.removeprefix("tidelog: error: ")
            raise StartupError(f"{self.name}: {words or 'it ended without a word'}")

    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.exit_code()

    def stop(self) -> int:
        """Its exit code."""
        if self._process is None:
            return 0
        code = self._process.stop(BROKER_STOP_TIMEOUT_S)
        assert self._copier is not None
        self._copier.join()
        return code


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
