"""Kafka's own clients: ProducerPerformance, and a KafkaConsumer over the same topics.

The consumer is java/AssignedConsumer.java (no group needed, warm passes in one JVM); Kafka's
ConsumerPerformance runs besides once every peer advertises FindCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.peers import BrokerProcess
from bench.table import Figure, Report
from bench.tools import JavaTools

TITLE = "Kafka's own producer and consumer"
TOPIC = "bench-java"
CONSUMER_PASSES = 4
LARGE_BATCHES = {"batch.size": "131072"}


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    record_bytes: int
    records: int
    partitions: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    consume: bool = True  # also read the topic back


def cases(arena: Arena) -> list[Case]:
    small, medium = arena.size.of(1_000_000, 4_000_000), arena.size.of(200_000, 800_000)
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
        groups = all(_has_groups(broker) for broker in brokers)
        for case in cases(arena):
            figures += _figures(arena, brokers, java, case, groups)
    remarks = [] if groups else ["ConsumerPerformance left out: a peer has no consumer groups yet"]
    return Report(TITLE, figures, remarks=remarks)


def _has_groups(broker: BrokerProcess) -> bool:
    with broker.connect() as client:
        return wire.FIND_COORDINATOR in client.api_keys()


def _figures(
    arena: Arena, brokers: Sequence[BrokerProcess], java: JavaTools, case: Case, groups: bool
) -> list[Figure]:
    verbs = ["produce"]
    if case.consume:
        verbs += ["consume", "consume in a group"] if groups else ["consume"]
    rounds = alternate(
        brokers, arena.size.of(2, 4), lambda broker: _round(broker, java, case, groups)
    )
    return [
        Figure(f"{verb} {case.label}", "MB/s", best(rounds, position, higher=True), True, 1.0)
        for position, verb in enumerate(verbs)
    ]


def _round(broker: BrokerProcess, java: JavaTools, case: Case, groups: bool) -> list[Sample]:
    port, topic, records = broker.port, TOPIC, case.records

    def produce() -> Sample:
        return java.produce(port, topic, records, case.record_bytes, case.settings)

    def consume() -> Sample:
        return java.assigned_consume(port, topic, case.partitions, records, CONSUMER_PASSES)

    def consume_in_group() -> Sample:
        return java.group_consume(port, topic, records)

    work = [produce]
    if case.consume:
        work += [consume, consume_in_group] if groups else [consume]
    with broker.connect() as client:
        client.create_topic(topic, case.partitions)
        samples = [with_broker_cpu(broker, step) for step in work]
        client.delete_topic(topic)
    return samples
