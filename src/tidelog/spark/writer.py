"""Writing, batch and streaming, from Arrow record batches. At least once.

A task writes with an idempotent producer of its own and ends when everything is acknowledged, so
retries of requests write nothing twice. A task that Spark runs again, and a micro-batch that is
repeated after a restart, do write their rows again: readers that need each row once drop duplicates
by key. There is nothing to commit or to take back, as in Spark's kafka sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.config.client import ClientConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.options import SinkOptions


class RowsWritten(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class RowSink:
    """What both kinds of writer share; travels to the executors."""

    def __init__(self, options: SinkOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns

    def write(self, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
        from tidelog.client.producer import Producer
        from tidelog.spark.process_cluster import process_cluster

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
