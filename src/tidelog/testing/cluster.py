"""A cluster for a test.

    with Cluster(3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.brokers[1].kill()

Each broker is a `Broker` in a process of its own, and so is what coordinates them: ZooKeeper's
protocol, served by tidelog, without Java. Everything is on free ports of the loopback interface and
in a temporary directory, and ends with the `with` block, and with this process, however that ends.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from tidelog.errors import StartupError
from tidelog.testing.broker import STOP_TIMEOUT_S, Broker, LogLevel
from tidelog.testing.control import child
from tidelog.testing.service import KafkaService

FACTOR_MAX: Final = 3
SESSION_TIMEOUT_MS: Final = 3_000


class Coordination:
    """The process that stands in for a ZooKeeper. Sessions outlive it: `kill`, then `start`."""

    def __init__(self, temporary: Path, log_level: LogLevel) -> None:
        self._temporary = temporary
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def _log_path(self) -> Path:
        return self._temporary / "zookeeper.log"

    def log_text(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """At the same address as before, with the same data."""
        settings = {
            "data": str(self._temporary / "zookeeper"),
            "port": self.port,
            "temporary": str(self._temporary),
            "log_level": self._log_level,
        }
        module = "tidelog.testing.served_zookeeper"
        self._process, self._link = child(module, settings, self._log_path)
        with self._link.makefile("rb") as lines:
            answer = json.loads(lines.readline() or b"{}")
        if "port" not in answer:
            self.kill()
            raise StartupError(f"zookeeper: {answer.get('error', self.log_text())}")
        self.port = answer["port"]

    def kill(self) -> None:
        """As kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None
        if self._link is not None:
            self._link.close()
            self._link = None


class Cluster(KafkaService):
    """Brokers by number, and what coordinates them."""

    def __init__(
        self,
        size: int = 3,
        config: Mapping[str, str] | None = None,
        *,
        log_level: LogLevel = "info",
        client: Mapping[str, object] | None = None,
    ) -> None:
        """`config` has keys of server.properties, for all brokers, and `client` is as for a
        `Broker`. Topics have as many replicas as
        there are brokers, at most three, and min.insync.replicas is one less.
        """
        self._size = size
        factor = self.replicas
        self._config = {
            "default.replication.factor": str(factor),
            "min.insync.replicas": str(max(1, factor - 1)),
            "offsets.topic.replication.factor": str(factor),
            "transaction.state.log.replication.factor": str(factor),
            "transaction.state.log.min.isr": str(max(1, factor - 1)),
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "replica.lag.time.max.ms": str(SESSION_TIMEOUT_MS),
            **(config or {}),
        }
        self._log_level: LogLevel = log_level
        self._client = client
        self._temporary: Path | None = None
        self._zookeeper: Coordination | None = None
        self.brokers: list[Broker] = []

    def start(self) -> Self:
        if self._temporary is not None:
            raise RuntimeError("the cluster runs already")
        self._temporary = Path(tempfile.mkdtemp(prefix="tidelog-cluster-"))
        try:
            self._zookeeper = Coordination(self._temporary, self._log_level)
            self._zookeeper.start()
            self.brokers = [
                Broker(
                    {
                        **self._config,
                        "broker.id": str(number),
                        "zookeeper.connect": self._zookeeper.address,
                    },
                    log_level=self._log_level,
                    client=self._client,
                )
                for number in range(1, self._size + 1)
            ]
            with ThreadPoolExecutor(self._size) as starters:
                list(starters.map(Broker.start, self.brokers))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
        if self._zookeeper is not None:
            self._zookeeper.kill()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    @property
    def zookeeper(self) -> Coordination:
        if self._zookeeper is None:
            raise RuntimeError("the cluster was never started")
        return self._zookeeper

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers, also of those that do not run now."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def client_config(self) -> Mapping[str, object]:
        """Of all brokers, also of those that do not run now."""
        configs = [broker.client_config for broker in self.brokers]
        addresses = [str(config["bootstrap.servers"]) for config in configs]
        return {**configs[0], "bootstrap.servers": ",".join(addresses)}

    @property
    def replicas(self) -> int:
        return min(self._size, FACTOR_MAX)

    def log_text(self) -> str:
        logs = [f"broker {n}:\n{b.log_text()}" for n, b in enumerate(self.brokers, 1)]
        return "\n".join([*logs, f"zookeeper:\n{self.zookeeper.log_text()}"])
