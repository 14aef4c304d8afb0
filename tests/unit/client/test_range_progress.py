"""How a range advances and how much it asks for."""

from __future__ import annotations

from tidelog.client.columns.range_reader import REQUEST_BYTES_MIN, FetchRange, RangeProgress
from tidelog.types import TopicPartition

TP = TopicPartition("t", 0)
MIB = 1 << 20


def test_a_range_is_done_when_its_position_reaches_the_end() -> None:
    progress = RangeProgress(FetchRange(TP, 10, 20))
    assert not progress.is_done
    progress.advance(15, 100)
    assert not progress.is_done
    progress.advance(20, 100)
    assert progress.is_done


def test_a_batch_that_reaches_beyond_the_end_ends_the_range() -> None:
    progress = RangeProgress(FetchRange(TP, 10, 20))
    progress.advance(500, 100)
    assert progress.is_done


def test_a_long_range_asks_for_as_much_as_allowed() -> None:
    assert RangeProgress(FetchRange(TP, 0, 1_000_000)).request_bytes(8 * MIB) == 8 * MIB


def test_a_short_range_does_not_ask_for_megabytes() -> None:
    assert RangeProgress(FetchRange(TP, 0, 5)).request_bytes(8 * MIB) == REQUEST_BYTES_MIN


def test_the_rest_is_guessed_from_what_came() -> None:
    progress = RangeProgress(FetchRange(TP, 0, 20_000))
    progress.advance(10_000, 1_000_000)
    assert progress.request_bytes(8 * MIB) == 1_125_000


def test_a_batch_that_was_cut_is_asked_for_in_its_full_size() -> None:
    progress = RangeProgress(FetchRange(TP, 0, 5))
    progress.size_min = 9 * MIB
    assert progress.request_bytes(8 * MIB) == 9 * MIB
    progress.advance(1, 9 * MIB)
    assert progress.request_bytes(8 * MIB) == 8 * MIB


def test_the_epoch_of_the_last_batch_goes_with_the_position() -> None:
    progress = RangeProgress(FetchRange(TP, 0, 20))
    assert progress.last_epoch == -1
    progress.advance(5, 100, 3)
    assert progress.last_epoch == 3
    progress.advance(9, 100)
    assert progress.last_epoch == -1, "messages of old formats have none"
