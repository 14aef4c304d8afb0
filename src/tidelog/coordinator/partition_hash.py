"""Which partition of an internal topic looks after a group or a transactional id.

Java's String.hashCode over UTF-16 units, its absolute value as Kafka takes it (the smallest int
counts as 0), modulo the number of partitions. Every client and broker must agree on it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_INT_MIN: Final = -(2**31)
_BMP_MAX: Final = 0xFFFF


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    value = 0
    for unit in _utf16_units(text):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def _utf16_units(text: str) -> list[int]:
    units = [ord(character) for character in text]
    if max(units, default=0) <= _BMP_MAX:
        return units
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [encoded[i] << 8 | encoded[i + 1] for i in range(0, len(encoded), 2)]


def partition_for(key: str, partition_count: int) -> int:
    value = java_hash(key)
    return 0 if value == _INT_MIN else abs(value) % partition_count
