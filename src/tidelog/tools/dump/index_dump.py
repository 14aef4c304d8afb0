"""The files beside a segment: offset, time and transaction index, and producer snapshots.

Indexes are compared with the segment of the same name. The rest of an index that was stretched and
not trimmed, as a killed broker leaves it, is zeros; the first such entry ends it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import NamedTuple

from tidelog.errors import KafkaError
from tidelog.log.offset_index import ENTRY as OFFSET_ENTRY
from tidelog.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from tidelog.log.time_index import ENTRY as TIME_ENTRY
from tidelog.log.txn_index import ENTRY as TXN_ENTRY
from tidelog.log.txn_index import AbortedTxn
from tidelog.tools.dump.log_dump import base_offset_of
from tidelog.tools.dump.output import Output
from tidelog.tools.dump.problems import Disagreements, DumpError
from tidelog.tools.dump.stored_batch import BatchWalk, StoredBatch

NO_OFFSET = -1
NO_TIMESTAMP = -1


class IndexOptions(NamedTuple):
    sanity_only: bool
    verify_only: bool
    max_message_bytes: int


def dump_offset_index(
    path: str, options: IndexOptions, output: Output, disagreements: Disagreements
) -> None:
    base_offset = base_offset_of(path)
    log = _beside(path, ".log")
    content = _read(path)
    entries = _offset_entries(content, base_offset)
    if not entries:
        output.note(f"{path} is empty.")
        return
    if options.sanity_only:
        _require_whole(path, content, OFFSET_ENTRY.size)
        if entries[-1][0] < base_offset:
            raise DumpError(f"{path}: its last entry has offset {entries[-1][0]}; {REBUILT}")
        output.note(f"{path} passed sanity check.")
        return
    for offset, position in _used(entries, base_offset):
        batch = _batch_at(log, position, options.max_message_bytes)
        log_offset = NO_OFFSET if batch is None else batch.last_offset
        if log_offset != offset:
            disagreements.index_offset(path, offset, log_offset)
        if not options.verify_only:
            output.offset_entry(offset, position)


REBUILT = "a broker rebuilds it at its next start, tidelog repair-log does it now"


def dump_time_index(
    path: str, options: IndexOptions, output: Output, disagreements: Disagreements
) -> None:
    base_offset = base_offset_of(path)
    log = _beside(path, ".log")
    offset_entries = _offset_entries(_read(_beside(path, ".index")), base_offset)
    content = _read(path)
    whole = len(content) - len(content) % TIME_ENTRY.size
    entries = [
        (base_offset + relative, timestamp)
        for timestamp, relative in TIME_ENTRY.iter_unpack(content[:whole])
    ]
    if options.sanity_only:
        _require_whole(path, content, TIME_ENTRY.size)
        if entries and (entries[-1][1] < entries[0][1] or entries[-1][0] < base_offset):
            raise DumpError(f"{path}: its last entry lies before its first; {REBUILT}")
        output.note(f"{path} passed sanity check.")
        return
    positions = _used(offset_entries, base_offset)
    previous = NO_TIMESTAMP
    for offset, timestamp in _used(entries, base_offset):
        batch = _batch_with(log, positions, offset)
        if batch is None or batch.last_offset != offset:
            found = NO_OFFSET if batch is None else batch.last_offset
            disagreements.lost_offset(path, offset, found)
        else:
            largest = _largest_timestamp(log, batch)
            if largest != timestamp:
                disagreements.timestamp(path, timestamp, largest)
            if previous >= timestamp:
                disagreements.timestamp_order(path, timestamp, previous)
        if not options.verify_only:
            output.time_entry(timestamp, offset)
        previous = timestamp


def dump_txn_index(path: str, output: Output) -> None:
    content = _read(path)
    _require_whole(path, content, TXN_ENTRY.size)
    for version, *fields in TXN_ENTRY.iter_unpack(content):
        output.aborted_txn(version, AbortedTxn(*fields))


def dump_snapshot(path: str, output: Output) -> None:
    try:
        rows = decode_snapshot(_read(path))
    except CorruptSnapshot as problem:
        raise DumpError(
            f"{path}: {problem}; a broker takes an older one and reads the log from there"
        ) from problem
    for row in rows:
        output.producer(row)


def _offset_entries(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    whole = len(content) - len(content) % OFFSET_ENTRY.size
    return [
        (base_offset + relative, position)
        for relative, position in OFFSET_ENTRY.iter_unpack(content[:whole])
    ]


def _used(entries: list[tuple[int, int]], base_offset: int) -> list[tuple[int, int]]:
    for number, entry in enumerate(entries):
        if number and entry[0] == base_offset:
            return entries[:number]
    return entries


def _batch_at(log: str, position: int, max_message_bytes: int) -> StoredBatch | None:
    with BatchWalk(log, max_message_bytes, position) as walk:
        try:
            return walk.next_or_none()
        except DumpError:
            return None


def _batch_with(log: str, positions: list[tuple[int, int]], offset: int) -> StoredBatch | None:
    """The first batch that ends at or after `offset`."""
    number = bisect_right(positions, offset, key=lambda entry: entry[0])
    position = positions[number - 1][1] if number else 0
    with BatchWalk(log, None, position) as walk:
        for batch in walk:
            if batch.last_offset >= offset:
                return batch
    return None


def _largest_timestamp(log: str, batch: StoredBatch) -> int:
    try:
        return max((record.timestamp for record in batch.records()), default=NO_TIMESTAMP)
    except KafkaError as problem:
        raise DumpError(
            f"{log}: the records at position {batch.position} cannot be read: {problem.message}"
        ) from problem


def _beside(path: str, suffix: str) -> str:
    """The file of another kind of the same segment, which must be there."""
    stem = os.path.basename(path).partition(".")[0]
    other = os.path.join(os.path.dirname(path), stem + suffix)
    if not os.path.exists(other):
        raise DumpError(f"{path}: {other} must lie beside it, and is not there")
    return other


def _require_whole(path: str, content: bytes, entry_bytes: int) -> None:
    if len(content) % entry_bytes:
        raise DumpError(f"{path}: {len(content)} bytes are no multiple of {entry_bytes}; {REBUILT}")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
