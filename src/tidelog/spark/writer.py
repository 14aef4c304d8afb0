"""Writing, batch and streaming, from Arrow record batches. At least once.

A task writes with an idempotent producer of its own and ends when everything is acknowledged, so
retries of requests write nothing twice. A task that Spark runs again, and a micro-batch that is
repeated after a restart, do write their rows again: readers that need each row once drop duplicates
by key. There is nothing to commit or to take back, as in Spark's kafka sink.

The columns of a DataFrame that are written, and their types

    value       string or binary, required
    key         string or binary
    headers     array<struct<key:string,value:binary>>
    topic       string; required when the option `topic` is not set, unused when it is
    partition   int; null leaves it to the partitioner

Names are case-sensitive. Other columns, `timestamp` among them, are not written: the broker or the
time of writing decides, as in Spark's kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.config.client import ClientConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.options import SinkOptions


COLUMN_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class RowsWritten(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class RowSink:
    """What both kinds of writer share; travels to the executors."""

    def __init__(self, options: SinkOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns

    def write(self, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
        from tidelog.client.column_producer import Producer
        from tidelog.spark.executor import process_cluster

        cluster = process_cluster(ClientConfig(self.options.client))
        rows = 0
        with Producer(cluster, topic=self.options.topic) as producer:
            for batch in batches:
                producer.write(batch.select(self.columns))
                rows += batch.num_rows
        return RowsWritten(rows)


class TidelogWriter(DataSourceArrowWriter):
    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return self._sink.write(iterator)


class TidelogStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: RowSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        pass


class InvalidSinkSchema(ValueError):
    """Names the column at fault and what it may be."""


def written_columns(columns: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Of (name, Spark's simple type name) those to write, in the order above."""
    given: dict[str, str] = {}
    for name, type_name in columns:
        given.setdefault(name, type_name)
    if "value" not in given:
        raise InvalidSinkSchema(
            f"the required column 'value' is not there; the columns are {', '.join(given)}"
        )
    if topic is None and "topic" not in given:
        raise InvalidSinkSchema(
            "no topic to write to: set the option 'topic', or have a column 'topic'"
        )
    written = [name for name in COLUMN_TYPES if name in given and not (name == "topic" and topic)]
    for name in written:
        if given[name] not in COLUMN_TYPES[name]:
            raise InvalidSinkSchema(
                f"column '{name}' of type {given[name]} cannot be written; it must be "
                f"{' or '.join(COLUMN_TYPES[name])}"
            )
    return written
