"""Wire primitives shared by all generated messages, and the two classes they derive from.

Generated code reads fixed-size runs with one `struct` call and the first byte of every varint
inline; what lies off that path (varints of two bytes and more, tag buffers, arrays of strings and
of uuids) is here.

How decoding stays safe without a check at every byte
- Positions only grow: every length is known to be >= 0 before it is added.
- A read past the end fails by itself (`struct.error`, `IndexError`); a slice past the end is
  short, so the position ends beyond the buffer, which the message's last check refuses.
- A count is compared with the bytes that remain (times the smallest element) and with the budget
  of objects before any element is made, so memory stays a small multiple of the input.
- Recursion depth is the schema's nesting; no schema is recursive.

Varints are unsigned, at most five bytes and 32 bits; longer encodings of a small number are
accepted as Kafka does. Strings are at most 32767 bytes of strict UTF-8.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar

from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

# Structs and strings that one message may hold; arrays of numbers are bounded by their bytes.
OBJECT_BUDGET = 500_000

STRING_BYTES_MAX = 32767

# Stands for "a fresh empty list" or "a fresh struct" in constructors.
EMPTY: Any = ()

DECODE_FAILURES = (struct.error, IndexError, UnicodeDecodeError)
ENCODE_FAILURES = (struct.error, AttributeError, TypeError, ValueError)

new = object.__new__
_make_bytes = bytes.__new__
_unpack_h = struct.Struct(">h").unpack_from
_pack_h = struct.Struct(">h").pack


class Struct:
    """A group of fields; equal when the fields are."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"


class Message(Struct):
    """The root struct of a request, a response or a stored record."""

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    RECORD_TYPE: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    DECODERS: ClassVar[Mapping[int, Callable[[memoryview, int], Any]]]
    ENCODERS: ClassVar[Mapping[int, Callable[..., Any]]]

    @classmethod
    def decode(cls, buffer: memoryview, position: int, version: int) -> Self:
        """The message that starts at `position`; bytes after it are not looked at."""
        try:
            message: Self = cls.DECODERS[version](buffer, position)
        except DECODE_FAILURES as error:
            raise DecodeError(f"{cls.__name__} v{version}: {error}") from error
        except KeyError:
            raise DecodeError(f"{cls.__name__} has no version {version}") from None
        return message

    def encode(self, version: int) -> bytearray:
        out = bytearray()
        try:
            self.ENCODERS[version](self, out)
        except ENCODE_FAILURES as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except KeyError:
            raise EncodeError(f"{type(self).__name__} has no version {version}") from None
        return out


class RecordsMessage(Message):
    """A message with `records` fields, which can be left out of the buffer and sent on their own."""

    __slots__ = ()

    def encode(self, version: int) -> bytearray:
        out = bytearray()
        try:
            self.ENCODERS[version](self, out, None)
        except ENCODE_FAILURES as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except KeyError:
            raise EncodeError(f"{type(self).__name__} has no version {version}") from None
        return out

    def encode_parts(self, version: int) -> list[Any]:
        """The encoding cut at every non-empty `records` value, which is its own, unread part."""
        parts: list[Any] = []
        try:
            rest = self.ENCODERS[version](self, bytearray(), parts)
        except ENCODE_FAILURES as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except KeyError:
            raise EncodeError(f"{type(self).__name__} has no version {version}") from None
        if rest:
            parts.append(rest)
        return parts


def uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, with its high bit set, lies before `position`."""
    value = first & 0x7F
    for shift in (7, 14, 21):
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
    byte = buffer[position]
    if byte > 0x0F:
        raise DecodeError("a varint exceeds 32 bits")
    return value | byte << 28, position + 1


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint(buffer, position + 1, first)


def string_length(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """Length + 1 of a compact string that is null (refused) or of 127 bytes and more."""
    if first == 0:
        raise DecodeError("null in a string that may not be null")
    return long_string_length(buffer, position, first)


def long_string_length(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    value, position = uvarint(buffer, position, first)
    if not 0 < value <= STRING_BYTES_MAX + 1:
        raise DecodeError(f"a string of {value - 1} bytes")
    return value, position


def null_refused() -> DecodeError:
    return DecodeError("null in a field that may not be null")


def truncated() -> DecodeError:
    return DecodeError("the message ends early")


def bad_count(count: int) -> DecodeError:
    if count < 0:
        return DecodeError("null in an array that may not be null")
    return DecodeError(f"an array of {count} elements exceeds the bytes or objects that remain")


def bad_tag(tag: int) -> DecodeError:
    return DecodeError(f"tagged field {tag} does not have the size it announces")


def skip_tags(buffer: memoryview, position: int, first: int) -> int:
    """Passes over a tag buffer whose count starts with the non-zero byte `first`."""
    count = first
    if first > 0x7F:
        count, position = uvarint(buffer, position, first)
    for _ in range(count):
        _, size, position = read_tag(buffer, position)
        position += size
    return position


def read_tag(buffer: memoryview, position: int) -> tuple[int, int, int]:
    """Tag, size and start of a tagged field that lies wholly in the buffer."""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > len(buffer) - position:
        raise truncated()
    return tag, size, position


def read_strings(buffer: memoryview, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        (n,) = _unpack_h(buffer, position)
        if n < 0:
            raise null_refused()
        position += 2
        strings.append(buffer[position : position + n].tobytes().decode())
        position += n
    return strings, position


def read_compact_strings(buffer: memoryview, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        n = buffer[position]
        position += 1
        if not 0 < n < 128:
            n, position = string_length(buffer, position, n)
        end = position + n - 1
        strings.append(buffer[position:end].tobytes().decode())
        position = end
    return strings, position


def make_uuid(raw: bytes) -> Uuid:
    return _make_bytes(Uuid, raw)


def read_uuids(buffer: memoryview, position: int, count: int) -> tuple[list[Uuid], int]:
    end = position + 16 * count
    return [Uuid(buffer[at : at + 16]) for at in range(position, end, 16)], end


def encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string_length(value: int) -> bytes:
    """Length + 1 of a compact string."""
    if value > STRING_BYTES_MAX + 1:
        raise EncodeError(f"a string of {value - 1} bytes")
    return encode_uvarint(value)


def encode_strings(out: bytearray, strings: list[str]) -> None:
    for string in strings:
        raw = string.encode()
        out += _pack_h(len(raw))
        out += raw


def encode_compact_strings(out: bytearray, strings: list[str]) -> None:
    for string in strings:
        raw = string.encode()
        out += encode_string_length(len(raw) + 1)
        out += raw


def encode_tags(out: bytearray, fields: list[tuple[int, bytearray]]) -> None:
    out += encode_uvarint(len(fields))
    for tag, field in fields:
        out += encode_uvarint(tag)
        out += encode_uvarint(len(field))
        out += field


def absent(name: str, version: int) -> EncodeError:
    return EncodeError(f"version {version} has no field for a non-default {name}")
