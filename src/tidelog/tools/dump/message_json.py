"""Messages of the protocol as JSON, in the form that Kafka's own converters give them.

Fields are named in camel case and come in the order of the schema table, those that the version
has; a tagged field only if it is not its default. Bytes are base64, uuids their text.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from importlib.resources import files
from typing import Any

from tidelog.protocol.generation.schema import Field, parse
from tidelog.protocol.message import Message
from tidelog.tools.dump.output import JsonValue
from tidelog.types import Uuid


def to_json(message: Message, version: int) -> dict[str, JsonValue]:
    kind = type(message)
    fields = _fields_by_message(kind.__module__.rpartition(".")[2])[kind.__name__]
    return _struct(message, fields, version)


@cache
def _fields_by_message(module: str) -> dict[str, tuple[Field, ...]]:
    """Of the messages in a generated module, which is named as the schema file it comes from."""
    text = (files("tidelog.protocol") / "schemas" / f"{module}.schema").read_text(encoding="ascii")
    return {schema.name: schema.fields for schema in parse(module, text).messages}


def _struct(struct: object, fields: tuple[Field, ...], version: int) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for field in fields:
        if version not in field.versions:
            continue
        value = getattr(struct, field.name)
        if version in field.tagged and _is_default(value, field):
            continue
        found[camel_case(field.name)] = _value(value, field, version)
    return found


def _value(value: Any, field: Field, version: int) -> JsonValue:
    if isinstance(value, list):
        return [_value(element, field, version) for element in value]
    if value is not None and field.is_struct:
        return _struct(value, field.fields, version)
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    return value  # type: ignore[no-any-return]


def _is_default(value: Any, field: Field) -> bool:
    if field.default in (None, "null"):
        return not value if field.default is None else value is None
    return str(value) == field.default


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
