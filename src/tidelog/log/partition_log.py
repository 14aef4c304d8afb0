"""The log of one partition: segments, producers and leader epochs, and the offsets that bound them.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point <= log_end_offset: everything below it has been synced

The log validates, orders and stores; who leads, what is committed and who waits is decided above
it. Touched only on the broker loop. Readers hold what they read (FileRecords hold the open file);
the tuple of segments is replaced, never changed, so retention and readers do not meet. Blocking
syncs are split off: `flush_begin` on the loop, `FlushTicket.run` in a thread, `flush_done` on the
loop.

After an I/O error nothing half-written is left: the segment ends where it ended, no index entry, no
producer and no epoch has been added, and the caller gets StorageError (56).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.config.topic import LogConfig
from tidelog.errors import KafkaError
from tidelog.log import retention, time_lookup
from tidelog.log.append_run import AppendRun, LeaderAppend
from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE, write_partition_metadata
from tidelog.log.leader_epoch_cache import EpochEntry, LeaderEpochCache
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_errors import OffsetOutOfRange, StorageError
from tidelog.log.log_flush import FlushTicket, SyncState
from tidelog.log.log_reader import LogReader
from tidelog.log.log_reader import ReadResult as ReadResult
from tidelog.log.log_validator import AppendOrigin, FetchedBatches, validate_for_append
from tidelog.log.producer_loading import check_producer, producers_at
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.log_segment import LogSegment, new_segment
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.log.time_lookup import BatchLookups, TimestampOffset
from tidelog.log.transaction_index_check import TransactionIndexCheck
from tidelog.log.truncation_walk import TruncationWalk, walk_due
from tidelog.record.errors import BatchAboveSegment
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from tidelog.log.cleaner.cleaned_segment import CleanedSegment
    from tidelog.log.log_validator import ValidBatch
    from tidelog.log.producer_state import BatchMetadata
    from tidelog.record.inflation import InflationBudget
    from tidelog.record.kernel import LogScan

logger = logging.getLogger(__name__)


class LogAppendInfo:
    """What became of an append. Of a duplicate: the offsets and timestamp of the first time."""

    __slots__ = (
        "base_offset",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "size_bytes",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        size_bytes: int,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes  # what the log grew by: 0 for a duplicate

    @classmethod
    def of_duplicate(cls, first: BatchMetadata, log_start_offset: int) -> LogAppendInfo:
        """For a batch that is in the log already, as `first`."""
        return cls(first.base_offset, first.last_offset, first.timestamp, log_start_offset, 0)

    @property
    def is_duplicate(self) -> bool:
        return self.size_bytes == 0


class PartitionLog:
    __slots__ = (
        "_active",
        "_appended_epoch",
        "_directory",
        "_environment",
        "_max_segment_ms",
        "_reader",
        "_sync",
        "cleaner_offset",
        "config",
        "epochs",
        "high_watermark",
        "is_being_cleaned",
        "is_moving",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
        "snapshots",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        environment: LogEnvironment,
        *,
        segments: Sequence[LogSegment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        high_watermark: int,
        producers: ProducerStateTable,
        snapshots: SnapshotFiles,
        epochs: LeaderEpochCache,
    ) -> None:
        self._directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self._max_segment_ms = config.max_segment_ms
        self._environment = environment
        self._set_segments(segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._sync = SyncState(recovery_point, environment.clock.time_ms())
        self.producers = producers
        self.update_high_watermark(high_watermark)
        self.snapshots = snapshots
        self.epochs = epochs
        self._appended_epoch = -1  # of the last batch appended by this process
        # The first dirty offset; -1 while no cleaner has been here, nor at the leader's log that
        # this one was copied from: a gap between offsets is damage then.
        self.cleaner_offset = -1
        self.is_being_cleaned = False  # while it is, retention keeps off
        self.is_moving = False  # to another log directory; while it is, the cleaner keeps off

    @property
    def directory(self) -> Path:
        return Path(self._directory)

    @property
    def last_stable_offset(self) -> int:
        """Nothing below belongs to an open transaction."""
        unstable = self.producers.first_unstable_offset
        if unstable < 0 or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self._sync.recovery_point

    @property
    def recovery_point(self) -> int:
        return self._sync.recovery_point

    @property
    def truncations(self) -> int:
        return self._sync.truncations

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def active_segment(self) -> LogSegment:
        return self._active

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._max_segment_ms = config.max_segment_ms
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """For logs from before topic ids, and those whose id is lost."""
        assert self.topic_id in (ZERO_UUID, topic_id), (self.topic_id, topic_id)
        if topic_id != self.topic_id:
            try:
                write_partition_metadata(self._directory, topic_id)
            except OSError as error:
                raise self._storage_error("write the topic id of", error) from error
            self.topic_id = topic_id
            self._sync.files_changed()

    def update_high_watermark(self, offset: int) -> None:
        """Kept between log start and log end. Whoever puts other producers in place calls it too:
        what has ended below the high watermark holds nothing back.
        """
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.first_unstable_offset >= 0:
            self.producers.high_watermark_moved(offset)

    # Appending

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        produce_version: int = 11,
        inflation: InflationBudget | None = None,
        checked: ValidBatch | None = None,
    ) -> LogAppendInfo:
        """`checked` is what was made of the records before, by the present configuration."""
        config = self.config
        now_ms = self._environment.clock.time_ms()
        if checked is None:
            batch = validate_for_append(
                records,
                config=config,
                next_offset=self.log_end_offset,
                now_ms=now_ms,
                leader_epoch=leader_epoch,
                origin=origin,
                produce_version=produce_version,
                inflation=inflation,
            )
        else:
            batch = checked
            batch.place(self.log_end_offset, leader_epoch, now_ms)
        has_producer = batch.producer_id >= 0
        if has_producer:
            is_client = origin == AppendOrigin.CLIENT
            duplicate = check_producer(
                batch, self.producers, self.segments, is_client, self.log_start_offset
            )
            if duplicate is not None:
                return LogAppendInfo.of_duplicate(duplicate, self.log_start_offset)
        if leader_epoch != self._appended_epoch:
            self._enter_epoch(leader_epoch, batch.base_offset)
        segment = self._active
        last_offset = batch.last_offset
        timestamp = batch.max_timestamp
        size = batch.size
        if segment.should_roll(
            size, last_offset, timestamp, now_ms, config.segment_bytes, self._max_segment_ms
        ):
            segment = self._roll_for(size, batch.base_offset)
        try:
            segment.append(batch.data, last_offset, timestamp, config.segment_index_bytes)
        except OSError as error:
            raise self._storage_error("append to", error) from error
        self.log_end_offset = last_offset + 1
        if has_producer:
            aborted = self.producers.add_batch(batch)
            if aborted is not None:
                self._index_aborted(segment, aborted)
        return LogAppendInfo(
            batch.base_offset,
            last_offset,
            batch.log_append_time_ms,
            self.log_start_offset,
            size,
        )

    def append_all_as_leader(self, appends: Sequence[LeaderAppend], leader_epoch: int) -> None:
        """As `append_as_leader` of each in turn, with one write for all that can share it."""
        now_ms = self._environment.clock.time_ms()
        run = AppendRun(self._active, self.log_end_offset)
        for append in appends:
            try:
                batch = validate_for_append(
                    append.records,
                    config=self.config,
                    next_offset=run.next_offset,
                    now_ms=now_ms,
                    leader_epoch=leader_epoch,
                    produce_version=append.produce_version,
                )
                belongs = self._belongs_to(run, batch, leader_epoch, now_ms)
            except KafkaError as error:
                append.outcome = error
                continue
            except (OSError, CorruptIndex):
                belongs = False  # whoever is appended alone meets it again
            if belongs:
                run.add(append, batch)
                continue
            self._append_run(run, leader_epoch)
            self._append_alone(append, batch, leader_epoch)
            run = AppendRun(self._active, self.log_end_offset)
        self._append_run(run, leader_epoch)

    def _belongs_to(
        self, run: AppendRun, batch: ValidBatch, leader_epoch: int, now_ms: int
    ) -> bool:
        if leader_epoch != self._appended_epoch or batch.is_transactional:
            return False
        if batch.producer_id >= 0:
            if run.knows_producer(batch):
                if not run.continues_sequence(batch):
                    return False
            elif (
                check_producer(batch, self.producers, self.segments, True, self.log_start_offset)
                is not None
            ):
                return False
        return run.has_room_for(batch, self.config, self._max_segment_ms, now_ms)

    def _append_run(self, run: AppendRun, leader_epoch: int) -> None:
        if not run.batches:
            return
        try:
            run.write(self.config.segment_index_bytes)
        except (OSError, KafkaError) as error:
            # There may be room for some of them, and each gets the outcome that it would have had.
            if isinstance(error, OSError):
                self._storage_error("append to", error)
            for append, batch in zip(run.appends, run.batches, strict=True):
                self._append_alone(append, batch, leader_epoch)
            return
        log_start_offset = self.log_start_offset
        for append, batch in zip(run.appends, run.batches, strict=True):
            last_offset = batch.last_offset
            self.log_end_offset = last_offset + 1
            if batch.producer_id >= 0:
                self.producers.add_batch(batch)
            append.outcome = LogAppendInfo(
                batch.base_offset,
                last_offset,
                batch.log_append_time_ms,
                log_start_offset,
                batch.size,
            )

    def _append_alone(self, append: LeaderAppend, batch: ValidBatch, leader_epoch: int) -> None:
        """One before it may have failed, so it may get another place than it had in its run."""
        try:
            append.outcome = self.append_as_leader(append.records, leader_epoch, checked=batch)
        except KafkaError as error:
            append.outcome = error

    def _index_aborted(self, segment: LogSegment, aborted: AbortedTxn) -> None:
        try:
            segment.add_aborted(aborted)
        except OSError as error:
            raise self._storage_error("index an aborted transaction in", error) from error
        self._reader.note_aborted()

    def append_as_follower(
        self, batches: memoryview, source_start_offset: int = 0
    ) -> LogAppendInfo:
        """Batches as the leader has them; their offsets must not lie below the log end.

        The leader's log may begin inside of a batch, at `source_start_offset`. A log that holds
        nothing from there on begins anew where that batch begins.
        """
        fetched = FetchedBatches(self.topic_partition, batches)
        is_obsolete = self.log_end_offset <= max(source_start_offset, self.log_start_offset)
        if is_obsolete and fetched.begin_around(self.log_end_offset):
            logger.info("%s begins anew at %d", self.topic_partition, fetched.first_offset)
            self.truncate_fully_and_start_at(fetched.first_offset)
        fetched.must_continue(self.log_end_offset)
        base_offset = fetched.first_offset
        segment = self._active
        scan = self._scan_fetched(segment, batches)
        if fetched.reach_beyond(segment, scan):
            segment = self._roll_for(len(batches), base_offset)
            scan = self._scan_fetched(segment, batches)
        fetched.must_be_good(scan)
        valid = batches[: scan.position]
        last_offset = scan.state.next_offset - 1
        if len(valid) > self.config.segment_bytes:
            raise BatchAboveSegment(
                f"{len(valid)} bytes were fetched, but segment.bytes is {self.config.segment_bytes}"
            )
        now_ms = self._environment.clock.time_ms()
        if segment.should_roll(
            len(valid),
            last_offset,
            scan.state.max_timestamp,
            now_ms,
            self.config.segment_bytes,
            self._max_segment_ms,
        ):
            segment = self._roll_for(len(valid), base_offset)
            scan = self._scan_fetched(segment, batches)
        for epoch, start_offset in scan.epochs:
            self._enter_epoch(epoch, start_offset)
        if self.epochs.dirty:
            self._save_epochs()
        try:
            segment.append_scanned(valid, scan, self.config.segment_index_bytes)
        except OSError as error:
            raise self._storage_error("append to", error) from error
        if self.cleaner_offset < 0 and fetched.leave_gaps(self.log_end_offset, scan.position):
            self.cleaner_offset = self.log_start_offset  # by right: the leader's log was cleaned
        self.log_end_offset = last_offset + 1
        for row in scan.producers:
            aborted = self.producers.replay(row)
            if aborted is not None:
                self._index_aborted(segment, aborted)
        return LogAppendInfo(base_offset, last_offset, -1, self.log_start_offset, len(valid))

    def _scan_fetched(self, segment: LogSegment, batches: memoryview) -> LogScan:
        return segment.scan_for_append(batches, self.log_end_offset, self.epochs.latest_epoch)

    def enter_leader_epoch(self, epoch: int) -> None:
        """This broker leads from here on; the epoch reaches the disk with its first batch."""
        self.epochs.assign(epoch, self.log_end_offset)

    def _enter_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch >= 0:
            self.epochs.assign(epoch, start_offset)
            if self.epochs.ahead or self.epochs.dirty:
                self._save_epochs()
        self._appended_epoch = epoch

    def _save_epochs(self) -> None:
        try:
            self.epochs.save(f"{self._directory}/{LEADER_EPOCH_FILE}")
        except OSError as error:
            raise self._storage_error("write the epochs of", error) from error
        self._sync.files_changed()

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool
    ) -> ReadResult:
        """Batches of one segment, from the one that holds `offset` on, below `up_to_offset`.

        The first batch is whole with `min_one_batch`; the last one may be cut off.
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside of {self.topic_partition}, which has "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )
        if offset >= up_to_offset:
            return self._reader.nothing_at(offset, self.log_end_offset)
        try:
            return self._reader.read(
                offset, max_bytes, up_to_offset, self.log_end_offset, min_one_batch
            )
        except OSError as error:
            raise self._storage_error("read", error) from error

    def aborted_transactions(self, offset: int, result: ReadResult) -> list[AbortedTxn]:
        """Those that touch the records of `result`, which `read(offset, ...)` gave."""
        return self._with_txn_indexes(
            lambda check: check.before_reading(result.segment),
            lambda: self._reader.aborted_transactions(offset, result, self.log_end_offset),
        )

    def aborted_before(self, offset: int) -> list[AbortedTxn]:
        """All aborted transactions that begin below `offset`."""
        return self._with_txn_indexes(
            lambda check: self.producers.knows_transactions and check.before_cleaning(offset),
            lambda: self._reader.aborted_before(offset),
        )

    def _with_txn_indexes(
        self, settle: Callable[[TransactionIndexCheck], bool], look: Callable[[], list[AbortedTxn]]
    ) -> list[AbortedTxn]:
        """What `look` finds once the indexes are settled, rebuilt if it finds them damaged."""
        check = TransactionIndexCheck(
            self.segments, self.snapshots, self._environment, self.log_start_offset
        )
        try:
            if settle(check):
                self._reader.forget_aborted()
            try:
                return look()
            except CorruptIndex:
                check.rebuild_damaged()
                return look()
        except OSError as error:
            raise self._storage_error("read", error) from error
        except WalkDue:
            self._reader.forget_aborted()  # an index before may have been written anew
            raise

    def offset_for_timestamp(
        self, timestamp: int, lookups: BatchLookups | None = None
    ) -> TimestampOffset | None:
        """WalkDue passes if there are `lookups`."""
        segments, start_offset = self.segments, self.log_start_offset
        try:
            return time_lookup.first_at_or_after(segments, timestamp, start_offset, lookups)
        except OSError as error:
            raise self._storage_error("search", error) from error

    def max_timestamp(self, lookups: BatchLookups | None = None) -> TimestampOffset | None:
        try:
            return time_lookup.with_max_timestamp(self.segments, self.log_start_offset, lookups)
        except OSError as error:
            raise self._storage_error("search", error) from error

    def offsets_by_time(self, now_ms: int) -> list[tuple[int, int]]:
        """Where segments begin and when they were last written, oldest first; the end has now."""
        try:
            starts = time_lookup.segment_starts(self.segments, self.log_start_offset)
        except OSError as error:
            raise self._storage_error("search", error) from error
        return [*starts, (self.log_end_offset, now_ms)] if self.active_segment.size else starts

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_for_offset(offset)

    def epoch_end_offset(self, requested_epoch: int) -> EpochEntry:
        """(epoch, end offset), both -1 when the epoch is not known."""
        return self.epochs.end_offset_for(requested_epoch, self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    # Rolling

    def _roll_for(self, size: int, base_offset: int) -> LogSegment:
        if size > self.config.segment_bytes:
            raise BatchAboveSegment(
                f"a batch of {size} bytes is above segment.bytes ({self.config.segment_bytes})"
            )
        return self.roll(base_offset)

    def roll(self, base_offset: int = 0) -> LogSegment:
        """A new active segment at `base_offset`, or at the log end if that is higher.

        An empty active segment stays, unless the new one would begin elsewhere.
        """
        base_offset = max(base_offset, self.log_end_offset)
        old = self._active
        if old.size == 0 and old.base_offset == base_offset:
            old.index_full = False
            return old
        try:
            old.become_inactive()
            self.snapshots.take(self.producers, base_offset)
            segment = new_segment(self._directory, base_offset, self.config, self._environment)
        except OSError as error:
            raise self._storage_error("roll", error) from error
        self._set_segments((*self.segments, segment))
        self._sync.files_changed()
        logger.info("rolled %s at offset %d", self.topic_partition, base_offset)
        self._environment.rolled(self)
        return segment

    def _set_segments(self, segments: Sequence[LogSegment]) -> None:
        self.segments: tuple[LogSegment, ...] = tuple(segments)
        self._active = self.segments[-1]
        self._reader = LogReader(self.segments)

    # Shortening

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are gone for readers; their segments go with retention."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"the log start of {self.topic_partition} cannot move to {offset}, "
                f"above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._sync.recovery_point = max(self._sync.recovery_point, offset)
        self.epochs.truncate_from_start(offset)
        return True

    def delete_old_segments(self) -> int:
        """By log start, size and time; the number of segments that went."""
        config, bound = self.config, self.high_watermark
        count = retention.below_log_start_count(self._facts(), self.log_start_offset)
        deleted = self._delete_oldest(count, "log start")
        if config.delete:
            count = retention.above_size_count(self._facts(), bound, config.retention_bytes)
            deleted += self._delete_oldest(count, "retention.bytes")
            now_ms = self._environment.clock.time_ms()
            count = retention.too_old_count(self._facts(), bound, config.retention_ms, now_ms)
            deleted += self._delete_oldest(count, "retention.ms")
        return deleted

    def _facts(self) -> list[retention.SegmentFacts]:
        return retention.facts_of(self.segments, self.log_end_offset)

    def _delete_oldest(self, count: int, why: str) -> int:
        if count == 0:
            return 0
        if count == len(self.segments):
            self.roll()
        doomed, kept = self.segments[:count], self.segments[count:]
        self.maybe_increment_log_start_offset(kept[0].base_offset)
        self._set_segments(kept)
        where = f"{self.topic_partition} below {kept[0].base_offset}"
        logger.info(
            "deleting %d segments of %s: %s",
            count,
            where,
            why,
            extra={
                "event": "segments-deleted",
                "partition": str(self.topic_partition),
                "segments": count,
                "bytes": sum(segment.size for segment in doomed),
                "from_offset": doomed[0].base_offset,
                "to_offset": kept[0].base_offset,
                "reason": why,
            },
        )
        self._delete_files(doomed)
        if self.epochs.dirty:
            self._save_epochs()
        return count

    def replace_segments(self, cleaned: CleanedSegment, replaced: Sequence[LogSegment]) -> None:
        """A cleaned one for neighbouring inactive ones; after an error the log must go offline."""
        start = self.segments.index(replaced[0])
        end = start + len(replaced)
        assert self.segments[start:end] == tuple(replaced) != self.segments[start:], replaced
        try:
            new, paths = cleaned.swap_in(
                replaced, self.snapshots, self._environment.clock.time_ms()
            )
        except OSError as error:
            raise self._storage_error("replace segments of", error) from error
        self._set_segments((*self.segments[:start], new, *self.segments[end:]))
        self._environment.delete_later(paths, self.config.file_delete_delay_ms)

    def _delete_files(self, doomed: Sequence[LogSegment]) -> None:
        paths: list[str] = []
        try:
            for segment in doomed:
                paths += segment.mark_deleted()
                paths += self.snapshots.mark_deleted(segment.base_offset)
        except OSError as error:
            raise self._storage_error("delete segments of", error) from error
        finally:
            self._environment.delete_later(paths, self.config.file_delete_delay_ms)

    def walk_before_truncation(
        self, offset: int, made: TruncationWalk | None
    ) -> TruncationWalk | None:
        """For a thread to make before `truncate_to`; None if little has to be read, or the one that
        has been made still holds.
        """
        try:
            return walk_due(self, self._environment, offset, made)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def truncate_to(self, offset: int, walk: TruncationWalk | None = None) -> bool:
        """Drop everything from `offset` on; False when there is nothing."""
        assert offset >= 0, offset
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        log_start_offset = min(self.log_start_offset, offset)
        max_timestamp = None
        if walk is not None and walk.is_clean and walk.is_for(self, offset):
            producers, max_timestamp = walk.producers, walk.max_timestamp
        else:
            producers = self._producers_at(offset, log_start_offset)
        kept = [segment for segment in self.segments if segment.base_offset <= offset]
        doomed = self.segments[len(kept) :]
        self._set_segments(kept)
        self._delete_files(doomed)
        try:
            self._active.truncate_to(offset, self.config.segment_index_bytes, max_timestamp)
        except OSError as error:
            raise self._storage_error("truncate", error) from error
        self.log_start_offset = log_start_offset
        self._end_at(offset, producers)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        doomed = self.segments
        self._delete_files(doomed)
        try:
            segment = new_segment(self._directory, offset, self.config, self._environment)
        except OSError as error:
            raise self._storage_error("truncate", error) from error
        self._set_segments((segment,))
        self._sync.files_changed()
        self.epochs.clear()
        self.log_start_offset = self.high_watermark = offset
        self._end_at(offset, ProducerStateTable())

    def _end_at(self, offset: int, producers: ProducerStateTable) -> None:
        """The files are cut: make memory agree with them first. If a write fails after that, the
        log is still right, and only the snapshot or the epoch file is missing.
        """
        self.log_end_offset = offset
        self._sync.truncated(offset)
        self.cleaner_offset = min(self.cleaner_offset, offset)
        self.producers = producers
        self.update_high_watermark(self.high_watermark)
        self.epochs.truncate_from_end(offset)
        self._appended_epoch = -1
        try:
            self.snapshots.remove_outside(self.log_start_offset, offset)
            if self.epochs.dirty:
                self._save_epochs()
            if offset > max(self.snapshots.latest_offset, self.log_start_offset):
                self.snapshots.take(producers, offset)
        except OSError as error:
            raise self._storage_error("write the producers of", error) from error

    def _producers_at(self, offset: int, log_start_offset: int) -> ProducerStateTable:
        try:
            return producers_at(
                offset, self.snapshots, self.segments, log_start_offset, self._environment
            )
        except OSError as error:
            raise self._storage_error("read the producers of", error) from error

    def remove_expired_producers(self) -> None:
        now_ms = self._environment.clock.time_ms()
        self.producers.remove_expired(now_ms, self._environment.producer_expiration_ms)

    # Durability

    def is_flush_due(self) -> bool:
        """Whether flush.messages or flush.ms asks for a flush."""
        unflushed = self.unflushed_messages
        return unflushed > 0 and (
            unflushed >= self.config.flush_messages
            or self._environment.clock.time_ms() - self._sync.last_flush_ms >= self.config.flush_ms
        )

    def files_changed(self) -> None:
        """Files were made or replaced; the next flush syncs their folder too."""
        self._sync.files_changed()

    def flush_begin(self) -> FlushTicket:
        """Everything that is in the log now; `run` the ticket, then give it to `flush_done`."""
        ticket = self._sync.begin(
            self._directory, self.segments, self.snapshots, self.log_end_offset
        )
        if not ticket.is_empty:
            ticket.began_s = self._environment.clock.monotonic()
        return ticket

    def flush_done(self, ticket: FlushTicket) -> None:
        """After a successful run."""
        environment = self._environment
        if ticket.began_s >= 0:
            environment.flushes.add(environment.clock.monotonic() - ticket.began_s)
        self._sync.done(ticket, environment.clock.time_ms())

    def flush_failed(self, ticket: FlushTicket) -> None:
        """The recovery point stays; the next ticket covers what this one did."""
        logger.error("cannot flush %s up to offset %d", self._directory, ticket.end_offset)

    def flush(self) -> None:
        """All three steps at once, blocking."""
        ticket = self.flush_begin()
        try:
            ticket.run()
        except OSError as error:
            raise self._storage_error("flush", error) from error
        self.flush_done(ticket)

    def close(self) -> FlushTicket | None:
        """Leave the files as a clean stop leaves them, once the ticket has been run."""
        try:
            if self.epochs.dirty:
                self._save_epochs()
            if self.log_end_offset > max(self.snapshots.latest_offset, self.log_start_offset):
                self.snapshots.take(self.producers, self.log_end_offset)
                self._sync.files_changed()
            indexes = [path for segment in self.segments for path in segment.close()]
            ticket = self._sync.begin(
                self._directory, self.segments, self.snapshots, self.log_end_offset, indexes
            )
        except OSError as error:
            raise self._storage_error("close", error) from error
        return None if ticket.is_empty else ticket

    def release_maps(self) -> None:
        """Index maps come back with their next use."""
        for segment in self.segments:
            segment.release()

    def let_go_of_files(self) -> None:
        """Of a log that is closed: the garbage collector may come late for what refers to it."""
        for segment in self.segments:
            segment.let_go_of_file()

    def move_to(self, directory: str) -> None:
        """Rename the folder, as for a deletion; the log is not to be written any more."""
        os.rename(self._directory, directory)
        self._directory = self.snapshots.directory = directory
        for segment in self.segments:
            segment.move_to(directory)

    def go_on_in(self, future: PartitionLog, directory: str, away: str) -> OSError | None:
        """Take over the files of `future`, an equal log whose folder becomes `directory`; the one
        of this log becomes `away`. StorageError if that fails, and all is as it was. An error of
        the second renaming is given back: by then the records are at home.
        """
        assert future.log_end_offset == self.log_end_offset, (future, self)
        try:
            future.move_to(directory)
        except OSError as error:
            raise future._storage_error("move", error) from error
        problem = None
        try:
            self.move_to(away)
        except OSError as error:
            problem = error
        self._directory, self.snapshots = directory, future.snapshots
        self._set_segments(future.segments)
        self._sync = future._sync.succeed(self._sync)
        return problem

    def _storage_error(self, what: str, error: OSError) -> StorageError:
        logger.error("cannot %s %s: %s", what, self._directory, error)
        self._environment.io_failed(self._directory, what, error)
        return StorageError(f"cannot {what} {self.topic_partition}: {error.strerror or error}")
