"""The first rows of an index or a snapshot as plain data, for pages.

    rows, is_whole, disagreements = collected(path, rows_max)

They are what `tidelog dump-log` shows of the file, compared with the segment beside it as far as
they go. A file of more than FILE_BYTES_MAX is not read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.log.producer_snapshots import SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.tools.dump.dump_errors import Disagreements, DumpError
from tidelog.tools.dump.dump_log_segments import (
    IndexOptions,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_txn_index,
)
from tidelog.tools.dump.output import Decoded
from tidelog.tools.dump.stored_batch import DumpedRecord, StoredBatch

FILE_BYTES_MAX: Final = 64 << 20
MESSAGE_BYTES_MAX: Final = 5 << 20

Row = dict[str, int]


class Collected(NamedTuple):
    rows: list[Row]
    is_whole: bool
    notes: list[str]
    disagreements: list[str]


class Enough(Exception):
    """There are as many rows as are wanted."""


class CollectedOutput:
    """Of one file of entries. Segments are not collected."""

    def __init__(self, rows_max: int) -> None:
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self._rows_max = rows_max

    def _add(self, row: Row) -> None:
        if len(self.rows) == self._rows_max:
            raise Enough
        self.rows.append(row)

    def begin_file(self, path: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def batch(self, batch: StoredBatch) -> None:
        raise AssertionError("a segment is no file of entries")

    def record(self, batch: StoredBatch, record: DumpedRecord, decoded: Decoded | None) -> None:
        raise AssertionError("a segment is no file of entries")

    def offset_entry(self, offset: int, position: int) -> None:
        self._add({"offset": offset, "position": position})

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._add({"timestamp": timestamp, "offset": offset})

    def aborted_txn(self, version: int, aborted: AbortedTxn) -> None:
        self._add({"version": version, **aborted._asdict()})

    def producer(self, row: SnapshotRow) -> None:
        self._add(row._asdict())

    def flush(self) -> None: ...

    def close(self) -> None: ...


def collected(path: str, rows_max: int) -> Collected:
    """Raises DumpError and OSError."""
    suffix = os.path.splitext(path)[1]
    output, disagreements = CollectedOutput(rows_max), Disagreements()
    options = IndexOptions(
        sanity_only=False, verify_only=False, max_message_bytes=MESSAGE_BYTES_MAX
    )
    ways: dict[str, Callable[[], None]] = {
        ".index": lambda: dump_offset_index(path, options, output, disagreements),
        ".timeindex": lambda: dump_time_index(path, options, output, disagreements),
        ".txnindex": lambda: dump_txn_index(path, output),
        ".snapshot": lambda: dump_snapshot(path, output),
    }
    if suffix not in ways:
        raise DumpError(f"{path} is no index and no snapshot")
    size = os.stat(path).st_size
    if size > FILE_BYTES_MAX:
        raise DumpError(f"{path}: {size} bytes are more than is read here")
    is_whole = True
    try:
        ways[suffix]()
    except Enough:
        is_whole = False
    return Collected(output.rows, is_whole, output.notes, list(disagreements.lines()))
