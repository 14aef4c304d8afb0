from __future__ import annotations

import pytest

from tidelog.coordinator.runtime import partition_for
from tidelog.protocol.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("group", 98629247),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # a surrogate pair counts as two units
        ("ä€", 0xE4 * 31 + 0x20AC),
    ],
)
def test_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_partition_is_the_absolute_hash_modulo_the_count() -> None:
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("The quick brown fox jumps over the lazy dog", 50) == 609428141 % 50


def test_smallest_int_counts_as_zero() -> None:
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 7) == 0
