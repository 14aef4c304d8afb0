"""kcat (librdkafka), acks=1: a file of lines in, a topic to /dev/null.

The time is that of the whole process, connecting included. Reading is measured twice: as kcat
comes, and with kcat held to one processor. Its two threads share one malloc arena, one takes memory
for each record and the other gives it back; where both really run at once they spend most of their
time on that lock, and a broker that leaves a processor free makes kcat slower.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import tools, wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.even_topic import even_topic, written
from bench.peers import BrokerProcess
from bench.table import Figure, Report

TITLE = "kcat"
TOPIC = "bench-kcat"
BATCH_BYTES = 131_072
VERBS = ("produce", "consume", "consume (kcat on one processor)")


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    record_bytes: int
    records: int
    partitions: int


def cases(arena: Arena) -> list[Case]:
    small, medium = arena.size.of(1_000_000, 2_000_000), arena.size.of(200_000, 500_000)
    return [
        Case("100 B", 100, small, 1),
        Case("1 KB", 1_000, medium, 1),
        Case("10 KB", 10_000, medium // 10, 1),
        Case("1 KB, 12 partitions", 1_000, medium, 12),
    ]


def run(arena: Arena) -> Report:
    if shutil.which("kcat") is None:
        return Report(TITLE, remarks=["kcat is not on the PATH: nothing measured"])
    figures: list[Figure] = []
    with arena.brokers() as brokers:
        for case in cases(arena):
            figures += _figures(arena, brokers, case)
    return Report(TITLE, figures)


def _figures(arena: Arena, brokers: Sequence[BrokerProcess], case: Case) -> list[Figure]:
    lines = arena.data_file("lines")
    line = b"x" * case.record_bytes + b"\n"
    with lines.open("wb") as file:
        for _ in range(100):
            file.write(line * (case.records // 100))
    try:
        rounds = alternate(brokers, arena.size.rounds, lambda broker: _round(broker, case, lines))
    finally:
        lines.unlink()
    return [
        Figure(f"{verb} {case.label}", "MB/s", best(rounds, position, higher=True), True, 1.0)
        for position, verb in enumerate(VERBS)
    ]


def _round(broker: BrokerProcess, case: Case, lines: Path) -> list[Sample]:
    with broker.connect() as client:
        client.create_topic(TOPIC, case.partitions)
        produced = with_broker_cpu(broker, lambda: tools.kcat_produce(broker.port, TOPIC, lines))
        written_records = sum(client.end_offset(TOPIC, index) for index in range(case.partitions))
        if written_records != case.records:
            raise wire.BadAnswer(f"kcat sent {case.records} records, {written_records} are there")
        client.delete_topic(TOPIC)
    return [produced, *_consume(broker, case)]


def _consume(broker: BrokerProcess, case: Case) -> list[Sample]:
    batch = wire.batch_filling(case.record_bytes, BATCH_BYTES)
    topic = even_topic(batch, case.records, case.partitions)
    with written(broker, topic):
        return [
            with_broker_cpu(broker, lambda: tools.kcat_consume(broker.port, topic)),
            with_broker_cpu(broker, lambda: tools.kcat_consume(broker.port, topic, processors=1)),
        ]
