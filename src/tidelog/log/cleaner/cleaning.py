"""One round over one log: build the offset map, then clean group by group.

The steps run in a thread and touch nothing of the broker's state; between them the loop swaps what
`clean` gave. They see the log as its plan took it down. `check` is asked before every piece and
raises CleaningAborted when the plan does not hold any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.clock import Clock
from tidelog.log.cleaner.cleaned_segment import CleanedSegment
from tidelog.log.cleaner.cleaning_stats import CleaningStats
from tidelog.log.cleaner.filter_pass import FilterPass
from tidelog.log.cleaner.grouping import group_lengths
from tidelog.log.cleaner.map_pass import MapPass
from tidelog.log.cleaner.offset_map import OffsetMap
from tidelog.log.cleaner.planning import CleaningPlan
from tidelog.log.cleaner.settings import CleanerSettings
from tidelog.log.cleaner.source_segment import SourceSegment
from tidelog.log.cleaner.throttle import IoThrottle
from tidelog.log.cleaner.transactions import BatchRetention, TransactionTracker
from tidelog.log.index_file import fsync_path

NS_PER_MS: Final = 1_000_000


class LogCleaning:
    """`build_map`, then `clean` each of `groups`; the round ends at `end_offset`."""

    def __init__(
        self,
        plan: CleaningPlan,
        settings: CleanerSettings,
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
        self.stats = CleaningStats(plan.topic_partition, plan.first_dirty_offset)

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
            TransactionTracker(aborted),
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
        self._tracker = TransactionTracker(plan.aborted)
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
