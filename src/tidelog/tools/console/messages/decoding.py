"""What keys and values mean, by the decoder that was chosen for them.

    auto          framed by the id of a schema, JSON, text or else hex, whichever it is
    text, json    UTF-8
    schema        Avro, Protobuf or JSON by the id of a schema, with Confluent's frame before it
    int32, int64, float32, float64, uuid      big-endian, of exactly that size
    hex, base64   any bytes
    internal      records of __consumer_offsets and __transaction_state, by the topic

`Decoder.shown` never fails: what cannot be decoded is shown as hex, with the reason. `text` and
`document` are what filters ask for (filtering.Reading).
"""

from __future__ import annotations

import base64
import struct
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidelog.tools.console.messages.documents import (
    MISSING,
    compact,
    indented,
    parse,
    parse_or_missing,
    visible,
)

if TYPE_CHECKING:
    from tidelog.record.kernel import ConsumerRecord
    from tidelog.tools.console.messages.schemas import Schemas

DECODERS: Final = {
    "auto": "automatic",
    "text": "text",
    "json": "JSON",
    "schema": "by schema id (Avro, Protobuf, JSON)",
    "int32": "integer, 4 bytes",
    "int64": "integer, 8 bytes",
    "float32": "float, 4 bytes",
    "float64": "float, 8 bytes",
    "uuid": "UUID, 16 bytes",
    "hex": "hex",
    "base64": "base64",
}
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
HEX_BYTES_SHOWN_MAX: Final = 64 * 1024

_NUMBERS: Final = {"int32": ">i", "int64": ">q", "float32": ">f", "float64": ">d"}
_UUID_BYTES: Final = 16


class Undecodable(ValueError):
    """Says why these bytes are not what they should be."""


class Shown(NamedTuple):
    """Ready for a page: no control characters but line ends and tabs."""

    form: str  # json, text, number, uuid, hex, base64, avro, protobuf
    text: str
    problem: str = ""


class Decoder:
    """One of DECODERS, for keys or for values. `schemas` is None where none are configured."""

    def __init__(self, name: str, schemas: Schemas | None = None) -> None:
        assert name in DECODERS, name
        self.name = name
        self._schemas = schemas

    @property
    def keeps_bytes(self) -> bool:
        return self.name in ("text", "json") or (self.name == "auto" and self._schemas is None)

    def text(self, data: bytes) -> str:
        """As filters see it."""
        if self.keeps_bytes:
            return data.decode(errors="replace")
        try:
            _, document, text = self._decoded(data)
        except Undecodable:
            return data.decode(errors="replace")
        return compact(document) if text is None else text

    def document(self, data: bytes) -> object:
        if self.keeps_bytes:
            return parse_or_missing(data)
        try:
            return self._decoded(data)[1]
        except Undecodable:
            return MISSING

    def shown(self, data: bytes, *, is_whole: bool = False) -> Shown:
        """`is_whole`: on the record's own page, where JSON has room for lines."""
        try:
            form, document, text = self._decoded(data)
        except Undecodable as problem:
            return Shown("hex", hex_of(data), str(problem))
        if form != "json" and document is not MISSING and text is None:
            text = indented(document) if is_whole else compact(document)
        elif form == "json" and is_whole:
            text = indented(document)
        assert text is not None, form
        return Shown(form, visible(text))

    def _decoded(self, data: bytes) -> tuple[str, object, str | None]:
        """Form, document and text; None for the text of a document that has none of its own."""
        name = self.name
        if name == "auto":
            return self._guessed(data)
        if name == "text":
            return "text", parse_or_missing(data), _utf8(data)
        if name == "json":
            text = _utf8(data)
            return "json", _json(text), text
        if name == "schema":
            if self._schemas is None:
                raise Undecodable(
                    "no schemas are configured; start the console with --schemas URL or FOLDER"
                )
            return self._framed(data, self._schemas)
        if name in _NUMBERS:
            return _number(data, name)
        if name == "uuid":
            if len(data) != _UUID_BYTES:
                raise Undecodable(f"{len(data)} bytes are no UUID, which has {_UUID_BYTES}")
            text = str(uuid.UUID(bytes=data))
            return "uuid", text, text
        text = hex_of(data) if name == "hex" else base64.b64encode(data).decode()
        return name, text, text

    def _guessed(self, data: bytes) -> tuple[str, object, str | None]:
        if self._schemas is not None and self._schemas.may_be_framed(data):
            try:
                return self._framed(data, self._schemas)
            except Undecodable as problem:
                if _is_text(data):
                    return "text", MISSING, data.decode()
                raise Undecodable(str(problem)) from None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return "hex", MISSING, hex_of(data)
        if data[:1] in (b"{", b"["):
            try:
                return "json", parse(text), text
            except ValueError:
                pass
        if not _is_text(data):
            return "hex", MISSING, hex_of(data)
        return "text", parse_or_missing(data), text

    def _framed(self, data: bytes, schemas: Schemas) -> tuple[str, object, str | None]:
        form, document = schemas.decoded(data)
        return form, document, compact(document) if form == "json" else None


def _is_text(data: bytes) -> bool:
    """UTF-8 without control characters, bar tabs and line ends."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return not any(byte < 0x20 and byte not in b"\t\n\r" for byte in data[:4096])


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise Undecodable(f"byte {problem.start} is not UTF-8") from None


def _json(text: str) -> object:
    try:
        return parse(text)
    except ValueError as problem:
        raise Undecodable(f"this is no JSON: {problem}") from None


def _number(data: bytes, name: str) -> tuple[str, object, str]:
    form = _NUMBERS[name]
    size = struct.calcsize(form)
    if len(data) != size:
        raise Undecodable(f"{len(data)} bytes are no {name}, which has {size}")
    number = struct.unpack(form, data)[0]
    return "number", number, str(number)


def hex_of(data: bytes) -> str:
    text = data[:HEX_BYTES_SHOWN_MAX].hex(" ")
    return text if len(data) <= HEX_BYTES_SHOWN_MAX else f"{text} …"


# Internal topics, whose keys say how their values are read


class Internal(Protocol):
    def __call__(
        self, record: ConsumerRecord, *, is_whole: bool
    ) -> tuple[Shown | None, Shown | None]: ...


def internal_decoder(topic: str) -> Internal | None:
    """Of whole records: how key and value are shown; None for other topics."""
    if topic not in INTERNAL_TOPICS:
        return None
    from tidelog.protocol.errors import DecodeError
    from tidelog.tools.dump.decoders import decode_group_record, decode_transaction
    from tidelog.tools.dump.dump_errors import DumpError
    from tidelog.tools.dump.stored_batch import DumpedRecord

    decode = decode_group_record if topic == OFFSETS_TOPIC else decode_transaction

    def shown(record: ConsumerRecord, *, is_whole: bool) -> tuple[Shown | None, Shown | None]:
        key, value = record.key, record.value
        try:
            found = decode(
                DumpedRecord(record.offset, record.timestamp, key, value, list(record.headers), -1)
            )
        except (DumpError, DecodeError, ValueError) as problem:
            return _raw(key, str(problem)), _raw(value, "")
        return (
            None if key is None else _of_json(found.key, is_whole=is_whole),
            None if value is None else _of_json(found.payload, is_whole=is_whole),
        )

    return shown


def _raw(data: bytes | None, problem: str) -> Shown | None:
    return None if data is None else Shown("hex", hex_of(data), problem)


def _of_json(value: object, *, is_whole: bool) -> Shown:
    if value is None or isinstance(value, str):
        return Shown("text", visible(value or ""))
    return Shown("json", visible(indented(value) if is_whole else compact(value)))
