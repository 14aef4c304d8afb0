"""Batch reading: Spark plans once in the driver, then executors read their ranges.

Both ends are resolved at planning, so a query reads the same records however late its tasks run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options import SourceOptions
from tidelog.spark.planning import OffsetRange, split_ranges
from tidelog.spark.ranges import ranges_within

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.types import Uuid


class RangePartition(InputPartition):
    """One task. Its offsets are those of the topic with this id, where it is known."""

    def __init__(self, wanted: OffsetRange, topic_id: Uuid | None) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.topic_id = topic_id


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark makes up a partition of its own when there are none."""
    from tidelog.spark.range_reader import read_range

    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(options, partition.wanted, partition.topic_id)


class TidelogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.spark.offset_reader import OffsetReader

        options = self.options
        start_limit, end_limit = options.batch_start(), options.batch_end()
        reader = OffsetReader(options)
        try:
            assigned = reader.assigned()
            start = reader.resolve_start(start_limit, assigned)
            end = reader.resolve_end(end_limit, assigned)
            earliest, latest = reader.earliest(assigned), reader.latest(assigned)
            topic_ids = reader.topic_ids()
        finally:
            reader.close()
        ranges = ranges_within(start, end, earliest, latest, options.data_loss)
        return [
            RangePartition(row, topic_ids.get(row.partition.topic))
            for row in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)
