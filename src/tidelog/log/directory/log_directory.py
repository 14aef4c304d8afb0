"""One directory of `log.dirs`: its lock, its clean-stop marker, its checkpoints, its folders.

    .lock                   held by flock as long as the broker lives
    .kafka_cleanshutdown    {"version":0,"brokerEpoch":-1}, from a clean stop to a start
    meta.properties         see meta_properties
    *-offset-checkpoint     see checkpoints
    <topic>-<partition>/    a partition's log
    <topic>-<partition>.<uuid>-delete/    a log on its way out
    <topic>-<partition>.<uuid>-future/    a log on its way in, see future_log
    <topic>-<partition>.<uuid>-stray/     a log of no topic that is known; left alone

Plain files of other names are left alone. A folder of any other form is an error: data that a
broker cannot name is not to be overlooked.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    CLEANER_FILE,
    CheckpointFile,
    PendingWrite,
    read_offsets,
    replace_file,
)
from tidelog.log.log_errors import CorruptCheckpoint, DirectoryLocked, StrayFolder
from tidelog.log.segment.index_file import fsync_path
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_MARKER_FILE: Final = ".kafka_cleanshutdown"
CLEAN_MARKER: Final = b'{"version":0,"brokerEpoch":-1}'
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
KRAFT_METADATA_FOLDER: Final = "__cluster_metadata-0"
FOLDER_NAME_MAX: Final = 255

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_MARKED = re.compile(r"(?P<log>\S+-\d+)\.\S+-(?P<mark>delete|future|stray)")


class Folders(NamedTuple):
    partitions: dict[TopicPartition, str]  # to be loaded
    futures: dict[TopicPartition, str]  # copies from other directories, likewise
    deleted: list[str]  # whose deletion was not finished


class LogDirectory:
    __slots__ = ("_checkpoints", "_lock_descriptor", "partition_count", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partition_count = 0
        self._lock_descriptor = -1
        self._checkpoints = {name: CheckpointFile(str(path / name)) for name in CHECKPOINT_FILES}

    @property
    def absolute_path(self) -> str:
        """As clients know it."""
        return os.path.abspath(self.path)

    @property
    def is_locked(self) -> bool:
        return self._lock_descriptor >= 0

    def lock(self) -> None:
        """Make the directory if need be, and be the only one to use it.

        OSError when it cannot be made or written, DirectoryLocked when it is another's.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
            return self._checkpoints[name].read()
        except CorruptCheckpoint as problem:
            logger.error("ignoring a damaged checkpoint: %s", problem)
            return {}

    def compacted_logs(self) -> set[TopicPartition] | None:
        """Those that a cleaner has been at; None if nobody can tell any more."""
        try:
            return set(read_offsets(str(self.path / CLEANER_FILE)))
        except CorruptCheckpoint as problem:
            logger.error("ignoring a damaged checkpoint: %s", problem)
            return None

    def checkpoints_that_may_have(self, topic_partition: TopicPartition) -> list[str]:
        return [name for name, file in self._checkpoints.items() if file.may_have(topic_partition)]

    def checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> PendingWrite:
        return self._checkpoints[name].pending(offsets)

    def folders(self) -> Folders:
        found = Folders({}, {}, [])
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_dir():
                    self._sort(entry.name, found)
        self.partition_count = len(found.partitions) + len(found.futures)
        return found

    def hosted(self) -> set[TopicPartition]:
        """Partitions with a log here, or a copy on its way in. Says and changes nothing."""
        found: set[TopicPartition] = set()
        for name in os.listdir(self.path):
            marked = _MARKED.fullmatch(name)
            is_copy = marked is not None and marked["mark"] == "future"
            match = _PARTITION.fullmatch(marked["log"] if marked and is_copy else name)
            if match is not None and name != KRAFT_METADATA_FOLDER:
                found.add(TopicPartition(match["topic"], int(match["partition"])))
        return found

    def sorted_out(self, name: str) -> Folders:
        """What the folder of that name is; StrayFolder if it has no business here."""
        found = Folders({}, {}, [])
        self._sort(name, found)
        return found

    def _sort(self, name: str, found: Folders) -> None:
        path = f"{self.path}/{name}"
        if name == KRAFT_METADATA_FOLDER:
            logger.info("leaving %s alone, which belongs to a KRaft controller", path)
            return
        marked = _MARKED.fullmatch(name)
        if marked is not None and marked["mark"] == "delete":
            logger.info("removing %s, whose deletion was not finished", path)
            found.deleted.append(path)
            return
        if marked is not None and marked["mark"] == "future":
            topic, _, partition = marked["log"].rpartition("-")
            topic_partition = TopicPartition(topic, int(partition))
            if found.futures.setdefault(topic_partition, path) != path:
                found.deleted.append(path)  # given up for another one
            return
        if marked is not None:
            logger.warning("leaving %s alone, a %s log", path, marked["mark"])
            return
        match = _PARTITION.fullmatch(name)
        if match is None:
            raise StrayFolder(
                f"{path} is neither a topic-partition nor marked for deletion; "
                "log directories may hold nothing else: move it away"
            )
        found.partitions[TopicPartition(match["topic"], int(match["partition"]))] = path

    def folder_for(self, topic_partition: TopicPartition) -> str:
        return f"{self.path}/{topic_partition.topic}-{topic_partition.partition}"

    def marked_folder_for(self, topic_partition: TopicPartition, unique: str, suffix: str) -> str:
        """Kafka's name for a folder set apart by that suffix; long topic names are cut to fit."""
        ending = f"-{topic_partition.partition}.{unique}{suffix}"
        return f"{self.path}/{topic_partition.topic[: FOLDER_NAME_MAX - len(ending)]}{ending}"


def _ignore(path: str, what: str, error: OSError) -> None:
    pass


def remove_paths(
    paths: Iterable[str], failed: Callable[[str, str, OSError], object] = _ignore
) -> None:
    """Files or folders; what is gone already is fine, what resists is told. For any thread."""
    for path in paths:
        try:
            if path.endswith((DELETE_SUFFIX, FUTURE_SUFFIX)):
                remove_folder(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.error("cannot remove %s: %s", path, error)
            failed(path, "remove files", error)


def remove_folder(path: str) -> None:
    """A log's folder holds plain files only."""
    with os.scandir(path) as entries:
        for entry in entries:
            os.unlink(entry.path)
    os.rmdir(path)
