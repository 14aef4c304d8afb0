"""Varints and tag buffers at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol import DecodeError
from tidelog.protocol.primitives import (
    encode_compact_string,
    encode_tags,
    encode_uvarint,
    read_compact_string,
    read_tag,
    read_uvarint,
    skip_tags,
)


@given(st.integers(0, (1 << 32) - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        ((1 << 32) - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_at_the_edges(value: int, encoded: bytes) -> None:
    assert encode_uvarint(value) == encoded
    assert read_uvarint(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_varints_beyond_32_bits_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(memoryview(encoded), 0)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 32767])
def test_compact_strings_round_trip_at_every_length_size(length: int) -> None:
    out = bytearray()
    encode_compact_string(out, "x" * length)
    assert read_compact_string(memoryview(out), 0) == ("x" * length, len(out))


def test_tags_are_skipped_whatever_they_hold() -> None:
    out = bytearray()
    encode_tags(out, [(0, bytearray(b"abc")), (300, bytearray()), (301, bytearray(200))])
    assert skip_tags(memoryview(out + b"rest"), 0) == len(out)


def test_a_tag_larger_than_the_buffer_is_refused() -> None:
    with pytest.raises(DecodeError):
        read_tag(memoryview(b"\x00\x05abcd"), 0)


def test_a_huge_tag_count_ends_with_the_buffer() -> None:
    with pytest.raises((DecodeError, IndexError)):
        skip_tags(memoryview(b"\xff\xff\xff\xff\x0f" + b"\x00\x00" * 50), 0)
