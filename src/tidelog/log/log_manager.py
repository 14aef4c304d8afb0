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
A new log goes to the directory that has the fewest. A log that cannot be read takes only its own
partition out of service, as does one that cannot be synced: see `offline` and `take_offline`.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from tidelog.clock import Clock
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError, StartupError
from tidelog.log.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    PendingWrite,
)
from tidelog.log.flush_ticket import FlushTicket
from tidelog.log.log_creation import create_log
from tidelog.log.log_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    Folders,
    LogDirectory,
    remove_paths,
)
from tidelog.log.log_errors import StorageError
from tidelog.log.log_host import LogHost
from tidelog.log.meta_properties import MetaProperties, read_meta_properties, reconcile
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import PartitionLoader
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[str], LogConfig]
FoundTopic = tuple[str, Uuid | None, dict[int, int]]
OFFSET_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE)
KEPT_FILES: Final = (*OFFSET_FILES, CLEANER_FILE)
KRAFT_METADATA_TOPIC: Final = "__cluster_metadata"
SYNC_THREADS: Final = 16


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
        self._directories = [LogDirectory(Path(path)) for path in log_dirs]
        self._clock = clock
        self._random = random if random is not None else Random()
        self._topic_config: TopicConfigs = lambda _: default_log_config
        self._host = LogHost(
            clock,
            random=self._random,
            producer_expiration_ms=broker_config["producer.id.expiration.ms"],
            delete_later=self._delete_later,
            rolled=self._rolled_logs_add,
        )
        self._loaded: list[LogDirectory] = []
        self.was_clean = True  # all that were loaded: whether everything is on disk
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
        self._host.producer_expiration_ms = config["producer.id.expiration.ms"]

    @property
    def log_dirs(self) -> list[Path]:
        return [directory.path for directory in self._directories]

    # Start and stop

    def lock(self) -> None:
        """The first thing to do; before it nothing in the directories may be touched."""
        locked = []
        try:
            for directory in self._directories:
                directory.lock()
                locked.append(directory)
        except StartupError:
            for directory in locked:
                directory.unlock()
            raise

    def stored_identity(self) -> MetaProperties | None:
        """What the directories say about whose they are."""
        for path in self.log_dirs:
            properties = read_meta_properties(str(path))
            if properties is not None:
                return properties
        return None

    def confirm_identity(self, broker_id: int, cluster_id: str) -> None:
        """All directories must belong to this broker and cluster; new ones are marked so."""
        reconcile(
            [str(path) for path in self.log_dirs], broker_id, cluster_id, self._clock.time_ms()
        )

    def start(self, topic_config: TopicConfigs) -> None:
        """Load all logs; with the directories locked already or not."""
        self._topic_config = topic_config
        for directory in self._directories:
            if not directory.is_locked:
                directory.lock()
        folders = [directory.folders() for directory in self._directories]
        self._find_homes(folders)
        for directory, found in zip(self._directories, folders, strict=True):
            self._load_directory(directory, found.partitions)
            self._loaded.append(directory)
            self._delete_later(found.deleted, 0)
        logger.info("loaded %d logs", len(self._logs))

    def _find_homes(self, folders: Sequence[Folders]) -> None:
        for directory, found in zip(self._directories, folders, strict=True):
            for topic_partition in found.partitions:
                other = self._directory_of.setdefault(topic_partition, directory)
                if other is not directory:
                    raise StartupError(
                        f"{topic_partition} is in two log directories, {other.path} and "
                        f"{directory.path}: move one away"
                    )

    def _load_directory(self, directory: LogDirectory, folders: dict[TopicPartition, str]) -> None:
        clean = directory.take_clean_marker()
        self.was_clean = self.was_clean and clean
        directory.create_checkpoints()
        checkpoints = {name: directory.read_checkpoint(name) for name in KEPT_FILES}
        compacted = directory.compacted_logs()
        if folders and not clean:
            logger.info("%s was not closed cleanly: recovering its logs", directory.path)
        for topic_partition, folder in folders.items():
            loader = PartitionLoader(
                folder,
                topic_partition,
                self._topic_config(topic_partition.topic),
                self._host,
                clean=clean,
                recovery_point=checkpoints[RECOVERY_POINT_FILE].get(topic_partition, 0),
                log_start_offset=checkpoints[LOG_START_FILE].get(topic_partition, 0),
                high_watermark=checkpoints[HIGH_WATERMARK_FILE].get(topic_partition, 0),
                clean_end=checkpoints[RECOVERY_POINT_FILE].get(topic_partition),
                was_compacted=compacted is None or topic_partition in compacted,
            )
            try:
                log = self._logs[topic_partition] = loader.load()
                log.cleaner_offset = checkpoints[CLEANER_FILE].get(topic_partition, -1)
            except OSError as problem:
                logger.error("%s cannot be loaded and stays offline: %s", folder, problem)
                self.offline[topic_partition] = str(problem)
                self._offline_offsets[topic_partition] = {
                    name: offsets[topic_partition]
                    for name, offsets in checkpoints.items()
                    if topic_partition in offsets
                }

    def shutdown(self) -> None:
        """Close, sync, checkpoint; the marker last, and only where all that worked.

        A directory whose logs have not all been loaded stays as it is.
        """
        for directory in self._loaded:
            self._shutdown_directory(directory)
        remove_paths(self._take_deletions(None))
        for directory in self._directories:
            directory.unlock()

    def _shutdown_directory(self, directory: LogDirectory) -> None:
        self._close_logs(log for log in self._logs.values() if self._is_in(directory, log))
        try:
            for write in self._pending_checkpoints(directory, self._files_to_keep(directory)):
                write.run()
            if not any(self._directory_of[key] is directory for key in self.offline):
                directory.write_clean_marker()
        except OSError as error:
            logger.error("%s could not be closed cleanly: %s", directory.path, error)

    def _files_to_keep(self, directory: LogDirectory) -> Sequence[str]:
        """The cleaner's checkpoint stays empty until there is something to say."""
        logs = (log for log in self._logs.values() if self._is_in(directory, log))
        return KEPT_FILES if any(log.cleaner_offset >= 0 for log in logs) else OFFSET_FILES

    def _close_logs(self, logs: Iterable[PartitionLog]) -> None:
        closed: list[tuple[PartitionLog, FlushTicket]] = []
        for log in list(logs):
            try:
                ticket = log.close()
            except StorageError as error:
                self.take_offline(log.topic_partition, error.message or "")
                continue
            if ticket is not None:
                closed.append((log, ticket))
        problems = _run_all([ticket for _, ticket in closed])
        for (log, ticket), problem in zip(closed, problems, strict=True):
            if problem is None:
                log.flush_done(ticket)
            else:
                self.take_offline(log.topic_partition, str(problem))

    def close_abruptly(self) -> None:
        """Give the directories free and write nothing, as if the process had been killed."""
        self._logs.clear()
        for directory in self._directories:
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
        directory = min(self._directories, key=lambda candidate: candidate.partition_count)
        log = create_log(
            directory.folder_for(topic_partition),
            topic_partition,
            topic_id,
            config if config is not None else self._topic_config(topic_partition.topic),
            self._host,
        )
        self._logs[topic_partition] = log
        self._directory_of[topic_partition] = directory
        directory.partition_count += 1
        return log

    def highest_producer_id(self) -> int:
        """Of all producers the logs know of, -1 if none: new ids must lie above it."""
        return max(
            (max(log.producers.producers, default=-1) for log in self._logs.values()), default=-1
        )

    def found_topics(self) -> list[FoundTopic]:
        """(name, id if known, latest leader epoch by partition) of every topic in the directories.

        A partition that is offline, or without batches, has the epoch -1.
        """
        ids: dict[str, Uuid | None] = {}
        epochs: dict[str, dict[int, int]] = {}
        for topic, partition in sorted(self._directory_of):
            if topic == KRAFT_METADATA_TOPIC:
                continue
            log = self._logs.get(TopicPartition(topic, partition))
            epochs.setdefault(topic, {})[partition] = -1 if log is None else log.latest_epoch
            known = None if log is None or log.topic_id == ZERO_UUID else log.topic_id
            ids[topic] = ids.get(topic) or known
        return [(topic, ids[topic], epochs[topic]) for topic in epochs]

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
        logger.error("%s is offline until the next start: %s", topic_partition, reason)
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
            return
        delay_ms = log.config.file_delete_delay_ms if log is not None else 0
        try:
            target = self._move_away(topic_partition, DELETE_SUFFIX)
        except OSError as error:
            raise StorageError(f"cannot delete {topic_partition}: {error}") from error
        self._delete_later([target], delay_ms)

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        """Forget the log, whatever its state; the name that its folder has now."""
        log = self._logs.pop(topic_partition, None)
        self.offline.pop(topic_partition, None)
        self._offline_offsets.pop(topic_partition, None)
        directory = self._directory_of.pop(topic_partition)
        directory.partition_count -= 1
        unique = f"{self._random.getrandbits(128):032x}"
        target = directory.marked_folder_for(topic_partition, unique, suffix)
        if log is not None:
            self._rolled.pop(log, None)
            log.move_to(target)
        else:
            os.rename(directory.folder_for(topic_partition), target)
        return target

    # Duties

    def take_rolled_logs(self) -> list[PartitionLog]:
        """Logs with segments that became inactive and wait to be flushed."""
        rolled = list(self._rolled)
        self._rolled.clear()
        return rolled

    def logs_due_for_flush(self) -> Iterator[PartitionLog]:
        return (log for log in self._logs.values() if log.flush_due())

    def pending_checkpoints(self, *names: str) -> list[PendingWrite]:
        """Offsets as they are now; `run` each, in a thread or not."""
        return [
            write
            for directory in self._directories
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
            for topic_partition, kept in self._offline_offsets.items():
                if name in kept and self._directory_of[topic_partition] is directory:
                    offsets[topic_partition] = kept[name]
            yield directory.checkpoint(name, offsets)

    def delete_old_segments(self) -> int:
        """Retention of every log; one that fails is logged and does not stop the others.

        A log that is being cleaned has its turn when that is done.
        """
        deleted = 0
        for log in self._logs.values():
            if log.is_being_cleaned:
                continue
            try:
                deleted += log.delete_old_segments()
            except (OSError, KafkaError) as error:
                logger.error("retention of %s failed: %s", log.topic_partition, error)
        return deleted

    def remove_expired_producers(self) -> None:
        for log in self._logs.values():
            log.remove_expired_producers()

    def release_idle_maps(self) -> None:
        """Logs that have not grown since the last call give back descriptors and maps."""
        for topic_partition, log in self._logs.items():
            if self._ends.get(topic_partition) == log.log_end_offset:
                log.release_maps()
        self._ends = {key: log.log_end_offset for key, log in self._logs.items()}

    def take_due_deletions(self) -> list[str]:
        """Files and folders whose delay is over; `remove_paths` them, in a thread or not."""
        return self._take_deletions(self._clock.time_ms())

    def _take_deletions(self, until_ms: int | None) -> list[str]:
        taken: list[str] = []
        while self._deletions and (until_ms is None or self._deletions[0][0] <= until_ms):
            taken += heapq.heappop(self._deletions)[2]
        return taken

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


def _run_all(tickets: Sequence[FlushTicket]) -> list[OSError | None]:
    """What went wrong with each. Syncs of several files at once cost little more than one."""
    if len(tickets) < 4:
        return [_run(ticket) for ticket in tickets]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=SYNC_THREADS) as pool:
        return list(pool.map(_run, tickets))


def _run(ticket: FlushTicket) -> OSError | None:
    try:
        ticket.run()
    except OSError as error:
        return error
    return None
