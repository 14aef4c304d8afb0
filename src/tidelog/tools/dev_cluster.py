"""A cluster for development: some brokers and what coordinates them, on this machine.

    DIR/zookeeper/      the files of `tidelog zookeeper`
    DIR/broker-N/       the log directory of broker N

Brokers are numbered from 1 on and listen on the first free ports from the one asked for on (0: any
that are free); the coordination takes the next one. Their metrics are on ports from 9308 on, and
the web console is on the first one from 8080 on. One
broker needs no coordination, and several may use a ZooKeeper that runs already. Everything is
started at once and stopped brokers first: they hand over their leaderships. What the processes log
goes to one stream, each line under its process's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tidelog.errors import StartupError
from tidelog.tools.child_server import ChildBroker, ChildCoordination, ChildServer
from tidelog.tools.console_beside import ChildConsole
from tidelog.tools.free_ports import HOST, free_ports

SESSION_TIMEOUT_MS: Final = 6_000
REPLICATION_FACTOR_MAX: Final = 3
CONSOLE_PORT: Final = 8080  # if it is free
METRICS_KEY: Final = "tidelog.metrics.listener"
METRICS_PORT: Final = 9308  # of the first broker, if it is free; kafka_exporter has the same


class DevCluster:
    def __init__(
        self,
        directory: Path,
        broker_count: int,
        first_port: int,
        overrides: Mapping[str, str],
        log_level: str,
        zookeeper: str = "",
        console: Sequence[str] | None = None,
    ) -> None:
        """`zookeeper` is the address of one that runs; empty: an embedded one, if there must be.
        `console` are options of a web console for it; None: there is none."""
        if first_port:
            *broker_ports, zookeeper_port = free_ports(first_port, broker_count + 1)
            metrics_ports = free_ports(METRICS_PORT, broker_count)
            taken = {*broker_ports, zookeeper_port, *metrics_ports}
            free = free_ports(CONSOLE_PORT, len(taken) + 1)
            console_port = next(port for port in free if port not in taken)
        else:  # in one call, so that no port is found twice
            ports = free_ports(0, 2 * broker_count + 2)
            broker_ports, zookeeper_port = ports[:broker_count], ports[broker_count]
            metrics_ports, console_port = ports[broker_count + 1 : -1], ports[-1]
        options = ("--log-level", log_level)
        self.coordination: ChildCoordination | None = None
        if broker_count > 1 and not zookeeper:
            self.coordination = ChildCoordination(directory / "zookeeper", zookeeper_port, options)
            zookeeper = self.coordination.address
        self.zookeeper_connect = zookeeper
        connect = {"zookeeper.connect": zookeeper} if zookeeper else {}
        self.brokers = [
            ChildBroker(
                number,
                f"{HOST}:{port}",
                {
                    **broker_settings(broker_count),
                    "broker.id": str(number),
                    "listeners": f"PLAINTEXT://{HOST}:{port}",
                    "log.dirs": str(directory / f"broker-{number}"),
                    **connect,
                    METRICS_KEY: f"http://{HOST}:{metrics_port}",
                    **overrides,
                },
                options,
            )
            for number, (port, metrics_port) in enumerate(
                zip(broker_ports, metrics_ports, strict=True), 1
            )
        ]
        self.metrics_urls = [f"http://{HOST}:{port}/metrics" for port in metrics_ports]
        if METRICS_KEY in overrides:  # their ports are not known here
            self.metrics_urls = []
        self.console: ChildConsole | None = None
        if console is not None:
            told = ["--listen", f"http://{HOST}:{console_port}", *console]
            for url in self.metrics_urls:
                told += ["--metrics", url]
            numbers = () if "log.dirs" in overrides else range(1, broker_count + 1)
            for number in numbers:
                told += ["--logs", str(directory / f"broker-{number}")]
            self.console = ChildConsole({"bootstrap.servers": self.bootstrap_servers}, told)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def servers(self) -> list[ChildServer]:
        return [*self.brokers, *([self.coordination] if self.coordination else [])]

    def start(self, log: IO[str]) -> None:
        """Returns when all serve; StartupError, with everything stopped, if one cannot."""
        try:
            for server in reversed(self.servers):
                server.spawn(log)
            for server in reversed(self.servers):
                server.wait_until_ready()
            if self.console is not None:
                self.console.spawn(log)
                self._wait_for_console(self.console, log)
        except BaseException:
            self.stop()
            raise

    def _wait_for_console(self, console: ChildConsole, log: IO[str]) -> None:
        """A cluster is of use without one."""
        try:
            console.wait_until_ready()
        except StartupError as error:
            log.write(f"there is no console: {error}\n")
            self.console = None

    def stop(self) -> list[int]:
        """The exit codes of the brokers. One after another: each can hand over to the rest."""
        if self.console is not None:
            self.console.stop()
        codes = [broker.stop() for broker in self.brokers]
        if self.coordination is not None:
            self.coordination.stop()
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
