"""Rows of Arrow tables as batches for the accumulator: partitioned and encoded by the column.

Nothing is gained by small batches here, so they grow to COLUMN_BATCH_BYTES unless `batch.size` was
set. The rows of a partition keep their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog.client.columns.partitioner import TopicPartitioner, require_partitions
from tidelog.client.columns.produce_columns import (
    KernelColumns,
    ProduceRows,
    by_partition,
    rows_by_topic,
)
from tidelog.client.producer.async_producer import partitions_of, settings_of
from tidelog.record.batch import HEADER_SIZE
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.client.network.metadata import TopicView
    from tidelog.client.producer.batch import EncodedRecords
    from tidelog.client.producer.partitioners import Partitioner
    from tidelog.config.client import ProducerConfig

COLUMN_BATCH_BYTES: Final = 512 * 1024
# Rows that are looked at together, which the event loop has to wait for.
_SLICE_ROWS: Final = 64 * 1024
# What a request takes besides its batches, generously.
_REQUEST_OVERHEAD_BYTES: Final = 512


class ArrowRows:
    """Of one producer; it remembers which partition of a topic is next."""

    __slots__ = ("_batch_bytes", "_kind", "_partitioner", "_topics")

    def __init__(self, config: ProducerConfig, partitioner: Partitioner | None) -> None:
        settings = settings_of(config)
        is_given = "batch.size" in config.given
        wanted = settings.batch_bytes if is_given else COLUMN_BATCH_BYTES
        room = settings.request_bytes_max - HEADER_SIZE - _REQUEST_OVERHEAD_BYTES
        self._batch_bytes = max(1, min(wanted, room))
        self._kind = config.partitioner
        if self._kind == "default" and not settings.hashes_keys:
            self._kind = "sticky"
        self._partitioner = None if self._kind == "round-robin" else partitioner
        self._topics: dict[str, TopicPartitioner] = {}

    def by_topic(self, table: Any, topic: str | None) -> Iterator[tuple[str, ProduceRows]]:
        if isinstance(table, pa.Table):
            pieces = table.to_batches(max_chunksize=_SLICE_ROWS)
        else:
            pieces = [
                table.slice(start, _SLICE_ROWS) for start in range(0, table.num_rows, _SLICE_ROWS)
            ]
        for piece in pieces:
            for name, rows in rows_by_topic(piece, topic):
                if rows.rows_count:
                    yield name, rows

    def encoded(
        self, view: TopicView, rows: ProduceRows, now_ms: int
    ) -> Iterator[tuple[TopicPartition, EncodedRecords, int]]:
        """Partition, the records of a batch, and how many they are."""
        order, runs = by_partition(self._partitions(view, rows))
        columns = KernelColumns(rows, now_ms, order)
        for partition, start, stop in runs:
            for first, last in columns.cut(start, stop, self._batch_bytes):
                encoded = columns.encode(first, last, HEADER_SIZE)
                yield TopicPartition(view.name, partition), encoded, last - first

    def _partitions(self, view: TopicView, rows: ProduceRows) -> Any:
        if self._partitioner is not None:
            return self._partitions_by_row(view, rows)
        partitioner = self._topics.get(view.name)
        if partitioner is None:
            made = TopicPartitioner(self._kind, self._batch_bytes)
            partitioner = self._topics[view.name] = made
        return partitioner.partitions(view, rows.keys, rows.partitions, rows.average_bytes)

    def _partitions_by_row(self, view: TopicView, rows: ProduceRows) -> Any:
        """A partitioner of the application wants to see every row."""
        assert self._partitioner is not None
        choices = partitions_of(view)
        given = [None] * rows.rows_count if rows.partitions is None else rows.partitions.to_pylist()
        chosen = [
            self._partitioner(view.name, key, value, choices) if partition is None else partition
            for partition, key, value in zip(
                given, rows.keys.to_pylist(), rows.values.to_pylist(), strict=True
            )
        ]
        partitions = pa.array(chosen, pa.int32())
        require_partitions(view, partitions)
        return partitions
