"""`tidelog zookeeper` beside ZooKeeper (`tidelog zookeeper --java`), by ZooKeeper's protocol.

Each is one server that syncs every write to the same disk. The JVM is that of `--java`, with a heap
of 96 MB and the first compiler only. One connection sends prebuilt requests of nodes with 100 B of
data:

- sessions: connect, close the session, and again
- creates, one at a time and with 100 in flight
- multis of ten creates, ten in flight
- watches: read a node and watch it, then write it, so that an event comes; ten pairs in flight

Each row proves itself: nodes have that many children, or were written that often.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import zookeeper_client as zk
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.cluster import ZooKeeper
from bench.peers import cpu_seconds_of, resident_bytes_of
from bench.raw_client import Run
from bench.table import Figure, Report
from bench.wire import BadAnswer
from bench.zookeeper_client import ZooKeeperConnection
from tidelog.tools.zookeeper_server import ZooKeeperMissing, must_find_jars, must_find_java

TITLE = "tidelog zookeeper beside ZooKeeper"
REAL, OURS = "kafka", "tidelog"  # the columns of the table
DATA = bytes(100)
OPERATIONS = 10  # of a multi
CREATES_IN_FLIGHT, FEW_IN_FLIGHT = 100, 10
SETTLE_S = 2.0


class Server:
    """One of the two, with the work that is done on it."""

    def __init__(self, name: str, process: ZooKeeper) -> None:
        self.name = name
        self._process = process
        self._serials = itertools.count()

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self._process.pid)

    def resident(self) -> Sample:
        return Sample(resident_bytes_of(self._process.pid) / 1e6)

    def sessions(self, count: int) -> Sample:
        started, cpu_started = time.perf_counter(), time.process_time()
        for _ in range(count):
            with ZooKeeperConnection(self._process.port) as connection:
                connection.close_session()
        seconds = time.perf_counter() - started
        return Sample(count / seconds, (time.process_time() - cpu_started) / seconds)

    def creates(self, count: int, in_flight: int) -> Sample:
        with self._connected() as (connection, parent):
            create = zk.create(f"{parent}/n-", DATA, zk.SEQUENCE)
            run = self._create(connection, parent, create, 1, count, in_flight)
        return Sample(run.requests_per_second, run.client_busy)

    def multis(self, count: int) -> Sample:
        with self._connected() as (connection, parent):
            creation = zk.creation(f"{parent}/n-", DATA, zk.SEQUENCE)
            multi = zk.multi([creation] * OPERATIONS)
            run = self._create(connection, parent, multi, OPERATIONS, count, FEW_IN_FLIGHT)
        return Sample(run.requests_per_second, run.client_busy)

    def watches(self, count: int) -> Sample:
        """The event comes before the answer to the write."""
        with self._connected() as (connection, path):
            pair = zk.get_and_watch(path) + zk.set_data(path, DATA)
            connection.send(pair)
            answers = connection.take(3)
            run = connection.pump(pair, len(answers), count, FEW_IN_FLIGHT)
            _require("writes", connection.version(path), count + 1)
        return Sample(run.requests_per_second, run.client_busy)

    @contextmanager
    def _connected(self) -> Iterator[tuple[ZooKeeperConnection, str]]:
        """With a new node."""
        path = f"/bench-{next(self._serials):04}"
        with ZooKeeperConnection(self._process.port) as connection:
            connection.ask(zk.create(path, DATA))
            yield connection, path
            connection.close_session()

    def _create(
        self,
        connection: ZooKeeperConnection,
        parent: str,
        frame: bytes,
        nodes: int,
        count: int,
        in_flight: int,
    ) -> Run:
        """The frame makes so many nodes."""
        answer = connection.ask(frame)
        run = connection.pump(frame, len(answer), count, in_flight)
        _require("children", connection.children_count(parent), (count + 1) * nodes)
        return run


def _require(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise BadAnswer(f"a node has {found} {what}, not {expected}")


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    unit: str
    work: Callable[[Server], Sample]


def run(arena: Arena) -> Report:
    if arena.tidelog is None:
        return Report(TITLE)
    missing = _why_no_real_one() if arena.kafka is not None else None
    with ExitStack() as stack:
        servers = [stack.enter_context(_running(arena, OURS))]
        if arena.kafka is not None and missing is None:
            servers.insert(0, stack.enter_context(_running(arena, REAL, "--java")))
        figures = [_figure(arena, servers, case) for case in _cases(arena)]
        time.sleep(SETTLE_S)
        memory = {server.name: server.resident() for server in servers}
        figures.append(Figure("resident memory after all of it", "MB", memory, False))
    return Report(TITLE, figures, remarks=[missing] if missing else [], against="ZooKeeper")


def _why_no_real_one() -> str | None:
    try:
        must_find_java()
        must_find_jars()
    except ZooKeeperMissing as reason:
        return str(reason)
    return None


@contextmanager
def _running(arena: Arena, name: str, *options: str) -> Iterator[Server]:
    assert arena.tidelog is not None
    data: Path = arena.data_dir(arena.tidelog)
    process = ZooKeeper(data, *options)
    try:
        process.start()
        yield Server(name, process)
    finally:
        process.stop()
        shutil.rmtree(data, ignore_errors=True)


def _cases(arena: Arena) -> list[Case]:
    few, many = arena.size.of(200, 2_000), arena.size.of(3_000, 30_000)
    return [
        Case("sessions opened and closed", "sessions/s", lambda s: s.sessions(few)),
        Case("create, one at a time", "requests/s", lambda s: s.creates(few, 1)),
        Case(
            f"create, {CREATES_IN_FLIGHT} in flight",
            "requests/s",
            lambda s: s.creates(many, CREATES_IN_FLIGHT),
        ),
        Case(
            f"multi of {OPERATIONS} creates, {FEW_IN_FLIGHT} in flight",
            "requests/s",
            lambda s: s.multis(many // OPERATIONS),
        ),
        Case(
            f"watch, write, event, {FEW_IN_FLIGHT} in flight",
            "events/s",
            lambda s: s.watches(many // 3),
        ),
    ]


def _figure(arena: Arena, servers: Sequence[Server], case: Case) -> Figure:
    """The first round warms both up."""
    for server in servers:
        case.work(server)
    rounds = alternate(
        servers,
        arena.size.rounds,
        lambda server: [with_broker_cpu(server, lambda: case.work(server))],
    )
    return Figure(case.label, case.unit, best(rounds, 0, higher=True), True)
