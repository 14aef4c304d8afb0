"""Records decoded into columns, and those that are broken as dead letters; for any PySpark program.

`decode` keeps the rows of the connector as they are and adds two columns: `__parsed`, a struct with
the columns of the schema, and `__reason`, null for a good row. `good_rows` makes a table of the
good ones, `dead_letters` makes records of the others. JSON must be one object in UTF-8; a field
that does not fit its column, and a required column that is null, break the row. Fields that the
schema does not name are left out.

Reasons are texts for people, without the record's bytes beyond a few characters of one field. A
dead letter is the record as it came, with headers that say why:

    dead-letter.reason      why the row could not be parsed
    dead-letter.source      the name that the program gives the source
    dead-letter.topic, dead-letter.partition, dead-letter.offset    where the record stands

The functions look at no DataFrame's schema, so they also work where Spark allows no analysis: in
the functions of a Spark Declarative Pipeline. There the schema must be a StructType, made outside
of the function, since Spark is asked what DDL means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.codecs.errors import SchemaError
from tidelog.spark.codecs.record_codecs import (
    NO_VALUE,
    PARSED_FIELD,
    REASON_FIELD,
    RecordDecoder,
    arrow_type,
    decoded,
)
from tidelog.spark.record_format import CSV, DECODED_FORMATS, RAW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidelog.spark.record_format import RecordFormat

PARSED: Final = "__parsed"
REASON: Final = "__reason"
# What becomes of a record without a value.
DEAD_LETTER, KEEP, DROP = "dead-letter", "keep", "drop"
# Columns of a record that a table of good rows has too, with an underscore before them.
METADATA: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
HEADER_PREFIX: Final = "dead-letter."
_DECODED: Final = "__decoded"
_BROKEN: Final = "__broken"
_SHOWN_CHARS: Final = 60
_JSON_SPACE: Final = " \t\r\n"
_BEHIND: Final = "tidelog:behind"
_VALUE_BYTES_MAX: Final = 2**31 - 1


def decode(
    rows: DataFrame,
    format: RecordFormat,
    *,
    required: Iterable[str] = (),
    tombstones: str = DEAD_LETTER,
) -> DataFrame:
    """The rows of `format("tidelog")`, read with `includeHeaders`, with `__parsed` and `__reason`.

    A row is broken without a value in a column that the schema calls `not null` or that `required`
    names. `tombstones` says what becomes of records without a value: "dead-letter", "keep" (a row
    whose columns are null) or "drop". Raises SchemaError for columns that the format's own schema
    can never fill, and what Spark raises for a schema that is none."""
    from pyspark.sql import functions as F

    if tombstones == DROP:
        rows = rows.where("value is not null")
    if format.kind == RAW:
        rows = rows.withColumn(PARSED, F.struct("value"))
        return rows.withColumn(REASON, F.lit(None).cast("string"))
    # Spark would parse a record again for every column and filter that is made of it; it does not
    # move a filter below a column that is not deterministic, so REASON is made one.
    columns = columns_of(format)
    _refuse_metadata(columns)
    rows = _judged(rows, format, columns, list(required))
    reason = F.when(F.spark_partition_id() >= 0, F.col(REASON))
    if tombstones == KEEP:
        reason = F.when(F.col("value").isNotNull(), reason)
    return rows.withColumn(REASON, reason)


def good_rows(rows: DataFrame) -> DataFrame:
    """Of decoded rows a table of the good ones: the columns of the schema (of raw records `value`),
    and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_headers` of the record."""
    return rows.where(f"{REASON} is null").selectExpr(*TABLE_COLUMNS).drop(_BROKEN)


# Of a table of good rows, made of the columns of decoded ones.
TABLE_COLUMNS: Final = (f"{PARSED}.*", *(f"{name} as _{name}" for name in METADATA))


def dead_letters(rows: DataFrame, topic: str, source: str) -> DataFrame:
    """Of decoded rows the broken ones, as records for `format("tidelog")` to write to `topic`.
    `__reason` stands beside them; the sink ignores it."""
    from pyspark.sql import functions as F

    told = {
        "reason": F.col(REASON),
        "source": F.lit(source),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
    }
    added = [
        F.struct(F.lit(HEADER_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
        for name, text in told.items()
    ]
    kind = "array<struct<key: string, value: binary>>"
    own = F.coalesce("headers", F.array().cast(kind))
    headers = F.concat(own, F.array(*added)).cast(kind)
    broken = rows.where(f"{REASON} is not null")
    return broken.select(
        F.lit(topic).alias("topic"), "key", "value", headers.alias("headers"), F.col(REASON)
    )


def columns_of(format: RecordFormat) -> StructType:
    """Of the schema; raises what Spark raises for one that is none."""
    from pyspark.sql.types import StructType

    if isinstance(format.schema, StructType):
        return format.schema
    schema = StructType.fromDDL(format.schema)
    assert isinstance(schema, StructType), schema
    return schema


def _refuse_metadata(columns: StructType) -> None:
    """A table would have two columns of one name, which no query can tell apart."""
    reserved = {f"_{name}" for name in METADATA}
    for name in columns.fieldNames():
        if name.lower() in reserved:
            raise SchemaError(f"column {name}: the record has a column of that name; rename it")


def codec_arguments(format: RecordFormat) -> dict[str, Any]:
    return {
        "schema": format.schema_file.read_bytes() if format.schema_file else b"",
        "message": format.message,
        "schemas": format.schemas,
        "is_framed": format.is_confluent,
    }


def _judged(
    rows: DataFrame, format: RecordFormat, schema: StructType, required: list[str]
) -> DataFrame:
    from pyspark.sql import functions as F

    names = [field.name for field in schema.fields if not field.nullable]
    names += [name for name in required if name in schema.fieldNames() and name not in names]
    missing = _null_reason(names)
    if format.kind in DECODED_FORMATS:
        rows = _decoded(rows, format, schema)
        return rows.withColumn(REASON, F.coalesce(f"{_DECODED}.{REASON_FIELD}", missing))
    text, problem = F.col("value").cast("string"), F.lit(None).cast("string")
    if format.is_confluent:
        text = F.substring("value", 6, _VALUE_BYTES_MAX).cast("string")
        problem = _frame_reason()
    options = {**format.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    columns = _parse_schema(schema)
    if format.kind == CSV:
        rows = rows.withColumn(PARSED, F.from_csv(text, _ddl(columns), options))
        shape = _csv_reason(text, schema)
    else:
        rows = rows.withColumn(PARSED, F.from_json(text, columns, options))
        shape = _json_reason(text, schema, format.options)
    return rows.withColumn(REASON, F.coalesce(problem, shape, missing))


def _decoded(rows: DataFrame, format: RecordFormat, schema: StructType) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    # All nullable: what is required is checked afterwards, with a reason.
    columns = StructType([StructField(row.name, row.dataType, True) for row in schema.fields])
    decoder = RecordDecoder(
        format.kind,
        arrow_type(columns),
        zone=rows.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC",
        **codec_arguments(format),
    )
    decoder.check()
    rows = rows.withColumn(_DECODED, decoded("value", decoder, columns))
    return rows.withColumn(PARSED, F.col(f"{_DECODED}.{PARSED_FIELD}"))


def _parse_schema(schema: StructType) -> StructType:
    """All nullable: what is required is checked afterwards, with a reason."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(field.name, field.dataType, True) for field in schema.fields]
    return StructType([*fields, StructField(_BROKEN, StringType(), True)])


def _ddl(columns: StructType) -> str:
    """As StructType.toDDL, which asks Spark."""
    return ", ".join(
        f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}"
        for field in columns.fields
    )


def _frame_reason() -> Column:
    from pyspark.sql import functions as F

    return (
        F.when(F.col("value").isNull(), F.lit(NO_VALUE))
        .when(F.length("value") < 5, F.lit("has no frame: it is shorter than 5 bytes"))
        .when(
            ~F.col("value").startswith(F.lit(b"\0")), F.lit("has no frame: its first byte is not 0")
        )
    )


def _json_reason(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    from pyspark.sql import functions as F

    trimmed = F.trim(text, F.lit(_JSON_SPACE))
    is_object = trimmed.startswith("{") & trimmed.endswith("}")
    broken = F.col(f"{PARSED}.{_BROKEN}").isNotNull()
    misfits = [_misfit(text, field.name, field.dataType.simpleString()) for field in schema.fields]
    return (
        F.when(text.isNull(), F.lit(NO_VALUE))
        .when(~F.is_valid_utf8(text), F.lit("is not UTF-8"))
        .when(~is_object, F.lit("is no JSON object"))
        .when(broken, F.coalesce(*misfits, F.lit("is no valid JSON")))
        .when(~_is_alone(trimmed, options), F.lit("has more behind its JSON object"))
    )


def _is_alone(text: Column, options: Mapping[str, str]) -> Column:
    """Whether nothing follows the object: Spark reads the first value of a text and drops the rest.
    Nothing does where the first brace that closes is also the end, as in all flat objects. Else, as
    an item of an array, the object ends before the item that is put behind it. The first look for
    that is fast and knows plain JSON, so a text with NaN or a comment is parsed by the options."""
    from pyspark.sql import functions as F

    items = F.concat(F.lit("["), text, F.lit(f'\n,"{_BEHIND}"]'))
    parsed = F.from_json(items, "array<string>", {**options, "mode": "PERMISSIVE"})
    return (
        F.when(F.instr(text, "}") == F.length(text), F.lit(True))
        .when(F.get_json_object(items, "$[1]") == _BEHIND, F.lit(True))
        .otherwise(F.get(parsed, F.lit(1)).eqNullSafe(_BEHIND))
    )


def _misfit(text: Column, name: str, type_name: str) -> Column:
    """Says so when the field is there but its column could not be filled."""
    from pyspark.sql import functions as F

    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    found = F.get_json_object(text, f"$['{escaped}']")
    shown = F.substring(found, 1, _SHOWN_CHARS)
    told = F.concat(F.lit(f"field {name}: "), shown, F.lit(f" is no {type_name}"))
    return F.when(F.col(PARSED)[name].isNull() & found.isNotNull(), told)


def _csv_reason(text: Column, schema: StructType) -> Column:
    from pyspark.sql import functions as F

    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
    broken = F.col(f"{PARSED}.{_BROKEN}").isNotNull()
    return (
        F.when(text.isNull(), F.lit(NO_VALUE))
        .when(~F.is_valid_utf8(text), F.lit("is not UTF-8"))
        .when(broken, F.lit(f"is no CSV row of ({columns})"))
    )


def _null_reason(names: list[str]) -> Column:
    from pyspark.sql import functions as F

    missing = [
        F.when(F.col(PARSED)[name].isNull(), F.lit(f"required field {name} is missing"))
        for name in names
    ]
    return F.coalesce(*missing, F.lit(None).cast("string"))
