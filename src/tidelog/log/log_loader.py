"""Loading a partition's folder: from its files to a PartitionLog, repaired where needed.

In order:
1. Leftovers of interrupted work: `.deleted` and `.cleaned` files go; `.swap` files replace the
   segments they cover, unless a `.cleaned` file shows that their making was not finished.
2. Index files without a segment go. Missing or unevenly sized indexes are rebuilt, and so are
   transaction indexes that hold nonsense. (One that is missing cannot be told from one that was
   never needed; what is wrong with it shows when the segment is read, see transaction_index_check.)
3. After an unclean stop every segment from the recovery point on is read, checksums and all.
   The log is cut at the first batch that is damaged or out of order, and all later segments are
   dropped. Indexes, aborted transactions and epochs are rebuilt on the way. A log that does not
   end where the recovery point of a clean stop says is treated as after an unclean one.
4. A log that ends before its log start offset is replaced by an empty one.
5. Leader epochs outside of the log go; an epoch file that is missing, damaged or, after an unclean
   stop, empty is rebuilt from the batches.
6. Producers: latest good snapshot, then the batches after it.

Segments that were not read here get a `verification`: they are checked when they are first read.

Nothing here knows other partitions or checkpoint files; both offsets come from the caller.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

from tidelog.config.topic import LogConfig
from tidelog.log.directory.checkpoints import (
    LEADER_EPOCH_FILE,
    read_epochs,
    read_partition_metadata,
    write_partition_metadata,
)
from tidelog.log.directory.log_directory import remove_folder
from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_errors import CorruptCheckpoint, StorageError
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_loading import load_producers, load_producers_at
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    new_segment,
    roll_jitter_ms,
)
from tidelog.log.segment.offset_index import OffsetIndex
from tidelog.log.segment.segment_scan import WHY_STOPPED, SegmentScan
from tidelog.log.segment.segment_verification import SegmentVerification, false_offset_position
from tidelog.log.segment.time_index import TimeIndex
from tidelog.log.transaction_index_check import TransactionIndexCheck
from tidelog.record import kernel
from tidelog.record.errors import CorruptRecords
from tidelog.types import INT64_MAX, ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)


OFFSET_DIGITS: Final = 20


class LogLoader:
    """Loads one folder, once."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        environment: LogEnvironment,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        high_watermark: int,
        clean_end: int | None = None,
        was_compacted: bool = False,
    ) -> None:
        """`clean_end` is where a clean stop left the end of the log, if that is known."""
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._environment = environment
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._high_watermark = high_watermark
        self._clean_end = clean_end if clean else None
        self._gaps_allowed = was_compacted or config.compact
        self._sizes: dict[str, int] = {}
        self._segments: list[LogSegment] = []
        self._epochs = LeaderEpochCache()
        self._producers = ProducerStateTable()
        self._snapshots = SnapshotFiles(directory)

    def load(self) -> PartitionLog:
        """OSError when a file cannot be read; the folder is then as good as it was."""
        topic_id = self._read_topic_id()
        self._list_files()
        self._finish_interrupted_work()
        self._open_segments()
        self._distrust_other_end()
        epochs_known = self._read_epochs()
        if not self._clean:
            self._recover_segments()
        end_offset = self._settle_end()
        if end_offset < self._recovery_point:
            logger.warning(
                "%s ends at %d, but had been synced up to %d: records are lost",
                self._directory,
                end_offset,
                self._recovery_point,
            )
        self._settle_epochs(epochs_known, end_offset)
        self._settle_producers(end_offset)
        for segment in self._segments:
            segment.release()
        log = PartitionLog(
            self._directory,
            self._topic_partition,
            topic_id,
            self._config,
            self._environment,
            segments=self._segments,
            log_start_offset=self._log_start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset if self._clean else min(self._recovery_point, end_offset),
            high_watermark=self._high_watermark,
            producers=self._producers,
            snapshots=self._snapshots,
            epochs=self._epochs,
        )
        if not self._clean and end_offset > self._log_start_offset:
            log.files_changed()
        return log

    def _read_topic_id(self) -> Uuid:
        try:
            return read_partition_metadata(self._directory)
        except CorruptCheckpoint as problem:
            logger.warning("the topic id of a log is lost: %s", problem)
            return ZERO_UUID

    def _list_files(self) -> None:
        with os.scandir(self._directory) as entries:
            self._sizes = {
                entry.name: entry.stat().st_size
                if entry.name.endswith((LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX))
                else 0
                for entry in entries
            }

    def _finish_interrupted_work(self) -> None:
        if not any(
            name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in self._sizes
        ):
            return
        cleaned = self._ending_with(CLEANED_SUFFIX)
        unfinished_from = min(map(_base_offset, cleaned), default=None)
        swaps = []
        # A swap that does not count goes before the .cleaned file that says so.
        for name in self._ending_with(SWAP_SUFFIX):
            if unfinished_from is None or _base_offset(name) < unfinished_from:
                swaps.append(name)
            else:
                self._remove(name)
        for name in (*cleaned, *self._ending_with(DELETED_SUFFIX)):
            self._remove(name)
        if swaps:
            self._swap_in(swaps)
        self._list_files()

    def _ending_with(self, suffix: str) -> list[str]:
        return [name for name in self._sizes if name.endswith(suffix)]

    def _swap_in(self, swaps: list[str]) -> None:
        """The segments that a finished cleaning has replaced go, then it takes their names."""
        logs = (name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
        ranges = [self._swap_range(name) for name in logs]
        if ranges:
            first = min(low for low, _ in ranges)
            end = max(high for _, high in ranges)
            for name in list(self._sizes):
                if name.endswith((*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)) and (
                    first <= _base_offset(name) < end
                ):
                    self._remove(name)
        self._gaps_allowed = True
        for name in swaps:
            os.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))
        logger.info("finished the interrupted cleaning of %s", self._directory)

    def _swap_range(self, name: str) -> tuple[int, int]:
        base_offset = _base_offset(name)
        file = LogFile(self._path(name))
        segment = self._segment(base_offset, file, file.size_on_disk())
        next_offset = segment.scan(verify_crc=False).run().next_offset
        return base_offset, max(next_offset, base_offset + 1)

    def _open_segments(self) -> None:
        names = sorted(name for name in self._sizes if name.endswith(LOG_SUFFIX))
        for name in names:
            file = LogFile(self._path(name))
            self._segments.append(self._segment(_base_offset(name), file, self._sizes[name]))
        for name in list(self._sizes):
            if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                stem = name.partition(".")[0]
                if stem + LOG_SUFFIX not in self._sizes:
                    logger.warning("removing %s, which has no segment", self._path(name))
                    self._remove(name)
        offsets = [_base_offset(name) for name in self._sizes if name.endswith(SNAPSHOT_SUFFIX)]
        self._snapshots = SnapshotFiles(self._directory, offsets)
        first_recovered = self._first_to_recover()
        for segment in self._segments[:first_recovered]:
            if segment.size:
                self._check_index_sizes(segment)
                self._check_txn_index(segment)

    def _check_index_sizes(self, segment: LogSegment) -> None:
        stem = f"{segment.base_offset:020d}"
        for suffix, entry_bytes in (
            (INDEX_SUFFIX, OffsetIndex.ENTRY_BYTES),
            (TIME_INDEX_SUFFIX, TimeIndex.ENTRY_BYTES),
        ):
            size = self._sizes.get(stem + suffix)
            if size is None or size % entry_bytes:
                segment.rebuild_indexes(f"{stem}{suffix} is missing or cut off")
                return

    def _check_txn_index(self, segment: LogSegment) -> None:
        if f"{segment.base_offset:020d}{TXN_INDEX_SUFFIX}" not in self._sizes:
            return
        try:
            segment.txn_index.entries()
        except CorruptIndex as problem:
            logger.warning("rebuilding a transaction index: %s", problem)
            check = TransactionIndexCheck(
                self._segments,
                self._snapshots,
                self._environment,
                self._log_start_offset,
                is_on_loop=False,
            )
            try:
                check.repair(segment)
            except CorruptRecords as damage:
                logger.error("cannot rebuild it: %s", damage.message)

    def _segment(self, base_offset: int, file: LogFile, size: int) -> LogSegment:
        segment = LogSegment(
            self._directory,
            base_offset,
            file,
            size,
            index_interval_bytes=self._config.index_interval_bytes,
            created_ms=self._environment.clock.time_ms(),
            jitter_ms=roll_jitter_ms(self._config, self._environment),
        )
        segment.indexes_synced = True
        segment.verification = (
            SegmentVerification(size, gaps_allowed=self._gaps_allowed) if size else None
        )
        return segment

    def _distrust_other_end(self) -> None:
        """A clean stop notes the end of the log as its recovery point."""
        if self._clean_end is None or not self._segments:
            return
        end_offset, position = self._segments[-1].find_end()
        if position == self._segments[-1].size and end_offset == self._clean_end:
            return
        logger.warning(
            "%s ends at %d, but its clean stop left it at %d: recovering it",
            self._directory,
            end_offset,
            self._clean_end,
        )
        self._clean = False

    def _first_to_recover(self) -> int:
        """Number of the first segment that an unclean stop may have damaged."""
        if self._clean:
            return len(self._segments)
        number = len(self._segments)
        while number and self._segments[number - 1].base_offset > self._recovery_point:
            number -= 1
        return max(number - 1, 0)

    def _recover_segments(self) -> None:
        first = self._first_to_recover()
        if first >= len(self._segments):
            return
        base_offset = self._segments[first].base_offset
        self._snapshots.remove_outside(self._log_start_offset, base_offset)
        self._load_producers_at(base_offset)
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            is_last = number == len(self._segments) - 1
            if segment.base_offset > max(self._snapshots.latest_offset, self._log_start_offset):
                self._snapshots.take(self._producers, segment.base_offset)
            limit_offset = INT64_MAX if is_last else self._segments[number + 1].base_offset
            if self._recover_segment(segment, limit_offset):
                self._drop_segments(number + 1)
                return

    def _load_producers_at(self, offset: int) -> None:
        load_producers_at(
            offset,
            self._producers,
            self._snapshots,
            self._segments,
            self._log_start_offset,
            self._environment,
        )

    def _recover_segment(self, segment: LogSegment, limit_offset: int = INT64_MAX) -> bool:
        """Whether something had to be cut off, or lies where the next segment begins."""
        size_before = segment.size
        scan = self._replay_segment(segment)
        cut_at = false_offset_position(
            segment,
            scan,
            limit_offset,
            gaps_allowed=self._gaps_allowed,
            is_first=segment is self._segments[0],
        )
        if cut_at is not None:
            segment.size = cut_at
            self._producers.clear()
            self._load_producers_at(segment.base_offset)
            scan = self._replay_segment(segment)
        for epoch, start_offset in scan.epochs:
            if epoch > self._epochs.latest_epoch:
                self._epochs.assign(epoch, start_offset)
        cut_bytes = size_before - scan.position
        if cut_bytes:
            logger.warning(
                "cutting %d bytes off %s at position %d, offset %d: %s",
                cut_bytes,
                segment.file.path,
                scan.position,
                scan.next_offset,
                WHY_STOPPED[scan.why if cut_at is None else kernel.BAD_OFFSET],
            )
            segment.file.truncate(scan.position)
            segment.size = scan.position
        segment.install_indexes(scan)
        segment.verification = None
        logger.info("recovered %s up to offset %d", segment.file.path, scan.next_offset)
        return cut_bytes > 0 or scan.next_offset > limit_offset

    def _replay_segment(self, segment: LogSegment) -> SegmentScan:
        segment.txn_index.reset()
        scan = segment.scan(verify_crc=True)
        for piece in scan:
            for row in piece.producers:
                if row.last_offset >= self._log_start_offset:
                    aborted = self._producers.replay(row)
                    if aborted is not None:
                        segment.add_aborted(aborted)
        return scan

    def _drop_segments(self, first: int) -> None:
        dropped = self._segments[first:]
        del self._segments[first:]
        paths: list[str] = []
        for segment in dropped:
            logger.warning("dropping %s, which lies behind the damage", segment.file.path)
            paths += segment.mark_deleted()
            paths += self._snapshots.mark_deleted(segment.base_offset)
        if paths:
            self._environment.delete_later(paths, self._config.file_delete_delay_ms)

    def _settle_end(self) -> int:
        if self._segments:
            end_offset = self._find_end()
            if end_offset >= self._log_start_offset:
                self._log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
                return end_offset
            logger.warning(
                "%s ends at %d, before its log start offset %d: starting anew there",
                self._directory,
                end_offset,
                self._log_start_offset,
            )
            self._drop_segments(0)
            self._epochs.clear()
            self._producers.clear()
            self._snapshots.remove_all()
        segment = new_segment(
            self._directory, self._log_start_offset, self._config, self._environment
        )
        self._segments.append(segment)
        return self._log_start_offset

    def _find_end(self) -> int:
        """A damaged tail is cut off after a clean stop too."""
        segment = self._segments[-1]
        end_offset, position = segment.find_end()
        if position < segment.size:
            self._recover_segment(segment)
            end_offset, _ = segment.find_end()
            self._producers.clear()
        return end_offset

    def _read_epochs(self) -> bool:
        """Whether the file can be believed. After an unclean stop an empty one cannot."""
        path = self._path(LEADER_EPOCH_FILE)
        if LEADER_EPOCH_FILE not in self._sizes:
            return False
        try:
            self._epochs = LeaderEpochCache(read_epochs(path) or ())
        except CorruptCheckpoint as problem:
            logger.warning("rebuilding the leader epochs: %s", problem)
            return False
        return self._clean or bool(self._epochs.entries)

    def _settle_epochs(self, known: bool, end_offset: int) -> None:
        if not known and end_offset > self._log_start_offset:
            self._epochs = LeaderEpochCache()
            for segment in self._segments:
                for epoch, start_offset in segment.scan(verify_crc=False).run().epochs:
                    if epoch > self._epochs.latest_epoch:
                        self._epochs.assign(epoch, start_offset)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        if self._epochs.dirty or self._epochs.ahead:
            self._epochs.save(self._path(LEADER_EPOCH_FILE))

    def _settle_producers(self, end_offset: int) -> None:
        self._snapshots.remove_strays([segment.base_offset for segment in self._segments])
        if not self._clean:
            self._snapshots_after_recovery(end_offset)
            return
        load_producers(
            end_offset,
            self._producers,
            self._snapshots,
            self._segments,
            self._log_start_offset,
            self._environment,
        )

    def _snapshots_after_recovery(self, end_offset: int) -> None:
        """Recovery has replayed everything up to the end."""
        self._snapshots.remove_outside(self._log_start_offset, end_offset)
        if end_offset > max(self._snapshots.latest_offset, self._log_start_offset):
            self._snapshots.take(self._producers, end_offset)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))
        self._sizes.pop(name, None)


def create_log(
    directory: str,
    topic_partition: TopicPartition,
    topic_id: Uuid,
    config: LogConfig,
    environment: LogEnvironment,
    start_offset: int = 0,
) -> PartitionLog:
    """A new folder with an empty log; no folder when that fails.

    Nothing is synced before the first flush.
    """
    try:
        os.mkdir(directory)
        try:
            segment = new_segment(directory, start_offset, config, environment)
            if topic_id != ZERO_UUID:
                write_partition_metadata(directory, topic_id)
        except BaseException:
            remove_folder(directory)
            raise
    except OSError as error:
        environment.io_failed(directory, "create a log", error)
        raise StorageError(f"cannot create {topic_partition}: {error}") from error
    log = PartitionLog(
        directory,
        topic_partition,
        topic_id,
        config,
        environment,
        segments=(segment,),
        log_start_offset=start_offset,
        log_end_offset=start_offset,
        recovery_point=start_offset,
        high_watermark=start_offset,
        producers=ProducerStateTable(),
        snapshots=SnapshotFiles(directory),
        epochs=LeaderEpochCache(),
    )
    log.files_changed()
    return log


def _base_offset(name: str) -> int:
    """Of a segment file or snapshot by its name; -1 for other names."""
    digits = name[:OFFSET_DIGITS]
    return int(digits) if digits.isdecimal() else -1
