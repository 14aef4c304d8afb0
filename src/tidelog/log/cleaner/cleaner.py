"""One round over one log: build the offset map, then clean group by group.

The steps run in a thread and touch nothing of the broker's state; between them the loop swaps what
`clean` gave. They see the log as its plan took it down. `check` is asked before every piece and
raises CleaningAborted when the plan does not hold any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.config.broker import BrokerConfig
from tidelog.log.cleaner.cleaned_segment import CleanedSegment
from tidelog.log.cleaner.cleaned_transactions import BatchRetention, CleanedTransactionMetadata
from tidelog.log.cleaner.log_to_clean import CleaningPlan, SourceSegment, group_lengths
from tidelog.log.cleaner.segment_pass import FilterPass, IoThrottle, MapPass, OffsetMap
from tidelog.log.segment.index_file import fsync_path
from tidelog.types import TopicPartition

MAP_BYTES_MAX: Final = (1 << 31) - 1
IO_BUFFER_BYTES_MIN: Final = 4096
NS_PER_MS: Final = 1_000_000
MEGABYTE = 1_000_000


class CleanerConfig(NamedTuple):
    """The log.cleaner.* keys as one value."""

    is_enabled: bool
    threads: int
    map_bytes: int  # of one thread
    map_load_factor: float
    io_buffer_bytes: int  # of one thread, for reading; as much again for writing
    io_bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerConfig:
        threads = config.get_int("log.cleaner.threads")
        share = max(threads, 1)
        return cls(
            is_enabled=config["log.cleaner.enable"] and threads > 0,
            threads=threads,
            map_bytes=min(config["log.cleaner.dedupe.buffer.size"] // share, MAP_BYTES_MAX),
            map_load_factor=config["log.cleaner.io.buffer.load.factor"],
            io_buffer_bytes=max(
                config["log.cleaner.io.buffer.size"] // share // 2, IO_BUFFER_BYTES_MIN
            ),
            io_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            backoff_ms=config.get_int("log.cleaner.backoff.ms"),
        )


class CleanerStats:
    """What a round has done, for the log."""

    __slots__ = (
        "bytes_read",
        "bytes_written",
        "filter_s",
        "first_dirty_offset",
        "map_bytes_read",
        "map_s",
        "map_utilization",
        "records_kept",
        "records_read",
        "records_without_key",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, first_dirty_offset: int) -> None:
        self.topic_partition = topic_partition
        self.first_dirty_offset = first_dirty_offset
        self.map_s = self.filter_s = self.map_utilization = 0.0
        self.map_bytes_read = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = self.records_without_key = 0

    def mapped(self, seconds: float, bytes_read: int, utilization: float) -> None:
        self.map_s = seconds
        self.map_bytes_read = bytes_read
        self.map_utilization = utilization

    def filtered(self, seconds: float, done: FilterPass) -> None:
        """One group more; the pass counts all groups together."""
        self.filter_s += seconds
        self.bytes_read, self.bytes_written = done.bytes_read, done.bytes_written
        self.records_read, self.records_kept = done.records_read, done.records_kept
        self.records_without_key = done.records_without_key

    def summary(self, end_offset: int) -> str:
        return (
            f"cleaned {self.topic_partition} from {self.first_dirty_offset} to {end_offset}: "
            f"mapped {self.map_bytes_read / MEGABYTE:.1f} MB in {self.map_s:.2f} s "
            f"(map {self.map_utilization:.0%} full), copied {self.bytes_read / MEGABYTE:.1f} MB "
            f"in {self.filter_s:.2f} s, {self.records_read} records to {self.records_kept}, "
            f"{self.bytes_read / MEGABYTE:.1f} MB to {self.bytes_written / MEGABYTE:.1f} MB"
        )


class Cleaner:
    """`build_map`, then `clean` each of `groups`; the round ends at `end_offset`."""

    def __init__(
        self,
        plan: CleaningPlan,
        settings: CleanerConfig,
        throttle: IoThrottle,
        clock: Clock,
        check: Callable[[], object],
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._throttle = throttle
        self._clock = clock
        self._check = check
        self.groups: list[Sequence[SourceSegment]] = []
        self.stats = CleanerStats(plan.topic_partition, plan.first_dirty_offset)

    @property
    def end_offset(self) -> int:
        """All below is clean after the round; known once the map is built."""
        return self._map.latest_offset + 1

    def build_map(self) -> None:
        plan, settings = self._plan, self._settings
        started_s = self._clock.monotonic()
        self._buffer = bytearray(settings.io_buffer_bytes)
        self._map = OffsetMap.for_offsets(
            plan.end_offset - plan.first_dirty_offset, settings.map_bytes, settings.map_load_factor
        )
        aborted = [txn for txn in plan.aborted if txn.last_offset >= plan.first_dirty_offset]
        mapping = MapPass(
            self._map,
            CleanedTransactionMetadata(aborted),
            plan.first_dirty_offset,
            self._buffer,
            self._throttle,
            self._check,
        )
        for source in plan.dirty_sources:
            if not mapping.run(source, source.start_position):
                break
            self._map.reach(source.end_offset - 1)
        self._begin_filter()
        self.groups = self._group()
        self.stats.mapped(
            self._clock.monotonic() - started_s, mapping.bytes_read, self._map.utilization
        )

    def _begin_filter(self) -> None:
        plan = self._plan
        self._tracker = CleanedTransactionMetadata(plan.aborted)
        self._filter = FilterPass(
            self._map,
            BatchRetention(self._tracker, plan.last_records, plan.end_offset, plan.now_ms),
            now_ms=plan.now_ms,
            horizon_ms=plan.now_ms + plan.delete_retention_ms,
            buffer=self._buffer,
            throttle=self._throttle,
            check=self._check,
        )
        clean = [each for each in plan.sources if each.base_offset < plan.first_dirty_offset]
        # Tombstones of old formats go with segments last written before this.
        self._old_horizon_ns = (
            clean[-1].modified_ns() - plan.delete_retention_ms * NS_PER_MS if clean else 0
        )

    def _group(self) -> list[Sequence[SourceSegment]]:
        plan = self._plan
        sources = [each for each in plan.sources if each.base_offset < self.end_offset]
        lengths = group_lengths(
            [source.measured() for source in sources], plan.segment_bytes, plan.index_bytes
        )
        groups: list[Sequence[SourceSegment]] = []
        start = 0
        for length in lengths:
            groups.append(sources[start : start + length])
            start += length
        return groups

    def clean(self, group: Sequence[SourceSegment]) -> CleanedSegment:
        """What stays of the group, written and synced; nothing is left behind when that fails."""
        plan = self._plan
        started_s = self._clock.monotonic()
        cleaned = CleanedSegment(
            plan.directory,
            group[0].base_offset,
            index_interval_bytes=plan.index_interval_bytes,
            index_bytes_max=plan.index_bytes,
        )
        try:
            self._filter.write_to(cleaned)
            for source in group:
                self._filter.keep_old_tombstones = source.modified_ns() > self._old_horizon_ns
                self._filter.run(source)
            cleaned.finish(self._tracker.take_retained(), group[-1].modified_ns())
        except BaseException:
            with contextlib.suppress(OSError):
                cleaned.discard()
            raise
        self.stats.filtered(self._clock.monotonic() - started_s, self._filter)
        return cleaned

    def sync_folder(self) -> None:
        """After a swap: the new names survive a loss of power."""
        fsync_path(self._plan.directory)
