"""What the driver knows of a running streaming query, and where its batches begin and end.

An offset is the next one to read of every partition, with the ids of their topics.

    initial_offset      the start options, resolved once; Spark asks twice for batch 0
    next_end(start)     where the next batch ends; all below `start` is done
    plan(start, end)    the ranges of a batch; new partitions begin at their earliest offset

A topic with another id than in `start` was deleted and made anew. What the query had not read of
the old one is lost; with failOnDataLoss=false the new one is read from its beginning.

Batch 0 has no start in the checkpoint, so a restart that runs it again asks for the initial offsets
again. When those move with time ("latest", or a timestamp after the last record) batch 0 is kept
empty: its end is the initial offsets, safe in the checkpoint before any record is read.

A trigger takes at most `maxOffsetsPerTrigger` offsets. Every partition gets its share of the limit
by size, rounded down, but a share below one becomes one so that small partitions do not starve; a
batch may therefore exceed the limit a little. A batch waits for `minOffsetsPerTrigger` until
`maxTriggerDelay` has passed since the last one; the first batch of a run does not wait. All of this
is as in Spark's kafka source.

Once AvailableNow is announced the latest offsets are asked for one time, and minOffsetsPerTrigger
is left aside, since the query would end with records unread.

pyspark 4.1 asks for the end without saying the start: there the limits a trigger are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import TYPE_CHECKING

from tidelog.clock import SystemClock
from tidelog.spark.offset_ranges import OffsetRange, split_ranges
from tidelog.spark.offsets import PartitionOffsets, StreamOffset, Word, partitions_text
from tidelog.spark.options import InvalidOption

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.spark.group_commit import GroupCommitter
    from tidelog.spark.offset_lookup import OffsetLookup
    from tidelog.spark.options import SourceOptions
    from tidelog.types import TopicPartition


class MicroBatchStream:
    """For one process. The cluster is asked through `lookup`, made on first use."""

    def __init__(
        self,
        options: SourceOptions,
        lookup: OffsetLookup | None = None,
        clock: Clock | None = None,
    ) -> None:
        if options.path is not None:
            raise InvalidOption("path", "segment files can be read by batch queries only")
        self.options = options
        self.start_limit = options.stream_start()
        options.check_stream()
        self.is_available_now = False
        self.latest: StreamOffset | None = None  # as last asked for
        self._initial: StreamOffset | None = None
        self._is_batch_zero_to_come = False
        self._last_end: StreamOffset | None = None  # held against the logs by this run
        self._trigger_delay: TriggerDelay | None = None
        if options.min_offsets_per_trigger is not None:
            self._trigger_delay = TriggerDelay(
                options.min_offsets_per_trigger,
                options.max_trigger_delay_ms,
                clock or SystemClock(),
            )
        self._lookup = lookup
        self._committer: GroupCommitter | None = None

    @property
    def lookup(self) -> OffsetLookup:
        if self._lookup is None:
            from tidelog.spark.offset_lookup import OffsetLookup

            self._lookup = OffsetLookup(self.options)
        return self._lookup

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.close()

    # Offsets

    @property
    def _start_moves(self) -> bool:
        """Whether the same options give other offsets later."""
        return self.start_limit is Word.LATEST or self.options.latest_if_no_match

    def initial_offset(self) -> StreamOffset:
        if self._initial is None:
            assigned = self.lookup.assigned()
            self._initial = self._with_ids(self.lookup.resolve_start(self.start_limit, assigned))
            self._is_batch_zero_to_come = self._start_moves
        return self._initial

    def _with_ids(self, offsets: PartitionOffsets) -> StreamOffset:
        return StreamOffset.of(offsets, self.lookup.topic_ids())

    def latest_without_start(self) -> StreamOffset:
        """For pyspark 4.1."""
        for name, value in (
            ("maxOffsetsPerTrigger", self.options.max_offsets_per_trigger),
            ("minOffsetsPerTrigger", self.options.min_offsets_per_trigger),
        ):
            if value is not None:
                raise InvalidOption(name, "needs pyspark 4.2 or later")
        if self._is_batch_zero_to_come and self._initial is not None:
            self._is_batch_zero_to_come = False
            self._last_end = self._initial
            return self._initial
        self.latest = self._with_ids(self.lookup.latest(self.lookup.assigned()))
        return self.latest

    def next_end(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        self.commit(start)
        end = self._next_end(start, is_limited)
        self._last_end = end
        return end

    def _next_end(self, start: StreamOffset, is_limited: bool) -> StreamOffset:
        if self._is_batch_zero_to_come:
            self._is_batch_zero_to_come = False
            if start == self._initial:
                return start
        latest = self._latest_since(start)
        self._report_losses(start, latest)
        if not is_limited:
            return latest
        read = start.offsets_outside(start.made_anew(latest.topic_ids))
        begin = {**self.lookup.earliest(latest.offsets.keys() - read.keys()), **read}
        available = sum(max(end - begin[row], 0) for row, end in latest.offsets.items())
        delay = None if self.is_available_now else self._trigger_delay
        if delay is not None and delay.waits(available):
            return start
        limit = self.options.max_offsets_per_trigger
        if limit is None:
            return latest
        return StreamOffset.of(limited(limit, begin, latest.offsets), latest.topic_ids)

    def _latest_since(self, start: StreamOffset) -> StreamOffset:
        if self.latest is None or not self.is_available_now:
            assigned = self.lookup.assigned(may_be_gone={row.topic for row in start.offsets})
            topic_ids = self.lookup.topic_ids()
            read = start.offsets_outside(start.made_anew(topic_ids))
            self.latest = StreamOffset.of(self.lookup.latest_not_before(read, assigned), topic_ids)
        return self.latest

    def _report_losses(self, begin: StreamOffset, until: StreamOffset) -> None:
        made_anew = begin.made_anew(until.topic_ids)
        self._report_made_anew(made_anew)
        start, end = begin.offsets_outside(made_anew), until.offsets_outside(made_anew)
        gone = start.keys() - end.keys()
        if gone:
            self.options.data_loss.report(
                f"the query's last offsets include {partitions_text(gone)}, which "
                f"{self._why_gone(gone)}"
            )
        for partition in start.keys() & end.keys():
            if end[partition] < start[partition]:
                self.options.data_loss.report(
                    f"{partition} was read up to {start[partition]}, but ends at {end[partition]}"
                )

    def _report_made_anew(self, topics: set[str]) -> None:
        if topics:
            self.options.data_loss.report(
                f"{', '.join(sorted(topics))}: deleted and made anew since the query read it, so "
                f"the query's offsets are those of another topic"
            )

    def _why_gone(self, gone: set[TopicPartition]) -> str:
        subscription = self.options.subscription
        assert subscription is not None
        names = subscription.topic_names()
        others = {row.topic for row in gone} - names if names is not None else set()
        if others:
            return (
                f"the options do not choose: the checkpoint belongs to another query, or its "
                f"topics were changed ({', '.join(sorted(others))})"
            )
        return "are no longer there"

    # Tasks

    def plan(self, begin_at: StreamOffset, end_at: StreamOffset) -> list[OffsetRange]:
        end = end_at.offsets
        if end_at != self._last_end:
            if self._start_moves and begin_at == self._initial and self.latest is None:
                return []  # batch 0 of an earlier run
            self._report_losses(begin_at, end_at)
            end = self._still_readable(end_at)
        start = begin_at.offsets_outside(begin_at.made_anew(end_at.topic_ids))
        begin = {**self._starts_of_new(end.keys() - start.keys()), **start}
        ranges = [OffsetRange(row, begin[row], end[row]) for row in end if row in begin]
        return split_ranges(
            ranges, self.options.min_partitions, self.options.max_records_per_partition
        )

    def _still_readable(self, end_at: StreamOffset) -> PartitionOffsets:
        """For an end that was not held against the logs by this run: what of it they hold."""
        there = self.lookup.still_there(end_at.offsets)
        made_anew = end_at.made_anew(self.lookup.topic_ids())
        self._report_made_anew(made_anew)
        there = {row for row in there if row.topic not in made_anew}
        end = end_at.offsets_outside(made_anew)
        if there != end.keys():
            self.options.data_loss.report(
                f"{partitions_text(end.keys() - there)} are no longer there"
            )
        latest = self.lookup.latest(there)
        for partition in there:
            if end[partition] > latest[partition]:
                self.options.data_loss.report(
                    f"{partition} was to be read up to {end[partition]}, but ends at "
                    f"{latest[partition]}"
                )
        return {row: min(end[row], latest[row]) for row in there}

    def _starts_of_new(self, added: set[TopicPartition]) -> PartitionOffsets:
        if not added:
            return {}
        there = self.lookup.still_there(added)
        if there != added:
            self.options.data_loss.report(
                f"{partitions_text(added - there)} were added and are gone again"
            )
        earliest = self.lookup.earliest(there)
        for partition, offset in earliest.items():
            if offset:
                self.options.data_loss.report(
                    f"the added partition {partition} begins at {offset} instead of 0"
                )
        return earliest

    # Consumer group

    def commit(self, end: StreamOffset) -> None:
        """All before it is done."""
        if self.options.commit_group_id is None:
            return
        if self._committer is None:
            from tidelog.spark.group_commit import GroupCommitter

            self._committer = GroupCommitter(self.lookup.cluster, self.options.commit_group_id)
        self._committer.commit(end.offsets)


def limited(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> PartitionOffsets:
    """`end`, moved back so that about `limit` offsets lie between. `start` knows all of `end`."""
    sizes = {partition: max(end[partition] - start[partition], 0) for partition in end}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    return {
        partition: end[partition]
        if not sizes[partition]
        else min(end[partition], start[partition] + _share(limit * sizes[partition] / total))
        for partition in end
    }


def _share(share: float) -> int:
    return ceil(share) if share < 1 else floor(share)


class TriggerDelay:
    """Whether a small batch is to wait. State of one run of a query; for the driver alone."""

    __slots__ = ("_clock", "_last_trigger_ms", "_max_delay_ms", "_min_offsets")

    def __init__(self, min_offsets: int, max_delay_ms: int, clock: Clock) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._clock = clock
        self._last_trigger_ms: int | None = None  # None before the first batch

    def waits(self, available: int) -> bool:
        """Called once a trigger with the number of new offsets."""
        now_ms = self._clock.time_ms()
        last_ms = self._last_trigger_ms
        is_late = last_ms is None or now_ms - last_ms >= self._max_delay_ms
        if not is_late and available < self._min_offsets:
            return True
        self._last_trigger_ms = now_ms
        return False
