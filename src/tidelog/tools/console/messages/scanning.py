"""Records in, matches out: how far a reading has come in each partition. No I/O.

A `Stretch` is what is to be read of one partition. Records are offered to it in order; `position`
is the first offset that is not dealt with, so a reading that ends anywhere goes on exactly there.
It ends early when the `Budget` is spent or it has as many matches as are wanted; at least one
record is dealt with each time, so that a reading which goes on and on comes to its end.

`merged_oldest` and `merged_newest` take the matches of all partitions in the order of their
timestamps, but within a partition in the order of offsets, so that what is left of it is again one
stretch.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.cursor import Span
from tidelog.tools.console.messages.filtering import RecordFilter

RECORD_BYTES: Final = 200  # what a record takes beside its bytes


class Budget:
    """The time that one reading may take."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._ends_at = monotonic() + seconds

    def renewed(self) -> Budget:
        """As much again, from now on."""
        return Budget(self._seconds, self._monotonic)

    def part(self, fraction: float) -> Budget:
        """So much of what is left."""
        return Budget(self.left_s * fraction, self._monotonic)

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_at - self._monotonic())

    @property
    def is_spent(self) -> bool:
        return self._monotonic() >= self._ends_at


def bytes_of(record: ConsumerRecord) -> int:
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class Stretch:
    """`keeps_last`: of more matches than are wanted the last ones stay, not the first."""

    def __init__(self, partition: int, span: Span, *, keeps_last: bool = False) -> None:
        self.partition = partition
        self.span = span
        self.position = span.start
        self.found: deque[ConsumerRecord] = deque()
        self.found_at: deque[int] = deque()  # of each, how many records were dealt with before
        self.found_bytes = 0
        self.has_dropped = False
        self.records = 0  # dealt with
        self._keeps_last = keeps_last

    @property
    def is_done(self) -> bool:
        return self.position >= self.span.stop

    def offer(
        self, records: Sequence[ConsumerRecord], wanted: RecordFilter, limit: int, budget: Budget
    ) -> bool:
        """Whether all of them were dealt with; not if there are enough matches or it is late."""
        start = bisect_left(records, self.position, key=_offset_of)
        end = bisect_left(records, self.span.stop, start, key=_offset_of)
        own = records[start:end]
        if wanted.sieve is None:
            candidates: Iterable[int] = range(len(own))
        else:
            sieve = wanted.sieve
            candidates = [index for index, record in enumerate(own) if sieve(record)]
        before = self.records
        for index in candidates:
            record = own[index]
            self.position = record.offset + 1
            self.records = before + index + 1
            if wanted.accepts(record):
                self._keep(record, limit)
                if not self._keeps_last and len(self.found) >= limit:
                    return False
            if budget.is_spent:
                return False
        self.records = before + len(own)
        if end < len(records):
            self.position = self.span.stop
        elif own:
            self.position = own[-1].offset + 1
        return True

    def passed(self, position: int) -> None:
        """Nothing comes any more before this offset."""
        self.position = max(self.position, min(position, self.span.stop))

    def _keep(self, record: ConsumerRecord, limit: int) -> None:
        self.found.append(record)
        self.found_at.append(self.records - 1)
        self.found_bytes += bytes_of(record)
        if self._keeps_last and len(self.found) > limit:
            self.drop_first()

    def drop_first(self) -> None:
        self.found_bytes -= bytes_of(self.found.popleft())
        self.found_at.popleft()
        self.has_dropped = True


def _offset_of(record: ConsumerRecord) -> int:
    return record.offset


class Taken(NamedTuple):
    records: list[ConsumerRecord]
    left: dict[int, Span]
    records_done: int  # dealt with, and not left


def merged_oldest(stretches: Iterable[Stretch], limit: int, bytes_max: int) -> Taken:
    """The first matches, and what is left: also the matches that were not taken."""
    all_of = list(stretches)
    records, taken = _merge(all_of, limit, bytes_max, is_newest=False)
    left: dict[int, Span] = {}
    done = 0
    for stretch in all_of:
        count = taken.get(stretch.partition, 0)
        start, number = stretch.position, stretch.records
        if count < len(stretch.found):
            start, number = stretch.found[count].offset, stretch.found_at[count]
        if start < stretch.span.stop:
            left[stretch.partition] = Span(start, stretch.span.stop)
        done += number
    return Taken(records, left, done)


def merged_newest(
    stretches: Iterable[Stretch], floors: Mapping[int, int], limit: int, bytes_max: int
) -> Taken:
    """The last matches of stretches that are done; `floors` is where each partition begins."""
    all_of = list(stretches)
    records, taken = _merge(all_of, limit, bytes_max, is_newest=True)
    left: dict[int, Span] = {}
    done = 0
    for stretch in all_of:
        count = taken.get(stretch.partition, 0)
        stop, number = stretch.span.start, stretch.records
        if count < len(stretch.found) or stretch.has_dropped:
            stop, number = stretch.span.stop, 0
            if count:
                stop = stretch.found[-count].offset
                number = stretch.records - stretch.found_at[-count]
        floor = floors[stretch.partition]
        if stop > floor:
            left[stretch.partition] = Span(floor, stop)
        done += number
    return Taken(records, left, done)


def _merge(
    stretches: list[Stretch], limit: int, bytes_max: int, *, is_newest: bool
) -> tuple[list[ConsumerRecord], dict[int, int]]:
    """The records taken, and how many of each partition."""
    sign = -1 if is_newest else 1
    heads: list[tuple[int, int, int]] = []  # signed timestamp, partition, index into `rows`
    rows: dict[int, list[ConsumerRecord]] = {}
    for stretch in stretches:
        if stretch.found:
            own = list(stretch.found)[::sign]
            rows[stretch.partition] = own
            heads.append((sign * own[0].timestamp, stretch.partition, 0))
    heapq.heapify(heads)
    records: list[ConsumerRecord] = []
    taken: dict[int, int] = {}
    size = 0
    while heads and len(records) < limit:
        _, partition, index = heads[0]
        record = rows[partition][index]
        size += bytes_of(record)
        if records and size > bytes_max:
            break
        records.append(record)
        taken[partition] = index + 1
        if index + 1 < len(rows[partition]):
            following = rows[partition][index + 1].timestamp
            heapq.heapreplace(heads, (sign * following, partition, index + 1))
        else:
            heapq.heappop(heads)
    return records, taken
