"""What a broker does about a log directory that fails while it serves.

    all partitions of the directory      offline: KAFKA_STORAGE_ERROR, and no leader in Metadata
    coordinators of such partitions      resign: NOT_COORDINATOR
    copies on their way to or from it    left as they are (see replica_moves)
    new partitions                       go to the other directories
    checkpoints, clean marker            none are written to it any more

The broker goes on with the directories that are left. It stops, with exit code 1, when there are
none, or when the one that holds the embedded metadata store is gone: what it could no longer keep,
it may not promise.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from functools import partial

from tidelog.coordinator.registry import Coordinators
from tidelog.errors import StartupError
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.log.log_manager import LogManager
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.supervisor import attempt
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class LogDirFailureHandler:
    """Touched only on the broker loop, to which `listen` brings the reports of all threads."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        coordinators: Coordinators,
        metadata_directory: LogDirectory | None,
        halt: Callable[[str], object],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._coordinators = coordinators
        self._metadata_directory = metadata_directory  # None where the metadata is kept elsewhere
        self._halt = halt

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._logs.failures.listener = lambda path: loop.call_soon_threadsafe(self.handle, path)

    def handle(self, path: str) -> None:
        directory = next(each for each in self._logs.directories if str(each.path) == path)
        lost = self._logs.logs_inside(directory)
        reason = self._logs.failures.reason(path)
        for lost_log in lost:
            attempt(f"taking {lost_log} offline", partial(self._take_offline, lost_log, reason))
        attempt(f"closing {path}", partial(self._logs.close_directory, directory))
        logger.error("stopped serving a log directory", extra={"path": path, "logs": len(lost)})
        if not self._logs.online_directories:
            self._halt(f"stopping, because all log directories have failed; the last is {path}")
        elif directory is self._metadata_directory:
            self._halt(f"stopping, because {path} has failed, which holds the metadata")

    def _take_offline(self, topic_partition: TopicPartition, reason: str) -> None:
        self._replicas.take_offline(topic_partition, reason)
        coordinator = self._coordinators.runtime_of(topic_partition.topic)
        if coordinator is not None:
            coordinator.resign(topic_partition.partition)


def metadata_directory_of(logs: LogManager) -> LogDirectory:
    """The first one, where the embedded store lives; without it there is nothing to start."""
    directory = logs.directories[0]
    if not logs.is_online(directory):
        reason = logs.failures.reason(str(directory.path))
        raise StartupError(
            f"the log directory {directory.path}, which holds the metadata, has failed: {reason}"
        )
    return directory


def exit_anyway(after_s: float) -> None:
    """With code 1, should an orderly stop take longer: a dying disk may never answer."""
    timer = threading.Timer(after_s, os._exit, (1,))
    timer.daemon = True
    timer.start()
