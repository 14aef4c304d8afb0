from __future__ import annotations

from tidelog.log.retention import (
    SegmentFacts,
    above_size_count,
    below_log_start_count,
    too_old_count,
)

HIGH_WATERMARK = 40


def segments(*sizes: int, timestamps: tuple[int, ...] = ()) -> list[SegmentFacts]:
    """Ten offsets each; the last one is active."""
    stamps = timestamps or (0,) * len(sizes)
    return [
        SegmentFacts(n * 10, n * 10 + 10, size, stamp.__int__, n == len(sizes) - 1)
        for n, (size, stamp) in enumerate(zip(sizes, stamps, strict=True))
    ]


def test_segments_wholly_below_the_log_start_go() -> None:
    three = segments(100, 100, 100)
    assert below_log_start_count(three, 9) == 0
    assert below_log_start_count(three, 10) == 1
    assert below_log_start_count(three, 25) == 2
    assert below_log_start_count(three, 30) == 2


def test_size_retention_keeps_at_least_what_is_asked_for() -> None:
    four = segments(100, 100, 100, 100)
    assert above_size_count(four, HIGH_WATERMARK, 400) == 0
    assert above_size_count(four, HIGH_WATERMARK, 301) == 0
    assert above_size_count(four, HIGH_WATERMARK, 300) == 1
    assert above_size_count(four, HIGH_WATERMARK, 150) == 2
    assert above_size_count(four, HIGH_WATERMARK, -1) == 0


def test_a_retention_of_zero_bytes_takes_the_active_segment_too() -> None:
    assert above_size_count(segments(100, 100), HIGH_WATERMARK, 0) == 2


def test_time_retention_goes_by_the_largest_timestamp() -> None:
    three = segments(1, 1, 1, timestamps=(100, 200, 300))
    assert too_old_count(three, HIGH_WATERMARK, 50, now_ms=150) == 0
    assert too_old_count(three, HIGH_WATERMARK, 50, now_ms=151) == 1
    assert too_old_count(three, HIGH_WATERMARK, 50, now_ms=1000) == 3
    assert too_old_count(three, HIGH_WATERMARK, -1, now_ms=1000) == 0


def test_an_old_segment_behind_a_young_one_stays() -> None:
    three = segments(1, 1, 1, timestamps=(500, 100, 600))
    assert too_old_count(three, HIGH_WATERMARK, 50, now_ms=400) == 0


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    three = segments(100, 100, 100, timestamps=(0, 0, 0))
    assert too_old_count(three, 19, 50, now_ms=1000) == 1
    assert above_size_count(three, 19, 0) == 1


def test_an_empty_active_segment_stays() -> None:
    assert too_old_count(segments(100, 0), HIGH_WATERMARK, 50, now_ms=1000) == 1
