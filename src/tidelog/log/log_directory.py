"""One directory of `log.dirs`: its lock, its clean-stop marker, its checkpoints, its folders.

    .lock                   held by flock as long as the broker lives
    .kafka_cleanshutdown    {"version":0,"brokerEpoch":-1}, from a clean stop to a start
    meta.properties         see meta_properties
    *-offset-checkpoint     see checkpoints
    <topic>-<partition>/    a partition's log
    <topic>-<partition>.<uuid>-delete/    a log on its way out

Plain files of other names are left alone. A folder of any other form is an error: data that a
broker cannot name is not to be overlooked.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidelog.errors import StartupError
from tidelog.log.checkpoints import (
    CHECKPOINT_FILES,
    PendingWrite,
    encode_offsets,
    read_offsets,
    replace_file,
)
from tidelog.log.index_file import fsync_path
from tidelog.log.log_errors import CorruptCheckpoint, DirectoryLocked, StrayFolder
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_MARKER_FILE: Final = ".kafka_cleanshutdown"
CLEAN_MARKER: Final = b'{"version":0,"brokerEpoch":-1}'
DELETE_SUFFIX: Final = "-delete"
KRAFT_METADATA_FOLDER: Final = "__cluster_metadata-0"
FOLDER_NAME_MAX: Final = 255

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_MARKED = re.compile(r"\S+-\d+\.\S+-(?P<mark>delete|future|stray)")


class LogDirectory:
    __slots__ = ("_lock_descriptor", "_written", "partition_count", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partition_count = 0
        self._lock_descriptor = -1
        self._written: dict[str, bytes] = {}

    @property
    def is_locked(self) -> bool:
        return self._lock_descriptor >= 0

    def lock(self) -> None:
        """Make the directory if need be, and be the only one to use it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise StartupError(f"the log directory {self.path} cannot be used: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryLocked(
                f"the log directory {self.path} is in use by another process (it holds {LOCK_FILE})"
            ) from error
        self._lock_descriptor = descriptor

    def unlock(self) -> None:
        if self._lock_descriptor >= 0:
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def take_clean_marker(self) -> bool:
        """Whether the last stop was clean. The marker is gone afterwards."""
        try:
            (self.path / CLEAN_MARKER_FILE).unlink()
        except FileNotFoundError:
            return False
        fsync_path(str(self.path))
        return True

    def write_clean_marker(self) -> None:
        path = str(self.path / CLEAN_MARKER_FILE)
        replace_file(path, CLEAN_MARKER)
        fsync_path(str(self.path))

    def create_checkpoints(self) -> None:
        """Empty files where there are none, as Kafka makes them."""
        for name in CHECKPOINT_FILES:
            (self.path / name).touch()

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """A damaged checkpoint counts as empty: that costs time or a little history, not data."""
        try:
            return read_offsets(str(self.path / name))
        except CorruptCheckpoint as problem:
            logger.error("ignoring a damaged checkpoint: %s", problem)
            return {}

    def checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> PendingWrite | None:
        """What is to be written; None when that is on disk already."""
        content = encode_offsets(offsets)
        if self._written.get(name) == content:
            return None
        self._written[name] = content
        return PendingWrite(str(self.path / name), content)

    def partition_folders(self) -> dict[TopicPartition, str]:
        """The folders to load; those marked for deletion are removed."""
        found = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if not entry.is_dir():
                    continue
                topic_partition = self._partition_of(entry.name)
                if topic_partition is not None:
                    found[topic_partition] = entry.path
        self.partition_count = len(found)
        return found

    def _partition_of(self, name: str) -> TopicPartition | None:
        """None for folders that hold nothing to load."""
        if name == KRAFT_METADATA_FOLDER:
            logger.info("leaving %s alone, which belongs to a KRaft controller", self.path / name)
            return None
        marked = _MARKED.fullmatch(name)
        if marked is not None and marked["mark"] == "delete":
            logger.info("removing %s, whose deletion was not finished", self.path / name)
            remove_paths([str(self.path / name)])
            return None
        if marked is not None:
            logger.warning("leaving %s alone, a %s log", self.path / name, marked["mark"])
            return None
        match = _PARTITION.fullmatch(name)
        if match is None:
            raise StrayFolder(
                f"{self.path / name} is neither a topic-partition nor marked for deletion; "
                "log directories may hold nothing else: move it away"
            )
        return TopicPartition(match["topic"], int(match["partition"]))

    def folder_for(self, topic_partition: TopicPartition) -> str:
        return f"{self.path}/{topic_partition.topic}-{topic_partition.partition}"

    def deleted_folder_for(self, topic_partition: TopicPartition, unique: str) -> str:
        """Kafka's name for a folder on its way out; long topic names are cut to fit."""
        ending = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
        return f"{self.path}/{topic_partition.topic[: FOLDER_NAME_MAX - len(ending)]}{ending}"


def remove_paths(paths: list[str]) -> None:
    """Files or folders; what is gone already is fine, what resists is logged."""
    for path in paths:
        try:
            if path.endswith(DELETE_SUFFIX):
                _remove_folder(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.error("cannot remove %s: %s", path, error)


def _remove_folder(path: str) -> None:
    """A log's folder holds plain files only."""
    with os.scandir(path) as entries:
        for entry in entries:
            os.unlink(entry.path)
    os.rmdir(path)
