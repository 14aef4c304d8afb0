"""The copy of a log in another log directory, on its way to take the log's place (KIP-113).

    <topic>-<partition>.<uuid>-future/    grows batch by batch, while the log itself is used
    <topic>-<partition>/                  the same folder once it holds all the log holds; the old
                                          one is then <topic>-<partition>.<uuid>-delete

Both renamings happen in one turn of the broker loop, the new home first. A crash may come between
them, and after a loss of power either may be missing. Therefore the copy gets, before the swap, a
file `replaces` with the path of the folder that it replaces. All that was synced in the old folder
is synced in the copy before the swap.

The broker loop plans pieces (`next_piece`), a thread copies them (`copy`): one or the other has the
copy at a time. The loop may look at `log_end_offset` and `size_bytes` at any time.

`finish_interrupted_moves`, at the next start after a crash:

    in the old directory     in the new one          then
    the log                  a copy                  the move goes on
    the log                  the log, `replaces`     the old one is deleted: the new one is complete
    no log                   a copy, `replaces`      the copy becomes the log
    no log                   a copy                  left alone

Only a folder whose file `replaces` names the other one wins. If two logs of one partition came
about otherwise (from a restored backup, say), only the operator can decide. If the old directory
cannot be read, nothing is decided at all.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE, replace_file
from tidelog.log.directory.log_dir_failures import LogDirFailures
from tidelog.log.directory.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    Folders,
    LogDirectory,
    remove_paths,
)
from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_errors import StorageError
from tidelog.log.log_loader import LogLoader, create_log
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment.index_file import fsync_path
from tidelog.record.file_records import FileRecords
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

Loader = Callable[[TopicPartition, str, LogEnvironment], LogLoader]
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
            LeaderEpochCache(current.epochs.entries).save(f"{log.directory}/{LEADER_EPOCH_FILE}")
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


class FutureLogs:
    """All copies of a broker: made, found again, dropped. Touched only on the broker loop."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        delete_later: Callable[[Sequence[str], int], object],
        failures: LogDirFailures,
    ) -> None:
        self._random = random
        self._delete_later = delete_later
        self._failures = failures
        self._futures: dict[TopicPartition, FutureLog] = {}
        # Loaded, but the logs they are copies of may not be yet.
        self._unattached: dict[TopicPartition, tuple[PartitionLog, LogDirectory]] = {}
        # Nobody but its thread uses a copy, so what it wants removed may go at once.
        self._environment = LogEnvironment(
            clock,
            random=random,
            delete_later=lambda paths, _: remove_paths(paths, failures.report),
            io_failed=failures.report,
        )

    def __iter__(self) -> Iterator[FutureLog]:
        return iter(tuple(self._futures.values()))

    def get(self, topic_partition: TopicPartition) -> FutureLog | None:
        return self._futures.get(topic_partition)

    def inside(self, directory: LogDirectory) -> list[FutureLog]:
        return [future for future in self._futures.values() if future.directory is directory]

    def create(self, current: PartitionLog, directory: LogDirectory) -> FutureLog:
        topic_partition = current.topic_partition
        assert topic_partition not in self._futures, topic_partition
        try:
            forget_replaced(str(current.directory))
        except OSError as error:
            self._failures.report(str(current.directory), "remove a file", error)
        folder = self._folder(directory, topic_partition, FUTURE_SUFFIX)
        log = create_log(
            folder,
            topic_partition,
            current.topic_id,
            current.config,
            self._environment,
            current.log_start_offset,
        )
        directory.partition_count += 1
        future = self._futures[topic_partition] = self._future(current, log, directory)
        return future

    def _future(
        self, current: PartitionLog, log: PartitionLog, directory: LogDirectory
    ) -> FutureLog:
        return FutureLog(current, log, directory, self._failures.report)

    # Start

    def load(
        self, directory: LogDirectory, folders: Mapping[TopicPartition, str], loader: Loader
    ) -> None:
        for topic_partition, folder in folders.items():
            try:
                log = loader(topic_partition, folder, self._environment).load()
            except OSError as error:
                if self._failures.report(folder, "load a log", error):
                    raise
                logger.error("%s cannot be loaded and is left alone: %s", folder, error)
                continue
            if topic_partition in self._unattached:
                self._discard(log, directory)
            else:
                self._unattached[topic_partition] = log, directory

    def attach(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Every copy to the log that it is a copy of; one without stays on disk."""
        for topic_partition, (log, directory) in self._unattached.items():
            current = logs.get(topic_partition)
            if current is None:
                logger.warning("leaving %s alone: it is a copy of no log here", log.directory)
            elif current.topic_id != log.topic_id:
                self._discard(log, directory)
            else:
                self._futures[topic_partition] = self._future(current, log, directory)
        self._unattached.clear()

    # Ends

    def pop(self, topic_partition: TopicPartition) -> FutureLog | None:
        return self._futures.pop(topic_partition, None)

    def forget(self, directory: LogDirectory) -> None:
        """The directory has failed: its copies are left as they are."""
        for future in self.inside(directory):
            del self._futures[future.log.topic_partition]

    def discard(self, future: FutureLog) -> None:
        """The copy is not wanted any more; no thread may be at it."""
        if self._futures.get(future.log.topic_partition) is future:
            del self._futures[future.log.topic_partition]
        self._discard(future.log, future.directory)

    def _discard(self, log: PartitionLog, directory: LogDirectory) -> None:
        away = self._folder(directory, log.topic_partition, DELETE_SUFFIX)
        try:
            os.rename(log.directory, away)
        except OSError as error:
            logger.error("cannot discard %s: %s", log.directory, error)
            self._failures.report(str(log.directory), "discard a copy", error)
            return
        directory.partition_count -= 1
        self._delete_later([away], 0)

    def _folder(self, directory: LogDirectory, topic_partition: TopicPartition, mark: str) -> str:
        unique = f"{self._random.getrandbits(128):032x}"
        return directory.marked_folder_for(topic_partition, unique, mark)


def finish_interrupted_moves(
    found: Mapping[LogDirectory, Folders], new_unique: Callable[[], str]
) -> None:
    """Rename what has to be renamed on disk, and in `found` as well."""
    homes: dict[TopicPartition, LogDirectory] = {}
    for directory, folders in found.items():
        for topic_partition in list(folders.partitions):
            other = homes.setdefault(topic_partition, directory)
            if other is not directory:
                this, that = (directory, folders), (other, found[other])
                if _drop_replaced(topic_partition, this, that, new_unique):
                    homes[topic_partition] = directory
                else:
                    _drop_replaced(topic_partition, that, this, new_unique)
    by_path = {str(directory.path): directory for directory in found}
    for directory, folders in found.items():
        for topic_partition, folder in list(folders.futures.items()):
            if topic_partition in homes:
                continue
            replaced = replaced_folder(folder)
            if replaced is not None and os.path.dirname(replaced) in by_path:
                _promote(topic_partition, directory, folders)


def _drop_replaced(
    topic_partition: TopicPartition,
    new: tuple[LogDirectory, Folders],
    old: tuple[LogDirectory, Folders],
    new_unique: Callable[[], str],
) -> bool:
    directory, folders = new
    old_directory, old_folders = old
    folder, old_folder = (
        folders.partitions[topic_partition],
        old_folders.partitions[topic_partition],
    )
    if replaced_folder(folder) != old_folder:
        return False
    fsync_path(str(directory.path))
    away = old_directory.marked_folder_for(topic_partition, new_unique(), DELETE_SUFFIX)
    os.rename(old_folder, away)
    fsync_path(str(old_directory.path))
    forget_replaced(folder)
    del old_folders.partitions[topic_partition]
    old_directory.partition_count -= 1
    old_folders.deleted.append(away)
    logger.warning("%s has moved to %s: what is left in %s goes", topic_partition, folder, away)
    return True


def _promote(topic_partition: TopicPartition, directory: LogDirectory, folders: Folders) -> None:
    folder = directory.folder_for(topic_partition)
    os.rename(folders.futures.pop(topic_partition), folder)
    fsync_path(str(directory.path))
    forget_replaced(folder)
    folders.partitions[topic_partition] = folder
    logger.warning("%s had all but moved: it is in %s now", topic_partition, folder)
