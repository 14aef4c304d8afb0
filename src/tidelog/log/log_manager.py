"""All logs of a broker, in one or several log directories.

`start` locks the directories and loads every log; `shutdown` leaves them so that the next start has
nothing to recover. In between, the broker loop calls the duties from time to time:

    duty                        when                                          what
    take_rolled_logs            soon                                          flush what was rolled
    logs_due_for_flush          log.flush.scheduler.interval.ms               by messages and ms
    pending_checkpoints         their flush/checkpoint intervals              offsets of all logs
    delete_old_segments         log.retention.check.interval.ms               retention
    remove_expired_producers    producer.id.expiration.check.interval.ms
    release_idle_maps           minutes                                       index maps
    take_due_deletions          a second or so                                files past their delay

Nothing here runs in a thread of its own. The blocking part of a duty is given out as work for one:
FlushTickets, PendingWrites, and paths for `remove_paths`.
A new log goes to the directory that has the fewest. A log that cannot be loaded takes only its own
partition out of service: see `offline` and `take_offline`. A directory that fails (`failures`) is
left as it is: no log of it is served or closed, no checkpoint and no marker written.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError, StartupError
from tidelog.log.directory.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    PendingWrite,
)
from tidelog.log.directory.log_directories import LogDirectories
from tidelog.log.directory.log_directory import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    Folders,
    LogDirectory,
    remove_paths,
)
from tidelog.log.future_log import FutureLog, FutureLogs, finish_interrupted_moves
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_errors import StorageError
from tidelog.log.log_flush import FlushTicket, run_all
from tidelog.log.log_loader import LogLoader, create_log
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import retain
from tidelog.supervisor import attempt
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)


TopicConfigs = Callable[[str], LogConfig]
OFFSET_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE)
KEPT_FILES: Final = (*OFFSET_FILES, CLEANER_FILE)
PREFERRED_MAX: Final = 10_000


class WantedLog(NamedTuple):
    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    directory: LogDirectory


class PendingLogs:
    """New logs that the loop has decided on: `run` makes them, in a thread, and
    `LogManager.take_in` takes in those that could be made.
    """

    def __init__(
        self,
        wanted: Iterable[WantedLog],
        forget: Mapping[LogDirectory, Sequence[PendingWrite]],
        environment: LogEnvironment,
    ) -> None:
        """`forget` takes out of the checkpoints what they say of earlier logs of that name."""
        self.wanted = list(wanted)
        self._forget = forget
        self._environment = environment
        self.made: list[tuple[LogDirectory, PartitionLog]] = []

    def run(self) -> None:
        failed: set[LogDirectory] = set()
        for directory, writes in self._forget.items():
            try:
                write_all(writes, self._environment)
            except StorageError:
                failed.add(directory)  # as if the log could not be made
        for wanted in self.wanted:
            if wanted.directory not in failed:
                attempt(f"making the log of {wanted.topic_partition}", partial(self._make, wanted))

    def _make(self, wanted: WantedLog) -> None:
        topic_partition, topic_id, config, directory = wanted
        folder = directory.folder_for(topic_partition)
        try:
            log = create_log(folder, topic_partition, topic_id, config, self._environment)
        except StorageError:
            return  # reported; `LogManager.get_or_create` tries elsewhere, or says why not
        self.made.append((directory, log))


def write_all(writes: Iterable[PendingWrite], environment: LogEnvironment) -> None:
    """Checkpoints that a new log must not be without; StorageError."""
    for write in writes:
        try:
            write.run()
        except OSError as error:
            environment.io_failed(write.path, "write a checkpoint", error)
            raise StorageError(f"cannot write {write.path}: {error}") from error


class FoundPartition(NamedTuple):
    topic_id: Uuid  # the zero uuid where it is not known
    leader_epoch: int  # of the last batch, -1 without one
    was_cleaned: bool  # by a log cleaner, so that its topic was compacted once


class LogManager:
    """Touched only on the broker loop."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        broker_config: BrokerConfig,
        default_log_config: LogConfig,
        clock: Clock,
        random: Random | None = None,
    ) -> None:
        self.directories = LogDirectories(log_dirs, clock)
        self.failures = self.directories.failures
        self._clock = clock
        self._random = random if random is not None else Random()
        self._topic_config: TopicConfigs = lambda _: default_log_config
        self._environment = LogEnvironment(
            clock,
            random=self._random,
            producer_expiration_ms=broker_config["producer.id.expiration.ms"],
            delete_later=self._delete_later,
            rolled=self._rolled_logs_add,
            io_failed=self.failures.report,
        )
        self.flushes = self._environment.flushes
        self._loaded: list[LogDirectory] = []
        self.was_clean = True  # all that were loaded: whether everything is on disk
        self.futures = FutureLogs(clock, self._random, self._delete_later, self.failures)
        # Where logs that do not exist yet are to be made.
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self.offline: dict[TopicPartition, str] = {}  # why a log cannot be used
        # Their rows of the checkpoints, which are kept until somebody repairs them.
        self._offline_offsets: dict[TopicPartition, dict[str, int]] = {}
        self._rolled: dict[PartitionLog, None] = {}
        # Log ends as of the last `release_idle_maps`.
        self._ends: dict[TopicPartition, int] = {}
        # (due, number, paths), soonest first
        self._deletions: list[tuple[int, int, list[str]]] = []
        self._deletion_numbers = count()

    def configure(self, config: BrokerConfig) -> None:
        """Take over what may change while the broker runs."""
        self._environment.producer_expiration_ms = config["producer.id.expiration.ms"]

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        return self._directory_of.get(topic_partition)

    # Start and stop

    def start(self, topic_config: TopicConfigs) -> None:
        """Load all logs; with the directories locked already or not."""
        self._topic_config = topic_config
        self.directories.lock()
        folders = self.directories.folders()
        try:
            finish_interrupted_moves(folders, self._new_unique)
        except OSError as error:
            raise StartupError(f"cannot finish the move of a log: {error}") from error
        self._find_homes(folders)
        for directory, found in folders.items():
            try:
                self._load_directory(directory, found)
            except OSError as error:
                self.failures.fail(str(directory.path), "load its logs", error)
                self.close_directory(directory)
                continue
            self._loaded.append(directory)
            self._delete_later(found.deleted, 0)
        self.directories.must_have_one_online()
        self.futures.attach(self._logs)
        logger.info(
            "loaded %d logs",
            len(self._logs),
            extra={
                "event": "logs-loaded",
                "logs": len(self._logs),
                "data": ",".join(map(str, self.directories.paths)),
                "clean": self.was_clean,
            },
        )

    def _find_homes(self, folders: Mapping[LogDirectory, Folders]) -> None:
        for directory, found in folders.items():
            for topic_partition in found.partitions:
                other = self._directory_of.setdefault(topic_partition, directory)
                if other is not directory:
                    raise StartupError(
                        f"{topic_partition} is in two log directories, {other.path} and "
                        f"{directory.path}: move one away"
                    )

    def _load_directory(self, directory: LogDirectory, found: Folders) -> None:
        folders = found.partitions
        clean = directory.take_clean_marker()
        self.was_clean = self.was_clean and clean
        directory.create_checkpoints()
        checkpoints = {name: directory.read_checkpoint(name) for name in KEPT_FILES}
        compacted = directory.compacted_logs()
        if folders and not clean:
            logger.info(
                "%s was not closed cleanly: recovering its logs",
                directory.path,
                extra={"event": "log-dir-recovery", "path": str(directory.path)},
            )

        def loader(
            topic_partition: TopicPartition, folder: str, environment: LogEnvironment
        ) -> LogLoader:
            return LogLoader(
                folder,
                topic_partition,
                self._topic_config(topic_partition.topic),
                environment,
                clean=clean,
                recovery_point=checkpoints[RECOVERY_POINT_FILE].get(topic_partition, 0),
                log_start_offset=checkpoints[LOG_START_FILE].get(topic_partition, 0),
                high_watermark=checkpoints[HIGH_WATERMARK_FILE].get(topic_partition, 0),
                clean_end=checkpoints[RECOVERY_POINT_FILE].get(topic_partition),
                was_compacted=compacted is None
                or topic_partition in compacted
                or folder.endswith(FUTURE_SUFFIX),
            )

        self.futures.load(directory, found.futures, loader)
        for topic_partition, folder in folders.items():
            try:
                log = loader(topic_partition, folder, self._environment).load()
                self._logs[topic_partition] = log
                log.cleaner_offset = checkpoints[CLEANER_FILE].get(topic_partition, -1)
            except OSError as problem:
                logger.error("%s cannot be loaded and stays offline: %s", folder, problem)
                self.offline[topic_partition] = str(problem)
                self._offline_offsets[topic_partition] = {
                    name: offsets[topic_partition]
                    for name, offsets in checkpoints.items()
                    if topic_partition in offsets
                }

    def shutdown(self, *, mark_clean: bool = True) -> None:
        """Close, sync, checkpoint; the marker last, and only where all that worked.

        A directory whose logs have not all been loaded stays as it is.
        """
        for directory in self._loaded:
            if self.directories.is_online(directory):
                self._shutdown_directory(directory, mark_clean)
        remove_paths(self._take_deletions(None), self.failures.report)
        self.directories.unlock()

    def _shutdown_directory(self, directory: LogDirectory, mark_clean: bool) -> None:
        logs = [log for log in self._logs.values() if self._is_in(directory, log)]
        for topic_partition, reason in self._close_logs(logs):
            self.take_offline(topic_partition, reason)
        unclean = self._close_logs([future.log for future in self.futures.inside(directory)])
        if not self.directories.is_online(directory):
            return
        try:
            for write in self._pending_checkpoints(directory, self._files_to_keep(directory)):
                write.run()
            offline = any(self._directory_of.get(key) is directory for key in self.offline)
            if mark_clean and not (unclean or offline):
                directory.write_clean_marker()
        except OSError as error:
            logger.error("%s could not be closed cleanly: %s", directory.path, error)

    def pending_cleaner_checkpoints(self) -> list[PendingWrite]:
        """Of the directories where there is something to say."""
        return [
            write
            for directory in self.directories.online
            if CLEANER_FILE in self._files_to_keep(directory)
            for write in self._pending_checkpoints(directory, [CLEANER_FILE])
        ]

    def _files_to_keep(self, directory: LogDirectory) -> Sequence[str]:
        """The cleaner's checkpoint stays empty until there is something to say."""
        logs = (log for log in self._logs.values() if self._is_in(directory, log))
        return KEPT_FILES if any(log.cleaner_offset >= 0 for log in logs) else OFFSET_FILES

    def _close_logs(self, logs: Sequence[PartitionLog]) -> list[tuple[TopicPartition, str]]:
        """Those that could not be closed as they should, and why."""
        failed: list[tuple[TopicPartition, str]] = []
        closed: list[tuple[PartitionLog, FlushTicket]] = []
        for log in logs:
            try:
                ticket = log.close()
            except StorageError as error:
                failed.append((log.topic_partition, error.message or ""))
                continue
            if ticket is not None:
                closed.append((log, ticket))
        problems = run_all([ticket for _, ticket in closed])
        for (log, ticket), problem in zip(closed, problems, strict=True):
            if problem is None:
                log.flush_done(ticket)
            else:
                self.failures.report(str(log.directory), "flush", problem)
                failed.append((log.topic_partition, str(problem)))
        for log in logs:
            log.let_go_of_files()
        return failed

    # Directories that fail

    def expect(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Logs that must be somewhere: one that is not found is in a directory that has failed,
        and not to be made anew.
        """
        if len(self.directories.online) == len(self.directories):
            return
        for topic_partition in topic_partitions:
            if topic_partition not in self._directory_of:
                self.offline[topic_partition] = "a log directory is offline"

    def logs_inside(self, directory: LogDirectory) -> list[TopicPartition]:
        return [key for key, log in self._logs.items() if self._is_in(directory, log)]

    def close_directory(self, directory: LogDirectory) -> None:
        """Let go of a directory that has failed, and touch nothing in it."""
        reason = self.failures.reason(str(directory.path))
        for topic_partition in self.logs_inside(directory):
            self.take_offline(topic_partition, reason)
        for topic_partition, home in self._directory_of.items():
            if home is directory:
                self.offline.setdefault(topic_partition, reason)
        self.futures.forget(directory)
        directory.unlock()

    # Logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(topic_partition)

    def all_logs(self) -> Collection[PartitionLog]:
        return self._logs.values()

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig | None = None
    ) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id == ZERO_UUID:
                log.assign_topic_id(topic_id)
            elif topic_id not in (ZERO_UUID, log.topic_id):
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"the log of {topic_partition} belongs to topic id {log.topic_id}, "
                    f"not {topic_id}",
                )
            return log
        if topic_partition in self.offline:
            raise StorageError(f"{topic_partition} is offline: {self.offline[topic_partition]}")
        if config is None:
            config = self._topic_config(topic_partition.topic)
        return self._create(topic_partition, topic_id, config)

    def _create(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig
    ) -> PartitionLog:
        """In the directory that was asked for, or else the one with the fewest; in the next one
        if that fails just now.
        """
        for directory in self._candidates(topic_partition):
            folder = directory.folder_for(topic_partition)
            try:
                write_all(self._forgetting(directory, [topic_partition]), self._environment)
                log = create_log(folder, topic_partition, topic_id, config, self._environment)
            except StorageError:
                if self.directories.is_online(directory):
                    raise
                continue
            self._add(directory, log)
            return log
        raise StorageError(f"cannot create {topic_partition}: no log directory is online")

    def _forgetting(
        self, directory: LogDirectory, topic_partitions: Iterable[TopicPartition]
    ) -> list[PendingWrite]:
        """What has to be written before a log is made there.

        Rows of a log that was deleted, or has moved away, stay until the next checkpoint. After a
        crash they would hold for the new log: its records below the old start would be dropped.
        """
        names = {
            name
            for topic_partition in topic_partitions
            for name in directory.checkpoints_that_may_have(topic_partition)
        }
        return list(self._pending_checkpoints(directory, sorted(names)))

    def _candidates(
        self,
        topic_partition: TopicPartition,
        promised: Mapping[LogDirectory, int] = MappingProxyType({}),
    ) -> list[LogDirectory]:
        preferred = self._preferred.get(topic_partition)
        if preferred is not None and self.directories.is_online(preferred):
            return [preferred]
        return sorted(
            self.directories.online, key=lambda each: each.partition_count + promised.get(each, 0)
        )

    def _add(self, directory: LogDirectory, log: PartitionLog) -> None:
        self._logs[log.topic_partition] = log
        self._directory_of[log.topic_partition] = directory
        self._preferred.pop(log.topic_partition, None)
        directory.partition_count += 1

    def pending_logs(self, wanted: Iterable[tuple[TopicPartition, Uuid]]) -> PendingLogs:
        """Those of the logs that are to be made; `run` it in a thread, and `take_in` what it made
        before anybody else asks for one of them.
        """
        pending: list[WantedLog] = []
        promised: Counter[LogDirectory] = Counter()
        for topic_partition, topic_id in wanted:
            if topic_partition in self._logs or topic_partition in self.offline:
                continue
            for directory in self._candidates(topic_partition, promised)[:1]:
                config = self._topic_config(topic_partition.topic)
                pending.append(WantedLog(topic_partition, topic_id, config, directory))
                promised[directory] += 1
        forget = {
            directory: self._forgetting(
                directory, [each.topic_partition for each in pending if each.directory is directory]
            )
            for directory in promised
        }
        return PendingLogs(pending, forget, self._environment)

    def take_in(self, pending: PendingLogs) -> None:
        """Not those in a directory that has failed meanwhile: they are made elsewhere."""
        for directory, log in pending.made:
            if self.directories.is_online(directory):
                assert log.topic_partition not in self._logs, log.topic_partition
                config = self._topic_config(log.topic_partition.topic)
                if config is not log.config:  # it may have changed meanwhile
                    log.update_config(config)
                self._add(directory, log)

    def prefer(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Where the log is to be made, should it be made here one day."""
        self._preferred[topic_partition] = directory
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    # Moves between directories

    def create_future(self, topic_partition: TopicPartition, directory: LogDirectory) -> FutureLog:
        """A copy of the log that is to take its place; StorageError if it cannot be made."""
        write_all(self._forgetting(directory, [topic_partition]), self._environment)
        return self.futures.create(self._logs[topic_partition], directory)

    def replace_with_future(self, future: FutureLog) -> OSError | None:
        """The copy, which is complete, is the log from now on. StorageError when it cannot be; the
        error is given back when all that fails is to set the old folder aside.
        """
        topic_partition = future.current.topic_partition
        old, new = self._directory_of[topic_partition], future.directory
        away = old.marked_folder_for(topic_partition, self._new_unique(), DELETE_SUFFIX)
        problem = future.current.go_on_in(future.log, new.folder_for(topic_partition), away)
        self.futures.pop(topic_partition)
        self._directory_of[topic_partition] = new
        old.partition_count -= 1
        if problem is None:
            self._delete_later([away], future.current.config.file_delete_delay_ms)
        else:
            self.failures.report(str(old.path), "set a moved log aside", problem)
        return problem

    def highest_producer_id(self) -> int:
        """Of all producers the logs know of, -1 if none: new ids must lie above it."""
        return max(
            (max(log.producers.producers, default=-1) for log in self._logs.values()), default=-1
        )

    def found_partitions(self) -> dict[TopicPartition, FoundPartition]:
        """All that were found in the directories, those that could not be loaded too."""
        found = {}
        for topic_partition in sorted(self._directory_of):
            log = self._logs.get(topic_partition)
            found[topic_partition] = (
                FoundPartition(ZERO_UUID, NO_LEADER_EPOCH, False)
                if log is None
                else FoundPartition(log.topic_id, log.latest_epoch, log.cleaner_offset >= 0)
            )
        return found

    def set_aside_strays(
        self, is_known: Callable[[TopicPartition, Uuid], bool]
    ) -> list[TopicPartition]:
        """Rename the folders of logs that belong to no known topic, as Kafka does; data is kept.

        Such logs are left when a broker dies between the deletion of a topic and that of its
        folders. The id is the zero uuid where it is not known.
        """
        strays = []
        for topic_partition in list(self._directory_of):
            log = self._logs.get(topic_partition)
            if is_known(topic_partition, ZERO_UUID if log is None else log.topic_id):
                continue
            copy = self.futures.get(topic_partition)
            if copy is not None:
                self.futures.discard(copy)
            try:
                target = self._move_away(topic_partition, STRAY_SUFFIX)
            except OSError as error:
                raise StartupError(f"cannot set {topic_partition} aside: {error}") from error
            logger.warning(
                "%s belongs to no topic that is known: its data is kept in %s",
                topic_partition,
                target,
            )
            strays.append(topic_partition)
        return strays

    def take_offline(self, topic_partition: TopicPartition, reason: str) -> None:
        """Out of service until a restart has recovered the log.

        For a log whose sync has failed: the system may have dropped what it could not write, and
        no later sync would tell.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return
        logger.error(
            "%s is offline until the next start: %s",
            topic_partition,
            reason,
            extra={
                "event": "partition-offline",
                "partition": str(topic_partition),
                "reason": reason,
            },
        )
        self._rolled.pop(log, None)
        self.offline[topic_partition] = reason
        self._offline_offsets[topic_partition] = {
            name: offset
            for name in KEPT_FILES
            if (offset := _checkpointed_offset(log, name)) is not None
        }

    def async_delete(self, topic_partition: TopicPartition) -> None:
        """The name is free at once; the files go after file.delete.delay.ms."""
        log = self._logs.get(topic_partition)
        if topic_partition not in self._directory_of:
            self.offline.pop(topic_partition, None)
            return
        delay_ms = log.config.file_delete_delay_ms if log is not None else 0
        target_directory = str(self._directory_of[topic_partition].path)
        try:
            target = self._move_away(topic_partition, DELETE_SUFFIX)
        except OSError as error:
            self.failures.report(target_directory, "delete a log", error)
            raise StorageError(f"cannot delete {topic_partition}: {error}") from error
        self._delete_later([target], delay_ms)

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        """Forget the log, whatever its state; the name that its folder has now."""
        self.futures.pop(topic_partition)
        log = self._logs.pop(topic_partition, None)
        self.offline.pop(topic_partition, None)
        self._offline_offsets.pop(topic_partition, None)
        directory = self._directory_of.pop(topic_partition)
        directory.partition_count -= 1
        target = directory.marked_folder_for(topic_partition, self._new_unique(), suffix)
        if log is not None:
            self._rolled.pop(log, None)
            log.move_to(target)
        else:
            os.rename(directory.folder_for(topic_partition), target)
        return target

    def _new_unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    # Duties

    def take_rolled_logs(self) -> list[PartitionLog]:
        """Logs with segments that became inactive and wait to be flushed."""
        rolled = list(self._rolled)
        self._rolled.clear()
        return rolled

    def logs_due_for_flush(self) -> Iterator[PartitionLog | None]:
        """In steps; None for a log that is not due."""
        for log in self._one_by_one():
            yield log if log.is_flush_due() else None

    def pending_checkpoints(self, *names: str) -> list[PendingWrite]:
        """Offsets as they are now; `run` each, in a thread or not."""
        return [
            write
            for directory in self.directories.online
            for write in self._pending_checkpoints(directory, names or OFFSET_FILES)
        ]

    def _pending_checkpoints(
        self, directory: LogDirectory, names: Iterable[str]
    ) -> Iterator[PendingWrite]:
        for name in names:
            offsets = {
                topic_partition: offset
                for topic_partition, log in self._logs.items()
                if self._directory_of[topic_partition] is directory
                and (offset := _checkpointed_offset(log, name)) is not None
            }
            for future in self.futures.inside(directory):
                offset = _checkpointed_offset(future.log, name)
                if offset is not None:
                    offsets[future.log.topic_partition] = offset
            for topic_partition, kept in self._offline_offsets.items():
                if name in kept and self._directory_of[topic_partition] is directory:
                    offsets[topic_partition] = kept[name]
            yield directory.checkpoint(name, offsets)

    def delete_old_segments(self) -> Iterator[int]:
        """Retention of every log, in steps; one that fails is logged and does not stop the others.
        Gives how many segments of each log were deleted.

        A log that is being cleaned has its turn when that is done.
        """
        for log in self._one_by_one():
            yield 0 if log.is_being_cleaned else retain(log, self.failures)

    def remove_expired_producers(self) -> Iterator[None]:
        for log in self._one_by_one():
            attempt(f"expiry of producers of {log.topic_partition}", log.remove_expired_producers)
            yield

    def release_idle_maps(self) -> Iterator[None]:
        """Logs that have not grown since the last call give back descriptors and maps."""
        ends: dict[TopicPartition, int] = {}
        for log in self._one_by_one():
            ends[log.topic_partition] = log.log_end_offset
            if self._ends.get(log.topic_partition) == log.log_end_offset:
                attempt(f"releasing the maps of {log.topic_partition}", log.release_maps)
            yield
        self._ends = ends

    def _one_by_one(self) -> Iterator[PartitionLog]:
        """All logs, for a duty in steps: one that goes between two of them is left out."""
        for topic_partition, log in tuple(self._logs.items()):
            if self._logs.get(topic_partition) is log:
                yield log

    def take_due_deletions(self) -> list[str]:
        """Files and folders whose delay is over; `remove_paths` them, in a thread or not."""
        return self._take_deletions(self._clock.time_ms())

    def _take_deletions(self, until_ms: int | None) -> list[str]:
        taken: list[str] = []
        while self._deletions and (until_ms is None or self._deletions[0][0] <= until_ms):
            taken += heapq.heappop(self._deletions)[2]
        return [path for path in taken if not self.failures.covers(path)]

    def _delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        if paths:
            due_ms = self._clock.time_ms() + delay_ms
            number = next(self._deletion_numbers)
            heapq.heappush(self._deletions, (due_ms, number, list(paths)))

    def _rolled_logs_add(self, log: PartitionLog) -> None:
        self._rolled[log] = None

    def _is_in(self, directory: LogDirectory, log: PartitionLog) -> bool:
        return self._directory_of[log.topic_partition] is directory


def _checkpointed_offset(log: PartitionLog, name: str) -> int | None:
    if name == RECOVERY_POINT_FILE:
        return log.recovery_point
    if name == HIGH_WATERMARK_FILE:
        return log.high_watermark
    if name == CLEANER_FILE:
        return log.cleaner_offset if log.cleaner_offset >= 0 else None
    assert name == LOG_START_FILE, name
    above_first_segment = log.log_start_offset > log.segments[0].base_offset
    return log.log_start_offset if above_first_segment else None
