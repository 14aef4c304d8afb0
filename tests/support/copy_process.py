"""Consume, transform, produce, exactly once, in a process of its own, so that it can die like one.

Run as a module: `python -m tests.support.copy_process '<json options>'`. It is a static member of
its group, takes so many records of whatever partitions it has, writes each one transformed to the
partition of the same number, and commits records and offsets in one transaction. For every
transaction it writes one line, the count of records that are committed now.

It never mends anything: whatever goes wrong ends it, and the next one, which has the same
transactional id, fences it and goes on from the committed offsets.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

FAILED = 3
PATIENCE_S = 10.0
# librdkafka forgets its group coordinator for good when it bootstraps anew.
PATIENT = {
    "metadata.recovery.strategy": "none",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
}


@dataclass(frozen=True)
class CopyOptions:
    bootstrap: str
    source: str
    target: str
    partitions: int
    count: int  # records in all
    per_transaction: int
    transactional_id: str = "copying"
    transaction_timeout_ms: int = 20_000
    session_timeout_ms: int = 6_000


def transformed(value: bytes) -> bytes:
    return b"<" + value[::-1] + b">"


class Copying:
    def __init__(self, options: CopyOptions) -> None:
        self._options = options
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout_ms,
                "linger.ms": 2,
                **PATIENT,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.transactional_id,
                "group.instance.id": options.transactional_id,
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                **PATIENT,
            }
        )
        self.committed = 0

    def run(self) -> None:
        options = self._options
        self._producer.init_transactions(PATIENCE_S)
        places = [TopicPartition(options.source, index) for index in range(options.partitions)]
        found = self._consumer.committed(places, PATIENCE_S)
        self.committed = sum(max(each.offset, 0) for each in found)
        self._say()
        self._consumer.subscribe([options.source])
        while self.committed < options.count:
            self._transaction(self._take())
            self._say()
        self._consumer.close()

    def _take(self) -> Sequence[Message]:
        """A whole transaction's records, or what is left."""
        options = self._options
        wanted = min(options.per_transaction, options.count - self.committed)
        taken: list[Message] = []
        while len(taken) < wanted:
            for message in self._consumer.consume(wanted - len(taken), 0.1):
                if message.error() is None:
                    taken.append(message)
        return taken

    def _transaction(self, taken: Sequence[Message]) -> None:
        producer, options = self._producer, self._options
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in taken:
            index, offset = _place(message)
            producer.produce(options.target, transformed(message.value() or b""), partition=index)
            ends[index] = offset + 1
        producer.send_offsets_to_transaction(
            [TopicPartition(options.source, index, end) for index, end in ends.items()],
            self._consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        producer.commit_transaction(PATIENCE_S)
        self.committed += len(taken)

    def _say(self) -> None:
        sys.stdout.write(f"{self.committed}\n")
        sys.stdout.flush()


def _place(message: Any) -> tuple[int, int]:
    index, offset = message.partition(), message.offset()
    assert index is not None
    assert offset is not None
    return index, offset


def main(text: str) -> int:
    try:
        Copying(CopyOptions(**json.loads(text))).run()
    except KafkaException as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
