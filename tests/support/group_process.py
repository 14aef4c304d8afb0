"""A member of a consumer group in a process of its own, so that it can die like one.

Run as a module it is the member: `python -m tests.support.group_process '<json options>'`. It
reads its topic, commits after every batch, and writes one line of JSON for everything that happens,
with the system's monotonic time: assigned, revoked, record, committing, committed, closing. SIGTERM
makes it leave its group; SIGKILL does not. Java's member is a program of its own that writes the
same lines (`java_member`).

What the client hands over of a partition that is not the member's any more is left alone: its
next owner gets it too.

`MemberProcess` is the other end of it. `ownership` and `consumed` make of the lines what a test
wants to know, `misdeliveries` what it does not want to see.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tests.support.broker_process import dies_with_us
from tests.support.eventually import eventually
from tidelog.client.consumer.rebalance_listener import RebalanceListener
from tidelog.client.errors import ClientError
from tidelog.types import TopicPartition

ROOT = Path(__file__).resolve().parents[2]
EXIT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class MemberOptions:
    client: str  # tidelog, tidelog-async, confluent, kafka-python, aiokafka or java
    bootstrap: str
    group: str
    topic: str
    strategy: str  # range, roundrobin, sticky or cooperative-sticky; consumer: uniform or range
    session_timeout_ms: int = 6000
    instance: str | None = None
    protocol: str = "classic"  # or consumer (KIP-848), which tidelog, confluent and java have

    @property
    def command(self) -> list[str]:
        if self.client == "java":
            from tests.support.java_member import java_member_command

            return java_member_command(self.topic, tidelog_config(self))
        module = [sys.executable, "-m", "tests.support.group_process"]
        return [*module, json.dumps(self.__dict__)]


@dataclass
class MemberProcess:
    options: MemberOptions
    events: list[dict[str, Any]] = field(default_factory=list)
    killed_at: float | None = None
    evicted_at: list[float] = field(default_factory=list)  # stopped for longer than its session

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            dies_with_us(self.options.command),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def leave(self) -> None:
        self.process.terminate()
        self._end()

    def kill(self) -> None:
        self.process.kill()
        self.killed_at = time.monotonic()
        self._end()

    def stop(self, seconds: float, *, is_evicted: bool) -> None:
        """SIGSTOP for so long. With `is_evicted` its partitions count as others' from then on: it
        cannot know that before it runs again."""
        self.process.send_signal(signal.SIGSTOP)
        stopped = psutil.Process(self.process.pid)
        eventually(lambda: stopped.status() == psutil.STATUS_STOPPED)
        if is_evicted:
            self.evicted_at.append(time.monotonic())
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        self.process.wait(EXIT_TIMEOUT_S)
        self._reader.join(EXIT_TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def events_of(self, what: str) -> list[dict[str, Any]]:
        return [event for event in tuple(self.events) if event["what"] == what]

    @property
    def owned(self) -> set[int]:
        held: set[int] = set()
        for event in tuple(self.events):
            if event["what"] == "assigned":
                held |= set(event["partitions"])
            elif event["what"] in ("revoked", "closing"):
                held -= set(event["partitions"]) if event["what"] == "revoked" else held
        return held


def ownership(members: Iterable[MemberProcess]) -> dict[int, list[tuple[float, float, int]]]:
    """For each partition: who (by process id) held it from when to when, in order."""
    held: dict[int, list[tuple[float, float, int]]] = {}
    for member in members:
        since: dict[int, float] = {}
        end = member.killed_at or float("inf")
        ends = [{"what": "closing", "at": at, "partitions": []} for at in member.evicted_at]
        rows = sorted([*member.events, *ends], key=lambda event: event["at"])
        for event in [*rows, {"what": "closing", "at": end, "partitions": []}]:
            if event["what"] == "assigned":
                since |= dict.fromkeys(set(event["partitions"]) - since.keys(), event["at"])
            elif event["what"] in ("revoked", "closing"):
                gone = event["partitions"] if event["what"] == "revoked" else list(since)
                for partition in gone:
                    if partition in since:
                        row = (since.pop(partition), event["at"], member.process.pid)
                        held.setdefault(partition, []).append(row)
    return {partition: sorted(rows) for partition, rows in held.items()}


def overlaps(members: Iterable[MemberProcess]) -> list[str]:
    """Partitions that two members held at the same time."""
    return [
        f"partition {partition}: {first} and {second}"
        for partition, rows in ownership(members).items()
        for first, second in pairwise(rows)
        if second[0] < first[1]
    ]


def consumed(members: Iterable[MemberProcess]) -> dict[int, set[int]]:
    """Offsets that somebody has read, by partition."""
    found: dict[int, set[int]] = {}
    for member in members:
        for event in tuple(member.events):
            if event["what"] == "record":
                found.setdefault(event["partition"], set()).add(event["offset"])
    return found


def misdeliveries(members: Iterable[MemberProcess]) -> list[str]:
    """Where an owner of a partition did not go on from what was committed before it.

    It may begin no earlier than the last commit that was answered (that commit would be lost) and
    no later than the last one that was asked for (records would be skipped), and goes on record by
    record.
    """
    members = list(members)
    asked, answered = _commits(members, "committing"), _commits(members, "committed")
    found = []
    for partition, rows in ownership(members).items():
        for since, until, pid in rows:
            member = next(each for each in members if each.process.pid == pid)
            records = [
                (event["at"], event["offset"])
                for event in member.events
                if event["what"] == "record" and event["partition"] == partition
                if since <= event["at"] <= until
            ]
            if not records:
                continue
            where = f"partition {partition}, process {pid}, from {since:.3f}"
            (at, first), offsets = records[0], [offset for _, offset in records]
            least = _last(answered.get(partition, []), since)
            most = _last(asked.get(partition, []), at)
            if first < least:
                found.append(f"{where}: began at {first}, {least} was committed")
            if first > most:
                found.append(f"{where}: began at {first}, nobody committed more than {most}")
            if offsets != list(range(first, first + len(offsets))):
                found.append(f"{where}: records {offsets}")
    return found


def _commits(members: Iterable[MemberProcess], what: str) -> dict[int, list[tuple[float, int]]]:
    found: dict[int, list[tuple[float, int]]] = {}
    for member in members:
        for event in member.events:
            if event["what"] == what:
                for partition, offset in event["offsets"]:
                    found.setdefault(partition, []).append((event["at"], offset))
    return found


def _last(commits: Iterable[tuple[float, int]], before: float) -> int:
    return max((offset for at, offset in commits if at < before), default=0)


# The member itself

Records = Iterable[tuple[int, int]]  # partition, offset


class Report:
    def __init__(self) -> None:
        self.stopping = False
        self._held: set[int] = set()
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.stopping = True

    def say(self, what: str, partitions: Iterable[int] = (), **fields: Any) -> None:
        event = {"what": what, "at": time.monotonic(), "partitions": sorted(partitions), **fields}
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    def assigned(self, partitions: Iterable[int]) -> None:
        partitions = list(partitions)
        self._held |= set(partitions)
        self.say("assigned", partitions)

    def revoked(self, partitions: Iterable[int]) -> None:
        partitions = list(partitions)
        self._held -= set(partitions)
        self.say("revoked", partitions)

    def records(self, records: Records) -> dict[int, int]:
        """What to commit then: the next offset of each partition."""
        ends: dict[int, int] = {}
        for partition, offset in records:
            if partition in self._held:
                self.say("record", partition=partition, offset=offset)
                ends[partition] = offset + 1
        if ends:
            self.say("committing", offsets=list(ends.items()))
        return ends

    def committed(self, ends: dict[int, int]) -> None:
        self.say("committed", offsets=list(ends.items()))


def run_confluent(options: MemberOptions, report: Report) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    config = {
        # By default it waits up to ten seconds before it looks for a broker again that was killed
        # a few times; its session would be over.
        "reconnect.backoff.max.ms": 500,
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if options.protocol == "consumer":
        config |= {"group.protocol": "consumer", "group.remote.assignor": options.strategy}
    else:
        config |= {
            "partition.assignment.strategy": options.strategy,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 300,
        }
    if options.instance:
        config["group.instance.id"] = options.instance
    consumer = Consumer(config)

    def assigned(_: Any, partitions: list[Any]) -> None:
        report.assigned(each.partition for each in partitions)

    def revoked(_: Any, partitions: list[Any]) -> None:
        report.revoked(each.partition for each in partitions)

    consumer.subscribe([options.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not report.stopping:
        messages: list[Any] = [each for each in consumer.consume(50, 0.1) if not each.error()]
        ends = report.records((each.partition(), each.offset()) for each in messages)
        if ends:
            places = [TopicPartition(options.topic, *end) for end in ends.items()]
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                report.say("commit failed", error=str(error))
            else:
                report.committed(ends)
    report.say("closing")
    consumer.close()


def run_kafka_python(options: MemberOptions, report: Report) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            report.assigned(each.partition for each in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            report.revoked(each.partition for each in revoked)

    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        group_instance_id=options.instance,
        partition_assignment_strategy=[strategies[options.strategy]],
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=300,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([options.topic], listener=Listener())
    while not report.stopping:
        batches = consumer.poll(timeout_ms=100, max_records=50)
        records = [each for rows in batches.values() for each in rows]
        ends = report.records((each.partition, each.offset) for each in records)
        if ends:
            places = {
                TopicPartition(options.topic, partition): OffsetAndMetadata(offset, "", -1)
                for partition, offset in ends.items()
            }
            try:
                consumer.commit(places)
            except KafkaError as error:
                report.say("commit failed", error=repr(error))
            else:
                report.committed(ends)
    report.say("closing")
    consumer.close(autocommit=False)


async def run_aiokafka(options: MemberOptions, report: Report) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            report.assigned(each.partition for each in assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            report.revoked(each.partition for each in revoked)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        group_instance_id=options.instance,
        partition_assignment_strategy=(strategies[options.strategy],),
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=300,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    while not report.stopping:
        batches = await consumer.getmany(timeout_ms=100, max_records=50)
        records = [each for rows in batches.values() for each in rows]
        ends = report.records((each.partition, each.offset) for each in records)
        if ends:
            places = {TopicPartition(options.topic, index): end for index, end in ends.items()}
            try:
                await consumer.commit(places)
            except KafkaError as error:
                report.say("commit failed", error=repr(error))
            else:
                report.committed(ends)
    report.say("closing")
    await consumer.stop()


def tidelog_config(options: MemberOptions) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": 1000,
    }
    if options.protocol == "consumer":
        config |= {"group.protocol": "consumer", "group.remote.assignor": options.strategy}
    else:
        config |= {
            "partition.assignment.strategy": options.strategy,
            "session.timeout.ms": options.session_timeout_ms,
            "heartbeat.interval.ms": 300,
        }
    if options.instance:
        config["group.instance.id"] = options.instance
    return config


def reporting_listener(report: Report) -> RebalanceListener:
    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            report.assigned(each.partition for each in partitions)

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            report.revoked(each.partition for each in partitions)

    return Listener()


def run_tidelog(options: MemberOptions, report: Report) -> None:
    from tidelog.client.blocking.consumer import Consumer

    with Consumer(tidelog_config(options)) as consumer:
        consumer.subscribe([options.topic], listener=reporting_listener(report))
        while not report.stopping:
            records = consumer.poll(0.1, max_records=50)
            ends = report.records((each.partition, each.offset) for each in records)
            if ends:
                try:
                    consumer.commit(
                        {TopicPartition(options.topic, p): end for p, end in ends.items()}
                    )
                except ClientError as error:
                    report.say("commit failed", error=repr(error))
                else:
                    report.committed(ends)
        report.say("closing")


async def run_tidelog_async(options: MemberOptions, report: Report) -> None:
    from tidelog.client.consumer.consumer import AsyncConsumer

    async with AsyncConsumer(tidelog_config(options)) as consumer:
        consumer.subscribe([options.topic], listener=reporting_listener(report))
        while not report.stopping:
            records = await consumer.poll(0.1, max_records=50)
            ends = report.records((each.partition, each.offset) for each in records)
            if ends:
                places = {TopicPartition(options.topic, p): end for p, end in ends.items()}
                try:
                    await consumer.commit(places)
                except ClientError as error:
                    report.say("commit failed", error=repr(error))
                else:
                    report.committed(ends)
        report.say("closing")


def main(text: str) -> None:
    options = MemberOptions(**json.loads(text))
    report = Report()
    if options.client == "tidelog":
        run_tidelog(options, report)
    elif options.client == "tidelog-async":
        asyncio.run(run_tidelog_async(options, report))
    elif options.client == "confluent":
        run_confluent(options, report)
    elif options.client == "kafka-python":
        run_kafka_python(options, report)
    else:
        asyncio.run(run_aiokafka(options, report))


if __name__ == "__main__":
    main(sys.argv[1])
