"""What a record may consist of, checked before it goes into a batch with others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tidelog.client.errors import Serialization
from tidelog.client.producer.batch import HEADER_OVERHEAD_BYTES
from tidelog.record.batch import HEADER_SIZE

BytesLike: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = (
    Iterable[tuple[str, bytes | None]]
    | Iterable[tuple[str, BytesLike | None]]
    | Mapping[str, bytes | None]
    | Mapping[str, BytesLike | None]
)

# Length, attributes, timestamp and offset of a record, at most.
_RECORD_FIELDS_BYTES_MAX: Final = 21
_TIMESTAMP_MAX: Final = (1 << 63) - 1


def as_bytes(what: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise Serialization(
        f"the {what} is of type {type(value).__name__}: give bytes, or a {what}_serializer"
    )


def checked_headers(headers: Headers) -> tuple[Sequence[tuple[str, bytes | None]], int]:
    """As the kernel takes them, and about how many bytes they add."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[tuple[str, bytes | None]] = []
    size = 0
    for name, value in pairs:
        if not isinstance(name, str):
            raise Serialization(f"the name of a header is of type {type(name).__name__}, not str")
        data = None if value is None else as_bytes("header", value)
        checked.append((name, data))
        size += HEADER_OVERHEAD_BYTES + 4 * len(name) + (0 if data is None else len(data))
    return checked, size


def bytes_alone(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Of a batch with this record alone, at most: what Kafka's clients hold against limits."""
    size = HEADER_SIZE + _RECORD_FIELDS_BYTES_MAX + _field_bytes(key) + _field_bytes(value)
    count = 0
    for name, data in headers:
        count += 1
        size += _field_bytes(name.encode()) + _field_bytes(data)
    return size + _varint_bytes(count)


def _field_bytes(data: bytes | None) -> int:
    return 1 if data is None else _varint_bytes(len(data)) + len(data)


def _varint_bytes(number: int) -> int:
    """Of a zigzag varint; `number` is not negative."""
    return max(1, ((2 * number).bit_length() + 6) // 7)


def require_timestamp(timestamp: int) -> None:
    if type(timestamp) is not int or not 0 <= timestamp <= _TIMESTAMP_MAX:
        raise Serialization(f"timestamp {timestamp!r} is no milliseconds since 1970")
