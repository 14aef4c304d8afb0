from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.planning import OffsetRange, split_evenly, split_ranges
from tidelog.types import TopicPartition


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
