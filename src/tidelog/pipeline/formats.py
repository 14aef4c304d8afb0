"""Spark columns for the formats of a source and of a sink, and the reason why a row is broken.

A source's rows get two columns: `parsed`, a struct with the columns of the schema, and `reason`,
null for a good row. JSON must be one object in UTF-8; a field that does not fit its column, and a
required column that is null, break the row. Fields that the schema does not name are left out.

Reasons are texts for people, without the record's bytes beyond a few characters of one field.

Avro and Protobuf are decoded and encoded by `record_codecs`. JSON with Confluent's frame loses five
bytes in reading, and gets them in writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration import CSV, DECODED_FORMATS, JSON, RAW
from tidelog.pipeline.record_codecs import (
    PARSED_FIELD,
    REASON_FIELD,
    RecordDecoder,
    RecordEncoder,
    arrow_type,
    decoded,
    encoded,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from tidelog.pipeline.declaration import Format, Source

PARSED: Final = "__parsed"
REASON: Final = "__reason"
_DECODED: Final = "__decoded"
_BROKEN: Final = "__broken"
_SHOWN_CHARS: Final = 60
_VALUE_BYTES_MAX: Final = 2**31 - 1


def judged(rows: DataFrame, source: Source, schema: StructType) -> DataFrame:
    """The rows of a topic with `PARSED` and `REASON` beside their own columns.

    Raises SchemaError for columns that the source's own schema can never fill."""
    from pyspark.sql import functions as F

    kind = source.format.kind
    missing = _null_reason(required(schema, source))
    if kind in DECODED_FORMATS:
        rows = _decoded(rows, source.format, schema)
        return rows.withColumn(REASON, F.coalesce(f"{_DECODED}.{REASON_FIELD}", missing))
    text, problem = F.col("value").cast("string"), F.lit(None).cast("string")
    if source.format.is_confluent:
        text = F.substring("value", 6, _VALUE_BYTES_MAX).cast("string")
        problem = _frame_reason()
    options = {**source.format.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    columns = _parse_schema(schema)
    if kind == CSV:
        rows = rows.withColumn(PARSED, F.from_csv(text, F.lit(columns.toDDL()), options))
    else:
        rows = rows.withColumn(PARSED, F.from_json(text, columns, options))
    shape = _csv_reason(text, schema) if kind == CSV else _json_reason(text, schema)
    return rows.withColumn(REASON, F.coalesce(problem, shape, missing))


def _decoded(rows: DataFrame, format: Format, schema: StructType) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    # All nullable: what is required is checked afterwards, with a reason.
    columns = StructType([StructField(row.name, row.dataType, True) for row in schema.fields])
    decoder = RecordDecoder(
        format.kind,
        arrow_type(columns),
        zone=rows.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC",
        **_codec_arguments(format),
    )
    decoder.check()
    rows = rows.withColumn(_DECODED, decoded("value", decoder, columns))
    return rows.withColumn(PARSED, F.col(f"{_DECODED}.{PARSED_FIELD}"))


def _codec_arguments(format: Format) -> dict[str, Any]:
    return {
        "schema": format.schema_file.read_bytes() if format.schema_file else b"",
        "message": format.message,
        "schemas": format.schemas,
        "is_framed": format.is_confluent,
    }


def required(schema: StructType, source: Source) -> list[str]:
    """Columns without which a row is broken: those declared so, and the one of event time."""
    names = [field.name for field in schema.fields if not field.nullable]
    watermark = source.watermark.column if source.watermark else None
    if watermark in schema.fieldNames() and watermark not in names:
        names.append(watermark)
    return names


def value_column(format: Format, columns: StructType) -> Column:
    """All columns of a view as the value of a record; raises SchemaError for those that never fit
    the schema of the format."""
    from pyspark.sql import functions as F

    options = dict(format.options) or None
    if format.kind == CSV:
        return F.to_csv(F.struct("*"), options)
    assert format.kind != RAW, "raw values are written as they are"
    if format.kind == JSON and not format.is_confluent:
        return F.to_json(F.struct("*"), options)
    encoder = RecordEncoder(
        format.kind, arrow_type(columns), subject=format.subject, **_codec_arguments(format)
    )
    encoder.check()
    rows = F.to_json(F.struct("*"), options) if format.kind == JSON else F.struct("*")
    return encoded(rows, encoder)


def _parse_schema(schema: StructType) -> StructType:
    """All nullable: what is required is checked afterwards, with a reason."""
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(field.name, field.dataType, True) for field in schema.fields]
    return StructType([*fields, StructField(_BROKEN, StringType(), True)])


def _frame_reason() -> Column:
    from pyspark.sql import functions as F

    return (
        F.when(F.col("value").isNull(), F.lit("the record has no value"))
        .when(F.length("value") < 5, F.lit("has no frame: it is shorter than 5 bytes"))
        .when(
            ~F.col("value").startswith(F.lit(b"\0")), F.lit("has no frame: its first byte is not 0")
        )
    )


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
