"""Kafka's own clients: ProducerPerformance, ConsumerPerformance and a plain KafkaConsumer.

The plain one is java/AssignedConsumer.java: no group, and warm passes in one JVM, where
ConsumerPerformance measures the warming up of its own JVM with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.even_topic import even_topic, written
from bench.peers import BrokerProcess
from bench.table import Figure, Report
from bench.tools import JavaTools

TITLE = "Kafka's own producer and consumer"
TOPIC = "bench-java"
CONSUMER_PASSES = 4
DEFAULT_BATCH_BYTES = 16_384
LARGE_BATCHES = {"batch.size": "131072"}


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    record_bytes: int
    records: int
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    consume: bool = True  # also read a topic of such batches


def cases(arena: Arena) -> list[Case]:
    small, medium = arena.size.of(1_000_000, 2_000_000), arena.size.of(200_000, 400_000)
    lz4 = {**LARGE_BATCHES, "compression.type": "lz4"}
    return [
        Case("100 B", 100, small),
        Case("1 KB", 1_000, medium),
        Case("10 KB", 10_000, medium // 10),
        Case("1 KB, 128 KB batches", 1_000, medium, 1, LARGE_BATCHES, consume=False),
        Case("1 KB, 128 KB batches, lz4", 1_000, medium, 1, lz4),
        Case("1 KB, 128 KB batches, 12 partitions", 1_000, medium, 12, LARGE_BATCHES),
    ]


def run(arena: Arena) -> Report:
    if arena.kafka is None:
        return Report(TITLE, remarks=["Kafka's tools are among its jars: nothing measured"])
    java = JavaTools(arena.kafka)
    figures: list[Figure] = []
    with arena.brokers() as brokers:
        for case in cases(arena):
            figures += _figures(arena, brokers, java, case)
    return Report(TITLE, figures)


def _figures(
    arena: Arena, brokers: Sequence[BrokerProcess], java: JavaTools, case: Case
) -> list[Figure]:
    verbs = ["produce", "consume", "consume in a group"] if case.consume else ["produce"]
    rounds = alternate(brokers, arena.size.of(2, 3), lambda broker: _round(broker, java, case))
    return [
        Figure(f"{verb} {case.label}", "MB/s", best(rounds, position, higher=True), True, 1.0)
        for position, verb in enumerate(verbs)
    ]


def _round(broker: BrokerProcess, java: JavaTools, case: Case) -> list[Sample]:
    def produce() -> Sample:
        properties = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "acks": "1"}
        return java.produce(TOPIC, case.records, case.record_bytes, {**properties, **case.settings})

    with broker.connect() as client:
        client.create_topic(TOPIC, case.partitions)
        produced = with_broker_cpu(broker, produce)
        client.delete_topic(TOPIC)
    return [produced, *_consume(broker, java, case)] if case.consume else [produced]


def _consume(broker: BrokerProcess, java: JavaTools, case: Case) -> list[Sample]:
    batch_bytes = int(case.settings.get("batch.size", DEFAULT_BATCH_BYTES))
    lz4 = case.settings.get("compression.type") == "lz4"
    batch = wire.batch_filling(case.record_bytes, batch_bytes, lz4=lz4)
    topic = even_topic(batch, case.records, case.partitions)

    def consume() -> Sample:
        return java.assigned_consume(broker.port, topic, CONSUMER_PASSES)

    with written(broker, topic):
        return [
            with_broker_cpu(broker, consume),
            with_broker_cpu(broker, lambda: java.group_consume(broker.port, topic)),
        ]
