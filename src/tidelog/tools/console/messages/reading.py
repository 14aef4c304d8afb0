"""A page of records: the oldest from a place on, or the newest before one, filtered or not.

    page = await read_page(source, cursor, wanted, limits, budget)

`page.cursor` has what is left. Who reads on with it gets every match exactly once, however many
pages that takes: a page ends at a record, never between two that it could lose. It ends when it is
full (records or bytes), when the time is over, or when nothing is left.

Oldest first, all partitions are read at once. Newest first, a window of offsets before the end of
each partition is read, forward as logs are, and its last matches are taken; then a larger window
before it. A window that is not finished in time counts for nothing, so windows begin small.

`Source` is what is needed of a cluster; `source.TopicSource` is the real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, Protocol

from tidelog.client.errors import CorruptRecordsFetched
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Cursor, Direction, Span
from tidelog.tools.console.messages.filtering import RecordFilter
from tidelog.tools.console.messages.scanning import (
    Budget,
    Stretch,
    Taken,
    bytes_of,
    merged_newest,
    merged_oldest,
)

POLL_S: Final = 0.5
FIRST_RECORDS_MAX: Final = 20_000  # of all first windows together
WINDOW_OFFSETS_MAX: Final = 500_000
WINDOW_GROWTH: Final = 8
FIRST_WINDOW_PART: Final = 0.25  # of the time


class Source(Protocol):
    """One topic, read in one task."""

    async def bounds(self) -> dict[int, Span]:
        """What can be read of each partition now."""

    def seek(self, starts: Mapping[int, int]) -> None:
        """Reads these partitions from these offsets on, and no others."""

    def leave(self, partitions: Iterable[int]) -> None:
        """Nothing more of these, until they are sought again."""

    async def poll(self, seconds: float) -> list[ConsumerRecord]: ...

    def positions(self) -> dict[int, int]:
        """Of each partition the offset before which nothing more comes."""


class Ended(Enum):
    DONE = "everything was read"
    FULL = "the page is full"
    LATE = "the time for one page is over"
    UNREADABLE = "records cannot be read"


class Limits(NamedTuple):
    records: int
    bytes: int = 8 << 20


class Page(NamedTuple):
    records: list[ConsumerRecord]
    cursor: Cursor
    ended: Ended
    problem: str = ""
    lost_offsets: int = 0  # that the cursor had left, and the log has no more


def first_cursor(direction: Direction, spans: Mapping[int, Span]) -> Cursor:
    left = {partition: span for partition, span in spans.items() if span.size}
    total = sum(span.size for span in left.values())
    return Cursor(direction, left, total, partitions_total=len(spans))


async def read_page(
    source: Source, cursor: Cursor, wanted: RecordFilter, limits: Limits, budget: Budget
) -> Page:
    cursor, lost = within(cursor, await source.bounds())
    read = _read_oldest if cursor.direction is Direction.OLDEST_FIRST else _read_newest
    page = await read(source, cursor, wanted, limits, budget)
    return page._replace(lost_offsets=lost)


def within(cursor: Cursor, bounds: Mapping[int, Span]) -> tuple[Cursor, int]:
    """What the logs still hold of it, and how many offsets they do not hold any more."""
    left: dict[int, Span] = {}
    lost = 0
    for partition, span in cursor.left.items():
        log = bounds.get(partition, Span(0, 0))
        start, stop = max(span.start, log.start), min(span.stop, log.stop)
        if start < stop:
            left[partition] = Span(start, stop)
        lost += span.size - max(0, stop - start)
    return replace(cursor, left=left), lost


# Oldest first


async def _read_oldest(
    source: Source, cursor: Cursor, wanted: RecordFilter, limits: Limits, budget: Budget
) -> Page:
    stretches = {partition: Stretch(partition, span) for partition, span in cursor.left.items()}
    problem = ""
    try:
        await _read_on(source, stretches, wanted, limits, budget)
    except CorruptRecordsFetched as corrupt:
        problem = str(corrupt)
    taken = merged_oldest(stretches.values(), limits.records, limits.bytes)
    after = _advanced(cursor, taken)
    if after.is_done:
        return Page(taken.records, after, Ended.DONE)
    if len(taken.records) >= limits.records:
        return Page(taken.records, after, Ended.FULL)
    if problem:
        return Page(taken.records, after, Ended.UNREADABLE, problem)
    return Page(taken.records, after, Ended.LATE if budget.is_spent else Ended.FULL)


async def _read_on(
    source: Source,
    stretches: Mapping[int, Stretch],
    wanted: RecordFilter,
    limits: Limits,
    budget: Budget,
) -> None:
    """Until all are done or the page is full. Without a filter every partition may fill the page
    alone, because only then is it known which records are the oldest."""
    reading = {partition for partition, stretch in stretches.items() if not stretch.is_done}
    source.seek({partition: stretches[partition].position for partition in reading})
    while reading and not budget.is_spent and not _is_full(stretches, wanted, limits):
        records = await source.poll(min(POLL_S, budget.left_s))
        left = _offer(stretches, records, reading, wanted, limits.records, budget)
        if left and not budget.is_spent:
            _pass(source, stretches, left)
        done = {each for each in reading if each not in left or stretches[each].is_done}
        if done:
            reading -= done
            source.leave(done)


def _is_full(stretches: Mapping[int, Stretch], wanted: RecordFilter, limits: Limits) -> bool:
    if sum(stretch.found_bytes for stretch in stretches.values()) >= limits.bytes:
        return True
    if wanted.accepts_all:
        return False
    return sum(len(stretch.found) for stretch in stretches.values()) >= limits.records


def _offer(
    stretches: Mapping[int, Stretch],
    records: list[ConsumerRecord],
    reading: set[int],
    wanted: RecordFilter,
    limit: int,
    budget: Budget,
) -> set[int]:
    """Gives each stretch its records; the partitions that go on."""
    going_on = set(reading)
    at = 0
    while at < len(records) and going_on:
        partition = records[at].partition
        end = at + 1
        while end < len(records) and records[end].partition == partition:
            end += 1
        if partition in going_on:
            own = records if end - at == len(records) else records[at:end]
            if not stretches[partition].offer(own, wanted, limit, budget):
                going_on.discard(partition)
                if budget.is_spent:
                    return set()
        at = end
    return going_on


def _pass(source: Source, stretches: Mapping[int, Stretch], going_on: set[int]) -> None:
    """Over what is no record: markers of transactions, aborted ones, what compaction removed."""
    positions = source.positions()
    for partition in going_on:
        stretches[partition].passed(positions.get(partition, 0))


# Newest first


async def _read_newest(
    source: Source, cursor: Cursor, wanted: RecordFilter, limits: Limits, budget: Budget
) -> Page:
    found: list[ConsumerRecord] = []
    begun = cursor
    first_size = size = _first_window(cursor, wanted, limits)
    speed = 0.0  # offsets a second
    room = limits.bytes
    while not cursor.is_done and len(found) < limits.records and room > 0:
        if speed:
            affordable = int(speed * budget.left_s / 2 / len(cursor.left))
            # A small window is worth its time only to a page that would have nothing else.
            if cursor is not begun and affordable < max(1, min(first_size, size) // 8):
                return Page(found, cursor, Ended.LATE)
            size = max(1, min(size, affordable))
        windows = {
            partition: Stretch(
                partition, Span(max(span.start, span.stop - size), span.stop), keeps_last=True
            )
            for partition, span in cursor.left.items()
        }
        limit = limits.records - len(found)
        began_s = budget.left_s
        time = budget if speed else budget.part(FIRST_WINDOW_PART)
        try:
            await _read_windows(source, windows, wanted, Limits(limit, room), time)
        except CorruptRecordsFetched as corrupt:
            return Page(found, cursor, Ended.UNREADABLE, str(corrupt))
        dealt = sum(window.position - window.span.start for window in windows.values())
        speed = dealt / max(began_s - budget.left_s, 0.001)
        if not all(window.is_done for window in windows.values()):
            if not dealt or budget.is_spent:
                return Page(found, cursor, Ended.LATE)
            first_size = size = max(1, size // WINDOW_GROWTH)
            continue
        floors = {partition: span.start for partition, span in cursor.left.items()}
        taken = merged_newest(windows.values(), floors, limit, room)
        found += taken.records
        room -= sum(map(bytes_of, taken.records))
        cursor = _advanced(cursor, taken)
        size = min(size * WINDOW_GROWTH, WINDOW_OFFSETS_MAX)
    return Page(found, cursor, Ended.DONE if cursor.is_done else Ended.FULL)


def _first_window(cursor: Cursor, wanted: RecordFilter, limits: Limits) -> int:
    """Without a filter, as much as may be taken of one partition alone."""
    most = max(1, FIRST_RECORDS_MAX // max(1, len(cursor.left)))
    return min(limits.records, most) if wanted.accepts_all else most


async def _read_windows(
    source: Source,
    windows: Mapping[int, Stretch],
    wanted: RecordFilter,
    limits: Limits,
    budget: Budget,
) -> None:
    reading = set(windows)
    source.seek({partition: window.position for partition, window in windows.items()})
    while reading and not budget.is_spent:
        records = await source.poll(min(POLL_S, budget.left_s))
        left = _offer(windows, records, reading, wanted, limits.records, budget)
        _keep_within(windows, limits.bytes)
        if left and not budget.is_spent:
            _pass(source, windows, left)
        done = {each for each in reading if windows[each].is_done}
        if done:
            reading -= done
            source.leave(done)


def _keep_within(windows: Mapping[int, Stretch], bytes_max: int) -> None:
    """Drops the first matches of the windows that hold most; one match always stays."""
    held = sum(window.found_bytes for window in windows.values())
    while held > bytes_max:
        largest = max(windows.values(), key=lambda window: window.found_bytes)
        if len(largest.found) < 2:
            return
        before = largest.found_bytes
        largest.drop_first()
        held -= before - largest.found_bytes


def _advanced(cursor: Cursor, taken: Taken) -> Cursor:
    return replace(cursor, left=taken.left, records=cursor.records + taken.records_done)
