"""A member of a consumer group in a process of its own, so that it can die like one.

Run as a module it is the member: `python -m tests.support.group_process '<json options>'`. It
reads its topic, commits after every batch, and writes one line of JSON for everything that happens,
with the system's monotonic time: assigned, revoked, record, closing. SIGTERM makes it leave its
group; SIGKILL does not.

`MemberProcess` is the other end of it. `ownership` and `consumed` make of the lines what a test
wants to know.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.broker_process import dies_with_us

ROOT = Path(__file__).resolve().parents[2]
EXIT_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class MemberOptions:
    client: str  # confluent, kafka-python or aiokafka
    bootstrap: str
    group: str
    topic: str
    strategy: str  # range, roundrobin, sticky or cooperative-sticky
    session_timeout_ms: int = 6000
    instance: str | None = None


@dataclass
class MemberProcess:
    options: MemberOptions
    events: list[dict[str, Any]] = field(default_factory=list)
    killed_at: float | None = None

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.group_process"]
        self.process = subprocess.Popen(
            dies_with_us([*command, json.dumps(self.options.__dict__)]),
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

    def _end(self) -> None:
        self.process.wait(EXIT_TIMEOUT_S)
        self._reader.join(EXIT_TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

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
        rows = [*member.events, {"what": "closing", "at": end, "partitions": []}]
        for event in rows:
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


# The member itself


class Report:
    def __init__(self) -> None:
        self.stopping = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.stopping = True

    def say(self, what: str, partitions: Iterable[int] = (), **fields: Any) -> None:
        event = {"what": what, "at": time.monotonic(), "partitions": sorted(partitions), **fields}
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def run_confluent(options: MemberOptions, report: Report) -> None:
    from confluent_kafka import Consumer, KafkaException

    config = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "partition.assignment.strategy": options.strategy,
        "session.timeout.ms": options.session_timeout_ms,
        "heartbeat.interval.ms": 300,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if options.instance:
        config["group.instance.id"] = options.instance
    consumer = Consumer(config)

    def assigned(_: Any, partitions: list[Any]) -> None:
        report.say("assigned", [each.partition for each in partitions])

    def revoked(_: Any, partitions: list[Any]) -> None:
        report.say("revoked", [each.partition for each in partitions])

    consumer.subscribe([options.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not report.stopping:
        records = [each for each in consumer.consume(50, 0.1) if not each.error()]
        for each in records:
            report.say("record", partition=each.partition(), offset=each.offset())
        if records:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                report.say("commit failed", error=str(error))
    report.say("closing")
    consumer.close()


def run_kafka_python(options: MemberOptions, report: Report) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            report.say("assigned", [each.partition for each in assigned])

        def on_partitions_revoked(self, revoked: Any) -> None:
            report.say("revoked", [each.partition for each in revoked])

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
        for records in batches.values():
            for each in records:
                report.say("record", partition=each.partition, offset=each.offset)
        if batches:
            try:
                consumer.commit()
            except KafkaError as error:
                report.say("commit failed", error=repr(error))
    report.say("closing")
    consumer.close(autocommit=False)


async def run_aiokafka(options: MemberOptions, report: Report) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
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
            report.say("assigned", [each.partition for each in assigned])

        async def on_partitions_revoked(self, revoked: Any) -> None:
            report.say("revoked", [each.partition for each in revoked])

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
        for records in batches.values():
            for each in records:
                report.say("record", partition=each.partition, offset=each.offset)
        if batches:
            try:
                await consumer.commit()
            except KafkaError as error:
                report.say("commit failed", error=repr(error))
    report.say("closing")
    await consumer.stop()


def main(text: str) -> None:
    options = MemberOptions(**json.loads(text))
    report = Report()
    if options.client == "confluent":
        run_confluent(options, report)
    elif options.client == "kafka-python":
        run_kafka_python(options, report)
    else:
        asyncio.run(run_aiokafka(options, report))


if __name__ == "__main__":
    main(sys.argv[1])
