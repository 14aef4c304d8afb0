"""Writes the shop's events to the topics, tick by tick, from a thread of its own.

A tick is flushed before the next begins, so whoever reads sees at most one tick in part. That is
what the shop's lateness allows for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError

if TYPE_CHECKING:
    from tidelog.client.column_producer import Producer
    from tidelog.demo.shop import Event, Shop

STOP_TIMEOUT_S: Final = 5.0


class EventFeed(threading.Thread):
    def __init__(self, shop: Shop, bootstrap: str, *, tick_s: float) -> None:
        super().__init__(name="event feed", daemon=True)
        self.shop = shop
        self.bootstrap = bootstrap
        self.tick_s = tick_s
        self.sent = 0
        self.failure: ClientError | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        from tidelog.client.column_producer import Producer

        config = {"bootstrap.servers": self.bootstrap, "compression.type": "lz4"}
        try:
            with Cluster(config) as cluster, Producer(cluster) as producer:
                self._feed(producer)
        except ClientError as failure:
            self.failure = failure

    def stop(self) -> None:
        """A broker that is gone may keep the thread busy; as a daemon it ends with the process."""
        self._stopping.set()
        self.join(STOP_TIMEOUT_S)

    def _feed(self, producer: Producer) -> None:
        due_s = time.monotonic()
        for events in self.shop.ticks():
            self._write(producer, events)
            due_s = max(due_s + self.tick_s, time.monotonic() - self.tick_s)
            if self._stopping.wait(max(0.0, due_s - time.monotonic())):
                return
        self._write(producer, self.shop.next_day())

    def _write(self, producer: Producer, events: Sequence[Event]) -> None:
        import pyarrow as pa

        if not events:
            return
        topics, keys, values = zip(*events, strict=True)
        columns = {
            "topic": pa.array(topics, pa.string()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
        producer.write(pa.RecordBatch.from_pydict(columns))
        producer.flush()
        self.sent += len(events)
