"""Columns encoded into the values of records; for any PySpark program.

Columns are left out by a pattern and not by `drop`: a Spark Declarative Pipeline cannot drop
columns of a view that it has not resolved yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.spark.codecs.record_codecs import RecordEncoder, arrow_type, encoded
from tidelog.spark.decoding import codec_arguments
from tidelog.spark.record_format import CSV, JSON, RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tidelog.spark.record_format import RecordFormat


# Of a record that was read; it is no part of a value.
HEADERS: Final = "_headers"


def encode(rows: DataFrame, format: RecordFormat, key: str = "") -> DataFrame:
    """All columns but `_headers` as the `value` of a record, and a SQL expression over them as its
    `key`. Raw rows stay as they are but for the key. Raises SchemaError for columns that never fit
    the schema of the format. Avro, Protobuf and JSON with a frame ask Spark for the columns of
    `rows`."""
    from pyspark.sql import functions as F

    keys = [F.expr(key).cast("string").alias("key")] if key else []
    if format.kind == RAW:
        return rows.select(_all_but(rows, "key"), *keys) if keys else rows
    rows = without_headers(rows)
    return rows.select(*keys, _value(rows, format).alias("value"))


def without_headers(rows: DataFrame) -> DataFrame:
    """The rows of a table that `good_rows` made, without `_headers`, if they have it."""
    return rows.select(_all_but(rows, HEADERS))


def _all_but(rows: DataFrame, name: str) -> Column:
    return rows.colRegex(f"`(?s)(?!{name}$).*`")


def _value(rows: DataFrame, format: RecordFormat) -> Column:
    from pyspark.sql import functions as F

    options = dict(format.options) or None
    if format.kind == CSV:
        return F.to_csv(F.struct("*"), options)
    if format.kind == JSON and not format.is_confluent:
        return F.to_json(F.struct("*"), options)
    encoder = RecordEncoder(
        format.kind, arrow_type(rows.schema), subject=format.subject, **codec_arguments(format)
    )
    encoder.check()
    values = F.to_json(F.struct("*"), options) if format.kind == JSON else F.struct("*")
    return encoded(values, encoder)
