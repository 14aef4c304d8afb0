"""Writing, batch and streaming, from Arrow record batches. At least once.

A task writes with an idempotent producer and ends when everything is acknowledged, so retries of
requests write nothing twice. A task that Spark runs again, and a micro-batch that is repeated after
a restart, do write their rows again: readers that need each row once drop duplicates by key. There
is nothing to commit or to take back, as in Spark's kafka sink.

Spark reuses its Python workers, so a worker keeps its producer from one task to the next
(`process_producer`).

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

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.blocking.producer import Producer
    from tidelog.client.producer.delivery import ArrowDelivery
    from tidelog.spark.options import SinkOptions

PRODUCERS_MAX: Final = 8
COLUMN_TYPES: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}

_producers: dict[tuple[int, tuple[tuple[str, str], ...]], Producer] = {}


class RowsWritten(WriterCommitMessage):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class RowSink:
    """What both kinds of writer share; travels to the executors."""

    def __init__(self, options: SinkOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns

    def write(self, batches: Iterator[pa.RecordBatch]) -> RowsWritten:
        producer = process_producer(self.options.producer_options())
        under_way: deque[ArrowDelivery] = deque()
        rows = 0
        for batch in batches:
            under_way.append(producer.send_arrow(batch.select(self.columns), self.options.topic))
            rows += batch.num_rows
            while under_way and under_way[0].done():
                under_way.popleft().result()
        for delivery in under_way:
            delivery.result()
        return RowsWritten(rows)


def process_producer(options: Mapping[str, str]) -> Producer:
    """The one of this process for that configuration; the least used are closed."""
    from tidelog.client.blocking.producer import Producer

    key = os.getpid(), tuple(sorted(options.items()))
    producer = _producers.pop(key, None)
    if producer is None:
        producer = Producer(options)
    _producers[key] = producer
    while len(_producers) > PRODUCERS_MAX:
        _producers.pop(next(iter(_producers))).close()
    return producer


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
