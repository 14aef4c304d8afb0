"""String.hashCode of Java, which brokers and clients must agree on.

Brokers choose the coordinator of a group by it, and Kafka's assignors walk hash maps of member ids
and topics in its order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_BMP_MAX: Final = 0xFFFF


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Over UTF-16 units, as a signed int."""
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
