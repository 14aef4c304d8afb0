"""Records of the coordinators' topics, as objects and as bytes.

    key    i16 record type, then the key message
    value  i16 version, then the value message in that version; null is a tombstone

The key's number says what the record is about; Kafka calls it the key's version. The messages are
generated (protocol.messages); which types a topic has is said by a `RecordTypes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.errors import DecodeError
from tidelog.protocol.message import Message

_PREFIX: Final = Struct(">h")
_PREFIXES: Final = tuple(_PREFIX.pack(number) for number in range(32))  # of all types and versions

EncodedRecord = tuple[bytes, bytes | None]  # key and value


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None  # None is a tombstone
    value_version: int = 0

    def encoded(self) -> EncodedRecord:
        key, value, version = self
        key_bytes = _PREFIXES[key.RECORD_TYPE] + key.encode(0)
        if value is None:
            return key_bytes, None
        return key_bytes, _PREFIXES[version] + value.encode(version)


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
