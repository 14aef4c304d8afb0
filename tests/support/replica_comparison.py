"""Compares what brokers that have stopped hold of the same partitions, byte for byte.

The files of a partition are compared as one stretch of bytes: where segments end is each replica's
own affair (a follower appends what one answer brought, a leader what one request did). Where
records were deleted, batches that end below the log start count as gone: a replica that was built
anew has none of them, others have them until their segments go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.raw_batch import read_batches


def partition_names(data_directories: Sequence[Path]) -> list[str]:
    """All partitions that any of the brokers holds."""
    names = {
        path.name
        for directory in data_directories
        for path in directory.iterdir()
        if path.is_dir() and "-" in path.name
    }
    return sorted(names)


def log_bytes(folder: Path, start_offset: int = 0) -> bytes:
    """From the batch on that holds `start_offset`."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    if not start_offset:
        return data
    kept = (b.position for b in read_batches(data) if b.last_offset >= start_offset)
    return data[next(kept, len(data)) :]


def differences(
    data_directories: Mapping[int, Path], start_offsets: Mapping[str, int] | None = None
) -> list[str]:
    """Every partition on every broker, each against the first broker's. Start offsets, by the name
    of the partition, say where records were deleted.
    """
    found = []
    (first, reference), *others = data_directories.items()
    for name in partition_names(list(data_directories.values())):
        start_offset = (start_offsets or {}).get(name, 0)
        expected = log_bytes(reference / name, start_offset)
        for number, directory in others:
            data = log_bytes(directory / name, start_offset)
            if data != expected:
                found.append(f"{name}: {describe(first, expected, number, data)}")
    return found


def describe(one: int, data: bytes, other: int, other_data: bytes) -> str:
    lengths = range(min(len(data), len(other_data)) + 1)
    position = bisect_left(lengths, True, key=lambda n: data[:n] != other_data[:n]) - 1
    return (
        f"broker {one} has {len(data)} bytes, broker {other} {len(other_data)}; they part at byte "
        f"{position}, after {last_batch_before(data, position)}"
    )


def last_batch_before(data: bytes, position: int) -> str:
    before = [b for b in read_batches(data) if b.position + b.size_bytes <= position]
    return f"offset {before[-1].last_offset}" if before else "nothing"
