"""Consume, transform, produce, exactly once, by tidelog's client, in a process of its own.

Run as a module: `python -m tests.support.client_copy_process '<json options>'`. It is a member of a
group, copies the records of each poll to the partition of the same number in one transaction, and
goes on for as long as it lives. Unlike `copy_process` it mends what goes wrong: it aborts, goes
back to what is committed, and makes a new producer where the old one is of no use any more. For
each transaction it writes a line of JSON: `committed` with the number of records, `aborted` or
`fatal` with the reason. SIGTERM makes it leave its group.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.copy_process import transformed
from tidelog.client.blocking.consumer import Consumer
from tidelog.client.blocking.producer import Producer
from tidelog.client.errors import ClientError, IllegalState, ProducerFenced
from tidelog.record.kernel import ConsumerRecord
from tidelog.types import TopicPartition


@dataclass(frozen=True)
class ClientCopyOptions:
    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    protocol: str = "classic"
    request_timeout_ms: int = 3_000
    poll_records: int = 100


class ClientCopying:
    def __init__(self, options: ClientCopyOptions) -> None:
        self._options = options
        self._stopping = False
        signal.signal(signal.SIGTERM, self._on_signal)
        self._producer = self._new_producer()
        self._consumer = Consumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            group_protocol=options.protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=options.request_timeout_ms,
            max_poll_records=options.poll_records,
        )

    def _on_signal(self, number: int, frame: object) -> None:
        self._stopping = True

    def _new_producer(self) -> Producer:
        producer = Producer(
            bootstrap_servers=self._options.bootstrap,
            transactional_id=self._options.transactional_id,
            request_timeout_ms=self._options.request_timeout_ms,
            delivery_timeout_ms=60_000,
            linger_ms=2,
        )
        producer.init_transactions()
        return producer

    def run(self) -> None:
        self._consumer.subscribe([self._options.source])
        while not self._stopping:
            records = self._consumer.poll(0.1)
            if records:
                self._copy(records)
        self._consumer.close()
        self._producer.close()

    def _copy(self, records: Sequence[ConsumerRecord]) -> None:
        producer, options = self._producer, self._options
        try:
            with producer.transaction():
                ends: dict[TopicPartition, int] = {}
                for record in records:
                    producer.send(
                        options.target, transformed(record.value or b""), partition=record.partition
                    )
                    ends[TopicPartition(options.source, record.partition)] = record.offset + 1
                producer.send_offsets_to_transaction(ends, self._consumer.group_metadata())
        except (ProducerFenced, IllegalState) as problem:
            _say("fatal", f"{type(problem).__name__}: {problem}")
            producer.close(0)
            self._producer = self._new_producer()
            self._go_back()
        except ClientError as problem:
            _say("aborted", f"{type(problem).__name__}: {problem}")
            self._go_back()
        else:
            _say("committed", len(records))

    def _go_back(self) -> None:
        """To what is committed: what was polled since is polled again."""
        places = self._consumer.committed(self._consumer.assignment())
        for partition, place in places.items():
            self._consumer.seek(partition, 0 if place is None else place.offset)


def _say(what: str, detail: object) -> None:
    sys.stdout.write(json.dumps({"what": what, "detail": detail}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    ClientCopying(ClientCopyOptions(**json.loads(sys.argv[1]))).run()
