"""A whole log directory: its own files, its folders, and every log in it, several at once.

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

from tidelog.log.checkpoints import (
    CHECKPOINT_FILES,
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from tidelog.log.log_directory import CLEAN_MARKER_FILE, LOCK_FILE, LogDirectory
from tidelog.log.log_errors import CorruptCheckpoint, CorruptMetaProperties, StrayFolder
from tidelog.log.meta_properties import FILE_NAME as META_FILE
from tidelog.log.meta_properties import read_meta_properties
from tidelog.tools.verify.finding import Finding, Kind
from tidelog.tools.verify.partition_check import Expectations, PartitionCheck, PartitionSummary
from tidelog.types import TopicPartition

SEVERAL_PROCESSES_FROM_BYTES: Final = 64 << 20

Progress = Callable[[int, int], None]


class DirectorySummary(NamedTuple):
    path: Path
    is_clean: bool
    partitions: list[PartitionSummary]
    findings: list[Finding]  # of the directory itself
    checkpoints: dict[str, dict[TopicPartition, int]]  # those that can be read

    @property
    def all_findings(self) -> list[Finding]:
        return [*self.findings, *(f for each in self.partitions for f in each.findings)]


class DirectoryCheck:
    def __init__(self, path: Path, *, jobs: int | None = None, mind_lock: bool = True) -> None:
        self.path = path
        self._mind_lock = mind_lock
        self._jobs = jobs or os.cpu_count() or 1
        self._findings: list[Finding] = []
        self.is_clean = (path / CLEAN_MARKER_FILE).exists()
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._unreadable: set[str] = set()
        self._copies: set[TopicPartition] = set()  # on their way here, with rows in the checkpoints

    def run(self, progress: Progress = lambda done, total: None) -> DirectorySummary:
        self._check_own_files()
        folders = self._folders()
        for name in CHECKPOINT_FILES:
            self._offsets[name] = self._read_checkpoint(name, folders)
        tasks = [(folder, self._expectations(key)) for key, folder in sorted(folders.items())]
        partitions = []
        for summary in self._check_all(tasks):
            partitions.append(summary)
            progress(len(partitions), len(tasks))
        checkpoints = {
            name: offsets for name, offsets in self._offsets.items() if name not in self._unreadable
        }
        return DirectorySummary(self.path, self.is_clean, partitions, self._findings, checkpoints)

    def _say(self, kind: Kind, path: Path, problem: str, recovery: str) -> None:
        self._findings.append(Finding(kind, str(path), problem, recovery))

    def _check_own_files(self) -> None:
        if self._mind_lock and is_locked(self.path):
            self._say(
                Kind.REMARK,
                self.path / LOCK_FILE,
                "a broker is using the directory; what it writes meanwhile may look like damage",
                "check again when it is stopped",
            )
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
            self._say(Kind.CHECKPOINT, path, text, "it counts as empty and is written anew")
            self._unreadable.add(name)
            return {}
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
            key in self._offsets[CLEANER_FILE] or CLEANER_FILE in self._unreadable,
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
