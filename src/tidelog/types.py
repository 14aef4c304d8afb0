"""The few value types that every layer speaks of."""

from __future__ import annotations

import base64
import os
from typing import Final, NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Uuid(bytes):
    """Kafka's Uuid: 16 bytes, shown as 22 characters of URL-safe base64 without padding."""

    __slots__ = ()

    def __new__(cls, raw: bytes | bytearray | memoryview) -> Uuid:
        if len(raw) != 16:
            raise ValueError(f"a uuid has 16 bytes, not {len(raw)}")
        return super().__new__(cls, raw)

    @classmethod
    def random(cls) -> Uuid:
        """A version 4 uuid whose text does not start with a dash, as Kafka makes them."""
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            made = cls(raw)
            if not str(made).startswith("-"):
                return made

    @classmethod
    def parse(cls, text: str) -> Uuid:
        return cls(base64.urlsafe_b64decode(text + "=="))

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).rstrip(b"=").decode()

    def __repr__(self) -> str:
        return f"Uuid({self!s})"


ZERO_UUID: Final = Uuid(bytes(16))

# The topics that coordinators keep their state in.
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"

INT64_MAX: Final = (1 << 63) - 1

# Where there is none, Kafka says -1.
NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_BROKER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
