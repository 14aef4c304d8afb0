"""Files given to `tidelog dump-log`, each shown by what its name says it is.

A `.log` file, or a KRaft snapshot (`.checkpoint`), is shown batch by batch and record by record.
Offset and time indexes are compared with the segment of the same name. The rest of an index that
was stretched and not trimmed, as a killed broker leaves it, is zeros; the first such entry ends it.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TextIO

from tidelog.errors import KafkaError
from tidelog.log.producer_snapshots import CorruptSnapshot, decode_snapshot
from tidelog.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from tidelog.log.segment.time_index import ENTRY as TIME_ENTRY
from tidelog.log.segment.transaction_index import ENTRY as TXN_ENTRY
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.tools.dump.decoders import Decoder
from tidelog.tools.dump.dump_errors import Disagreements, DumpError, NothingToShow
from tidelog.tools.dump.output import Output
from tidelog.tools.dump.stored_batch import BatchWalk, StoredBatch

LOG_SUFFIXES: Final = (".log", ".checkpoint")
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
PROGRESS_FROM_BYTES: Final = 32 << 20
PROGRESS_REDRAW_S: Final = 0.1
PROGRESS_WIDTH: Final = 30
REBUILT: Final = "a broker rebuilds it at its next start, tidelog repair-log does it now"


class LogOptions(NamedTuple):
    deep: bool
    decoder: Decoder | None  # shows contents
    max_bytes: int | None


class IndexOptions(NamedTuple):
    sanity_only: bool
    verify_only: bool
    max_message_bytes: int


class DumpOptions(NamedTuple):
    log: LogOptions
    indexes: IndexOptions


def dump_files(
    paths: Sequence[str], options: DumpOptions, output: Output, progress: Progress
) -> bool:
    """Whether every file could be read to its end; what could not is said on standard error.

    Files of other names are ignored, as Kafka does; NothingToShow if all of them are.
    """
    disagreements = Disagreements()
    complete, is_any_known = True, False
    for path in paths:
        output.begin_file(path)
        try:
            is_any_known |= _dump(path, options, output, disagreements, progress)
        except BrokenPipeError:  # of the output, not of the file
            raise
        except (DumpError, OSError) as problem:
            is_any_known = True
            output.flush()
            progress.end()
            print(f"tidelog: error: {_text(problem)}", file=sys.stderr)
            complete = False
    output.close()
    progress.end()
    for line in disagreements.lines():
        print(line, file=sys.stderr)
    if not is_any_known:
        raise NothingToShow("no segment, index or snapshot was given: nothing was shown")
    return complete


def _dump(
    path: str,
    options: DumpOptions,
    output: Output,
    disagreements: Disagreements,
    progress: Progress,
) -> bool:
    """False if the name says that it is none of the files that can be shown."""
    suffix = os.path.splitext(path)[1]
    if suffix in LOG_SUFFIXES:
        LogDump(path, options.log, output, disagreements, progress).run()
    elif suffix == ".index":
        dump_offset_index(path, options.indexes, output, disagreements)
    elif suffix == ".timeindex":
        dump_time_index(path, options.indexes, output, disagreements)
    elif suffix == ".snapshot":
        dump_snapshot(path, output)
    elif suffix == ".txnindex":
        dump_txn_index(path, output)
    else:
        output.flush()
        print(f"Ignoring unknown file {path}", file=sys.stderr)
        return False
    return True


def _text(problem: DumpError | OSError) -> str:
    if isinstance(problem, OSError) and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


class LogDump:
    """One file, once."""

    def __init__(
        self,
        path: str,
        options: LogOptions,
        output: Output,
        disagreements: Disagreements,
        progress: Progress,
    ) -> None:
        self._path = path
        self._options = options
        self._output = output
        self._disagreements = disagreements
        self._progress = progress
        self._last_offset = -1
        self._unreadable: list[str] = []

    def run(self) -> None:
        self._output.note(self._heading())
        with BatchWalk(self._path, self._options.max_bytes) as walk:
            for batch in walk:
                self._output.batch(batch)
                if self._options.deep:
                    self._show_records(batch)
                self._progress.at(self._path, walk.position, walk.size)
            trailing = walk.size - walk.position
        if trailing and self._options.max_bytes is None:
            name = os.path.basename(self._path)
            self._output.note(f"Found {trailing} invalid bytes at the end of {name}")
        if self._unreadable:
            raise DumpError("; ".join(self._unreadable))

    def _heading(self) -> str:
        name = os.path.basename(self._path)
        stem, suffix = os.path.splitext(name)
        if suffix == ".log":
            return f"Log starting offset: {base_offset_of(self._path)}"
        if stem == "bootstrap":
            return "KRaft bootstrap snapshot"
        offset, _, epoch = stem.partition("-")
        if not (offset.isdecimal() and epoch.isdecimal()):
            raise DumpError(f"{self._path}: a snapshot is named <offset>-<epoch>.checkpoint")
        return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"

    def _show_records(self, batch: StoredBatch) -> None:
        decoder = self._options.decoder
        try:
            for record in batch.records():
                if self._last_offset not in (-1, record.offset - 1):
                    self._disagreements.gap(self._path, self._last_offset, record.offset)
                self._last_offset = record.offset
                shown = None if decoder is None or batch.is_control else decoder(record)
                self._output.record(batch, record, shown)
        except (KafkaError, DumpError) as problem:
            text = problem.message if isinstance(problem, KafkaError) else problem
            self._unreadable.append(
                f"{self._path}: the records at position {batch.position} cannot be read: {text}"
            )


def base_offset_of(path: str) -> int:
    """By the name of a segment's file."""
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdecimal():
        raise DumpError(
            f"{path}: a segment's files are named by its base offset, as {0:020d}.log; "
            "copy or rename it so"
        )
    return int(digits)


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


class Progress:
    """How far a long file has been read. Silent for short files, and where `stream` is no
    terminal."""

    def __init__(self, stream: TextIO | None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._now = now
        self._last_s = float("-inf")
        self._is_drawn = False

    def at(self, path: str, position: int, size: int) -> None:
        if self._stream is None or size < PROGRESS_FROM_BYTES:
            return
        now = self._now()
        if now - self._last_s < PROGRESS_REDRAW_S and position < size:
            return
        self._last_s = now
        self._is_drawn = True
        filled = PROGRESS_WIDTH * position // size
        bar = "#" * filled + "." * (PROGRESS_WIDTH - filled)
        percent = 100 * position // size
        self._stream.write(f"\r[{bar}] {percent:3d} %  {position >> 20} MB  {path}\x1b[K")
        self._stream.flush()

    def end(self) -> None:
        if self._is_drawn and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False
