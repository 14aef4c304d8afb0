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
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from tidelog.clock import Timer, pause
from tidelog.controller import znodes
from tidelog.controller.metadata_store import MetadataStore, StoreError
from tidelog.coordinator.registry import Coordinators
from tidelog.errors import StartupError
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.log.log_manager import LogManager
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.supervisor import attempt
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

EVENT_RETRY_S: Final = 1.0
Run = Callable[[Coroutine[None, None, None]], None]


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
        logger.error(
            "stopped serving a log directory",
            extra={"event": "log-dir-offline", "path": path, "logs": len(lost)},
        )
        if not self._logs.directories.online:
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
    if not logs.directories.is_online(directory):
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


class LogDirEvents:
    """How the controller hears of replicas whose logs are lost.

    A node under /log_dir_event_notification names this broker. The controller that sees it asks for
    all replicas of the broker again, and hears from the answers which are offline: one node is
    enough for all that are lost at once.

    Touched only on the broker loop.
    """

    def __init__(self, store: MetadataStore, broker_id: int, run: Run, timer: Timer) -> None:
        self._store = store
        self._broker_id = broker_id
        self._run = run
        self._timer = timer
        self._is_due = False

    def lost(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._run(self._report())

    async def _report(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                event = znodes.encode_log_dir_event(self._broker_id)
                await self._store.create(znodes.LOG_DIR_EVENT, event, sequence=True)
            except StoreError as error:
                logger.warning("the controller is not told of lost logs yet: %s", error)
                await pause(self._timer, EVENT_RETRY_S)
                self._is_due = True
