from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint as decode_oracle
from kafka.record.util import encode_varint as encode_oracle

from tidelog.record.varint import decode_varint, decode_varlong, encode_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (520, "9008")],
)
def test_zig_zag_by_the_book(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_64_bits_agree_with_kafka_python(value: int) -> None:
    written = bytearray()
    encode_oracle(value, written.append)
    assert encode_varint(value) == written
    assert decode_varlong(written, 0) == decode_oracle(written, 0) == (value, len(written))


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=3))
def test_32_bits_are_read_at_any_position(value: int, before: bytes) -> None:
    encoded = before + encode_varint(value)
    assert decode_varint(encoded, len(before)) == (value, len(encoded))


def test_longer_encodings_than_needed_are_read() -> None:
    assert decode_varint(bytes.fromhex("80808000"), 0) == (0, 4)


def test_bits_beyond_the_width_are_dropped_as_java_does() -> None:
    assert decode_varint(bytes.fromhex("ffffffff7f"), 0) == (-(1 << 31), 5)


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="end"):
        decode_varint(b"\xff" * 5 + b"\x01", 0)
    with pytest.raises(ValueError, match="end"):
        decode_varlong(b"\xff" * 10 + b"\x01", 0)


def test_a_cut_varint_runs_out_of_bytes() -> None:
    with pytest.raises(IndexError):
        decode_varint(b"\xff", 0)
