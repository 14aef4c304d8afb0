"""Many small clients: 1 to 500 connections, each with one request outstanding.

Below every row of requests/s is the processor time that the broker used for one of them. The client
is one C program for all connections (`bench.load`). The notes hold its own processor time for a
request, and the time from a request to its answer.

- Produce: one 100 B record, acks=1, all connections to one partition; once more with a partition
  for each connection.
- Fetch: every connection has a Fetch waiting at the end of the same partition. One producer sends a
  record, all get it and wait again, then the producer sends the next. Answers to consumers count.
- OffsetCommit: ten partitions, a group for each connection, no members.
- Heartbeat: a classic group with one member for each connection.
- Metadata: one topic.
- 100 producers and 100 consumers at once: a pair for each of 100 partitions. Producers do not wait
  for consumers; the time ends when the last record has arrived.
- 500 members join one group, rebalance, and send heartbeats.

Each run proves itself. Offsets moved by the number of records sent, and consumers received the last
of them. Where answers cannot differ, the load generator found them all equal, and the last ones
hold no error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench import wire
from bench.arena import Arena, Sample, alternate, best
from bench.crowd import Crowd, crowd
from bench.group_wire import (
    commit_errors,
    fetched_offsets,
    heartbeat_error,
    offset_commit_request,
    offset_fetch_request,
    wait_for_coordinator,
)
from bench.load import Asks, Consumes, Load, LoadGenerator, load_generator
from bench.peers import BrokerProcess
from bench.raw_client import RawClient
from bench.table import Figure, Report
from bench.wire import BadAnswer, FetchAnswer, record_batch

TITLE = "many small clients, one request outstanding on each"
SHARED, OWN = "bench-clients", "bench-clients-own"  # one partition; one for each connection
CONNECTIONS = (1, 10, 100, 500)
WARMED_WITH = 100  # connections
PAIRS = 100
MEMBERS = 500
COMMITTED = range(1_000, 1_010)
PARKED_MS = 30_000
FETCH_BYTES = 32_768
RECORD = record_batch(100, 1)
FASTER, FASTER_PRODUCE, LESS_CPU = 1.3, 1.5, 0.6


def run(arena: Arena) -> Report:
    generator = load_generator(arena)
    with arena.brokers() as brokers:
        subjects = [Subject(broker, generator) for broker in brokers]
        for subject in subjects:
            subject.prepare(max(CONNECTIONS))
        figures = [row for kind in _kinds(arena) for row in _figures(arena, subjects, kind)]
        figures += _group_figures(arena, subjects)
    return Report(TITLE, figures, remarks=[generator.remark] if generator.remark else [])


# What is asked


class Subject:
    """One broker with the topics, groups and members that its clients need."""

    def __init__(self, broker: BrokerProcess, generator: LoadGenerator) -> None:
        self._broker = broker
        self._generator = generator
        self._heartbeats: list[bytes] = []  # of the only member of each group
        self._crowds = 0

    @property
    def name(self) -> str:
        return self._broker.name

    def cpu_seconds(self) -> float:
        return self._broker.cpu_seconds()

    def prepare(self, connections: int) -> None:
        with self._broker.connect() as client:
            client.create_topic(SHARED)
            client.create_topic(OWN, PAIRS)
            for number in range(connections):
                wait_for_coordinator(client, _committing(number), OWN)
                self._heartbeats.append(_lone_member(client, f"bench-member-{number}"))

    def produce(self, connections: int, requests: int) -> list[Sample]:
        return self._produce(SHARED, [0] * connections, requests)

    def produce_own(self, connections: int, requests: int) -> list[Sample]:
        return self._produce(OWN, range(connections), requests)

    def _produce(self, topic: str, partitions: Sequence[int], requests: int) -> list[Sample]:
        asking = [_producer(topic, partition) for partition in partitions]
        with self._broker.connect() as client:
            before = _ends(client, topic, partitions)
            load = self._generator.run(self._broker, asking, requests)
            check_moved(before, _ends(client, topic, partitions), len(asking) + requests)
        return samples(load, requests)

    def fetch(self, connections: int, deliveries: int) -> list[Sample]:
        requests = max(1, deliveries // connections)
        with self._broker.connect() as client:
            before = _ends(client, SHARED, [0])
            waiting = _consumer(client, SHARED, 0, before[0] + 1)
            load = self._generator.run(
                self._broker,
                [_producer(SHARED, 0), *[waiting] * connections],
                requests,
                copies=connections,
                paced=True,
            )
            after = _ends(client, SHARED, [0])
        check_moved(before, after, 1 + requests)
        for answer in load.last_answers[1:]:
            check_delivered(answer, SHARED, after[0])
        return samples(load, load.deliveries)

    def pairs(self, connections: int, requests: int) -> list[Sample]:
        partitions = range(connections)
        with self._broker.connect() as client:
            before = _ends(client, OWN, partitions)
            consuming = [_consumer(client, OWN, at, before[at] + 1) for at in partitions]
            load = self._generator.run(
                self._broker,
                [*consuming, *[_producer(OWN, partition) for partition in partitions]],
                requests,
                copies=1,
            )
            after = _ends(client, OWN, partitions)
        check_moved(before, after, connections + requests)
        for partition in partitions:
            check_delivered(load.last_answers[partition], OWN, after[partition])
        return samples(load, requests)

    def commit(self, connections: int, requests: int) -> list[Sample]:
        asking = [
            Asks(offset_commit_request(_committing(number), OWN, COMMITTED), same_answer=True)
            for number in range(connections)
        ]
        load = self._generator.run(self._broker, asking, requests)
        check_errors([error for answer in load.last_answers for error in commit_errors(answer)])
        with self._broker.connect() as client:
            last = offset_fetch_request(_committing(connections - 1), OWN, len(COMMITTED))
            if fetched_offsets(client.ask(last)) != list(COMMITTED):
                raise BadAnswer("the offsets committed do not come back")
        return samples(load, requests)

    def heartbeat(self, connections: int, requests: int) -> list[Sample]:
        return self._heartbeat(self._heartbeats[:connections], requests)

    def _heartbeat(self, frames: Sequence[bytes], requests: int) -> list[Sample]:
        asking = [Asks(frame, same_answer=True) for frame in frames]
        load = self._generator.run(self._broker, asking, requests)
        check_errors([heartbeat_error(answer) for answer in load.last_answers])
        return samples(load, requests)

    def metadata(self, connections: int, requests: int) -> list[Sample]:
        request = wire.metadata_request([SHARED], auto_create=False)
        asking = [Asks(request, same_answer=True)] * connections
        load = self._generator.run(self._broker, asking, requests)
        if any(wire.led_partitions(answer) != 1 for answer in load.last_answers):
            raise BadAnswer("Metadata does not name the leader of the one partition")
        return samples(load, requests)

    def group(self, members: int, heartbeats: int) -> list[Sample]:
        """Of a new group: all join, rebalance, heartbeats and processor time of one."""
        self._crowds += 1
        group_id = f"bench-crowd-{self._crowds}"
        with self._broker.connect() as client:
            wait_for_coordinator(client, group_id, OWN)
        with crowd(self._broker.port, group_id, OWN, members) as found:
            times = [self._timed(found.join), self._timed(found.rebalance)]
            return [*times, *self._heartbeat(found.heartbeats(), heartbeats)]

    def _timed(self, work: Callable[[], float]) -> Sample:
        broker_before, client_before = self.cpu_seconds(), time.process_time()
        seconds = work()
        busy = (time.process_time() - client_before) / seconds
        used = self.cpu_seconds() - broker_before
        return Sample(seconds * 1e3, None, used, f"client {busy:.0%} busy")


def samples(load: Load, count: int) -> list[Sample]:
    """How many of them a second, and the broker's processor time for one in us."""
    note = (
        f"p50 {load.p50_us:,.0f} us, p99 {load.p99_us:,.0f} us, "
        f"client {load.client_seconds / count * 1e6:.1f} us"
    )
    busy = load.client_seconds / load.seconds
    return [
        Sample(count / load.seconds, busy, load.broker_seconds, note),
        Sample(load.broker_seconds / count * 1e6),
    ]


def _committing(number: int) -> str:
    return f"bench-commit-{number}"


def _lone_member(client: RawClient, group_id: str) -> bytes:
    """Joins a new group; gives the member's heartbeat."""
    wait_for_coordinator(client, group_id, OWN)
    alone = Crowd([client], group_id, OWN)
    alone.join()
    alone.close()
    return alone.heartbeats()[0]


def _producer(topic: str, partition: int) -> Asks:
    return Asks(wire.produce_request(topic, partition, RECORD.data), same_answer=False)


def _consumer(client: RawClient, topic: str, partition: int, offset: int) -> Consumes:
    """From an offset that the log has not reached; asks once to know an answer without records."""
    end = client.end_offset(topic, partition)
    empty = client.ask(_fetch(topic, partition, end, max_wait_ms=0))
    if FetchAnswer.parse(empty, topic).records_bytes:
        raise BadAnswer("a Fetch at the end of the log has records")
    frame = _fetch(topic, partition, offset)
    return Consumes(frame, offset_position(topic, partition), len(empty), len(RECORD.data))


def _fetch(topic: str, partition: int, offset: int, *, max_wait_ms: int = PARKED_MS) -> bytes:
    return wire.fetch_request(
        topic, partition, offset, max_bytes=FETCH_BYTES, max_wait_ms=max_wait_ms
    )


def offset_position(topic: str, partition: int) -> int:
    """Where two Fetch frames differ that have no byte of their offsets in common."""
    frames = zip(_fetch(topic, partition, 0), _fetch(topic, partition, -1), strict=True)
    return next(place for place, (one, other) in enumerate(frames) if one != other)


# What proves it


def _ends(client: RawClient, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    return {partition: client.end_offset(topic, partition) for partition in set(partitions)}


def check_moved(before: Mapping[int, int], after: Mapping[int, int], records: int) -> None:
    moved = sum(after.values()) - sum(before.values())
    if moved != records:
        raise BadAnswer(f"offsets moved by {moved}, sent {records}")


def check_delivered(answer: bytes, topic: str, end_offset: int) -> None:
    """The last answer of a consumer holds the last record of its partition."""
    head = FetchAnswer.parse(answer, topic)
    records = memoryview(answer)[head.records_position :][: head.records_bytes]
    last = wire.last_offset_of(records)
    if last != end_offset - 1:
        raise BadAnswer(f"a consumer stands at offset {last}, the log ends at {end_offset}")


def check_errors(errors: Sequence[int]) -> None:
    if not errors or any(errors):
        raise BadAnswer(f"{sum(map(bool, errors))} of {len(errors)} were refused: {set(errors)}")


# What is reported


@dataclass(frozen=True, slots=True)
class Kind:
    """One question, asked by several numbers of connections."""

    label: str  # with {} for the connections
    unit: str
    ask: Callable[[Subject, int, int], list[Sample]]
    requests: int  # of a round; fewer where only one connection asks
    connections: Sequence[int] = CONNECTIONS
    targets: Mapping[int, float] = field(default_factory=lambda: {100: FASTER})
    cpu_targets: Mapping[int, float] = field(default_factory=dict)

    def round(self, connections: int) -> int:
        return self.requests if connections > 1 else self.requests // 4


def _kinds(arena: Arena) -> list[Kind]:
    many, some = arena.size.of(2_000, 60_000), arena.size.of(1_000, 30_000)
    produce, less = (dict.fromkeys((100, 500), bound) for bound in (FASTER_PRODUCE, LESS_CPU))
    return [
        Kind(
            "Produce, {}",
            "requests/s",
            Subject.produce,
            many,
            targets=produce,
            cpu_targets=less,
        ),
        Kind(
            "Produce, {}, a partition each",
            "requests/s",
            Subject.produce_own,
            many,
            (100,),
            {},
        ),
        Kind("waiting Fetch, {}", "answers/s", Subject.fetch, many),
        Kind("OffsetCommit, {}", "requests/s", Subject.commit, some),
        Kind("Heartbeat, {}", "requests/s", Subject.heartbeat, many),
        Kind("Metadata, {}", "requests/s", Subject.metadata, many),
        Kind("100 producers and 100 consumers", "records/s", Subject.pairs, many, (PAIRS,), {}),
    ]


def _figures(arena: Arena, subjects: Sequence[Subject], kind: Kind) -> list[Figure]:
    for subject in subjects:
        kind.ask(subject, WARMED_WITH, arena.size.of(1, 2) * kind.requests)
    return [
        row
        for connections in kind.connections
        for row in _figures_with(arena, subjects, kind, connections)
    ]


def _figures_with(
    arena: Arena, subjects: Sequence[Subject], kind: Kind, connections: int
) -> list[Figure]:
    requests = kind.round(connections)
    rounds = alternate(
        subjects, arena.size.rounds, lambda subject: kind.ask(subject, connections, requests)
    )
    return _rate_and_cpu(
        kind.label.format(_counted(connections)),
        kind.unit,
        [best(rounds, 0, higher=True), best(rounds, 1, higher=False)],
        kind.targets.get(connections),
        kind.cpu_targets.get(connections),
    )


def _counted(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def _group_figures(arena: Arena, subjects: Sequence[Subject]) -> list[Figure]:
    heartbeats = arena.size.of(2_000, 60_000)
    for subject in subjects:
        subject.group(MEMBERS, heartbeats)
    rounds = alternate(
        subjects, arena.size.rounds, lambda subject: subject.group(MEMBERS, heartbeats)
    )
    join, rebalance = (best(rounds, place, higher=False) for place in (0, 1))
    beats = [best(rounds, 2, higher=True), best(rounds, 3, higher=False)]
    label = f"group of {MEMBERS} members"
    return [
        Figure(f"{label}: all join", "ms", join, False),
        Figure(f"{label}: rebalance", "ms", rebalance, False),
        *_rate_and_cpu(f"{label}: Heartbeat", "requests/s", beats, None, None),
    ]


def _rate_and_cpu(
    label: str,
    unit: str,
    values: Sequence[Mapping[str, Sample]],
    target: float | None,
    cpu_target: float | None,
) -> list[Figure]:
    rates, cpu = values
    return [
        Figure(label, unit, rates, True, target),
        Figure(f"{label}: broker CPU", "us each", cpu, False, cpu_target),
    ]
