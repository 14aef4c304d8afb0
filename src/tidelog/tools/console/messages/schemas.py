"""Records framed by the id of a schema: Avro, Protobuf and JSON.

    0   1   zero
    1   4   the schema's id
    5   -   Protobuf: the indexes of the message (spark/codecs/framing.py); then the record

Schemas come from a registry or a folder, by the client that pipelines use. It waits for its
answers, so a `Schemas` is asked in threads only; it lets one of them in at a time. While the
registry does not answer, it is asked again after REGISTRY_PAUSE_S, and every record says so.

Records are hostile. Avro is read here, because fastavro follows a record that holds itself as deep
as its bytes lead, and ends the process; `fastavro` only reads the schema. A record may be
DEPTH_MAX deep and hold ITEMS_MAX values.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tidelog.spark.codecs.errors import RegistryError, UnknownSchema
from tidelog.spark.codecs.schema_registry import (
    AVRO,
    PROTOBUF,
    RegisteredSchema,
    SchemaFolder,
    SchemaRegistry,
    registry_settings,
)
from tidelog.tools.console.messages.decoding import Undecodable
from tidelog.tools.console.messages.documents import parse

if TYPE_CHECKING:
    Schema = dict[str, Any] | list[Any] | str

FRAME_BYTES: Final = 5
REGISTRY_PAUSE_S: Final = 10.0
REGISTRY_TIMEOUT_S: Final = "3"
READERS_MAX: Final = 500
DEPTH_MAX: Final = 64
ITEMS_MAX: Final = 100_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Read = Callable[[bytes], object]


class Schemas:
    """Of one console; `source` is a registry's address or a folder."""

    def __init__(self, source: str, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._readers: OrderedDict[int, tuple[str, Read] | str] = OrderedDict()
        self._silent_since: float | None = None
        self._problem = ""
        self._registry: SchemaRegistry | SchemaFolder
        if source.startswith(("http://", "https://")):
            settings = {"timeout": REGISTRY_TIMEOUT_S, "max.retries": "0"}
            given = registry_settings({"schema.registry.url": source} | settings)
            self._registry = SchemaRegistry(given)
        else:
            self._registry = SchemaFolder(Path(source))

    def may_be_framed(self, data: bytes) -> bool:
        return len(data) >= FRAME_BYTES and data[0] == 0

    def decoded(self, data: bytes) -> tuple[str, object]:
        """The form and the document; raises Undecodable."""
        if len(data) < FRAME_BYTES or data[0]:
            raise Undecodable("there is no frame with the id of a schema")
        schema_id = int.from_bytes(data[1:FRAME_BYTES], "big")
        with self._lock:
            found = self._reader(schema_id)
        if isinstance(found, str):
            raise Undecodable(found)
        form, read = found
        return form, read(data)

    def _reader(self, schema_id: int) -> tuple[str, Read] | str:
        """How to read by this schema, or why not."""
        known = self._readers.get(schema_id)
        if known is not None:
            self._readers.move_to_end(schema_id)
            return known
        now = self._now()
        if self._silent_since is not None and now - self._silent_since < REGISTRY_PAUSE_S:
            return self._problem
        found: tuple[str, Read] | str
        try:
            found = self._made(schema_id)
        except RegistryError as problem:
            self._silent_since, self._problem = now, str(problem)
            return self._problem
        except UnknownSchema as problem:
            return str(problem)
        except Undecodable as problem:
            found = f"schema id {schema_id}: {problem}"
        self._silent_since = None
        self._readers[schema_id] = found
        while len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)
        return found

    def _made(self, schema_id: int) -> tuple[str, Read]:
        schema = self._registry.schema(schema_id)
        if schema.kind == AVRO:
            return "avro", self._avro(schema)
        if schema.kind == PROTOBUF:
            return "protobuf", self._protobuf(schema_id)
        return "json", _framed_json

    def _avro(self, schema: RegisteredSchema) -> Read:
        _require("fastavro", "tidelog[avro]")
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException

        names: dict[str, Any] = {}
        try:
            for _, text in self._registry.references(schema):
                parse_schema(json.loads(text), names)
            root = parse_schema(json.loads(schema.text), names)
        except SchemaParseException as problem:
            raise Undecodable(f"is no Avro schema: {problem}") from None
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
            raise Undecodable(f"is no Avro schema: {type(problem).__name__}") from None
        return lambda data: AvroRecord(names, data, FRAME_BYTES).read(root)

    def _protobuf(self, schema_id: int) -> Read:
        for module in ("google.protobuf", "pyarrow", "numpy"):
            _require(module, "tidelog[protobuf,spark]")
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError

        if isinstance(self._registry, SchemaFolder):
            raise Undecodable("the text of a .proto file cannot be read by; a registry's can")
        schema = self._registry.schema(schema_id, "serialized")
        texts = [*self._registry.references(schema, "serialized"), ("", schema.text)]
        files = descriptor_pb2.FileDescriptorSet()
        try:
            for name, text in texts:
                file = files.file.add()
                file.MergeFromString(base64.b64decode(text, validate=True))
                file.name = name or file.name or f"schema-{schema_id}.proto"
        except (binascii.Error, DecodeError, ValueError):
            raise Undecodable("the registry gives no descriptors of it") from None
        return _ProtobufReader(files, schema.text).read


def _require(module: str, extra: str) -> None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise Undecodable(f"to read it: pip install '{extra}'")


def _framed_json(data: bytes) -> object:
    try:
        return parse(data[FRAME_BYTES:].decode())
    except ValueError as problem:
        raise Undecodable(f"this is no JSON: {problem}") from None


class _ProtobufReader:
    """Messages of one file; their classes are made when they are first met."""

    def __init__(self, files: Any, text: str) -> None:
        self._files = files.SerializeToString()
        self._text = text
        self._classes: dict[tuple[int, ...], Any] = {}

    def read(self, data: bytes) -> object:
        from google.protobuf.json_format import MessageToDict, SerializeToJsonError
        from google.protobuf.message import DecodeError

        from tidelog.spark.codecs.framing import message_indexes

        try:
            indexes, start = message_indexes(data, FRAME_BYTES)
        except ValueError as problem:
            raise Undecodable(str(problem)) from None
        if indexes not in self._classes:
            if len(self._classes) >= READERS_MAX:
                self._classes.clear()
            self._classes[indexes] = self._class_of(indexes)
        try:
            message = self._classes[indexes].FromString(data[start:])
            return MessageToDict(message, preserving_proto_field_name=True)
        except (
            DecodeError,
            SerializeToJsonError,
            TypeError,
            ValueError,
            RecursionError,
        ) as problem:
            raise Undecodable(f"this is no such message: {problem}") from None

    def _class_of(self, indexes: tuple[int, ...]) -> Any:
        from tidelog.spark.codecs.errors import SchemaError
        from tidelog.spark.codecs.protobuf_schema import ProtobufSchema, message_names

        try:
            names = message_names(self._text, indexes)
            problems = []
            for name in sorted(names):
                try:
                    return ProtobufSchema(self._files, name).message
                except SchemaError as problem:
                    problems.append(str(problem))
            raise SchemaError("; ".join(problems))
        except SchemaError as problem:
            raise Undecodable(str(problem)) from None


# Avro

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class AvroRecord:
    """One record's bytes, read from `position` on."""

    def __init__(self, names: dict[str, Any], data: bytes, position: int = 0) -> None:
        self._names = names
        self._data = data
        self._position = position
        self._items = 0

    def read(self, schema: Schema) -> object:
        """As JSON; raises Undecodable."""
        found = self._value(schema, 0)
        left = len(self._data) - self._position
        if left:
            raise Undecodable(f"{left} bytes are left behind the value")
        return found

    def _value(self, schema: Schema, depth: int) -> object:
        self._items += 1
        if depth > DEPTH_MAX or self._items > ITEMS_MAX:
            raise Undecodable(f"it is more than {DEPTH_MAX} deep or has over {ITEMS_MAX} values")
        if isinstance(schema, list):
            chosen = self._long()
            if not 0 <= chosen < len(schema):
                raise Undecodable("a union has no such branch")
            return self._value(schema[chosen], depth + 1)
        if isinstance(schema, str):
            named = self._names.get(schema)
            return self._primitive(schema) if named is None else self._value(named, depth + 1)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._value(kind, depth + 1)
        if kind in ("record", "error"):
            return {
                field["name"]: self._value(field["type"], depth + 1) for field in schema["fields"]
            }
        if kind == "array":
            return self._array(schema["items"], depth)
        if kind == "map":
            return self._map(schema["values"], depth)
        if kind == "enum":
            chosen = self._long()
            if not 0 <= chosen < len(schema["symbols"]):
                raise Undecodable("an enum has no such symbol")
            return schema["symbols"][chosen]
        if kind == "fixed":
            return _logical(schema, self._take(schema["size"]))
        if "logicalType" in schema:
            raw = self._take(self._long()) if kind == "bytes" else self._primitive(kind)
            return _logical(schema, raw)
        return self._value(kind, depth + 1)

    def _array(self, items: Schema, depth: int) -> list[object]:
        found: list[object] = []
        while count := self._block():
            found += [self._value(items, depth + 1) for _ in range(count)]
        return found

    def _map(self, values: Schema, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while count := self._block():
            for _ in range(count):
                key = self._text()
                found[key] = self._value(values, depth + 1)
        return found

    def _block(self) -> int:
        """How many items it has; 0 at the end."""
        self._items += 1
        count = self._long()
        if count < 0:
            count = -count
            self._long()  # its size
        if count > ITEMS_MAX or self._items > ITEMS_MAX:
            raise Undecodable(f"it has over {ITEMS_MAX} values")
        return count

    def _primitive(self, kind: str) -> object:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._take(1) != b"\0"
        if kind in ("int", "long"):
            return self._long()
        if kind == "float":
            return _finite(_FLOAT.unpack(self._take(4))[0])
        if kind == "double":
            return _finite(_DOUBLE.unpack(self._take(8))[0])
        if kind == "bytes":
            return _bytes(self._take(self._long()))
        if kind == "string":
            return self._text()
        raise Undecodable(f"its schema has the type {kind!r}, which is not known")

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError:
            raise Undecodable("a text is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise Undecodable("the record ends before its value does")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _long(self) -> int:
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise Undecodable("a number has too many bytes")


def _logical(schema: dict[str, Any], raw: Any) -> object:
    """Dates, times, decimals and UUIDs as people write them."""
    logical = schema.get("logicalType")
    try:
        if logical == "decimal" and isinstance(raw, bytes):
            unscaled = Decimal(int.from_bytes(raw, "big", signed=True))
            return str(unscaled.scaleb(-int(schema.get("scale", 0)), Context(prec=1_000)))
        if logical == "date" and isinstance(raw, int):
            return (date(1970, 1, 1) + timedelta(days=raw)).isoformat()
        if logical in ("timestamp-millis", "timestamp-micros") and isinstance(raw, int):
            scale = 1_000 if logical == "timestamp-millis" else 1
            return (_EPOCH + timedelta(microseconds=raw * scale)).isoformat()
        if logical == "uuid" and isinstance(raw, bytes) and len(raw) == 16:
            return str(UUID(bytes=raw))
    except (ArithmeticError, ValueError):
        pass  # beyond what there is of such; the number itself is shown
    return _bytes(raw) if isinstance(raw, bytes) else raw


def _bytes(raw: bytes) -> object:
    return {"base64": base64.b64encode(raw).decode()}


def _finite(number: float) -> object:
    return number if number - number == 0 else str(number)
