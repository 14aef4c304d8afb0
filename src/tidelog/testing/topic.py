"""A topic under test: its name, and what is in it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord
    from tidelog.testing.expectation import Expectation

WAIT_S: Final = 10.0
READ_S: Final = 60.0
LAST_LOOK_S: Final = 5.0
POLL_S: Final = 0.02


class NotWritten(AssertionError):
    """Fewer records than were waited for."""


class Topic(str):
    """The name, so that it can be given to any client, with what a test asks of the topic."""

    client_config: Mapping[str, object]

    def __new__(cls, name: str, client_config: Mapping[str, object]) -> Topic:
        topic = super().__new__(cls, name)
        topic.client_config = client_config
        return topic

    @property
    def bootstrap_servers(self) -> str:
        return str(self.client_config["bootstrap.servers"])

    def records(
        self, *, isolation: str = "read_committed", timeout: float = READ_S
    ) -> list[ConsumerRecord]:
        """All of them, partition by partition, each in the order of its offsets. RequestTimedOut if
        that takes longer than `timeout` seconds.
        """
        from tidelog.client import Consumer, RequestTimedOut, TopicPartition

        deadline = time.monotonic() + timeout
        config = {
            **self.client_config,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 50,
            "default.api.timeout.ms": round(timeout * 1000),
        }
        with Consumer(config) as consumer:
            partitions = [TopicPartition(self, n) for n in consumer.partitions_for(self)]
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            found: list[ConsumerRecord] = []
            while any(consumer.position(each) < ends[each] for each in partitions):
                if time.monotonic() > deadline:
                    raise RequestTimedOut(
                        f"{self}: {len(found)} records, and not all, within {timeout:g} s"
                    )
                found += [
                    record
                    for record in consumer.poll(POLL_S)
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]
                ]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def wait_for(
        self, count: int, timeout: float = WAIT_S, *, isolation: str = "read_committed"
    ) -> list[ConsumerRecord]:
        """The records, when there are as many; NotWritten if there are fewer in the end, or if the
        broker does not let them be read.
        """
        from tidelog.client import RequestTimedOut

        deadline = time.monotonic() + timeout
        while True:
            left_s = max(deadline - time.monotonic(), LAST_LOOK_S)
            try:
                found = self.records(isolation=isolation, timeout=left_s)
            except RequestTimedOut as problem:
                raise NotWritten(f"{self}: cannot be read: {problem}") from problem
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise NotWritten(f"{self}: {len(found)} of {count} records after {timeout:g} s")
            time.sleep(POLL_S)

    def send(
        self, *values: bytes | str | None, key: bytes | str | None = None, **more: Any
    ) -> None:
        """Written and acknowledged when this returns."""
        from tidelog.client import Producer

        with Producer(self.client_config) as producer:
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
