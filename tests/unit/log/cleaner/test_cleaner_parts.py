"""Grouping, throttle, offset map and settings of the cleaner."""

from __future__ import annotations

from tests.support.clock import FakeClock
from tidelog.config.broker import BrokerConfig
from tidelog.log.cleaner.cleaner import CleanerConfig
from tidelog.log.cleaner.log_to_clean import SegmentSize, group_lengths
from tidelog.log.cleaner.segment_pass import IoThrottle, OffsetMap

TWO_GIB = (1 << 31) - 1


def sizes(*log_bytes: int, offsets_each: int = 10, index_bytes: int = 8) -> list[SegmentSize]:
    return [
        SegmentSize(n * offsets_each, (n + 1) * offsets_each, size, index_bytes, index_bytes)
        for n, size in enumerate(log_bytes)
    ]


class TestGrouping:
    def test_segments_join_up_to_segment_bytes(self) -> None:
        assert group_lengths(sizes(40, 60, 1, 100, 99, 1), 100, 1000) == [2, 1, 1, 2]

    def test_a_segment_above_segment_bytes_stands_alone(self) -> None:
        assert group_lengths(sizes(500, 10, 10), 100, 1000) == [1, 2]

    def test_the_indexes_must_fit_too(self) -> None:
        assert group_lengths(sizes(1, 1, 1, index_bytes=40), 100, 100) == [2, 1]

    def test_offsets_of_a_group_span_less_than_an_index_entry_can_say(self) -> None:
        far = [
            SegmentSize(0, 10, 1, 8, 8),
            SegmentSize(10, TWO_GIB, 1, 8, 8),
            SegmentSize(TWO_GIB, TWO_GIB + 2, 1, 8, 8),
        ]
        assert group_lengths(far, 100, 1000) == [2, 1]

    def test_empty_segments_join_however_far_they_are(self) -> None:
        far = [SegmentSize(0, 10, 1, 8, 8), SegmentSize(10, 1 << 40, 0, 0, 0)]
        assert group_lengths(far, 100, 1000) == [2]

    def test_nothing_gives_no_groups(self) -> None:
        assert group_lengths([], 100, 1000) == []


class TestThrottle:
    def test_bytes_above_the_rate_are_waited_for(self) -> None:
        clock = FakeClock()
        waits: list[float] = []
        throttle = IoThrottle(1000.0, clock, waits.append)
        throttle.take(5000)
        assert waits == []
        clock.advance(ms=400)
        throttle.take(100)
        assert waits == [5.1 - 0.4]

    def test_slower_than_the_rate_waits_for_nothing(self) -> None:
        clock = FakeClock()
        waits: list[float] = []
        throttle = IoThrottle(1000.0, clock, waits.append)
        for _ in range(10):
            clock.advance(ms=500)
            throttle.take(400)
        assert waits == []

    def test_without_a_bound_nobody_waits(self) -> None:
        clock = FakeClock()
        throttle = IoThrottle(1.7976931348623157e308, clock, lambda _: 1 / 0)
        clock.advance(ms=1000)
        throttle.take(1 << 50)


class TestOffsetMap:
    def test_a_map_is_no_larger_than_its_round_needs(self) -> None:
        offsets = OffsetMap.for_offsets(900, 1 << 30, 0.9)
        assert 900 <= offsets.entries_max < 910
        assert len(offsets.slots) < 24 * 1010

    def test_a_map_is_no_larger_than_its_share_of_the_buffer(self) -> None:
        offsets = OffsetMap.for_offsets(1 << 40, 32 << 20, 0.9)
        assert len(offsets.slots) <= 32 << 20
        assert offsets.entries_max == int((32 << 20) // 24 * 0.9)

    def test_a_million_keys_fit_32_megabytes(self) -> None:
        assert OffsetMap.for_offsets(1 << 40, 32_000_000, 0.9).entries_max >= 1_000_000

    def test_maps_hash_differently(self) -> None:
        assert OffsetMap(10, 0.9).hash_key != OffsetMap(10, 0.9).hash_key

    def test_one_slot_stays_free(self) -> None:
        assert OffsetMap(10, 1.0).entries_max == 9


class TestSettings:
    def test_threads_share_the_buffers(self) -> None:
        config = BrokerConfig(
            {
                "log.cleaner.threads": "4",
                "log.cleaner.dedupe.buffer.size": str(64 << 20),
                "log.cleaner.io.buffer.size": str(1 << 20),
            }
        )
        settings = CleanerConfig.of(config)
        assert settings.map_bytes == 16 << 20
        assert settings.io_buffer_bytes == 128 << 10

    def test_kafkas_defaults(self) -> None:
        settings = CleanerConfig.of(BrokerConfig({}))
        assert settings[:5] == (True, 1, 128 << 20, 0.9, 256 << 10)
        assert settings.backoff_ms == 15_000
