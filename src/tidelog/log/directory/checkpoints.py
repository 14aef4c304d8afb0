"""Small text files that say how far things have come.

    file                                per        row
    recovery-point-offset-checkpoint    log dir    topic partition offset
    replication-offset-checkpoint       log dir    topic partition high watermark
    log-start-offset-checkpoint         log dir    topic partition offset, if above segment 0
    cleaner-offset-checkpoint           log dir    topic partition offset
    leader-epoch-checkpoint             partition  epoch start_offset
    partition.metadata                  partition  version: 0 / topic_id: <uuid> / no last newline

All but the last have a version line (0), a line with the number of rows, then the rows. They are
replaced as a whole: written to `<name>.tmp`, synced, renamed. A `PendingWrite` carries offsets
taken on the broker loop to a thread that encodes and writes them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from threading import Lock
from typing import Final

from tidelog.log.log_errors import CorruptCheckpoint
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
CHECKPOINT_FILES: Final = (
    RECOVERY_POINT_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    CLEANER_FILE,
)
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"


class CheckpointFile:
    """One checkpoint of a log directory, which remembers what it is known to hold.

    `pending` belongs to the broker loop; the writes may run in any thread and in any order.
    """

    __slots__ = ("_content", "_lock", "_rows", "_taken", "_written", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._taken = 0  # number of the last pending write
        self._lock = Lock()  # guards what is below, and the file
        self._rows: Collection[TopicPartition] = ()  # that the file has
        self._written = 0  # number of the last write that is done, set after the others
        self._content: bytes | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Before anything is written. CorruptCheckpoint as `read_offsets` raises it."""
        offsets = read_offsets(self.path)
        self._rows = frozenset(offsets)
        return offsets

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """In the file, or on its way there; on the broker loop."""
        return self._written < self._taken or topic_partition in self._rows

    def pending(self, offsets: Mapping[TopicPartition, int]) -> PendingWrite:
        self._taken += 1
        return PendingWrite(self, self._taken, offsets)

    def write(self, number: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Unless the file holds that already, or what was taken later."""
        content = encode_offsets(offsets)
        with self._lock:
            if number < self._written:
                return
            if content != self._content:
                replace_file(self.path, content)
                self._content = content
                self._rows = frozenset(offsets)
            self._written = number


class PendingWrite:
    """Offsets for a checkpoint; `run` touches nothing but the file, and may be tried again."""

    __slots__ = ("_file", "_number", "_offsets")

    def __init__(
        self, file: CheckpointFile, number: int, offsets: Mapping[TopicPartition, int]
    ) -> None:
        self._file = file
        self._number = number
        self._offsets = offsets

    @property
    def path(self) -> str:
        return self._file.path

    def run(self) -> None:
        """OSError when the disk refuses; the next write of this checkpoint then makes up for it."""
        self._file.write(self._number, self._offsets)


def replace_file(path: str, content: bytes, *, sync: bool = True) -> None:
    temporary = path + ".tmp"
    with open(temporary, "wb", buffering=0) as file:
        file.write(content)
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)


def encode_rows(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_rows(content: bytes, path: str) -> list[list[str]]:
    """The fields of every row; an empty file has none."""
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    if lines[0] != "0":
        raise CorruptCheckpoint(f"{path}: version {lines[0]!r} is not known")
    rows = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(rows)):
        raise CorruptCheckpoint(f"{path}: the number of rows does not match its second line")
    return rows


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_rows(f"{t} {p} {offset}" for (t, p), offset in offsets.items())


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """A missing file is an empty one; CorruptCheckpoint when the content makes no sense."""
    content = _read(path)
    if content is None:
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_rows(content, path)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    return encode_rows(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


def read_epochs(path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) in order; None when there is no file."""
    content = _read(path)
    if content is None:
        return None
    try:
        epochs = [(int(epoch), int(start)) for epoch, start in decode_rows(content, path)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    for (epoch, start), (next_epoch, next_start) in pairwise(epochs):
        if not (0 <= epoch < next_epoch and 0 <= start <= next_start):
            raise CorruptCheckpoint(f"{path}: epochs and offsets must grow")
    return epochs


def write_partition_metadata(directory: str, topic_id: Uuid) -> None:
    """Synced by the next flush. The metadata store knows the id; this guards against a mix-up."""
    content = f"version: 0\ntopic_id: {topic_id}".encode()
    with open(f"{directory}/{PARTITION_METADATA_FILE}", "wb", buffering=0) as file:
        file.write(content)


def read_partition_metadata(directory: str) -> Uuid:
    """The zero uuid when there is no file, as in logs from before topic ids.

    CorruptCheckpoint when the file says nothing, as after a loss of power.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    content = _read(path)
    if content is None:
        return ZERO_UUID
    fields = dict(
        line.split(": ", 1)
        for line in content.decode("utf-8", "replace").split("\n")
        if ": " in line
    )
    try:
        if int(fields["version"]) >= 0:
            return Uuid.parse(fields["topic_id"].strip())
    except (KeyError, ValueError):
        pass
    raise CorruptCheckpoint(f"{path}: no version and topic_id in it")


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
