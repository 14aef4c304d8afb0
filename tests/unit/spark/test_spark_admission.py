from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tidelog.spark.admission import Patience, limited
from tidelog.types import TopicPartition

P = [TopicPartition("t", number) for number in range(4)]


def test_each_partition_gets_its_share_rounded_down() -> None:
    end = limited(10, {P[0]: 0, P[1]: 100}, {P[0]: 1000, P[1]: 2100})
    assert end == {P[0]: 3, P[1]: 106}


def test_a_share_below_one_becomes_one() -> None:
    end = limited(10, {P[0]: 0, P[1]: 0}, {P[0]: 1, P[1]: 100_000})
    assert end[P[0]] == 1


def test_what_is_within_the_limit_is_taken_whole() -> None:
    assert limited(10, {P[0]: 0, P[1]: 5}, {P[0]: 4, P[1]: 11}) == {P[0]: 4, P[1]: 11}


def test_a_partition_that_went_back_keeps_its_end() -> None:
    assert limited(5, {P[0]: 50, P[1]: 0}, {P[0]: 3, P[1]: 100}) == {P[0]: 3, P[1]: 5}


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), min_size=1, max_size=4),
)
def test_a_batch_makes_progress_and_exceeds_the_limit_by_the_partitions_at_most(
    limit: int, rows: list[tuple[int, int]]
) -> None:
    start = {P[number]: row[0] for number, row in enumerate(rows)}
    latest = {P[number]: sum(row) for number, row in enumerate(rows)}
    end = limited(limit, start, latest)
    taken = [end[row] - start[row] for row in start]
    assert all(start[row] <= end[row] <= latest[row] for row in start)
    assert sum(taken) <= limit + len(rows)
    assert sum(taken) > 0 or latest == start


def test_the_first_batch_does_not_wait_and_later_ones_do() -> None:
    patience = Patience(100, 15_000, FakeClock())
    assert not patience.waits(1)
    assert patience.waits(99)
    assert not patience.waits(100)


def test_a_small_batch_is_taken_once_the_delay_has_passed() -> None:
    clock = FakeClock()
    patience = Patience(100, 15_000, clock)
    patience.waits(0)
    clock.advance(ms=14_999)
    assert patience.waits(5)
    clock.advance(ms=1)
    assert not patience.waits(5)
    assert patience.waits(5)
