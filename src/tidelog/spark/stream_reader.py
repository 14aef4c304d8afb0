"""Streaming reading: Spark's interface around a StreamState. One long-lived process of the driver
holds the reader and asks for offsets; executors get a pickled copy that only reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from tidelog.spark.offsets import StreamOffset, StreamOffsetJson
from tidelog.spark.options import source_options
from tidelog.spark.reader import RangePartition, read_partition
from tidelog.spark.stream_state import StreamState

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """pyspark 4.1 knows no such thing: AvailableNow is one batch there."""


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made without I/O and without errors: Spark hides those of a constructor behind another."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = dict(given)
        self._state: StreamState | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_given": self._given, "_state": None}

    @property
    def _driver(self) -> StreamState:
        if self._state is None:
            self._state = StreamState(source_options(self._given))
        return self._state

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
        if self._state is not None:
            self._state.close()
