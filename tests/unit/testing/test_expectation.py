"""What is expected of the records of a topic."""

from __future__ import annotations

import pytest

from tidelog.client import ConsumerRecord
from tidelog.testing import Expectation


def expectation(*records: tuple[str | None, str | None, int]) -> Expectation:
    """Of (key, value, partition)."""
    rows = [
        ConsumerRecord(
            topic="t",
            partition=partition,
            offset=offset,
            timestamp=0,
            timestamp_type=0,
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
            headers=(),
            leader_epoch=0,
        )
        for offset, (key, value, partition) in enumerate(records)
    ]
    return Expectation("t", rows)


def test_what_holds_can_be_asked_in_a_row() -> None:
    found = expectation(("a", "1", 0), ("b", "9", 0), ("c", "10", 0))
    assert found.ordered().exactly_once(keys="abc").count(3) is found


def test_order_is_that_of_a_key_in_its_partition() -> None:
    expectation(("a", "5", 0), ("b", "1", 0), ("a", "6", 0), ("a", "2", 1)).ordered()
    with pytest.raises(AssertionError, match=r"out of order.*value b'10'.*value b'9'"):
        expectation(("a", "10", 0), ("a", "9", 0)).ordered()


def test_values_that_are_no_numbers_are_ordered_as_bytes() -> None:
    expectation(("a", "10", 0), ("a", "9x", 0)).ordered()


def test_order_by_what_the_test_says() -> None:
    found = expectation(("a", "x3", 0), ("a", "y2", 0))
    with pytest.raises(AssertionError, match="out of order"):
        found.ordered(by=lambda record: int((record.value or b"")[1:]))


def test_missing_and_doubled_keys_are_named() -> None:
    found = expectation(("1", "x", 0), ("1", "y", 0), ("3", "z", 0))
    wanted = "1 keys are missing: b'2'; 1 keys are too many: b'1'"
    with pytest.raises(AssertionError, match=wanted):
        found.exactly_once(keys=[1, 2, 3])
    with pytest.raises(AssertionError, match="more than once: b'1'"):
        found.exactly_once()
    found.exactly_once(values=["x", b"y", "z"])
    with pytest.raises(AssertionError, match="1 values are missing: b'w'"):
        found.exactly_once(values=["x", "y", "z", "w"])


def test_a_count_is_exact() -> None:
    with pytest.raises(AssertionError, match="1 records, not 2"):
        expectation(("a", "1", 0)).count(2)


def test_a_tombstone_is_a_value_that_is_none() -> None:
    found = expectation(("1", "x", 0), ("1", None, 0), (None, "y", 0))
    found.exactly_once(values=["x", None, "y"]).exactly_once(keys=["1", "1", None])
    with pytest.raises(AssertionError, match="1 values are missing: b'None'"):
        found.exactly_once(values=["x", None, "y", "None"])
