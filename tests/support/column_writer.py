"""Writes record batches for tests of the columnar client, with the settings of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client.blocking.producer import Producer
from tidelog.config.client import ProducerConfig

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.producer.delivery import ArrowDelivery
    from tidelog.types import TopicPartition


_made: list[ColumnWriter] = []


def close_writers() -> None:
    """Those that a test has left open would go on in the background of the next ones."""
    while _made:
        _made.pop().producer.close(timeout=0)


class ColumnWriter:
    def __init__(self, cluster: Cluster, *, topic: str | None = None) -> None:
        given = cluster.config.given
        known = {name: text for name, text in given.items() if ProducerConfig.TABLE.get(name)}
        self.producer = Producer(known)
        self._topic = topic
        _made.append(self)
        self._deliveries: list[ArrowDelivery] = []

    def __enter__(self) -> ColumnWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.producer.close()

    @property
    def unacknowledged_bytes(self) -> int:
        pool = self.producer._accumulator.pool
        return pool.total_bytes - pool.available_bytes

    def write(self, batch: Any) -> None:
        self._deliveries.append(self.producer.send_arrow(batch, self._topic))

    def flush(self) -> dict[TopicPartition, int]:
        """The last offset of every partition."""
        deliveries, self._deliveries = self._deliveries, []
        last: dict[TopicPartition, int] = {}
        for delivery in deliveries:
            for partition, offset in delivery.result().items():
                last[partition] = max(last.get(partition, -1), offset)
        return last
