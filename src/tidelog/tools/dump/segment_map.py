"""What lies where in the segments of a log: files of a partition's folder, batches of a segment.

Everything is bounded: a map has at most BATCHES_MAX batches out of MAP_BYTES_MAX of the file and
says where the next one begins; of a batch at most RECORDS_MAX records are shown. Nothing is
written, and nothing in the files is believed but sizes. Blocking: call it in a thread.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.errors import KafkaError
from tidelog.tools.dump.dump_errors import DumpError
from tidelog.tools.dump.stored_batch import BatchWalk, DumpedRecord, StoredBatch

BATCHES_MAX: Final = 200
MAP_BYTES_MAX: Final = 32 << 20
RECORDS_MAX: Final = 100
FOLDERS_MAX: Final = 20_000

LOG_NAME: Final = re.compile(r"(\d{20})\.log")
FOLDER_NAME: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})(\.[a-zA-Z0-9]+-(delete|future|stray))?"
)


class OutsideTheFolder(Exception):
    """A path leads out of the folder that may be looked into, or to nothing in it."""


class LogFolder(NamedTuple):
    name: str
    segments: int
    size_bytes: int


class SegmentFile(NamedTuple):
    """Sizes of the files of one segment; None where a file is missing."""

    base_offset: int
    log_bytes: int
    modified_ms: int
    index_bytes: int | None
    time_index_bytes: int | None
    txn_index_bytes: int | None
    snapshot_bytes: int | None


class BatchOnMap(NamedTuple):
    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    records_count: int  # -1: the format does not say
    codec: str
    is_transactional: bool
    is_control: bool
    is_valid: bool  # the checksum holds
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    max_timestamp: int


class SegmentMap(NamedTuple):
    """`problem` says why the map ends where it does not go on."""

    size: int
    position: int
    end_position: int
    batches: list[BatchOnMap]
    problem: str | None

    @property
    def next_position(self) -> int | None:
        is_more = self.problem is None and self.end_position < self.size
        return self.end_position if is_more and self.batches else None


class BatchContent(NamedTuple):
    batch: BatchOnMap
    records: list[DumpedRecord]
    is_whole: bool
    problem: str | None


def inside(root: Path, *names: str) -> Path:
    """The path of names below the root; raises OutsideTheFolder for anything but a plain name of
    something there, links out of the root included."""
    top = root.resolve()
    path = top
    for name in names:
        if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise OutsideTheFolder(f"{name!r} is no name of a file")
        path = path / name
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise OutsideTheFolder(f"{'/'.join(names)} is not there") from None
    if not found.is_relative_to(top):
        raise OutsideTheFolder(f"{'/'.join(names)} leads out of the folder")
    return found


def log_folders(root: Path) -> list[LogFolder]:
    """Folders of partitions, by topic and partition; raises OSError."""
    own = [each.name for each in islice(os.scandir(root), FOLDERS_MAX) if _is_own_folder(each)]
    found = [match for match in map(FOLDER_NAME.fullmatch, own) if match is not None]
    found.sort(key=lambda match: (match["topic"], int(match["partition"]), match[0]))
    return [
        LogFolder(match[0], len(files), sum(size for _, size in files))
        for match in found
        for files in [_logs_in(root / match[0])]
    ]


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    """Links are not followed: they may lead anywhere."""
    return entry.is_dir(follow_symlinks=False)


def _logs_in(folder: Path) -> list[tuple[str, int]]:
    try:
        return [
            (each.name, each.stat().st_size)
            for each in os.scandir(folder)
            if LOG_NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False)
        ]
    except OSError:  # removed meanwhile, or not ours to read
        return []


def segments_of(folder: Path) -> list[SegmentFile]:
    """In the order of their offsets; raises OSError."""
    found = []
    for each in os.scandir(folder):
        match = LOG_NAME.fullmatch(each.name)
        if match is None or not each.is_file(follow_symlinks=False):
            continue
        stem = folder / match[1]
        stat = each.stat()
        found.append(
            SegmentFile(
                int(match[1]),
                stat.st_size,
                int(stat.st_mtime * 1_000),
                _size_or_none(stem.with_suffix(".index")),
                _size_or_none(stem.with_suffix(".timeindex")),
                _size_or_none(stem.with_suffix(".txnindex")),
                _size_or_none(stem.with_suffix(".snapshot")),
            )
        )
    return sorted(found)


def _size_or_none(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def map_of(
    path: Path,
    position: int = 0,
    *,
    batches_max: int = BATCHES_MAX,
    bytes_max: int = MAP_BYTES_MAX,
) -> SegmentMap:
    """The batches from `position` on, which is where a batch begins. Raises OSError."""
    whole = path.stat().st_size
    batches: list[BatchOnMap] = []
    problem = None
    with BatchWalk(str(path), bytes_max, position) as walk:
        try:
            batches.extend(_on_map(batch) for batch in islice(walk, batches_max))
        except DumpError as error:
            problem = _without_path(error, path)
        end = walk.position
    if problem is None and len(batches) < batches_max and end < whole:
        if position + bytes_max >= whole:
            problem = f"the last {whole - end} bytes are no whole batch"
        elif not batches:
            problem = f"the batch at {end} is larger than {bytes_max >> 20} MB"
    return SegmentMap(whole, position, end, batches, problem)


def content_of(path: Path, position: int) -> BatchContent | None:
    """The batch that begins at `position`; None if none does. Raises OSError and DumpError."""
    with BatchWalk(str(path), MAP_BYTES_MAX, position) as walk:
        batch = walk.next_or_none()
    if batch is None:
        return None
    records: list[DumpedRecord] = []
    problem = None
    try:
        records = list(islice(batch.records(), RECORDS_MAX + 1))
    except KafkaError as error:
        problem = error.message
    except DumpError as error:
        problem = str(error)
    shown = records[:RECORDS_MAX]
    return BatchContent(_on_map(batch), shown, len(records) == len(shown), problem)


def _on_map(batch: StoredBatch) -> BatchOnMap:
    return BatchOnMap(
        batch.position,
        batch.size,
        batch.magic,
        batch.base_offset,
        batch.last_offset,
        batch.records_count,
        batch.codec,
        batch.is_transactional,
        batch.is_control,
        batch.is_valid,
        batch.producer_id,
        batch.producer_epoch,
        batch.leader_epoch,
        batch.max_timestamp,
    )


def _without_path(error: DumpError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")
