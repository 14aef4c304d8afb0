"""tidelog's producer beside confluent-kafka, aiokafka and kafka-python, all against one tidelog.

Records per second from the first call to the last acknowledgement, with acks=all and idempotence,
one partition, batches of 128 KB (confluent-kafka keeps its own 1 MB) that wait 5 ms at most. Every
client says for each record whether it was written, because tidelog's producer always does: a
Delivery here, a future in aiokafka and kafka-python, a delivery report in confluent-kafka. Without
reports confluent-kafka is faster; that figure stands beside it and has no target.

The asyncio producer runs on the same event loop as aiokafka: uvloop, where it is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bench import wire
from bench.arena import Arena, Sample
from bench.peers import BrokerProcess
from bench.table import Figure, Report

TITLE = "client: produce"
TOPIC = "bench-client-produce"
BATCH_BYTES = 131_072
GIVE_UP_S = 60.0
TABLE_ROWS = 50_000
CASES = {"100 B": 100, "1 KB": 1_000}


@dataclass(frozen=True, slots=True)
class Work:
    bootstrap: str
    record_bytes: int
    records: int

    @property
    def value(self) -> bytes:
        return b"x" * self.record_bytes

    def sample(self, started: float, cpu_started: float) -> Sample:
        seconds = time.perf_counter() - started
        return Sample(self.records / seconds, (time.process_time() - cpu_started) / seconds)


Client = Callable[[Work], Sample]


def tidelog_blocking(work: Work) -> Sample:
    from tidelog.client.blocking.producer import Producer

    value = work.value
    with Producer(bootstrap_servers=work.bootstrap, batch_size=BATCH_BYTES) as producer:
        producer.send(TOPIC, b"first").result(GIVE_UP_S)
        started, cpu_started = time.perf_counter(), time.process_time()
        for _ in range(work.records):
            last = producer.send(TOPIC, value)
        producer.flush()
        sample = work.sample(started, cpu_started)
        last.result()
    return sample


def tidelog_asyncio(work: Work) -> Sample:
    from tidelog.client.producer.async_producer import AsyncProducer

    async def write() -> Sample:
        value = work.value
        async with AsyncProducer(
            bootstrap_servers=work.bootstrap, batch_size=BATCH_BYTES
        ) as producer:
            await (await producer.send(TOPIC, b"first"))
            started, cpu_started = time.perf_counter(), time.process_time()
            for _ in range(work.records):
                last = await producer.send(TOPIC, value)
            await producer.flush()
            sample = work.sample(started, cpu_started)
            await last
        return sample

    return _run(write())


def tidelog_arrow(work: Work) -> Sample:
    import pyarrow as pa

    from tidelog.client.blocking.producer import Producer

    rows = min(TABLE_ROWS, work.records)
    table = pa.table({"value": pa.array([work.value] * rows, pa.binary())})
    with Producer(bootstrap_servers=work.bootstrap) as producer:
        producer.send(TOPIC, b"first").result(GIVE_UP_S)
        started, cpu_started = time.perf_counter(), time.process_time()
        deliveries = [producer.send_arrow(table, TOPIC) for _ in range(work.records // rows)]
        for delivery in deliveries:
            delivery.result(GIVE_UP_S)
        return work.sample(started, cpu_started)


def confluent(work: Work, *, with_reports: bool = True) -> Sample:
    from confluent_kafka import Producer

    value = work.value
    producer = Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    written = 0

    def report(error: Any, message: Any) -> None:
        nonlocal written
        if error is None:
            written += 1

    arguments: dict[str, Any] = {"on_delivery": report} if with_reports else {}
    producer.produce(TOPIC, b"first")
    producer.flush(GIVE_UP_S)
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(work.records):
        while True:
            try:
                producer.produce(TOPIC, value, **arguments)
            except BufferError:
                producer.poll(0.01)
            else:
                break
        if with_reports:
            producer.poll(0)
    left = producer.flush(GIVE_UP_S)
    if left or (with_reports and written != work.records):
        raise wire.BadAnswer("confluent-kafka could not deliver every record")
    return work.sample(started, cpu_started)


def confluent_without_reports(work: Work) -> Sample:
    return confluent(work, with_reports=False)


def aiokafka_client(work: Work) -> Sample:
    from aiokafka import AIOKafkaProducer

    async def write() -> Sample:
        value = work.value
        producer = AIOKafkaProducer(
            bootstrap_servers=work.bootstrap,
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=5,
        )
        await producer.start()
        try:
            await producer.send_and_wait(TOPIC, b"first")
            started, cpu_started = time.perf_counter(), time.process_time()
            for _ in range(work.records):
                last = await producer.send(TOPIC, value)
            await producer.flush()
            sample = work.sample(started, cpu_started)
            await last
        finally:
            await producer.stop()
        return sample

    return _run(write())


def kafka_python(work: Work) -> Sample:
    from kafka import KafkaProducer

    value = work.value
    producer = KafkaProducer(
        bootstrap_servers=work.bootstrap,
        enable_idempotence=True,
        batch_size=BATCH_BYTES,
        linger_ms=5,
    )
    producer.send(TOPIC, b"first").get(GIVE_UP_S)
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in range(work.records):
        last = producer.send(TOPIC, value)
    producer.flush(GIVE_UP_S)
    sample = work.sample(started, cpu_started)
    last.get(GIVE_UP_S)
    producer.close()
    return sample


def _run(work: Coroutine[Any, Any, Sample]) -> Sample:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    sample: Sample = uvloop.run(work)
    return sample


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    produce: Client
    share: int = 1  # of the records: slow clients get fewer


TIDELOG = Entry("tidelog", tidelog_blocking)
ASYNCIO = Entry("tidelog asyncio", tidelog_asyncio)
ARROW = Entry("tidelog Arrow", tidelog_arrow)
CONFLUENT = Entry("confluent-kafka", confluent)
WITHOUT_REPORTS = Entry("confluent-kafka without reports", confluent_without_reports)
AIOKAFKA = Entry("aiokafka", aiokafka_client, 10)
KAFKA_PYTHON = Entry("kafka-python", kafka_python, 10)
ENTRIES = (TIDELOG, ASYNCIO, ARROW, CONFLUENT, WITHOUT_REPORTS, AIOKAFKA, KAFKA_PYTHON)

# ours, theirs, at least so many times as many records per second
COMPARISONS = (
    (TIDELOG, CONFLUENT, 0.7),
    (TIDELOG, WITHOUT_REPORTS, None),
    (TIDELOG, AIOKAFKA, 2.0),
    (TIDELOG, KAFKA_PYTHON, 2.0),
    (ASYNCIO, CONFLUENT, 0.7),
    (ASYNCIO, AIOKAFKA, 2.0),
    (ASYNCIO, KAFKA_PYTHON, 2.0),
    (ARROW, CONFLUENT, 5.0),
    (ARROW, WITHOUT_REPORTS, None),
)


def run(arena: Arena) -> Report:
    if arena.tidelog is None:
        return Report(
            TITLE, remarks=["clients are measured against tidelog, which is not asked for"]
        )
    try:
        import aiokafka  # noqa: F401
        import confluent_kafka  # noqa: F401
        import kafka  # noqa: F401
    except ImportError as missing:
        return Report(TITLE, remarks=[f"{missing.name} is not installed: nothing measured"])
    figures: list[Figure] = []
    with arena.running(arena.tidelog) as broker:
        for label, record_bytes in CASES.items():
            figures += _figures(arena, broker, label, record_bytes)
    remark = "the column kafka is the other client; both write to the same tidelog broker"
    return Report(TITLE, figures, remarks=[remark])


def _figures(arena: Arena, broker: BrokerProcess, label: str, record_bytes: int) -> list[Figure]:
    records = arena.size.of(200_000, 500_000)
    best: dict[str, Sample] = {}
    for _ in range(arena.size.rounds):
        for entry in ENTRIES:
            sample = _round(broker, entry, record_bytes, records // entry.share)
            if entry.name not in best or sample.value > best[entry.name].value:
                best[entry.name] = sample
    return [
        Figure(
            f"{label}: {ours.name} beside {theirs.name}",
            "records/s",
            {"kafka": best[theirs.name], "tidelog": best[ours.name]},
            True,
            target,
        )
        for ours, theirs, target in COMPARISONS
    ]


def _round(broker: BrokerProcess, entry: Entry, record_bytes: int, records: int) -> Sample:
    with broker.connect() as client:
        client.create_topic(TOPIC, 1)
        work = Work(f"127.0.0.1:{broker.port}", record_bytes, records)
        try:
            return entry.produce(work)
        finally:
            client.delete_topic(TOPIC)
