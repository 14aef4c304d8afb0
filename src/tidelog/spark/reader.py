"""Batch reading: Spark plans once in the driver, then executors read their ranges.

Both ends are resolved at planning, so a query reads the same records however late its tasks run.

    start past the log's end          an error, whatever failOnDataLoss says
    start before the log's start      data loss; with failOnDataLoss=false from the log's start
    end past the log's end            data loss; with failOnDataLoss=false up to the log's end
    start after end                   an error
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.offsets import PartitionOffsets
from tidelog.spark.options import InvalidOption, SourceOptions
from tidelog.spark.planning import OffsetRange, split_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.data_loss import DataLossPolicy


class RangePartition(InputPartition):
    """One task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark makes up a partition of its own when there are none."""
    from tidelog.spark.range_reader import read_range

    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(options, partition.wanted)


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
        finally:
            reader.close()
        ranges = ranges_within(start, end, earliest, latest, options.data_loss)
        return [
            RangePartition(row)
            for row in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)


def ranges_within(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    data_loss: DataLossPolicy,
) -> list[OffsetRange]:
    """What of the wanted offsets the logs hold."""
    ranges = []
    for partition, start_offset in start.items():
        end_offset, log_end = end[partition], latest[partition]
        if start_offset > log_end:
            raise InvalidOption(
                "startingOffsets",
                f"{start_offset} of {partition} lies beyond the end of its log, {log_end}",
            )
        if start_offset > end_offset:
            raise InvalidOption(
                "startingOffsets",
                f"{partition} would start at {start_offset}, after its end at {end_offset}",
            )
        if start_offset < earliest[partition]:
            data_loss.report(
                f"{partition} cannot be read from {start_offset}: its log begins at "
                f"{earliest[partition]}"
            )
            start_offset = earliest[partition]
        if end_offset > log_end:
            data_loss.report(
                f"{partition} cannot be read up to {end_offset}: its log ends at {log_end}"
            )
            end_offset = log_end
        ranges.append(OffsetRange(partition, start_offset, end_offset))
    return ranges
