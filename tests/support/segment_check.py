"""Checks the files of one partition directory against each other, byte by byte, without tidelog's
own code.

    .log         whole v2 batches, checksums right, offsets dense from the name of the file on
    .index       8-byte entries (relative offset u32, position u32): last offset and start of a
    batch, growing .timeindex   12-byte entries (timestamp i64, relative offset u32): a batch's
    largest timestamp so far, growing

Pre-allocated index files end in zeroes, which count as free space.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.support.raw_batch import ReadBatch, read_batches

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")


class FilesDisagree(AssertionError):
    """What an index or a file name says is not what the log holds."""


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    base_offset: int
    batches: list[ReadBatch]
    offset_entries: list[tuple[int, int]]
    time_entries: list[tuple[int, int]]


def segment_paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("[0-9]*.log"))


def check_partition(directory: Path, *, indexes: bool = True) -> list[CheckedSegment]:
    segments = [check_segment(path, indexes=indexes) for path in segment_paths(directory)]
    if not segments:
        raise FilesDisagree(f"{directory} holds no segment")
    for earlier, later in itertools.pairwise(segments):
        end = earlier.batches[-1].last_offset + 1 if earlier.batches else earlier.base_offset
        if end != later.base_offset:
            raise FilesDisagree(f"{directory}: segment {later.base_offset} follows offset {end}")
    return segments


def check_segment(path: Path, *, indexes: bool = True) -> CheckedSegment:
    base_offset = int(path.stem)
    data = path.read_bytes()
    batches = read_batches(data)
    end_position = batches[-1].position + batches[-1].size_bytes if batches else 0
    if end_position != len(data):
        raise FilesDisagree(f"{path}: {len(data) - end_position} bytes after the last batch")
    next_offset = base_offset
    for found in batches:
        if found.base_offset != next_offset:
            raise FilesDisagree(f"{path}: offset {found.base_offset} where {next_offset} is due")
        next_offset = found.last_offset + 1
    offset_entries = _check_offset_index(path, base_offset, batches) if indexes else []
    time_entries = _check_time_index(path, base_offset, batches) if indexes else []
    return CheckedSegment(base_offset, batches, offset_entries, time_entries)


def _entries(path: Path, layout: struct.Struct) -> list[tuple[int, int]]:
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) - len(data) % layout.size
    rows = [(a, b) for a, b in layout.iter_unpack(data[:whole])]
    while rows and rows[-1] == (0, 0):
        rows.pop()
    return rows


def _check_offset_index(
    path: Path, base_offset: int, batches: list[ReadBatch]
) -> list[tuple[int, int]]:
    index = path.with_suffix(".index")
    by_position = {found.position: found for found in batches}
    previous = (-1, 0)
    rows = _entries(index, OFFSET_ENTRY)
    for relative_offset, position in rows:
        found = by_position.get(position)
        if found is None or found.last_offset != base_offset + relative_offset:
            raise FilesDisagree(f"{index}: entry ({relative_offset}, {position}) names no batch")
        if relative_offset <= previous[0] or position <= previous[1]:
            raise FilesDisagree(f"{index}: entry ({relative_offset}, {position}) does not grow")
        previous = (relative_offset, position)
    return rows


def _check_time_index(
    path: Path, base_offset: int, batches: list[ReadBatch]
) -> list[tuple[int, int]]:
    index = path.with_suffix(".timeindex")
    rows = _entries(index, TIME_ENTRY)
    first_with: dict[int, int] = {}
    largest = -1
    for found in batches:
        if found.max_timestamp > largest:
            largest = found.max_timestamp
            first_with[largest] = found.last_offset
    previous = (-1, -1)
    for timestamp, relative_offset in rows:
        if first_with.get(timestamp) != base_offset + relative_offset:
            raise FilesDisagree(f"{index}: entry ({timestamp}, {relative_offset}) is not so")
        if timestamp <= previous[0] or relative_offset <= previous[1]:
            raise FilesDisagree(f"{index}: entry ({timestamp}, {relative_offset}) does not grow")
        previous = (timestamp, relative_offset)
    return rows


def recovery_points(log_dir: Path) -> dict[str, int]:
    """`recovery-point-offset-checkpoint`: directory name to the offset below which all is
    flushed."""
    path = log_dir / "recovery-point-offset-checkpoint"
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    rows = [line.rsplit(" ", 2) for line in lines[2:]]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}
