"""Offset and time index of a segment against its batches, entry by entry.

    .index        an entry is the last offset of the batch at its position; both grow
    .timeindex    an entry is the largest timestamp so far and the last offset of the first batch
                  that has it; both grow. The last entry of a segment that is closed is the largest
                  timestamp of all

An index that was stretched and not trimmed ends in zeros; that is how a kill leaves the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.log.segment.offset_index import ENTRY as OFFSET_ENTRY
from tidelog.log.segment.time_index import ENTRY as TIME_ENTRY
from tidelog.tools.verify.finding import Finding, Kind, Report
from tidelog.tools.verify.good_batches import GoodBatch

REBUILT = "it is rebuilt from the segment"


class SegmentFacts(NamedTuple):
    """What decides how strict the checks of a segment's indexes are."""

    stem: str  # path without suffix
    base_offset: int
    size: int
    is_closed: bool  # not the last one of a log whose broker was killed


class OffsetIndexCheck:
    def __init__(self, facts: SegmentFacts, report: Report) -> None:
        self._path = facts.stem + ".index"
        self._base_offset = facts.base_offset
        self._report = report
        self._entries = _read_entries(self._path, OFFSET_ENTRY, facts, report)
        self._next = next(self._entries, None)
        self._last_offset = -1
        self.is_bad = False

    def batch(self, batch: GoodBatch) -> None:
        while self._next is not None and not self.is_bad and self._next[1] <= batch.position:
            relative, position = self._next
            offset = self._base_offset + relative
            if position != batch.position or offset != batch.last_offset:
                self._say(f"the entry ({offset}, {position}) leads to no batch that ends there")
            self._next = next(self._entries, None)

    def finish(self, *, log_is_whole: bool) -> None:
        if self._next is not None and not self.is_bad and log_is_whole:
            offset = self._base_offset + self._next[0]
            self._say(f"the entry ({offset}, {self._next[1]}) lies behind the last batch")

    def _say(self, problem: str) -> None:
        self.is_bad = True
        self._report(Finding(Kind.LOG, self._path, problem, REBUILT))


class TimeIndexCheck:
    def __init__(self, facts: SegmentFacts, report: Report) -> None:
        self._path = facts.stem + ".timeindex"
        self._facts = facts
        self._report = report
        self._entries = _read_entries(self._path, TIME_ENTRY, facts, report)
        self._next = next(self._entries, None)
        self._largest = -1
        self._last_timestamp = -1
        self.is_bad = False

    def batch(self, batch: GoodBatch) -> None:
        is_new = batch.max_timestamp > self._largest
        self._largest = max(self._largest, batch.max_timestamp)
        while self._next is not None and not self.is_bad:
            timestamp, relative = self._next
            offset = self._facts.base_offset + relative
            if offset > batch.last_offset:
                return
            if offset != batch.last_offset or not is_new or timestamp != batch.max_timestamp:
                self._say(f"the entry ({timestamp}, {offset}) is not what the segment holds")
            self._last_timestamp = timestamp
            self._next = next(self._entries, None)

    def finish(self, *, log_is_whole: bool) -> None:
        if self.is_bad or not log_is_whole:
            return
        if self._next is not None:
            self._say(f"the entry {self._next} lies behind the last batch")
        elif self._facts.is_closed and self._last_timestamp != self._largest:
            self._say(
                f"it ends with timestamp {self._last_timestamp}, "
                f"but the segment's largest is {self._largest}"
            )

    def _say(self, problem: str) -> None:
        self.is_bad = True
        self._report(Finding(Kind.LOG, self._path, problem, REBUILT))


def _read_entries(
    path: str, layout: Struct, facts: SegmentFacts, report: Report
) -> Iterator[tuple[int, int]]:
    """Without the zeros of an index that was not trimmed; says at once what the size tells."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if facts.size:
            report(Finding(Kind.LOG, path, "it is missing", REBUILT))
        return iter(())
    filled = len(content.rstrip(b"\0"))
    used = content[: -(-filled // layout.size) * layout.size]
    if len(used) < len(content) and (facts.is_closed or len(content) % layout.size):
        zeros = len(content) - len(used)
        report(Finding(Kind.LOG, path, f"it ends with {zeros} zero bytes", REBUILT))
    elif len(content) % layout.size:
        problem = f"{os.path.getsize(path)} bytes are no multiple of {layout.size}"
        report(Finding(Kind.LOG, path, problem, REBUILT))
    whole = used[: len(used) - len(used) % layout.size]
    return (row for row in layout.iter_unpack(whole))
