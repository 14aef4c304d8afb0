"""confluent-kafka (librdkafka under Python): produce one by one, consume in lists.

Python's share of the client is large here; the notes say where it is all there is. Consuming is
measured with librdkafka's defaults, and with fetch.queue.backoff.ms=1: by default a consumer whose
queue is full pauses for a whole second, which the faster broker meets more often. It is timed from
the first record on, as connecting takes librdkafka half a second with either peer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench import wire
from bench.arena import Arena, Sample, alternate, best, with_broker_cpu
from bench.even_topic import EvenTopic, even_topic, written
from bench.peers import BrokerProcess
from bench.table import Figure, Report

TITLE = "confluent-kafka"
TOPIC = "bench-confluent"
BATCH_BYTES = 131_072
LIST_RECORDS = 10_000
VERBS = {"produce": 1.0, "consume": None, "consume (queue pause 1 ms)": 1.0}
GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    label: str
    record_bytes: int
    records: int
    partitions: int


def cases(arena: Arena) -> list[Case]:
    records = arena.size.of(200_000, 600_000)
    return [
        Case("100 B", 100, records, 1),
        Case("1 KB", 1_000, records, 1),
        Case("10 KB", 10_000, records // 10, 1),
        Case("1 KB, 12 partitions", 1_000, records, 12),
    ]


def run(arena: Arena) -> Report:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return Report(TITLE, remarks=["confluent-kafka is not installed: nothing measured"])
    figures: list[Figure] = []
    with arena.brokers() as brokers:
        for case in cases(arena):
            figures += _figures(arena, brokers, case)
    return Report(TITLE, figures)


def _figures(arena: Arena, brokers: Sequence[BrokerProcess], case: Case) -> list[Figure]:
    rounds = alternate(brokers, arena.size.rounds, lambda broker: _round(broker, case))
    return [
        Figure(f"{verb} {case.label}", "MB/s", best(rounds, position, higher=True), True, target)
        for position, (verb, target) in enumerate(VERBS.items())
    ]


def _round(broker: BrokerProcess, case: Case) -> list[Sample]:
    with broker.connect() as client:
        client.create_topic(TOPIC, case.partitions)
        produced = with_broker_cpu(broker, lambda: _produce(broker, case))
        client.delete_topic(TOPIC)
    batch = wire.batch_filling(case.record_bytes, BATCH_BYTES)
    topic = even_topic(batch, case.records, case.partitions)
    with written(broker, topic):
        return [
            produced,
            with_broker_cpu(broker, lambda: _consume(broker, topic, {})),
            with_broker_cpu(broker, lambda: _consume(broker, topic, {"fetch.queue.backoff.ms": 1})),
        ]


def _sample(value_bytes: int, started: float, cpu_started: float) -> Sample:
    seconds = time.perf_counter() - started
    busy = (time.process_time() - cpu_started) / seconds
    return Sample(value_bytes / seconds / 1e6, busy)


def _produce(broker: BrokerProcess, case: Case) -> Sample:
    settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "acks": "1"}
    return produce_one_by_one(settings, TOPIC, case.records, case.record_bytes)


def produce_one_by_one(
    settings: Mapping[str, str], topic: str, records: int, record_bytes: int
) -> Sample:
    """MB/s of values, from the first call to the last acknowledgement."""
    from confluent_kafka import Producer

    producer = Producer(dict(settings))
    value = b"x" * record_bytes
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    if producer.flush(GIVE_UP_S):
        raise wire.BadAnswer("confluent-kafka could not deliver every record")
    return _sample(records * record_bytes, started, cpu_started)


def _consume(broker: BrokerProcess, topic: EvenTopic, settings: Mapping[str, int]) -> Sample:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.assign(
        [TopicPartition(topic.name, index, OFFSET_BEGINNING) for index in range(topic.partitions)]
    )
    missing = topic.records - len(consumer.consume(1, timeout=GIVE_UP_S))
    started, cpu_started = time.perf_counter(), time.process_time()
    while missing > 0:
        messages = consumer.consume(min(missing, LIST_RECORDS), timeout=1.0)
        missing -= sum(message.error() is None for message in messages)
        if time.perf_counter() - started > GIVE_UP_S:
            raise wire.BadAnswer(f"confluent-kafka lacks {missing} of {topic.records} records")
    sample = _sample(topic.value_bytes, started, cpu_started)
    consumer.close()
    return sample
