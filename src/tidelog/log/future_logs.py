"""The copies of logs that are on their way to other log directories: made, found again, dropped.

Touched only on the broker loop; the copies themselves are written by threads (see future_log).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from tidelog.clock import Clock
from tidelog.log.future_log import FutureLog, forget_replaced
from tidelog.log.log_creation import create_log
from tidelog.log.log_dir_failures import LogDirFailures
from tidelog.log.log_directory import DELETE_SUFFIX, FUTURE_SUFFIX, LogDirectory, remove_paths
from tidelog.log.log_host import LogHost
from tidelog.log.partition_log import PartitionLog
from tidelog.log.recovery import PartitionLoader
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

Loader = Callable[[TopicPartition, str, LogHost], PartitionLoader]


class FutureLogs:
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
        self._host = LogHost(
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
            self._host,
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
                log = loader(topic_partition, folder, self._host).load()
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
