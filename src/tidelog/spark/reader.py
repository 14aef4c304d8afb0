"""Spark's interfaces for reading topics: batch queries and streaming queries.

A batch query is planned once, in the driver. Both ends are resolved then, so it reads the same
records however late its tasks run. A streaming query is planned batch by batch: one long-lived
process of the driver holds the reader and its MicroBatchStream, and executors get a pickled copy
that only reads. Tasks of both kinds read one range of offsets each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from tidelog.spark.micro_batch_stream import MicroBatchStream
from tidelog.spark.offset_ranges import OffsetRange, ranges_within, split_ranges
from tidelog.spark.offsets import StreamOffset, StreamOffsetJson
from tidelog.spark.options import SourceOptions, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from tidelog.types import Uuid

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """pyspark 4.1 knows no such thing: AvailableNow is one batch there."""


class RangePartition(InputPartition):
    """One task. Its offsets are those of the topic with this id, where it is known."""

    def __init__(self, wanted: OffsetRange, topic_id: Uuid | None) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.topic_id = topic_id


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark makes up a partition of its own when there are none."""
    from tidelog.spark.executor import read_range

    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(options, partition.wanted, partition.topic_id)


class TidelogReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        from tidelog.spark.offset_lookup import OffsetLookup

        options = self.options
        options.check_batch()
        start_limit, end_limit = options.batch_start(), options.batch_end()
        lookup = OffsetLookup(options)
        try:
            assigned = lookup.assigned()
            start = lookup.resolve_start(start_limit, assigned)
            end = lookup.resolve_end(end_limit, assigned)
            earliest, latest = lookup.earliest(assigned), lookup.latest(assigned)
            topic_ids = lookup.topic_ids()
        finally:
            lookup.close()
        ranges = ranges_within(start, end, earliest, latest, options.data_loss)
        return [
            RangePartition(row, topic_ids.get(row.partition.topic))
            for row in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made without I/O and without errors: Spark hides those of a constructor behind another."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._stream: MicroBatchStream | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_given": self._given, "_stream": None}

    @property
    def _driver(self) -> MicroBatchStream:
        if self._stream is None:
            self._stream = MicroBatchStream(source_options(self._given))
        return self._stream

    def initialOffset(self) -> StreamOffsetJson:
        return self._driver.initial_offset().to_json()

    def latestOffset(
        self, start: StreamOffsetJson | None = None, limit: ReadLimit | None = None
    ) -> StreamOffsetJson:
        if start is None:
            return self._driver.latest_without_start().to_json()
        is_limited = type(limit).__name__ != "ReadAllAvailable"
        return self._driver.next_end(StreamOffset.from_json(start), is_limited=is_limited).to_json()

    def getDefaultReadLimit(self) -> Any:
        """Which kind hardly matters: the options are known here. ReadAllAvailable would mean that
        Spark wants no limit, as in Trigger.Once."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        options = self._driver.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> StreamOffsetJson | None:
        latest = self._driver.latest
        return None if latest is None else latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.is_available_now = True

    def partitions(self, start: StreamOffsetJson, end: StreamOffsetJson) -> list[InputPartition]:
        until = StreamOffset.from_json(end)
        return [
            RangePartition(row, until.topic_ids.get(row.partition.topic))
            for row in self._driver.plan(StreamOffset.from_json(start), until)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(source_options(self._given), partition)

    def commit(self, end: StreamOffsetJson) -> None:
        self._driver.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
