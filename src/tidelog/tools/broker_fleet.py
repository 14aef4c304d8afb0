"""Several brokers of one cluster on one machine, under one supervisor: `tidelog serve --brokers N`.

    DIR/broker-0/ ...   for each directory of log.dirs, that of each broker
    DIR/zookeeper/      where zookeeper.connect is not set: the coordination's files

Broker i has the number i and, of each listener and the metrics, the configured port plus i; port 0
becomes a free one, which it keeps when it is started again. All have one configuration and one
rack. Internal topics have Kafka's replication, as far as there are brokers for it.

A broker that dies is started again, and so is the coordination: after a second, and after twice as
long each time, up to a minute; one that has run for a minute begins with a second again. Everything
is started by the thread that made the fleet, because the kernel ends children with their thread.

A stop goes broker by broker, so that each can hand its partitions over to the rest.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from tidelog.config.broker import ID_KEYS, ROLES, BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import Endpoint
from tidelog.errors import StartupError
from tidelog.log.directory.meta_properties import FILE_NAME as META_PROPERTIES
from tidelog.tools.child_server import ChildBroker, ChildCoordination, ChildServer
from tidelog.tools.free_ports import free_ports

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
STEADY_S: Final = 60.0  # a broker that has run so long begins anew with its pauses
STOP_TIMEOUT_S: Final = 120.0
PORT_MAX: Final = 65_535
INTERNAL_FACTORS: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
METRICS_KEY: Final = "tidelog.metrics.listener"
INTERNAL_MIN_ISR: Final = "transaction.state.log.min.isr"
READY: Final = re.compile(r"broker\.id=(\S+) cluster\.id=(\S+) listeners=(\S+)")


class RestartPause:
    """How long to wait before a process that ended is started again."""

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._began_s = 0.0
        self.due_s: float | None = None  # None: it runs

    def began(self, now_s: float) -> None:
        self._began_s = now_s
        self.due_s = None

    def ended(self, now_s: float) -> float:
        """The pause that begins now."""
        if now_s - self._began_s >= STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self.due_s = now_s + pause_s
        return pause_s


class Plan(NamedTuple):
    """What each broker is told beside the common configuration."""

    overrides: tuple[dict[str, str], ...]
    roots: tuple[Path, ...]
    needs_coordination: bool


def plan_brokers(config: BrokerConfig, count: int) -> Plan:
    """Raises ConfigError for what cannot work with several brokers."""
    require_common_settings(config, count)
    metrics = config.metrics_listener
    endpoints = list(config.listeners)
    if metrics is not None:
        endpoints.append(metrics._replace(listener_name=METRICS_KEY))
    ports = _ports_of(endpoints, count)
    advertised = config.originals.get("advertised.listeners")
    overrides = []
    for number in range(count):
        own = {name: str(number) for name in ID_KEYS}
        own["log.dirs"] = ",".join(str(root / f"broker-{number}") for root in config.log_dirs)
        own["listeners"] = ",".join(
            str(endpoint._replace(port=ports[endpoint.listener_name][number]))
            for endpoint in config.listeners
        )
        if advertised:
            own["advertised.listeners"] = ",".join(
                str(
                    endpoint._replace(
                        port=endpoint.port + number
                        if endpoint.port
                        else ports[endpoint.listener_name][number]
                    )
                )
                for endpoint in config.advertised_listeners
            )
        if metrics is not None:
            own[METRICS_KEY] = str(metrics._replace(port=ports[METRICS_KEY][number]))
        own.update(_replication(config, count))
        overrides.append(own)
    return Plan(tuple(overrides), config.log_dirs, not config["zookeeper.connect"])


def require_common_settings(config: BrokerConfig, count: int) -> None:
    for name in (*ID_KEYS, ROLES):
        if name in config.originals and config.originals[name] != "-1":
            raise ConfigError(
                f"{name} is set, and --brokers {count} numbers the brokers from 0 on: remove the "
                "key, or start one broker"
            )
    for root in config.log_dirs:
        if (root / META_PROPERTIES).exists():
            raise ConfigError(
                f"{root} is the directory of one broker; name another one for --brokers {count}"
            )


def _ports_of(listeners: Sequence[Endpoint], count: int) -> dict[str, list[int]]:
    """Of each listener, those of all brokers."""
    ports: dict[str, list[int]] = {}
    any_ports = iter(free_ports(0, count * sum(not each.port for each in listeners) or 1))
    owners: dict[int, str] = {}
    for endpoint in listeners:
        name = endpoint.listener_name
        if endpoint.port:
            ports[name] = list(range(endpoint.port, endpoint.port + count))
        else:
            ports[name] = [next(any_ports) for _ in range(count)]
        if ports[name][-1] > PORT_MAX:
            raise ConfigError(
                f"listeners: {count} brokers need the ports {ports[name][0]} to {ports[name][-1]} "
                f"for {endpoint}, and there are none above {PORT_MAX}"
            )
        for port in ports[name]:
            if owners.setdefault(port, name) != name:
                raise ConfigError(
                    f"listeners: {owners[port]} and {name} would share the port {port} among "
                    f"{count} brokers; leave {count} ports between them"
                )
    return ports


def _replication(config: BrokerConfig, count: int) -> dict[str, str]:
    """Kafka's defaults, as far as there are brokers for them."""
    found = {
        name: str(min(config[name], count))
        for name in INTERNAL_FACTORS
        if name not in config.originals
    }
    if INTERNAL_MIN_ISR not in config.originals:
        factor = int(found.get(INTERNAL_FACTORS[1], config[INTERNAL_FACTORS[1]]))
        found[INTERNAL_MIN_ISR] = str(max(1, min(config[INTERNAL_MIN_ISR], factor - 1)))
    return found


class BrokerFleet:
    """`settings` and `options` are what every broker is told on its command line, `of_logs` what
    every process is."""

    def __init__(
        self,
        plan: Plan,
        settings: Mapping[str, str],
        options: Sequence[str],
        log: IO[str],
        *,
        of_logs: Sequence[str] = (),
        is_json: bool,
    ) -> None:
        self._log = log
        self._roots = plan.roots
        labelled = labelled_json if is_json else labelled_logfmt
        self.coordination: ChildCoordination | None = None
        extra: dict[str, str] = {}
        if plan.needs_coordination:
            (port,) = free_ports(0, 1)
            directory = plan.roots[0] / "zookeeper"
            self.coordination = ChildCoordination(
                directory, port, of_logs, partial(labelled, "process", "zookeeper")
            )
            extra["zookeeper.connect"] = self.coordination.address
        self.brokers = [
            ChildBroker(
                number,
                own["listeners"],
                {**settings, **own, **extra},
                [*of_logs, *options],
                partial(labelled, "broker", number),
            )
            for number, own in enumerate(plan.overrides)
        ]
        self._pauses = [RestartPause() for _ in self.brokers]
        self._coordination_pause = RestartPause()

    def start(self, now_s: float) -> str:
        """The ready line of all; StartupError, with everything stopped, if one cannot."""
        try:
            for root in self._roots:
                root.mkdir(parents=True, exist_ok=True)
            for server, pause in self._servers():
                server.spawn(self._log)
                pause.began(now_s)
            if self.coordination is not None:
                self.coordination.wait_until_ready()
            return self._ready_line([broker.wait_until_ready() for broker in self.brokers])
        except BaseException:
            self.stop()
            raise

    def _ready_line(self, lines: Sequence[str]) -> str:
        found = [READY.search(line) for line in lines]
        told = [each.groups() for each in found if each is not None]
        assert len(told) == len(lines), lines
        ids, clusters, listeners = zip(*told, strict=True)
        if len(set(clusters)) > 1:
            raise StartupError(f"the brokers are of different clusters: {', '.join(clusters)}")
        return (
            f"tidelog ready broker.id={','.join(ids)} cluster.id={clusters[0]} "
            f"listeners={','.join(listeners)} data={','.join(map(str, self._roots))}"
        )

    def look_after(self, now_s: float) -> None:
        """Starts again what has ended, once its pause is over."""
        for server, pause in self._servers():
            code = server.exit_code()
            if code is None:
                continue
            if pause.due_s is None:
                pause_s = pause.ended(now_s)
                server.stop()  # what is left of it: its pipe, and the thread that reads it
                logger.error(
                    "%s ended with exit code %s; it starts again in %g s",
                    *(server.name, code, pause_s),
                )
            elif now_s >= pause.due_s:
                server.spawn(self._log)
                pause.began(now_s)

    def _servers(self) -> Iterator[tuple[ChildServer, RestartPause]]:
        """With their pauses; the coordination first."""
        if self.coordination is not None:
            yield self.coordination, self._coordination_pause
        yield from zip(self.brokers, self._pauses, strict=True)

    def stop(self) -> list[int]:
        """The exit codes of the brokers that ran until now. One after another: each can hand over
        to the rest.
        """
        running = [broker for broker in self.brokers if broker.exit_code() is None]
        codes = [broker.stop(STOP_TIMEOUT_S) for broker in running]
        if self.coordination is not None:
            self.coordination.stop()
        return codes


def labelled_logfmt(key: str, value: str | int, line: str) -> str:
    return f"{key}={value} {line}"


def labelled_json(key: str, value: str | int, line: str) -> str:
    """Lines that are no objects, such as a traceback, stay as they are."""
    if not line.startswith("{"):
        return line
    return f'{{"{key}":{json.dumps(value)},{line[1:]}'
