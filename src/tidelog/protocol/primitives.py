"""Wire primitives that generated code calls.

    string     int16 length, UTF-8             compact: varint of length + 1
    bytes      int32 length, data              compact: varint of length + 1 (records as well)
    array      int32 count, elements           compact: varint of count + 1
    null       length or count below 0         compact: varint 0
    varint     unsigned, 7 bits a byte from the lowest, at most 5 bytes and 32 bits
    tags       varint count, then per field: varint tag, varint size, value

How decoding stays safe without a check at every byte
- Positions only grow: every length is known to be >= 0 before it is added.
- A read past the end fails by itself (`struct.error`, `IndexError`); a slice past the end is
  short, so the position ends beyond the buffer, which the message's last check refuses.
- A count is compared with the bytes that remain, times the smallest element, before any element
  is made. Structs are counted against a budget per message as well, since an empty one takes more
  memory than wire. So memory stays a small multiple of the input.
- Nesting is the schema's; no schema is recursive.

Readers return the value and the position after it. Varints that spend more bytes than needed are
accepted, as Kafka does; strings have at most 32767 bytes. They must be UTF-8, unlike in Kafka:
it replaces other bytes, and so takes different names for the same.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tidelog.protocol.errors import DecodeError
from tidelog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

OBJECT_BUDGET: Final = 500_000
STRING_BYTES_MAX: Final = 32767
ROWS_AT_ONCE: Final = 64

_make_bytes: Final = bytes.__new__
_unpack_h: Final = struct.Struct(">h").unpack_from
_unpack_i: Final = struct.Struct(">i").unpack_from
_pack_h: Final = struct.Struct(">h").pack
_pack_i: Final = struct.Struct(">i").pack
_unpack_from: Final = struct.unpack_from
_pack: Final = struct.pack


def null_refused() -> DecodeError:
    return DecodeError("null in a field that may not be null")


def truncated() -> DecodeError:
    return DecodeError("the message ends early")


def bad_count(count: int) -> DecodeError:
    if count < 0:
        return null_refused()
    return DecodeError(f"an array of {count} elements exceeds the bytes or objects that remain")


def bad_tag(tag: int) -> DecodeError:
    return DecodeError(f"tagged field {tag} does not have the size it announces")


def uvarint(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The varint whose first byte, with its high bit set, lies before `position`."""
    byte = buffer[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    byte = buffer[position + 1]
    if byte < 0x80:
        return value | byte << 14, position + 2
    value |= (byte & 0x7F) << 14
    byte = buffer[position + 2]
    if byte < 0x80:
        return value | byte << 21, position + 3
    value |= (byte & 0x7F) << 21
    byte = buffer[position + 3]
    if byte > 0x0F:
        raise DecodeError("a varint exceeds 32 bits")
    return value | byte << 28, position + 4


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint(buffer, position + 1, first)


def string_length(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """Length + 1 of a compact string whose varint starts with `first`, 0 or above 127."""
    if first == 0:
        raise null_refused()
    value, position = uvarint(buffer, position, first)
    if not 0 < value <= STRING_BYTES_MAX + 1:
        raise DecodeError(f"a string of {value - 1} bytes")
    return value, position


def read_string(buffer: memoryview, position: int) -> tuple[str, int]:
    (n,) = _unpack_h(buffer, position)
    position += 2
    if n <= 0:
        if n == 0:
            return "", position
        raise null_refused()
    end = position + n
    return buffer[position:end].tobytes().decode(), end


def read_nullable_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    (n,) = _unpack_h(buffer, position)
    position += 2
    if n <= 0:
        return (None if n else ""), position
    end = position + n
    return buffer[position:end].tobytes().decode(), end


def read_compact_string(buffer: memoryview, position: int) -> tuple[str, int]:
    n = buffer[position]
    position += 1
    if n == 1:
        return "", position
    if not 0 < n < 128:
        n, position = string_length(buffer, position, n)
    end = position + n - 1
    return buffer[position:end].tobytes().decode(), end


def read_compact_nullable_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    n = buffer[position]
    if n == 0:
        return None, position + 1
    if n == 1:
        return "", position + 1  # the metadata of most commits
    return read_compact_string(buffer, position)


def read_bytes(buffer: memoryview, position: int) -> tuple[bytes, int]:
    (n,) = _unpack_i(buffer, position)
    if n < 0:
        raise null_refused()
    position += 4
    end = position + n
    return buffer[position:end].tobytes(), end


def read_nullable_bytes(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    (n,) = _unpack_i(buffer, position)
    if n < 0:
        return None, position + 4
    return read_bytes(buffer, position)


def read_compact_bytes(buffer: memoryview, position: int) -> tuple[bytes, int]:
    n, position = read_uvarint(buffer, position)
    if n == 0:
        raise null_refused()
    end = position + n - 1
    return buffer[position:end].tobytes(), end


def read_compact_nullable_bytes(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    if buffer[position] == 0:
        return None, position + 1
    return read_compact_bytes(buffer, position)


def read_nullable_records(buffer: memoryview, position: int) -> tuple[memoryview | None, int]:
    (n,) = _unpack_i(buffer, position)
    position += 4
    if n < 0:
        return None, position
    end = position + n
    return buffer[position:end], end


def read_compact_nullable_records(
    buffer: memoryview, position: int
) -> tuple[memoryview | None, int]:
    n, position = read_uvarint(buffer, position)
    if n == 0:
        return None, position
    end = position + n - 1
    return buffer[position:end], end


def read_compact_records(buffer: memoryview, position: int) -> tuple[memoryview, int]:
    records, position = read_compact_nullable_records(buffer, position)
    if records is None:
        raise null_refused()
    return records, position


def read_count(buffer: memoryview, position: int, smallest: int) -> tuple[int, int]:
    """The count of an array whose elements take at least `smallest` bytes."""
    (n,) = _unpack_i(buffer, position)
    position += 4
    if n < 0 or n * smallest > len(buffer) - position:
        raise bad_count(n)
    return n, position


def read_nullable_count(buffer: memoryview, position: int, smallest: int) -> tuple[int, int]:
    """As `read_count`, -1 for a null array."""
    (n,) = _unpack_i(buffer, position)
    if n < 0:
        return -1, position + 4
    return read_count(buffer, position, smallest)


def read_compact_count(buffer: memoryview, position: int, smallest: int) -> tuple[int, int]:
    n, position = read_compact_nullable_count(buffer, position, smallest)
    if n < 0:
        raise null_refused()
    return n, position


def read_compact_nullable_count(
    buffer: memoryview, position: int, smallest: int
) -> tuple[int, int]:
    n = buffer[position]
    position += 1
    if n > 127:
        n, position = uvarint(buffer, position, n)
    n -= 1
    if n * smallest > len(buffer) - position:
        raise bad_count(n)
    return n, position


def read_strings(buffer: memoryview, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        string, position = read_string(buffer, position)
        strings.append(string)
    return strings, position


def read_compact_strings(buffer: memoryview, position: int, count: int) -> tuple[list[str], int]:
    strings = []
    for _ in range(count):
        string, position = read_compact_string(buffer, position)
        strings.append(string)
    return strings, position


def make_uuid(raw: bytes) -> Uuid:
    """For 16 bytes that `struct` has cut out."""
    return _make_bytes(Uuid, raw)


def read_uuids(buffer: memoryview, position: int, count: int) -> tuple[list[Uuid], int]:
    end = position + 16 * count
    return [Uuid(buffer[at : at + 16]) for at in range(position, end, 16)], end


def read_numbers(
    buffer: memoryview, position: int, count: int, letter: str, size: int
) -> tuple[list[int], int]:
    """`count` numbers of a `struct` letter; the count is known to fit into the buffer."""
    return list(_unpack_from(f">{count}{letter}", buffer, position)), position + size * count


def skip_tags(buffer: memoryview, position: int) -> int:
    """Passes over a tag buffer in which no tag is known."""
    count, position = read_uvarint(buffer, position)
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


def encode_uvarint(value: int) -> bytes:
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string_length(value: int) -> bytes:
    """Length + 1 of a compact string."""
    if value > STRING_BYTES_MAX + 1:
        raise ValueError(f"a string of {value - 1} bytes")
    return encode_uvarint(value)


def encode_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _pack_h(len(raw))
    out += raw


def encode_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        encode_string(out, value)


def encode_compact_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    n = len(raw) + 1
    if n < 128:
        out.append(n)
    else:
        out += encode_string_length(n)
    out += raw


def encode_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        encode_compact_string(out, value)


def encode_bytes(out: bytearray, value: bytes) -> None:
    out += _pack_i(len(value))
    out += value


def encode_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        encode_bytes(out, value)


def encode_compact_bytes(out: bytearray, value: bytes) -> None:
    out += encode_uvarint(len(value) + 1)
    out += value


def encode_compact_nullable_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
    else:
        encode_compact_bytes(out, value)


def encode_count(out: bytearray, items: Sized) -> None:
    out += _pack_i(len(items))


def encode_nullable_count(out: bytearray, items: Sized | None) -> None:
    out += _pack_i(-1 if items is None else len(items))


def encode_compact_count(out: bytearray, items: Sized) -> None:
    n = len(items) + 1
    if n < 128:
        out.append(n)
    else:
        out += encode_uvarint(n)


def encode_compact_nullable_count(out: bytearray, items: Sized | None) -> None:
    if items is None:
        out.append(0)
    else:
        encode_compact_count(out, items)


def encode_strings(out: bytearray, strings: Sequence[str]) -> None:
    for string in strings:
        encode_string(out, string)


def encode_compact_strings(out: bytearray, strings: Sequence[str]) -> None:
    for string in strings:
        encode_compact_string(out, string)


def encode_numbers(out: bytearray, numbers: Sequence[int], letter: str) -> None:
    out += _pack(f">{len(numbers)}{letter}", *numbers)


class Rows:
    """An array of structs that are nothing but numbers, by the letters of `struct`: written with
    one call for many of them. "x" stands for an empty tag buffer.
    """

    __slots__ = ("_letters", "_packers", "_values_at_once", "_width")

    def __init__(self, letters: str) -> None:
        self._letters = letters
        self._width = len(letters.replace("x", ""))
        self._values_at_once = self._width * ROWS_AT_ONCE
        self._packers: dict[int, Callable[..., bytes]] = {}  # by the number of values

    def encode(self, out: bytearray, values: list[int]) -> None:
        """Those of all structs, one after the other."""
        at_once = self._values_at_once
        if len(values) <= at_once:
            out += self._packer(len(values))(*values)
            return
        for start in range(0, len(values), at_once):
            some = values[start : start + at_once]
            out += self._packer(len(some))(*some)

    def _packer(self, count: int) -> Callable[..., bytes]:
        packer = self._packers.get(count)
        if packer is None:
            letters = self._letters * (count // self._width)
            packer = self._packers[count] = struct.Struct(">" + letters).pack
        return packer


def encode_tags(out: bytearray, fields: Sequence[tuple[int, bytearray]]) -> None:
    """A tag buffer of (tag, encoded value), tags ascending."""
    out += encode_uvarint(len(fields))
    for tag, field in fields:
        out += encode_uvarint(tag)
        out += encode_uvarint(len(field))
        out += field
