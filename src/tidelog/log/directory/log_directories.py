"""All directories of `log.dirs`: which are online, whose they are, and which partitions they hold.

A directory that fails stays in the list but offline until the next start (`log_dir_failures`).
Touched only on the broker loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import StartupError
from tidelog.log.directory.log_dir_failures import LogDirFailures
from tidelog.log.directory.log_directory import Folders, LogDirectory
from tidelog.log.directory.meta_properties import MetaProperties, read_meta_properties, reconcile
from tidelog.types import TopicPartition


class LogDirectories:
    """In the order of the configuration; it begins and ends with `lock` and `unlock`."""

    def __init__(self, paths: Sequence[Path], clock: Clock) -> None:
        self._directories = [LogDirectory(Path(path)) for path in paths]
        self._clock = clock
        self.failures = LogDirFailures(str(directory.path) for directory in self._directories)

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def __getitem__(self, number: int) -> LogDirectory:
        return self._directories[number]

    @property
    def paths(self) -> list[Path]:
        return [directory.path for directory in self._directories]

    def at(self, path: str) -> LogDirectory | None:
        """The configured directory of that path, online or not."""
        return next((each for each in self._directories if each.absolute_path == path), None)

    def is_online(self, directory: LogDirectory) -> bool:
        return str(directory.path) not in self.failures

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if self.is_online(directory)]

    def must_have_one_online(self) -> None:
        if not self.online:
            reasons = (f"{path}: {self.failures.reason(str(path))}" for path in self.paths)
            raise StartupError(f"no log directory can be used; {'; '.join(reasons)}")

    def lock(self) -> None:
        """Lock those that are not locked yet; before that nothing in them may be touched."""
        try:
            for directory in self.online:
                if not directory.is_locked:
                    self._lock(directory)
            self.must_have_one_online()
        except StartupError:
            self.unlock()
            raise

    def _lock(self, directory: LogDirectory) -> None:
        try:
            directory.lock()
        except OSError as error:
            self.failures.fail(str(directory.path), "use it", error)

    def unlock(self) -> None:
        for directory in self._directories:
            directory.unlock()

    def stored_identity(self) -> MetaProperties | None:
        """What the directories say about whose they are."""
        found = None
        for directory in self.online:
            path = str(directory.path)
            try:
                found = found or read_meta_properties(path)
            except OSError as error:
                self.failures.fail(path, "read whose it is", error)
        return found

    def confirm_identity(self, broker_id: int, cluster_id: str) -> None:
        """All directories must belong to this broker and cluster; new ones are marked so."""
        paths = [str(directory.path) for directory in self.online]
        reconcile(paths, broker_id, cluster_id, self._clock.time_ms())

    def folders(self) -> dict[LogDirectory, Folders]:
        """The folders in every directory that is online and can be listed."""
        found: dict[LogDirectory, Folders] = {}
        for directory in self.online:
            try:
                found[directory] = directory.folders()
            except OSError as error:
                self.failures.fail(str(directory.path), "list its logs", error)
        return found

    def hosted(self) -> set[TopicPartition]:
        """Partitions that have a folder in a directory that is online, loaded or not."""
        try:
            return {each for directory in self.online for each in directory.hosted()}
        except OSError as error:
            raise StartupError(f"a log directory cannot be read: {error}") from error
