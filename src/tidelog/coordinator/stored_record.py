"""Records of the coordinators' topics, as objects and as bytes.

    key    i16 record type, then the key message
    value  i16 version, then the value message in that version; null is a tombstone

The key's number says what the record is about; Kafka calls it the key's version. The messages are
generated (protocol.messages); which types a topic has is said by a `RecordTypes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.protocol.message import Message

_PREFIX = Struct(">h")
_PREFIXES = tuple(_PREFIX.pack(number) for number in range(32))  # of all types and versions


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None  # None is a tombstone
    value_version: int = 0

    def encoded(self) -> tuple[bytes, bytes | None]:
        key, value, version = self
        key_bytes = _PREFIXES[key.RECORD_TYPE] + key.encode(0)
        if value is None:
            return key_bytes, None
        return key_bytes, _PREFIXES[version] + value.encode(version)


class PreparedRecords:
    """Records of one batch that are encoded ahead, as they come: thousands take longer than the
    loop may be held. An EncodeError waits for whoever asks for the bytes.
    """

    __slots__ = ("_encoded", "_error", "_records")

    def __init__(self) -> None:
        self._records: list[CoordinatorRecord] = []
        self._encoded: list[tuple[bytes, bytes | None]] = []
        self._error: EncodeError | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[CoordinatorRecord]:
        return iter(self._records)

    def add(self, record: CoordinatorRecord) -> None:
        self._records.append(record)
        try:
            self._encoded.append(record.encoded())
        except EncodeError as error:
            self._error = error

    def encoded(self) -> list[tuple[bytes, bytes | None]]:
        if self._error is not None:
            raise self._error
        return self._encoded


Classes = Mapping[int, tuple[type[Message], type[Message]]]


class RecordTypes:
    """The record types of one topic: type -> (class of its key, class of its value).

    `rarer` are imported when the first of them is met.
    """

    __slots__ = ("_classes", "_rarer")

    def __init__(self, classes: Classes, rarer: Callable[[], Classes] | None = None) -> None:
        self._classes = dict(classes)
        self._rarer = rarer

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """None for a record of an unknown type; DecodeError for one that cannot be read."""
        classes = self._classes.get(_prefix(key))
        if classes is None and self._rarer is not None:
            self._classes.update(self._rarer())
            self._rarer = None
            classes = self._classes.get(_prefix(key))
        if classes is None:
            return None
        key_class, value_class = classes
        decoded_key = key_class.decode(memoryview(key), 2, 0)
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        version = _prefix(value)
        decoded_value = value_class.decode(memoryview(value), 2, version)
        return CoordinatorRecord(decoded_key, decoded_value, version)


def _prefix(data: bytes) -> int:
    if len(data) < _PREFIX.size:
        raise DecodeError(f"a record of {len(data)} bytes has no version")
    return int.from_bytes(data[:2], "big", signed=True)
