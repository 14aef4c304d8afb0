"""`serve --brokers 2` beside one broker: eight connections, each with a partition of its own.

Each connection has one request outstanding: Produce of 16 KB batches, Produce of one 100 B record,
Fetch of 48 KB from the page cache. The connections go to the leaders of their partitions, half to
each broker of the two. On both sides the load comes from two processes with four connections each.

More brokers help as far as there are processors for them and for the clients. The notes hold the
share of all processors that the clients used, and the share that the brokers used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench import wire
from bench.arena import Arena, Sample, alternate, best
from bench.load import Asks, Load, LoadGenerator, load_generators, run_opened
from bench.peers import BrokerProcess, Peer
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import BadAnswer, Batch, FetchAnswer, batch_filling, record_batch
from tidelog.tools.free_ports import free_port, is_free

TITLE = "serve --brokers 2 beside one broker"
BROKERS = 2
CONNECTIONS = 8
WRITTEN, READ = "bench-fleet-written", "bench-fleet-read"
READ_BATCHES = 4
FETCH_BYTES = 50_000
LED_WITHIN_S = 30.0
ONE, TWO = "kafka", "tidelog"  # the columns of the table
LARGE, SMALL = batch_filling(1_000, 16_384), record_batch(100, 1)


class TidelogFleet:
    """`tidelog serve --brokers 2` as a peer."""

    name = "tidelog"

    def __init__(self, tidelog: Peer) -> None:
        self._tidelog = tidelog

    def lay_out(self, data: Path) -> None:
        self._tidelog.lay_out(data)

    def command(self, data: Path, port: int, overrides: Mapping[str, str]) -> list[str]:
        return [*self._tidelog.command(data, port, overrides), "--brokers", str(BROKERS)]


def run(arena: Arena) -> Report:
    tidelog = arena.tidelog
    if tidelog is None:
        return Report(TITLE)
    generators = load_generators(arena, BROKERS)
    with arena.running(tidelog) as one, _fleet(arena, tidelog) as two:
        subjects = [
            Subject(ONE, one, [one.port], generators),
            Subject(TWO, two, [two.port, two.port + 1], generators),
        ]
        for subject in subjects:
            subject.prepare()
        figures = _figures(arena, subjects)
    remarks = {generator.remark for generator in generators if generator.remark}
    return Report(TITLE, figures, remarks=sorted(remarks), against="one broker")


@contextmanager
def _fleet(arena: Arena, tidelog: Peer) -> Iterator[BrokerProcess]:
    with arena.laid_out(TidelogFleet(tidelog)) as broker:
        broker.port = _ports_in_a_row()
        broker.start()
        yield broker


def _ports_in_a_row() -> int:
    while True:
        first = free_port()
        if is_free(first + 1):
            return first


class Subject:
    """One broker or two, with the topics that the connections use."""

    def __init__(
        self,
        name: str,
        process: BrokerProcess,
        ports: Sequence[int],
        generators: Sequence[LoadGenerator],
    ) -> None:
        self.name = name
        self._process = process
        self._ports = ports
        self._generators = generators
        self._led: dict[str, dict[int, list[int]]] = {}  # of a topic the partitions of each port

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds()

    def prepare(self) -> None:
        for topic in (WRITTEN, READ):
            self._create(topic)
        for port, partitions in self._led[READ].items():
            with RawClient(port) as client:
                for partition in partitions:
                    client.produce(READ, LARGE, READ_BATCHES, partition=partition)

    def produce_large(self, requests: int) -> Sample:
        load = self._produce(LARGE, requests)
        return self._sample(load, requests * len(LARGE.data) / load.seconds / 1e6)

    def produce_small(self, requests: int) -> Sample:
        load = self._produce(SMALL, requests)
        return self._sample(load, requests / load.seconds)

    def fetch(self, requests: int) -> Sample:
        def ask(partition: int) -> bytes:
            return wire.fetch_request(READ, partition, 0, max_bytes=FETCH_BYTES)

        load = self._run(READ, ask, requests)
        bytes_read = {FetchAnswer.parse(each, READ).records_bytes for each in load.last_answers}
        if len(bytes_read) > 1 or min(bytes_read) < len(LARGE.data):
            raise BadAnswer(f"equal logs gave answers with {sorted(bytes_read)} bytes of records")
        return self._sample(load, requests * bytes_read.pop() / load.seconds / 1e6)

    def _produce(self, batch: Batch, requests: int) -> Load:
        def ask(partition: int) -> bytes:
            return wire.produce_request(WRITTEN, partition, batch.data)

        before = self._ends()
        load = self._run(WRITTEN, ask, requests)
        moved, sent = self._ends() - before, (requests + CONNECTIONS) * batch.records_count
        if moved != sent:
            raise BadAnswer(f"offsets moved by {moved}, sent {sent}")
        return load

    def _run(self, topic: str, ask: Callable[[int], bytes], requests: int) -> Load:
        """Each process has its share of the connections, and of the requests."""
        shares = [
            (port, partitions[place :: BROKERS // len(self._ports)])
            for port, partitions in self._led[topic].items()
            for place in range(BROKERS // len(self._ports))
        ]
        opened = [
            generator.open(
                port,
                [Asks(ask(partition), same_answer=False) for partition in partitions],
                requests // BROKERS,
            )
            for generator, (port, partitions) in zip(self._generators, shares, strict=True)
        ]
        return run_opened(self, opened)

    def _sample(self, load: Load, value: float) -> Sample:
        available_s = load.seconds * (os.cpu_count() or 1)
        clients, brokers = load.client_seconds / available_s, load.broker_seconds / available_s
        note = f"clients {clients:.0%} of the processors, brokers {brokers:.0%}"
        return Sample(value, None, load.broker_seconds, note)

    def _ends(self) -> int:
        total = 0
        for port, partitions in self._led[WRITTEN].items():
            with RawClient(port) as client:
                total += sum(client.end_offset(WRITTEN, partition) for partition in partitions)
        return total

    def _create(self, topic: str) -> None:
        with ExitStack() as stack:
            clients = {port: stack.enter_context(RawClient(port)) for port in self._ports}
            _create_topic(clients.values(), topic)
            self._led[topic] = {port: [] for port in self._ports}
            for partition in range(CONNECTIONS):
                self._led[topic][_leader(clients, topic, partition)].append(partition)
        if len({len(partitions) for partitions in self._led[topic].values()}) > 1:
            raise BadAnswer(f"the brokers do not lead equally many partitions: {self._led[topic]}")


def _create_topic(clients: Iterable[RawClient], topic: str) -> None:
    """Only the controller does it."""
    request = wire.create_topic_request(topic, CONNECTIONS, {}, timeout_ms=100_000)
    errors = []
    for client in clients:
        error = wire.topic_error(client.ask(request))
        if not error:
            return
        errors.append(error)
    raise BadAnswer(f"CreateTopics answered {errors} for {topic}")


def _leader(clients: Mapping[int, RawClient], topic: str, partition: int) -> int:
    """The port of the broker that serves the partition."""
    give_up_at = time.monotonic() + LED_WITHIN_S
    while time.monotonic() < give_up_at:
        for port, client in clients.items():
            with suppress(BadAnswer):
                client.end_offset(topic, partition)
                return port
        time.sleep(0.02)
    raise BadAnswer(f"nobody serves partition {partition} of {topic}")


def _figures(arena: Arena, subjects: Sequence[Subject]) -> list[Figure]:
    large, small = arena.size.of(2_000, 20_000), arena.size.of(8_000, 80_000)
    cases = (
        ("Produce of 16 KB batches", "MB/s", Subject.produce_large, large),
        ("Produce of one 100 B record", "requests/s", Subject.produce_small, small),
        ("Fetch of 48 KB", "MB/s", Subject.fetch, large),
    )
    return [_figure(arena, subjects, *case) for case in cases]


def _figure(
    arena: Arena,
    subjects: Sequence[Subject],
    label: str,
    unit: str,
    ask: Callable[[Subject, int], Sample],
    requests: int,
) -> Figure:
    """The first round warms both up."""
    for subject in subjects:
        ask(subject, requests)
    rounds = alternate(subjects, arena.size.rounds, lambda subject: [ask(subject, requests)])
    return Figure(f"{label}, {CONNECTIONS} connections", unit, best(rounds, 0, higher=True), True)
