"""The copy of a log in another log directory, on its way to take the log's place (KIP-113).

    <topic>-<partition>.<uuid>-future/    grows batch by batch, while the log itself is used
    <topic>-<partition>/                  the same folder once it holds all the log holds; the old
                                          one is then <topic>-<partition>.<uuid>-delete

Both renamings happen in one turn of the broker loop, the new home first. A crash may come between
them, and after a loss of power either may be missing; therefore the copy, before the swap, is given
a file `replaces` with the path of the folder that it replaces (see interrupted_moves). All that was
synced in the old folder is synced in the copy before the swap.

The broker loop plans pieces (`next_piece`), a thread copies them (`copy`): one or the other has the
copy at a time. `log_end_offset` and `size_bytes` may be looked at by the loop at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from tidelog.log.checkpoints import LEADER_EPOCH_FILE, replace_file
from tidelog.log.epoch_cache import EpochCache
from tidelog.log.index_file import fsync_path
from tidelog.log.log_directory import LogDirectory
from tidelog.log.log_errors import StorageError
from tidelog.log.partition_log import PartitionLog
from tidelog.record.file_records import FileRecords

REPLACES_FILE: Final = "replaces"


class Piece(NamedTuple):
    """What the thread is to do with the copy, as the log was on the loop."""

    truncations: int  # of the log
    truncate_to: int | None  # what the copy holds from there on, the log does not hold any more
    start_at: int | None  # the log begins above the copy's end: begin anew there
    records: FileRecords | None
    is_near_end: bool  # what is left, this piece and all after it, is less than asked for
    log_start_offset: int
    high_watermark: int

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else len(self.records)


class FutureLog:
    __slots__ = ("_failed", "_truncations", "current", "directory", "log")

    def __init__(
        self,
        current: PartitionLog,
        log: PartitionLog,
        directory: LogDirectory,
        failed: Callable[[str, str, OSError], object],
    ) -> None:
        self._failed = failed
        self.current = current
        self.log = log  # the copy
        self.directory = directory
        self._truncations = -1  # of the log, as of the last piece copied; unknown before the first

    @property
    def offset_lag(self) -> int:
        return self.current.log_end_offset - self.log.log_end_offset

    # On the loop

    def next_piece(self, bytes_max: int, near_end_bytes: int = 0) -> Piece | None:
        """None when the copy holds all that the log holds, and nothing else."""
        current, log = self.current, self.log
        if log.config is not current.config:
            log.update_config(current.config)
        log.cleaner_offset = current.cleaner_offset
        truncate_to = None
        end_offset = log.log_end_offset
        truncations = current.truncations
        if truncations != self._truncations:
            common = common_end_offset(log, current)
            if common < end_offset:
                truncate_to = end_offset = common
        start_at = current.log_start_offset if end_offset < current.log_start_offset else None
        if start_at is not None:
            end_offset = start_at
        records = None
        if end_offset < current.log_end_offset:
            records = current.read(
                end_offset,
                min(bytes_max, current.config.segment_bytes),
                up_to_offset=current.log_end_offset,
                min_one_batch=True,
            ).records
        if records is None and start_at is None and truncate_to is None:
            return None
        return Piece(
            truncations,
            truncate_to,
            start_at,
            records,
            self._left_bytes(records) <= near_end_bytes,
            current.log_start_offset,
            current.high_watermark,
        )

    def _left_bytes(self, records: FileRecords | None) -> float:
        active = self.current.active_segment
        if records is None:
            return 0
        return active.size - records.position if records.file is active.file else inf

    # In the thread

    def copy(self, piece: Piece) -> None:
        """StorageError when the disk refuses; the next piece then begins where the copy ends."""
        log = self.log
        if piece.truncate_to is not None:
            log.truncate_to(piece.truncate_to)
        self._truncations = piece.truncations
        data = b"" if piece.records is None else self._read(piece.records)
        if piece.start_at is not None:
            log.truncate_fully_and_start_at(piece.start_at)
        if data:
            log.append_as_follower(memoryview(data), piece.log_start_offset)
        log.update_high_watermark(piece.high_watermark)
        log.maybe_increment_log_start_offset(min(piece.log_start_offset, log.high_watermark))

    def _read(self, records: FileRecords) -> bytes:
        try:
            return records.read()
        except OSError as error:
            self._failed(str(self.current.directory), "read", error)
            raise StorageError(f"cannot read {self.current.topic_partition}: {error}") from error

    def make_ready(self) -> None:
        """Sync the copy, and say what it is to replace. StorageError if that fails."""
        self.log.flush()
        folder = str(self.log.directory)
        try:
            replace_file(f"{folder}/{REPLACES_FILE}", os.fsencode(self.current.directory))
            fsync_path(folder)
        except OSError as error:
            raise self._cannot_write(error) from error

    # On the loop again

    def save_state(self) -> None:
        """What the log knows and the copied batches may not say."""
        current, log = self.current, self.log
        try:
            log.snapshots.take(current.producers, current.log_end_offset)
            EpochCache(current.epochs.entries).save(f"{log.directory}/{LEADER_EPOCH_FILE}")
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> StorageError:
        self._failed(str(self.log.directory), "write", error)
        return StorageError(f"cannot write {self.log.directory}: {error}")

    def catch_up_on_disk(self, *, flush_under_way: bool) -> None:
        """Blocks where the log is on disk further than the copy, or just about to be."""
        if flush_under_way or self.current.recovery_point > self.log.recovery_point:
            self.log.flush()


def common_end_offset(copy: PartitionLog, log: PartitionLog) -> int:
    """Up to where both hold the same, by their leader epochs."""
    end_offset = min(copy.log_end_offset, log.log_end_offset)
    for epoch, start_offset in reversed(copy.epochs.entries):
        found_epoch, epoch_end_offset = log.epoch_end_offset(epoch)
        if found_epoch == epoch:
            return min(end_offset, epoch_end_offset)
        end_offset = min(end_offset, start_offset)
    return end_offset


def forget_replaced(folder: str) -> None:
    """The move into the folder is over, and seen to be on disk."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder}/{REPLACES_FILE}")


def replaced_folder(folder: str) -> str | None:
    """The folder that this one was about to replace, if it was."""
    try:
        with open(f"{folder}/{REPLACES_FILE}", "rb") as file:
            return os.fsdecode(file.read())
    except FileNotFoundError:
        return None
