"""tidelog's consumer beside confluent-kafka, aiokafka and kafka-python, on one tidelog broker.

Every client reads the same topic by assignment from its beginning, in a process of its own, with
its defaults (librdkafka also with fetch.queue.backoff.ms=1: by default it pauses for a second when
its queue is full). The clock runs from the first records on. Rows are 500 to a poll, as
max.poll.records has it; the columns of `poll_arrow` come as they are there. The notes hold the
processor time of the client for one row, which a busy machine disturbs less than the rows a second.

Memory: how much the process grows from the first tenth of the records to the end. The last row
reads 10 GB.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bench import wire
from bench.arena import Arena, Sample
from bench.even_topic import EvenTopic, even_topic, written
from bench.peers import BrokerProcess
from bench.table import Figure, Report
from bench.tools import ToolFailed

TITLE = "consumers in Python, one tidelog broker"
ROOT = Path(__file__).resolve().parents[2]
BATCH_BYTES = 16_384  # the default of a producer
GIVE_UP_S = 60.0
LARGE_RECORD_BYTES = 1_000
POLL_S = 5.0
GROWTH_BYTES_MAX = 64 << 20

OURS = ("poll", "async poll", "poll_arrow")
# ours, theirs, how many times as many rows a second
PAIRS = (
    ("poll", "confluent-kafka", 0.7),
    ("poll", "aiokafka", 2.0),
    ("poll", "kafka-python", 2.0),
    ("async poll", "confluent-kafka", 0.7),
    ("async poll", "aiokafka", 2.0),
    ("async poll", "kafka-python", 2.0),
    ("poll_arrow", "confluent-kafka", 5.0),
    ("poll_arrow", "aiokafka", 10.0),
)


def run(arena: Arena) -> Report:
    if arena.tidelog is None:
        return Report(TITLE, remarks=["needs tidelog: nothing measured"])
    figures: list[Figure] = []
    with arena.running(arena.tidelog) as broker:
        for record_bytes in (100, 1_000):
            records = arena.size.of(500_000, 3_000_000) * 100 // record_bytes
            topic = even_topic(wire.batch_filling(record_bytes, BATCH_BYTES), records, 1)
            with written(broker, topic):
                best = _best_of_rounds(broker, topic, arena.size.rounds)
            figures += _figures(f"{record_bytes} B", best)
        gigabytes = arena.size.of(1, 10)
        batch = wire.batch_filling(LARGE_RECORD_BYTES, BATCH_BYTES)
        topic = even_topic(batch, gigabytes * 10**9 // LARGE_RECORD_BYTES, 1)
        with written(broker, topic):
            once = {name: _in_a_process(name, broker, topic) for name in OURS}
        figures.append(_growth(f"over {gigabytes} GB", once))
    return Report(TITLE, figures, against="other client")


def _best_of_rounds(
    broker: BrokerProcess, topic: EvenTopic, rounds: int
) -> dict[str, Mapping[str, float]]:
    """Clients take turns, so that a slow minute hits them all."""
    best: dict[str, Mapping[str, float]] = {}
    for _ in range(rounds):
        for name in CLIENTS:
            found = _in_a_process(name, broker, topic)
            if name not in best or found["rows_s"] > best[name]["rows_s"]:
                best[name] = found
    return best


def _in_a_process(name: str, broker: BrokerProcess, topic: EvenTopic) -> dict[str, float]:
    arguments = [name, f"127.0.0.1:{broker.port}", topic.name, str(topic.records)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.measures.client_consume", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GIVE_UP_S * 3,
        check=False,
    )
    if done.returncode:
        raise ToolFailed(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _figures(size: str, best: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    figures = [
        Figure(
            f"{ours} {size}, {theirs}",
            "k rows/s",
            {"kafka": _sample(theirs, best[theirs]), "tidelog": _sample(ours, best[ours])},
            True,
            target,
        )
        for ours, theirs, target in PAIRS
    ]
    return [*figures, _growth(size, best)]


def _growth(of_what: str, found: Mapping[str, Mapping[str, float]]) -> Figure:
    return Figure(
        f"growth of memory {of_what}",
        "MB",
        {"tidelog": Sample(max(found[name]["growth_bytes"] for name in OURS) / 1e6)},
        False,
        own_limit=GROWTH_BYTES_MAX / 1e6,
    )


def _sample(name: str, found: Mapping[str, float]) -> Sample:
    note = f"{name} takes {found['cpu_ns_per_row']:.0f} ns of processor time a row"
    return Sample(found["rows_s"] / 1e3, note=note)


# One client in a process of its own


class Clock:
    """Begins with the first rows; notes the memory after a tenth of them."""

    def __init__(self, records: int) -> None:
        self.left = records
        self._tenth = records * 9 // 10
        self._rows = 0
        self._began = self._cpu_began = 0.0
        self._early_bytes = 0

    def count(self, rows: int) -> bool:
        """Whether there are more to come."""
        if not self._began:
            if rows:
                self._began, self._cpu_began = time.perf_counter(), time.process_time()
        else:
            self._rows += rows
            if time.perf_counter() - self._began > GIVE_UP_S:
                raise wire.BadAnswer(f"{self.left} records are missing")
        self.left -= rows
        if self.left <= self._tenth and not self._early_bytes:
            self._early_bytes = _peak_bytes()
        return self.left > 0

    def report(self) -> dict[str, float]:
        seconds = time.perf_counter() - self._began
        cpu_s = time.process_time() - self._cpu_began
        return {
            "rows_s": self._rows / seconds,
            "cpu_ns_per_row": cpu_s / self._rows * 1e9,
            "growth_bytes": _peak_bytes() - self._early_bytes,
        }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tidelog_poll(bootstrap: str, topic: str, clock: Clock) -> None:
    from tidelog.client import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while clock.count(len(consumer.poll(POLL_S))):
            pass


def tidelog_poll_arrow(bootstrap: str, topic: str, clock: Clock) -> None:
    from tidelog.client import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while clock.count(consumer.poll_arrow(POLL_S).num_rows):
            pass


async def tidelog_async_poll(bootstrap: str, topic: str, clock: Clock) -> None:
    from tidelog.client import AsyncConsumer, TopicPartition

    async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while clock.count(len(await consumer.poll(POLL_S))):
            pass


def confluent(bootstrap: str, topic: str, clock: Clock) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    while clock.count(len(consumer.consume(500, timeout=POLL_S))):
        pass
    consumer.close()


async def aiokafka(bootstrap: str, topic: str, clock: Clock) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    rows: dict[Any, list[Any]] = {}
    while clock.count(sum(map(len, rows.values()))):
        rows = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=500)
    await consumer.stop()


def kafka_python(bootstrap: str, topic: str, clock: Clock) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(topic, 0)])
    while clock.count(sum(map(len, consumer.poll(int(POLL_S * 1000)).values()))):
        pass
    consumer.close()


CLIENTS: Mapping[str, Callable[[str, str, Clock], Awaitable[None] | None]] = {
    "poll": tidelog_poll,
    "async poll": tidelog_async_poll,
    "poll_arrow": tidelog_poll_arrow,
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}


def main(name: str, bootstrap: str, topic: str, records: str) -> None:
    clock = Clock(int(records))
    consuming = CLIENTS[name](bootstrap, topic, clock)
    if consuming is not None:
        asyncio.run(_awaited(consuming))
    print(json.dumps(clock.report()))


async def _awaited(work: Awaitable[None]) -> None:
    await work


if __name__ == "__main__":
    main(*sys.argv[1:])
