"""A producer at work while a broker is killed or connections are cut, and what must hold then.

Records are numbered for each partition. What a producer was told to be written has to be there at
that offset; and the log has every record at most once and in order, whether acknowledged or not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tidelog.client.blocking.producer import Producer
from tidelog.client.producer.delivery import Delivery

READ_WITHIN_S = 60.0


class Sent(NamedTuple):
    partition: int
    value: bytes
    delivery: Delivery


class SteadyProducer:
    """Sends numbered records from a thread until it is stopped."""

    def __init__(self, producer: Producer, topic: str, partitions: int, pause_s: float) -> None:
        self.sent: list[Sent] = []
        self.problem: Exception | None = None
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            partition = number % self._partitions
            value = b"%d" % (number // self._partitions)
            delivery = self._producer.send(self._topic, value, partition=partition)
            self.sent.append(Sent(partition, value, delivery))
            number += 1
            if number % 10 == 0:
                time.sleep(self._pause_s)


def read_log(
    bootstrap: str, topic: str, partition: int, *, isolation: str = "read_uncommitted"
) -> list[tuple[int, bytes]]:
    """Offsets and values, with another client."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + READ_WITHIN_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                return found
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert isinstance(value, bytes)
            found.append((offset, value))
        raise AssertionError("the end of the partition did not come")
    finally:
        consumer.close()


def require_once_and_in_order(
    sent: list[Sent], partitions: int, log_of: Callable[[int], list[tuple[int, bytes]]]
) -> None:
    """Every record was acknowledged, is where the producer was told, and is there once."""
    for partition in range(partitions):
        log = log_of(partition)
        expected = [each for each in sent if each.partition == partition]
        assert [value for _, value in log] == [each.value for each in expected]
        offsets = dict(log)
        for each in expected:
            assert offsets[each.delivery.result().offset] == each.value


def random_pauses(seed: int, low_s: float, high_s: float) -> Callable[[], None]:
    chance = random.Random(seed)
    return lambda: time.sleep(chance.uniform(low_s, high_s))
