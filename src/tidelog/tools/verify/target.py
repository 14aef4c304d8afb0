"""What a log tool was pointed at: a log directory, or the folder of one partition.

    a log directory       one with a file that only log directories have (meta.properties, a
                          checkpoint, the marker of a clean stop), or one that holds the folders of
                          partitions and no other folder
    a partition's folder  <topic>-<partition>, with a segment, an epoch file or partition.metadata
                          in it; its log directory is the one around it, if that is one

Everything else is refused, by name and before anything is touched: a tool that repairs must not
guess. A folder that lies in no log directory has no checkpoints and no lock; it is worked on alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
)
from tidelog.log.directory.log_directory import (
    CLEAN_MARKER_FILE,
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    KRAFT_METADATA_FOLDER,
    STRAY_SUFFIX,
)
from tidelog.log.directory.meta_properties import FILE_NAME as META_FILE
from tidelog.types import TopicPartition

OWN_FILES: Final = frozenset((META_FILE, CLEAN_MARKER_FILE, *CHECKPOINT_FILES))
_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MARKED: Final = re.compile(r"[a-zA-Z0-9._-]+-\d+\.\S+(?P<suffix>-delete|-future|-stray)")
_LOG_FILE: Final = re.compile(
    rf"\d{{20}}\.(log|snapshot).*|{LEADER_EPOCH_FILE}|{re.escape(PARTITION_METADATA_FILE)}"
)
_SET_ASIDE: Final = {
    DELETE_SUFFIX: "a log on its way out, which the next start of a broker removes",
    FUTURE_SUFFIX: "a copy that a move has not finished, which the broker goes on with",
    STRAY_SUFFIX: "a log that a broker has set aside because it knows no such topic",
}


class NotALog(Exception):
    """The path is neither a log directory nor a partition's folder; the text says what it is."""


class Target(NamedTuple):
    directory: Path  # the log directory, or the folder around a partition's
    only: TopicPartition | None = None  # None: all logs of the directory
    is_alone: bool = False  # `directory` is no log directory: no checkpoints, no lock

    @property
    def path(self) -> Path:
        return self.directory if self.only is None else self.directory / str(self.only)


def find_target(text: str) -> Target:
    """NotALog if the tools have no business there. A symbolic link stands for what it points to,
    but a link in a log directory is that directory's partition: its broker's lock counts."""
    try:
        path = Path(os.path.abspath(text))
        path = path.parent.resolve(strict=True) / path.name
        if not path.is_dir():
            path.stat()
            raise NotALog(f"{text} is no directory")
        if path.is_symlink() and not _is_partition_of_directory(path):
            path = path.resolve(strict=True)
        return _sort(text, path)
    except OSError as error:
        raise NotALog(f"{text}: {error.strerror}") from error


def _sort(text: str, path: Path) -> Target:
    if path.name == KRAFT_METADATA_FOLDER:
        raise NotALog(f"{text} belongs to a KRaft controller: only dump-log reads it")
    marked = _MARKED.fullmatch(path.name)
    if marked is not None:
        raise NotALog(
            f"{text} is {_SET_ASIDE[marked['suffix']]}; to work on it, copy it under the name "
            "<topic>-<partition>"
        )
    if is_log_directory(path):
        return Target(path)
    partition = partition_of(path)
    if partition is not None:
        return Target(path.parent, partition, is_alone=not is_log_directory(path.parent))
    raise NotALog(
        f"{text} is neither a log directory (log.dirs) nor a partition's folder{_hint(path)}"
    )


def _is_partition_of_directory(path: Path) -> bool:
    return partition_of(path) is not None and is_log_directory(path.parent)


def is_log_directory(path: Path) -> bool:
    paths = list(path.iterdir())
    if any(each.name in OWN_FILES and each.is_file() for each in paths):
        return True
    folders = [each for each in paths if each.is_dir()]
    known = [folder for folder in folders if partition_of(folder) is not None]
    return bool(known) and all(_may_lie_beside_logs(each) for each in folders if each not in known)


def _may_lie_beside_logs(folder: Path) -> bool:
    if _MARKED.fullmatch(folder.name) or folder.name == KRAFT_METADATA_FOLDER:
        return True
    return _PARTITION.fullmatch(folder.name) is not None and not os.listdir(folder)


def partition_of(path: Path) -> TopicPartition | None:
    match = _PARTITION.fullmatch(path.name)
    if match is None or path.name == KRAFT_METADATA_FOLDER:
        return None
    if not any(_LOG_FILE.fullmatch(name) for name in os.listdir(path)):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def _hint(path: Path) -> str:
    """Where the log directory might be that was meant."""
    for each in sorted(path.iterdir()):
        try:
            if each.is_dir() and is_log_directory(each):
                return f"; {each} is a log directory"
        except OSError:
            continue
    return ""
