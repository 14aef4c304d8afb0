"""Python sources without a broker, to measure Spark itself.

ceiling    batch: prebuilt Arrow batches in the schema of the kafka source, 50,000 rows each
floor      stream: every batch has one row a partition
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
BATCH_ROWS = 50_000


def rows_of(partition: int, first: int, count: int) -> Any:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"%08d" % n for n in range(count)], pa.binary()),
            pa.array([b"v" * 100] * count, pa.binary()),
            pa.array(["ceiling"] * count, pa.string()),
            pa.array([partition] * count, pa.int32()),
            pa.array(range(first, first + count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
    )


_built: dict[int, Any] = {}


class CeilingReader(DataSourceReader):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = _built.get(partition.value)
        if batch is None:
            batch = _built[partition.value] = rows_of(partition.value, 0, BATCH_ROWS)
        for _ in range(self.rows // 2 // BATCH_ROWS):
            yield batch


class CeilingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> CeilingReader:
        return CeilingReader(int(self.options["rows"]))


class FloorReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"offset": start["offset"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield rows_of(partition.value, 0, 1)


class FloorSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> FloorReader:
        return FloorReader()
