from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.offset_ranges import (
    OffsetRange,
    ranges_within,
    require_all,
    split_evenly,
    split_ranges,
)
from tidelog.spark.options import DataLoss, DataLossPolicy, InvalidOption
from tidelog.types import TopicPartition

T = TopicPartition("t", 0)
FAIL, GO_ON = DataLossPolicy(True), DataLossPolicy(False)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", number), 100, 100 + size)
        for number, size in enumerate(sizes)
    ]


def sizes_of(pieces: list[OffsetRange]) -> list[int]:
    return [piece.size for piece in pieces]


def test_without_options_a_partition_is_a_task() -> None:
    assert split_ranges(ranges(5, 0, 1000)) == [ranges(5)[0], ranges(0, 0, 1000)[2]]


def test_records_per_partition_bound_every_piece() -> None:
    pieces = split_ranges(ranges(10, 3), max_records_per_partition=4)
    assert sizes_of(pieces) == [3, 3, 4, 3]


def test_enough_partitions_are_not_split() -> None:
    assert sizes_of(split_ranges(ranges(1, 1, 100), min_partitions=3)) == [1, 1, 100]


def test_large_ranges_are_split_and_small_ones_set_aside() -> None:
    assert sizes_of(split_ranges(ranges(1, 1000, 1000), min_partitions=5)) == [
        1,
        500,
        500,
        500,
        500,
    ]


def test_minimum_and_maximum_work_together() -> None:
    pieces = split_ranges(ranges(100), min_partitions=10, max_records_per_partition=50)
    assert sizes_of(pieces) == [10] * 10


def test_no_piece_is_empty_however_many_are_wanted() -> None:
    assert sizes_of(split_evenly(ranges(3)[0], 10)) == [1, 1, 1]
    assert sizes_of(split_ranges(ranges(2), min_partitions=10)) == [1, 1]


@given(
    st.lists(st.integers(-5, 500), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 40),
)
def test_pieces_cover_each_range_once_and_in_order(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    wholes = ranges(*sizes)
    pieces = split_ranges(wholes, least, most)
    for whole in wholes:
        offsets = [
            offset
            for piece in pieces
            if piece.partition == whole.partition
            for offset in range(piece.start_offset, piece.end_offset)
        ]
        assert offsets == list(range(whole.start_offset, whole.end_offset))
    assert most is None or all(piece.size <= most for piece in pieces)


def range_of(start: int, end: int, policy: DataLossPolicy) -> OffsetRange:
    """Of a log that holds the offsets 10 to 19."""
    return ranges_within({T: start}, {T: end}, {T: 10}, {T: 20}, policy)[0]


def test_offsets_that_the_log_holds_are_taken_as_they_are() -> None:
    assert range_of(10, 20, FAIL) == (T, 10, 20)
    assert range_of(20, 20, FAIL).size == 0


@pytest.mark.parametrize("policy", [FAIL, GO_ON])
def test_a_start_beyond_the_log_is_an_error_whatever_the_policy(policy: DataLossPolicy) -> None:
    with pytest.raises(InvalidOption, match="21 of t-0 lies beyond the end of its log, 20"):
        range_of(21, 25, policy)


def test_an_end_beyond_the_log_is_data_loss_or_what_there_is() -> None:
    with pytest.raises(DataLoss, match=r"up to 25: its log ends at 20.*failOnDataLoss"):
        range_of(12, 25, FAIL)
    assert range_of(12, 25, GO_ON) == (T, 12, 20)


def test_a_start_before_the_log_is_data_loss_or_its_beginning() -> None:
    with pytest.raises(DataLoss, match="from 5: its log begins at 10"):
        range_of(5, 15, FAIL)
    assert range_of(5, 15, GO_ON) == (T, 10, 15)
    assert range_of(5, 8, GO_ON).size < 0


def test_a_start_after_the_end_is_an_error() -> None:
    with pytest.raises(InvalidOption, match="after its end at 12"):
        range_of(15, 12, GO_ON)


def test_offsets_must_name_exactly_the_partitions_that_are_read() -> None:
    other = TopicPartition("t", 1)
    require_all("startingOffsets", {T: 1}, {T})
    with pytest.raises(InvalidOption, match="leaves out t-1"):
        require_all("startingOffsets", {T: 1}, {T, other})
    with pytest.raises(InvalidOption, match="names t-1, not read by this query"):
        require_all("startingOffsets", {T: 1, other: 2}, {T})
