"""The last offset of every key of the dirty part of a log, by the key's hash.

24 bytes a key: 16 of hash, 8 of offset, in one flat buffer that the kernel reads and writes
(csrc/offset_map.h). The hash is SipHash-2-4 with 128 bits under a key drawn anew for every map: two
different record keys of one hash would cost the older record its life, and nobody can look for such
a pair without knowing the key. (Kafka uses MD5, for which pairs can be made.)

A map is made for one round and no larger than the round can fill, so an idle cleaner holds none.
"""

from __future__ import annotations

import os
from typing import Final

from tidelog.record.kernel import KeyOffsets

SLOT_BYTES: Final = 24
HASH_KEY_BYTES: Final = 16
SLOTS_MIN: Final = 2


class OffsetMap:
    __slots__ = ("entries", "entries_max", "hash_key", "latest_offset", "slots")

    def __init__(self, slots_count: int, load_factor: float) -> None:
        slots_count = max(slots_count, SLOTS_MIN)
        self.slots = bytearray(slots_count * SLOT_BYTES)
        self.hash_key = os.urandom(HASH_KEY_BYTES)
        self.entries = 0
        # One slot stays free, so that a look-up finds an end.
        self.entries_max = max(min(int(slots_count * load_factor), slots_count - 1), 1)
        self.latest_offset = -1  # all records up to here are in the map

    @classmethod
    def for_offsets(cls, count: int, bytes_max: int, load_factor: float) -> OffsetMap:
        """Room for `count` keys, as far as `bytes_max` allow."""
        wanted = int(count / load_factor) + SLOTS_MIN if load_factor > 0 else count + SLOTS_MIN
        return cls(min(wanted, bytes_max // SLOT_BYTES), load_factor)

    def key_offsets(self) -> KeyOffsets:
        """The map as the kernel takes it."""
        return KeyOffsets(
            self.slots, self.hash_key, self.entries, self.entries_max, self.latest_offset
        )

    @property
    def utilization(self) -> float:
        return self.entries * SLOT_BYTES / len(self.slots)

    def reach(self, offset: int) -> None:
        """There is nothing more to map up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)
