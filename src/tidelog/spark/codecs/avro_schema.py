"""Avro schemas: parsed once, with the named types that they use, and made of columns.

A schema inside here is a dict whose "type" is a word, or a list for a union. `AvroSchema.of` gives
that form for any place in a schema; names are looked up there, so a type may contain itself.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any, Final

from pyarrow import types

from tidelog.spark.codecs.column_types import TIMESTAMP, spark_name
from tidelog.spark.codecs.errors import SchemaError

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
DECIMAL_PRECISION_MAX: Final = 38
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Schema = dict[str, Any] | list[Any]


class AvroSchema:
    """`references` are the texts of schemas whose types this one names, in the order of use."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException

        self.text = text
        self.names: dict[str, Any] = {}
        try:
            for reference in references:
                parse_schema(json.loads(reference), self.names)
            self.root = self.of(parse_schema(json.loads(text), self.names))
        except SchemaParseException as problem:
            raise SchemaError(f"is no Avro schema: {problem}") from None
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
            told = f"{type(problem).__name__}: {problem}"
            raise SchemaError(f"is no Avro schema: {told}") from None

    def of(self, place: Any) -> Schema:
        if isinstance(place, list):
            return place
        if isinstance(place, dict):
            inner = place["type"]
            return self.of(inner) if isinstance(inner, dict | list) else self._named(place, inner)
        return {"type": place} if place in PRIMITIVES else self.of(self.names[place])

    def _named(self, place: dict[str, Any], word: str) -> Schema:
        return self.of(self.names[word]) if word in self.names else place

    def encoded_default(self, place: Any, default: Any) -> bytes:
        """The default of a field, as Avro writes it."""
        from fastavro import schemaless_writer

        stream = io.BytesIO()
        whole = {"type": "record", "name": "default_", "fields": [{"name": "d", "type": place}]}
        try:
            value = self._of_json(place, default)
            schemaless_writer(stream, _with_definitions(whole, self.names), {"d": value})
        except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as problem:
            raise SchemaError(f"default {default!r} does not fit: {problem}") from None
        return stream.getvalue()

    def _of_json(self, place: Any, value: Any) -> Any:
        """Bytes are texts in JSON, a character a byte; a union's default is of its first type."""
        schema = self.of(place)
        if isinstance(schema, list):
            return self._of_json(schema[0], value)
        kind = schema["type"]
        if kind in ("bytes", "fixed"):
            return value.encode("latin-1")
        if kind == "array":
            return [self._of_json(schema["items"], item) for item in value]
        if kind == "map":
            return {key: self._of_json(schema["values"], item) for key, item in value.items()}
        if kind in ("record", "error"):
            return {
                field["name"]: self._of_json(
                    field["type"],
                    value[field["name"]] if field["name"] in value else field["default"],
                )
                for field in schema["fields"]
            }
        return value


def _with_definitions(whole: dict[str, Any], names: dict[str, Any]) -> Any:
    """`whole` parsed beside the named types that it may use, which stay as they are."""
    from fastavro import parse_schema

    return parse_schema(whole, dict(names))


def schema_name(schema: Schema) -> str:
    """A few words for a reason: the type, and the name where it has one."""
    if isinstance(schema, list):
        return "union"
    kind = schema["type"]
    if kind in NAMED:
        return f"{kind} {schema['name']}"
    return f"{kind} ({schema['logicalType']})" if "logicalType" in schema else str(kind)


def schema_of_columns(columns: Any, name: str) -> str:
    """The schema of a record with these columns, an Arrow struct; null is each one's default."""
    return json.dumps(_record(columns, re.sub(r"\W", "_", name, flags=re.ASCII) or "_", []))


def _record(columns: Any, name: str, path: list[str]) -> dict[str, Any]:
    if not _NAME.fullmatch(name):
        name = f"_{name}"
    fields: list[dict[str, Any]] = []
    for field in columns:
        if not _NAME.fullmatch(field.name):
            fix = "rename it, since Avro's names have only letters, digits and _"
            raise SchemaError(f"column {'.'.join([*path, field.name])}: {fix}")
        kind = _type(field.type, f"{name}_{field.name}", [*path, field.name])
        if field.nullable:
            fields.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            fields.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: Any, name: str, path: list[str]) -> Any:
    if types.is_struct(kind):
        return _record(kind, name, path)
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise SchemaError(f"column {'.'.join(path)}: Avro's maps have keys of type string")
        return {"type": "map", "values": _nullable(kind.item_field, name, path)}
    if types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, path)}
    if types.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if types.is_timestamp(kind):
        zone = "timestamp-micros" if kind == TIMESTAMP else "local-timestamp-micros"
        return {"type": "long", "logicalType": zone}
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    plain = {
        "boolean": "boolean",
        "tinyint": "int",
        "smallint": "int",
        "int": "int",
        "bigint": "long",
        "float": "float",
        "double": "double",
        "string": "string",
        "binary": "bytes",
    }.get(spark_name(kind))
    if plain is None:
        raise SchemaError(f"column {'.'.join(path)}: Avro has no type for {spark_name(kind)}")
    return plain


def _nullable(field: Any, name: str, path: list[str]) -> Any:
    kind = _type(field.type, name, path)
    return ["null", kind] if field.nullable else kind
