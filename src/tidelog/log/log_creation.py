"""The folder and the first files of a new partition, or of thousands."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from tidelog.config.topic import LogConfig
from tidelog.log.checkpoints import write_partition_metadata
from tidelog.log.epoch_cache import EpochCache
from tidelog.log.log_directory import LogDirectory, remove_folder
from tidelog.log.log_errors import StorageError
from tidelog.log.log_host import LogHost
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment_creation import new_segment
from tidelog.log.snapshot_files import SnapshotFiles
from tidelog.supervisor import attempt
from tidelog.types import ZERO_UUID, TopicPartition, Uuid


def create_log(
    directory: str,
    topic_partition: TopicPartition,
    topic_id: Uuid,
    config: LogConfig,
    host: LogHost,
    start_offset: int = 0,
) -> PartitionLog:
    """A new folder with an empty log; no folder when that fails.

    Nothing is synced before the first flush.
    """
    try:
        os.mkdir(directory)
        try:
            segment = new_segment(directory, start_offset, config, host)
            if topic_id != ZERO_UUID:
                write_partition_metadata(directory, topic_id)
        except BaseException:
            remove_folder(directory)
            raise
    except OSError as error:
        host.io_failed(directory, "create a log", error)
        raise StorageError(f"cannot create {topic_partition}: {error}") from error
    log = PartitionLog(
        directory,
        topic_partition,
        topic_id,
        config,
        host,
        segments=(segment,),
        log_start_offset=start_offset,
        log_end_offset=start_offset,
        recovery_point=start_offset,
        high_watermark=start_offset,
        producers=ProducerStateTable(),
        snapshots=SnapshotFiles(directory),
        epochs=EpochCache(),
    )
    log.files_changed()
    return log


class WantedLog(NamedTuple):
    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig
    directory: LogDirectory


class PendingLogs:
    """New logs that the loop has decided on: `run` makes them, in a thread, and
    `LogManager.take_in` takes in those that could be made.
    """

    def __init__(self, wanted: Iterable[WantedLog], host: LogHost) -> None:
        self.wanted = list(wanted)
        self._host = host
        self.made: list[tuple[LogDirectory, PartitionLog]] = []

    def run(self) -> None:
        for wanted in self.wanted:
            attempt(f"making the log of {wanted.topic_partition}", partial(self._make, wanted))

    def _make(self, wanted: WantedLog) -> None:
        topic_partition, topic_id, config, directory = wanted
        folder = directory.folder_for(topic_partition)
        try:
            log = create_log(folder, topic_partition, topic_id, config, self._host)
        except StorageError:
            return  # reported; `LogManager.get_or_create` tries elsewhere, or says why not
        self.made.append((directory, log))
