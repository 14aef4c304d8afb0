"""What a dump stumbles over: errors that end the dump of a file, and disagreements between files.

Disagreements are collected and printed at the end, in Kafka's words and order: those of offset
indexes and logs last found first, those of time indexes as found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


class DumpError(Exception):
    """A file that cannot be shown, or not to its end; the text names it."""


class NothingToShow(DumpError):
    """None of the files has a name that says what it is."""


class Disagreements:
    def __init__(self) -> None:
        self._index: dict[str, list[tuple[int, int]]] = {}
        self._gaps: dict[str, list[tuple[int, int]]] = {}
        self._timestamps: dict[str, list[tuple[int, int]]] = {}
        self._disorder: dict[str, list[tuple[int, int]]] = {}
        self._lost: dict[str, list[tuple[int, int]]] = {}

    def index_offset(self, path: str, index_offset: int, log_offset: int) -> None:
        """An offset index entry leads to a batch that ends elsewhere."""
        _note(self._index, path, (index_offset, log_offset))

    def gap(self, path: str, offset: int, next_offset: int) -> None:
        """Records in a log that do not follow each other; usual where compaction has been."""
        _note(self._gaps, path, (offset, next_offset))

    def timestamp(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        _note(self._timestamps, path, (index_timestamp, log_timestamp))

    def timestamp_order(self, path: str, timestamp: int, previous: int) -> None:
        _note(self._disorder, path, (timestamp, previous))

    def lost_offset(self, path: str, index_offset: int, log_offset: int) -> None:
        """A time index entry names an offset at which no batch ends."""
        _note(self._lost, path, (index_offset, log_offset))

    def lines(self) -> Iterator[str]:
        for path, pairs in self._index.items():
            yield f"Mismatches in :{path}"
            for first, second in reversed(pairs):
                yield f"  Index offset: {first}, log offset: {second}"
        for path, pairs in self._timestamps.items():
            yield f"Found timestamp mismatch in :{path}"
            for first, second in pairs:
                yield f"  Index timestamp: {first}, log timestamp: {second}"
        for path, pairs in self._disorder.items():
            yield f"Found out of order timestamp in :{path}"
            for first, second in pairs:
                yield f"  Index timestamp: {first}, Previously indexed timestamp: {second}"
        for pairs in self._lost.values():
            yield "The following indexed offsets are not found in the log."
            for first, second in pairs:
                yield f"Indexed offset: {first}, found log offset: {second}"
        for path, pairs in self._gaps.items():
            yield f"Non-consecutive offsets in {path}"
            for first, second in reversed(pairs):
                yield f"  {first} is followed by {second}"


def _note(notes: dict[str, list[tuple[int, int]]], path: str, pair: tuple[int, int]) -> None:
    notes.setdefault(os.path.abspath(path), []).append(pair)
