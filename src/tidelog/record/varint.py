"""Zig-zag varints as records use them: 7 bits a byte, low group first, high bit = more follow.

A varint has at most 5 bytes and 32 bits, a varlong at most 10 bytes and 64 bits. As in Kafka, bits
beyond the width are dropped, and longer encodings than needed are accepted.
520 -> zig-zag 1040 -> 90 08. (The unsigned varints of compact protocol fields live in `protocol`.)
"""

from __future__ import annotations


def encode_varint(value: int) -> bytes:
    """Also right for varlongs: both have one encoding of a value."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def decode_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """(value, position after it); IndexError past the end, ValueError when it does not stop."""
    return _decode(buffer, position, 28, 0xFFFFFFFF)


def decode_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    return _decode(buffer, position, 63, 0xFFFFFFFFFFFFFFFF)


def _decode(
    buffer: bytes | bytearray | memoryview, position: int, last_shift: int, mask: int
) -> tuple[int, int]:
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position
    raw = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        if shift == last_shift:
            raise ValueError("varint does not end")
        shift += 7
    raw &= mask
    return raw >> 1 ^ -(raw & 1), position
