"""A log directory: its own files, its folders, and every log in it, several at once.

Of a target that is one partition's folder only that log is checked, with its rows in the
checkpoints of the directory around it.

Logs are checked in processes of their own when there is enough to do; each holds one window of one
segment and its indexes, however large the directory is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from tidelog.log.directory.log_directory import (
    CLEAN_MARKER_FILE,
    KRAFT_METADATA_FOLDER,
    LOCK_FILE,
    LogDirectory,
)
from tidelog.log.directory.meta_properties import FILE_NAME as META_FILE
from tidelog.log.directory.meta_properties import read_meta_properties
from tidelog.log.log_errors import CorruptCheckpoint, CorruptMetaProperties, StrayFolder
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.tools.verify.partition_check import Expectations, PartitionCheck, PartitionSummary
from tidelog.tools.verify.target import Target
from tidelog.types import TopicPartition

SEVERAL_PROCESSES_FROM_BYTES: Final = 64 << 20

Progress = Callable[[int, int], None]


class DirectorySummary(NamedTuple):
    target: Target
    is_clean: bool
    partitions: list[PartitionSummary]
    findings: list[Finding]  # of the directory itself
    checkpoints: dict[str, dict[TopicPartition, int]]  # those that can be read

    @property
    def path(self) -> Path:
        return self.target.directory

    @property
    def all_findings(self) -> list[Finding]:
        return [*self.findings, *(f for each in self.partitions for f in each.findings)]


class DirectoryCheck:
    def __init__(self, target: Target, *, jobs: int | None = None, mind_lock: bool = True) -> None:
        self._target = target
        self.path = path = target.directory
        self._mind_lock = mind_lock
        self._jobs = jobs or os.cpu_count() or 1
        self._findings: list[Finding] = []
        self.is_clean = (path / CLEAN_MARKER_FILE).exists()
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._unreadable: set[str] = set()
        self._copies: set[TopicPartition] = set()  # on their way here, with rows in the checkpoints

    def run(self, progress: Progress = lambda done, total: None) -> DirectorySummary:
        if self._target.is_alone:
            self._say_alone()
        else:
            self._check_own_files()
        only = self._target.only
        folders = self._folders() if only is None else {only: str(self._target.path)}
        for name in CHECKPOINT_FILES:
            is_there = not self._target.is_alone
            self._offsets[name] = self._read_checkpoint(name, folders) if is_there else {}
        tasks = [(folder, self._expectations(key)) for key, folder in sorted(folders.items())]
        partitions = []
        for summary in self._check_all(tasks):
            partitions.append(summary)
            progress(len(partitions), len(tasks))
        checkpoints = {
            name: offsets for name, offsets in self._offsets.items() if name not in self._unreadable
        }
        return DirectorySummary(
            self._target, self.is_clean, partitions, self._findings, checkpoints
        )

    def _say(self, kind: Kind, path: Path, problem: str, recovery: str) -> None:
        self._findings.append(Finding(kind, str(path), problem, recovery))

    def _say_alone(self) -> None:
        self._check_lock()
        self._say(
            Kind.REMARK,
            self._target.path,
            "no log directory is around it: no checkpoints to compare, and gaps count as compacted",
            "nothing",
        )

    def _check_lock(self) -> None:
        if self._mind_lock and is_locked(self.path):
            self._say(
                Kind.REMARK,
                self.path / LOCK_FILE,
                "a broker is using the directory; what it writes meanwhile may look like damage",
                "check again when it is stopped",
            )

    def _check_own_files(self) -> None:
        self._check_lock()
        if not self.is_clean:
            self._say(
                Kind.REMARK,
                self.path / CLEAN_MARKER_FILE,
                "there is none: the last stop was not a clean one",
                "every log is read from its recovery point on",
            )
        try:
            if read_meta_properties(str(self.path)) is None:
                self._say(
                    Kind.REMARK, self.path / META_FILE, "there is none", "a broker makes it its own"
                )
        except CorruptMetaProperties as problem:
            text = str(problem).removeprefix(f"{self.path / META_FILE}: ")
            self._say(
                Kind.BY_HAND,
                self.path / META_FILE,
                text,
                "the broker does not start; write version=0, broker.id and cluster.id into it",
            )

    def _folders(self) -> dict[TopicPartition, str]:
        directory = LogDirectory(self.path)
        found: dict[TopicPartition, str] = {}
        for entry in sorted(os.scandir(self.path), key=lambda each: each.name):
            if not entry.is_dir():
                continue
            try:
                folders = directory.sorted_out(entry.name)
            except StrayFolder:
                self._say(
                    Kind.LEFTOVER,
                    Path(entry.path),
                    "a folder that is no log",
                    "the broker does not start; move it away",
                )
                continue
            found.update(folders.partitions)
            if not any(folders):
                is_kraft = entry.name == KRAFT_METADATA_FOLDER
                what = "the log of a KRaft controller" if is_kraft else "a log that was set aside"
                self._say(Kind.REMARK, Path(entry.path), f"{what}; not checked", "left alone")
            if folders.deleted:
                self._say(Kind.REMARK, Path(entry.path), "a log that was deleted", "it is removed")
            if folders.futures:
                self._copies |= folders.futures.keys()
                self._say(
                    Kind.REMARK, Path(entry.path), "a copy of a log that moves", "the move goes on"
                )
        return found

    def _read_checkpoint(
        self, name: str, folders: dict[TopicPartition, str]
    ) -> dict[TopicPartition, int]:
        path = self.path / name
        try:
            offsets = read_offsets(str(path))
        except CorruptCheckpoint as problem:
            text = str(problem).removeprefix(f"{path}: ")
            if self._target.only is None:
                self._say(Kind.CHECKPOINT, path, text, "it counts as empty and is written anew")
            else:  # it cannot be written for one log without forgetting the others
                self._say(Kind.REMARK, path, text, "it counts as empty; repair the log directory")
            self._unreadable.add(name)
            return {}
        if self._target.only is not None:
            return offsets
        for key in offsets.keys() - folders.keys() - self._copies:
            self._say(Kind.REMARK, path, f"it has a row for {key}, which is not there", "nothing")
        return offsets

    def _expectations(self, key: TopicPartition) -> Expectations:
        return Expectations(
            self.is_clean,
            self._offsets[RECOVERY_POINT_FILE].get(key),
            self._offsets[HIGH_WATERMARK_FILE].get(key),
            self._offsets[LOG_START_FILE].get(key),
            self._offsets[CLEANER_FILE].get(key),
            key in self._offsets[CLEANER_FILE]
            or CLEANER_FILE in self._unreadable
            or self._target.is_alone,
        )

    def _check_all(self, tasks: list[tuple[str, Expectations]]) -> Iterator[PartitionSummary]:
        jobs = min(self._jobs, len(tasks))
        if jobs < 2 or size_of(self.path) < SEVERAL_PROCESSES_FROM_BYTES:
            yield from map(check_partition, tasks)
            return
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield from pool.map(check_partition, tasks)


def check_partition(task: tuple[str, Expectations]) -> PartitionSummary:
    return PartitionCheck(*task).run()


def is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def size_of(path: Path) -> int:
    return sum(
        file.stat().st_size
        for folder in os.scandir(path)
        if folder.is_dir()
        for file in os.scandir(folder)
    )
