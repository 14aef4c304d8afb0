"""The JSON Schema of columns as Spark writes them in JSON: nulls are left out, times are texts."""

from __future__ import annotations

from typing import Any

from pyarrow import types

from tidelog.spark.codecs.column_types import TIMESTAMP


def schema_of_columns(columns: Any) -> dict[str, Any]:
    """As a registry takes it, of an Arrow struct."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_object(columns)}


def _object(columns: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _type(field.type) for field in columns},
    }
    if required := [field.name for field in columns if not field.nullable]:
        made["required"] = required
    return made


def _type(kind: Any) -> dict[str, Any]:
    if types.is_struct(kind):
        return _object(kind)
    if types.is_map(kind):
        return {"type": "object", "additionalProperties": _nullable(kind.item_field)}
    if types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field)}
    if types.is_boolean(kind):
        return {"type": "boolean"}
    if types.is_integer(kind):
        return {"type": "integer"}
    if types.is_floating(kind):
        # Spark writes what is no number, such as NaN, as a text.
        return {"type": ["number", "string"]}
    if types.is_decimal(kind):
        return {"type": "number"}
    if types.is_date(kind):
        return {"type": "string", "format": "date"}
    return {"type": "string", "format": "date-time"} if kind == TIMESTAMP else {"type": "string"}


def _nullable(field: Any) -> dict[str, Any]:
    made = _type(field.type)
    return {"oneOf": [{"type": "null"}, made]} if field.nullable else made
