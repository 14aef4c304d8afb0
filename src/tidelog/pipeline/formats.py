"""Spark columns for the formats of a source and of a sink, and the reason why a row is broken.

A source's rows get two columns: `parsed`, a struct with the columns of the schema, and `reason`,
null for a good row. JSON must be one object in UTF-8; a field that does not fit its column, and a
required column that is null, break the row. Fields that the schema does not name are left out.

Reasons are texts for people, without the record's bytes beyond a few characters of one field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.declaration import CSV, DECODED_FORMATS, JSON, RAW
from tidelog.pipeline.record_codecs import RecordCodec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidelog.pipeline.declaration import Format, Source

PARSED: Final = "__parsed"
REASON: Final = "__reason"
_DECODED: Final = "__decoded"
_BROKEN: Final = "__broken"
_SHOWN_CHARS: Final = 60


def judged(rows: DataFrame, source: Source, schema: StructType) -> DataFrame:
    """The rows of a topic with `PARSED` and `REASON` beside their own columns."""
    from pyspark.sql import functions as F

    kind = source.format.kind
    problem = F.lit(None).cast("string")
    text = F.col("value").cast("string")
    if kind in DECODED_FORMATS:
        codec = RecordCodec(source.format)
        # Lambdas, since Spark would read another kind of function out of the methods' type hints.
        decode = F.udf(lambda value: codec.decode(value), "text string, problem string")
        rows = rows.withColumn(_DECODED, decode("value"))
        text, problem = F.col(f"{_DECODED}.text"), F.col(f"{_DECODED}.problem")
    options = {**source.format.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    columns = _parse_schema(schema)
    if kind == CSV:
        rows = rows.withColumn(PARSED, F.from_csv(text, F.lit(columns.toDDL()), options))
    else:
        rows = rows.withColumn(PARSED, F.from_json(text, columns, options))
    shape = _csv_reason(text, schema) if kind == CSV else _json_reason(text, schema)
    reason = F.coalesce(problem, shape, _null_reason(required(schema, source)))
    return rows.withColumn(REASON, reason)


def required(schema: StructType, source: Source) -> list[str]:
    """Columns without which a row is broken: those declared so, and the one of event time."""
    names = [field.name for field in schema.fields if not field.nullable]
    watermark = source.watermark.column if source.watermark else None
    if watermark in schema.fieldNames() and watermark not in names:
        names.append(watermark)
    return names


def value_column(format: Format) -> Column:
    """All columns of a view as the value of a record."""
    from pyspark.sql import functions as F

    options = dict(format.options) or None
    if format.kind == CSV:
        return F.to_csv(F.struct("*"), options)
    text = F.to_json(F.struct("*"), options)
    if format.kind == JSON:
        return text
    assert format.kind != RAW, "raw values are written as they are"
    codec = RecordCodec(format)
    return F.udf(lambda row: codec.encode(row), "binary")(text)


def _parse_schema(schema: StructType) -> StructType:
    """All nullable: what is required is checked afterwards, with a reason."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(field.name, field.dataType, True) for field in schema.fields]
    return StructType([*fields, StructField(_BROKEN, StringType(), True)])


def _json_reason(text: Column, schema: StructType) -> Column:
    from pyspark.sql import functions as F

    trimmed = F.trim(text)
    is_object = trimmed.startswith("{") & trimmed.endswith("}")
    broken = F.col(f"{PARSED}.{_BROKEN}").isNotNull()
    misfits = [_misfit(text, field.name, field.dataType.simpleString()) for field in schema.fields]
    return (
        F.when(text.isNull(), F.lit("the record has no value"))
        .when(~F.is_valid_utf8(text), F.lit("is not UTF-8"))
        .when(~is_object, F.lit("is no JSON object"))
        .when(broken, F.coalesce(*misfits, F.lit("is no valid JSON")))
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
        F.when(text.isNull(), F.lit("the record has no value"))
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
