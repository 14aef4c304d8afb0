"""`format("tidelog")`: what Spark asks for a schema, readers and writers.

Options that no query could work with are refused in `schema()`, so by `load()`. Whether a query is
batch or streaming is known later; what only one of them refuses is told when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader

from tidelog.spark.options import InvalidOption, sink_options, source_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidelog.spark.reader import TidelogStreamReader
    from tidelog.spark.writer import RowSink, TidelogStreamWriter, TidelogWriter

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
HEADERS: Final = ", headers array<struct<key: string, value: binary>>"


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        return SCHEMA + (HEADERS if source_options(self.options).include_headers else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options)
        _refuse_other(schema, options.include_headers)
        if options.path is not None:
            from tidelog.spark.log_reader import LogReader

            return LogReader(options)
        from tidelog.spark.reader import TidelogReader

        return TidelogReader(options)

    def streamReader(self, schema: StructType) -> TidelogStreamReader:
        from tidelog.spark.reader import TidelogStreamReader

        _refuse_other(schema, source_options(self.options).include_headers)
        return TidelogStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> TidelogWriter:
        from tidelog.spark.writer import TidelogWriter

        if overwrite:
            raise InvalidOption("mode", "a topic cannot be overwritten; use append")
        return TidelogWriter(_sink(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> TidelogStreamWriter:
        """Complete mode comes as `overwrite` and appends the whole result each time."""
        from tidelog.spark.writer import TidelogStreamWriter

        return TidelogStreamWriter(_sink(self.options, schema))


def _sink(given: Mapping[str, str], schema: StructType) -> RowSink:
    from tidelog.spark.writer import RowSink, written_columns

    options = sink_options(given)
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return RowSink(options, written_columns(columns, options.topic))


def _refuse_other(schema: StructType, include_headers: bool) -> None:
    """A schema that the user gave reaches only the reader."""
    wanted = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    if schema.fieldNames() != wanted + (["headers"] if include_headers else []):
        raise InvalidOption("schema", "the source has a schema of its own; leave out .schema(...)")
