"""A topic under test: its name, and what is in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord
    from tidelog.testing.expectation import Expectation

WAIT_S: Final = 10.0
POLL_S: Final = 0.02


class NotWritten(AssertionError):
    """Fewer records than were waited for."""


class Topic(str):
    """The name, so that it can be given to any client, with what a test asks of the topic."""

    bootstrap_servers: str

    def __new__(cls, name: str, bootstrap_servers: str) -> Topic:
        topic = super().__new__(cls, name)
        topic.bootstrap_servers = bootstrap_servers
        return topic

    def records(self, *, isolation: str = "read_committed") -> list[ConsumerRecord]:
        """All of them, partition by partition, each in the order of its offsets."""
        from tidelog.client import Consumer, TopicPartition

        config = {
            "bootstrap.servers": self.bootstrap_servers,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 50,
        }
        with Consumer(config) as consumer:
            partitions = [TopicPartition(self, n) for n in consumer.partitions_for(self)]
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            found: list[ConsumerRecord] = []
            while any(consumer.position(each) < ends[each] for each in partitions):
                found += [
                    record
                    for record in consumer.poll(POLL_S)
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]
                ]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def wait_for(
        self, count: int, timeout: float = WAIT_S, *, isolation: str = "read_committed"
    ) -> list[ConsumerRecord]:
        """The records, when there are as many; NotWritten if there are fewer in the end."""
        deadline = time.monotonic() + timeout
        while True:
            found = self.records(isolation=isolation)
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise NotWritten(f"{self}: {len(found)} of {count} records after {timeout:g} s")
            time.sleep(POLL_S)

    def send(self, *values: bytes | str, key: bytes | str | None = None, **more: Any) -> None:
        """Written and acknowledged when this returns."""
        from tidelog.client import Producer

        with Producer({"bootstrap.servers": self.bootstrap_servers}) as producer:
            sent = [producer.send(self, _bytes(value), _bytes(key), **more) for value in values]
            producer.flush()
            for each in sent:
                each.result()

    def expect(self) -> Expectation:
        from tidelog.testing.expectation import Expectation

        return Expectation(self, self.records())


def expect(topic: Topic) -> Expectation:
    """What is in the topic now, to be judged: expect(topic).ordered().exactly_once(keys=...)."""
    return topic.expect()


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
