"""A cluster for tests of columns: ranges are read from it, and writers have its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.blocking.producer import Producer
from tidelog.config.client import ConsumerConfig, ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.producer.delivery import ArrowDelivery
    from tidelog.clock import Clock
    from tidelog.types import TopicPartition


class ColumnCluster(BlockingCluster):
    """Options of both kinds of client; each takes those that it knows."""

    def __init__(self, options: Mapping[str, object], clock: Clock | None = None) -> None:
        self.options = dict(options)
        known = {name: value for name, value in options.items() if ConsumerConfig.TABLE.get(name)}
        super().__init__(known, clock)


_made: list[ColumnWriter] = []


def close_writers() -> None:
    """Those that a test has left open would go on in the background of the next ones."""
    while _made:
        _made.pop().producer.close(timeout=0)


class ColumnWriter:
    def __init__(self, cluster: ColumnCluster, *, topic: str | None = None) -> None:
        given = cluster.options
        known = {name: value for name, value in given.items() if ProducerConfig.TABLE.get(name)}
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
