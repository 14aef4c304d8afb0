"""A cluster for development: some brokers and what coordinates them, on this machine.

    DIR/zookeeper/      the files of `tidelog zookeeper`
    DIR/broker-N/       the log directory of broker N

Brokers are numbered from 1 on and listen on the first free ports from the one asked for on (0: any
that are free); the coordination takes the next one. One broker needs none, and several may use a
ZooKeeper that runs already. Everything is started at once and stopped brokers first: they hand over
their leaderships. What the processes log goes to one stream, each line under its process's name.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from tidelog.broker_process import BrokerProcess, ServerProcess
from tidelog.errors import StartupError
from tidelog.tools.free_ports import HOST, free_ports

SESSION_TIMEOUT_MS: Final = 6_000
REPLICATION_FACTOR_MAX: Final = 3
STOP_TIMEOUT_S: Final = 30.0


class DevCluster:
    def __init__(
        self,
        directory: Path,
        broker_count: int,
        first_port: int,
        overrides: Mapping[str, str],
        zookeeper: str = "",
    ) -> None:
        """`zookeeper` is the address of one that runs; empty: an embedded one, if there must be."""
        *broker_ports, zookeeper_port = free_ports(first_port, broker_count + 1)
        self.coordination: DevCoordination | None = None
        if broker_count > 1 and not zookeeper:
            self.coordination = DevCoordination(directory / "zookeeper", zookeeper_port)
            zookeeper = self.coordination.address
        self.zookeeper_connect = zookeeper
        connect = {"zookeeper.connect": zookeeper} if zookeeper else {}
        self.brokers = [
            DevBroker(
                number,
                port,
                {
                    **broker_settings(broker_count),
                    "broker.id": str(number),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "log.dirs": str(directory / f"broker-{number}"),
                    **connect,
                    **overrides,
                },
            )
            for number, port in enumerate(broker_ports, 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    @property
    def servers(self) -> list[DevServer]:
        return [*self.brokers, *([self.coordination] if self.coordination else [])]

    def start(self, log: IO[str], log_level: str) -> None:
        """Returns when all serve; StartupError, with everything stopped, if one cannot."""
        try:
            for server in reversed(self.servers):
                server.spawn(log, log_level)
            for server in reversed(self.servers):
                server.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[int]:
        """The exit codes of the brokers. One after another: each can hand over to the rest."""
        codes = [broker.stop() for broker in self.brokers]
        if self.coordination is not None:
            self.coordination.stop()
        return codes


class DevServer:
    """One of the cluster's processes. May be started and stopped many times."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.is_paused = False
        self._process: ServerProcess | None = None
        self._copier: threading.Thread | None = None
        self._last_words = ""
        self._log: IO[str] | None = None
        self._log_level = ""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process and self.exit_code() is None else None

    def spawn(self, log: IO[str], log_level: str) -> None:
        self._log, self._log_level = log, log_level
        self._process = self._new_process(log_level)
        self.is_paused = False
        self._copier = threading.Thread(
            target=self._copy, args=(self._process.log, log), daemon=True
        )
        self._copier.start()

    def _new_process(self, log_level: str) -> ServerProcess:
        raise NotImplementedError

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

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self.pid is None:
            raise StartupError(f"{self.name} does not run")
        self._process.signal(number)

    def restart(self) -> None:
        """Also one that does not run."""
        assert self._log is not None, "it was never started"
        self.stop()
        self.spawn(self._log, self._log_level)
        self.wait_until_ready()

    def stop(self) -> int:
        """Its exit code."""
        if self._process is None:
            return 0
        code = self._process.stop(STOP_TIMEOUT_S)
        assert self._copier is not None
        self._copier.join()
        return code


class DevBroker(DevServer):
    def __init__(self, broker_id: int, port: int, overrides: Mapping[str, str]) -> None:
        super().__init__(f"broker {broker_id}", port)
        self.broker_id = broker_id
        self._overrides = overrides

    def _new_process(self, log_level: str) -> ServerProcess:
        options = ("--log-level", log_level)
        return BrokerProcess(self._overrides, *options, stderr=subprocess.PIPE)


class DevCoordination(DevServer):
    """`tidelog zookeeper`. Brokers that start at the same time wait for it."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__("zookeeper", port)
        self._directory = directory

    def _new_process(self, log_level: str) -> ServerProcess:
        arguments = ["zookeeper", "--port", str(self.port), "--data", str(self._directory)]
        return ServerProcess([*arguments, "--log-level", log_level], stderr=subprocess.PIPE)


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
