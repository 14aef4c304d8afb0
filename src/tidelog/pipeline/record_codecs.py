"""Avro and Protobuf records to JSON text and back; runs inside Python workers.

Both become JSON text, and the columns of the schema are then taken from it as from a JSON topic:
one way to say why a row is broken, no jar, for the price of a Python call a row. Dates and times
are ISO texts, decimals are numbers as text, bytes are base64.

With Confluent's framing five bytes (a zero, the id of a schema) come before the record, and for
Protobuf the indexes of the message; they are cut off in reading, the registry is not asked.

Needs `fastavro` or `protobuf`, extras of tidelog.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration import AVRO

if TYPE_CHECKING:
    from tidelog.pipeline.declaration import Format

Decoded = tuple[str | None, str | None]
REASON_CHARS_MAX: Final = 200
# What the libraries raise for bytes that are no record.
BROKEN: Final = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError)
_FRAMING_BYTES: Final = 5
_LONG_TYPES: Final = (2, 4)  # FieldDescriptor.CPPTYPE_INT64 and CPPTYPE_UINT64


def missing_codec(kind: str) -> str | None:
    """What to install before `kind` can be read or written."""
    module, extra = ("fastavro", "avro") if kind == AVRO else ("google.protobuf", "protobuf")
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    return None if found else f"format {kind} needs an extra: pip install 'tidelog[{extra}]'"


class RecordCodec:
    """Travels to the workers with the schema in it; what is built of the schema stays behind."""

    def __init__(self, format: Format) -> None:
        assert format.schema_file is not None, format
        self.kind = format.kind
        self.schema = format.schema_file.read_bytes()
        self.message = format.message
        self.is_confluent = format.is_confluent
        self._to_text: Callable[[bytes], str] | None = None
        self._to_bytes: Callable[[str], bytes] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_to_text": None, "_to_bytes": None}

    def decode(self, value: bytes | None) -> Decoded:
        """(JSON text, None), or (None, why the bytes are broken)."""
        if value is None:
            return None, "the record has no value"
        if self._to_text is None:
            self._to_text = _avro_to_text(self) if self.kind == AVRO else _protobuf_to_text(self)
        try:
            return self._to_text(_unframed(bytes(value), self)), None
        except BROKEN as problem:
            return None, _told(self, problem)

    def encode(self, text: str) -> bytes:
        if self._to_bytes is None:
            self._to_bytes = _text_to_avro(self) if self.kind == AVRO else _text_to_protobuf(self)
        return self._to_bytes(text)


def _told(codec: RecordCodec, problem: Exception) -> str:
    text = f"is no {codec.kind} record of {codec.message or 'the schema'}: "
    return (text + (str(problem) or type(problem).__name__))[:REASON_CHARS_MAX]


def _unframed(value: bytes, codec: RecordCodec) -> bytes:
    if not codec.is_confluent:
        return value
    if len(value) < _FRAMING_BYTES or value[0] != 0:
        raise ValueError("does not begin with a schema registry's framing")
    if codec.kind == AVRO:
        return value[_FRAMING_BYTES:]
    return _after_indexes(value, _FRAMING_BYTES)


def _after_indexes(value: bytes, position: int) -> bytes:
    """Cuts off the array of zigzag varints that names a message; a single 0 stands for [0]."""
    count, position = _varint(value, position)
    for _ in range(count):
        _, position = _varint(value, position)
    return value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _avro_schema(codec: RecordCodec) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(codec.schema))


def _avro_to_text(codec: RecordCodec) -> Callable[[bytes], str]:
    from fastavro import schemaless_reader

    schema = _avro_schema(codec)

    def to_text(value: bytes) -> str:
        stream = io.BytesIO(value)
        record = schemaless_reader(stream, schema, None)
        if stream.read(1):
            raise ValueError("bytes are left over")
        return json.dumps(record, default=_plain)

    return to_text


def _plain(value: object) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return str(value)


def _text_to_avro(codec: RecordCodec) -> Callable[[str], bytes]:
    from fastavro import schemaless_writer

    schema = _avro_schema(codec)

    def to_bytes(text: str) -> bytes:
        stream = io.BytesIO()
        schemaless_writer(stream, schema, json.loads(text))
        return stream.getvalue()

    return to_bytes


def _protobuf_class(codec: RecordCodec) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(codec.schema)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(codec.message))


def _protobuf_to_text(codec: RecordCodec) -> Callable[[bytes], str]:
    """Fields of 64 bits come as text in Protobuf's JSON; as numbers they fit the columns."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    kind = _protobuf_class(codec)
    fields_of_message = kind.DESCRIPTOR.fields
    longs = {row.name for row in fields_of_message if row.cpp_type in _LONG_TYPES}

    def to_text(value: bytes) -> str:
        try:
            record = kind.FromString(value)
        except DecodeError as problem:
            raise ValueError(str(problem)) from None
        fields = MessageToDict(record, preserving_proto_field_name=True)
        for name in longs & fields.keys():
            if isinstance(fields[name], str):
                fields[name] = int(fields[name])
        return json.dumps(fields)

    return to_text


def _text_to_protobuf(codec: RecordCodec) -> Callable[[str], bytes]:
    from google.protobuf.json_format import Parse

    kind = _protobuf_class(codec)

    def to_bytes(text: str) -> bytes:
        encoded: bytes = Parse(text, kind()).SerializeToString()
        return encoded

    return to_bytes
