"""One walk of the cleaner over the batches of a segment, in pieces of log.cleaner.io.buffer.size.

    MapPass       the first walk of a round: puts the keys of the dirty segments in an OffsetMap
    FilterPass    the second: writes what stays of a segment into a CleanedSegment

The kernel does the work on each piece. These classes do what it cannot: read, inflate compressed
batches one by one, judge batches of transactions, and say what is wrong with a segment. A batch
that is damaged or out of order ends the cleaning of its log, because rewriting it would hide the
damage behind a right checksum.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Final

from tidelog.clock import Clock
from tidelog.errors import KafkaError
from tidelog.log.cleaner.cleaned_segment import CleanedSegment
from tidelog.log.cleaner.cleaned_transactions import BatchRetention, CleanedTransactionMetadata
from tidelog.log.cleaner.log_to_clean import SourceSegment
from tidelog.log.log_errors import CannotClean
from tidelog.log.segment.log_file import read_into
from tidelog.log.segment.segment_scan import WHY_STOPPED
from tidelog.rate import RateLimiter
from tidelog.record import kernel
from tidelog.record.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    base_offset_at,
    size_at,
)
from tidelog.record.kernel import KeyOffsets, TransactionalBatch
from tidelog.types import INT64_MAX

if TYPE_CHECKING:
    from tidelog.log.cleaner.inflated_batch import InflatedBatch

SLOT_BYTES: Final = 24
HASH_KEY_BYTES: Final = 16
_PROBLEMS: Final = {**WHY_STOPPED, kernel.BAD_RECORDS: "a batch with malformed records"}
SLOTS_MIN: Final = 2
RECORD_GROWTH_MAX: Final = 10  # bytes, when its timestamp becomes relative to a delete horizon
CHECK_INTERVAL_S: Final = 0.3


class OffsetMap:
    """The last offset of every key of the dirty part of a log, by the key's hash.

    24 bytes a key: 16 of hash, 8 of offset, in one flat buffer that the kernel reads and writes
    (csrc/offset_map.h). The hash is SipHash-2-4 with 128 bits under a key drawn anew for every map:
    two record keys of one hash would cost the older record its life, and nobody can look for such a
    pair without knowing the key. (Kafka uses MD5, for which pairs can be made.)

    A map is made for one round and no larger than the round can fill, so an idle cleaner holds
    none.
    """

    __slots__ = ("entries", "entries_max", "hash_key", "latest_offset", "slots")

    def __init__(self, slots_count: int, load_factor: float) -> None:
        slots_count = max(slots_count, SLOTS_MIN)
        self.slots = bytearray(slots_count * SLOT_BYTES)
        self.hash_key = os.urandom(HASH_KEY_BYTES)
        self.entries = 0
        # One slot stays free, so that a look-up finds an end.
        self.entries_max = max(min(int(slots_count * load_factor), slots_count - 1), 1)
        self.latest_offset = -1  # all records up to here are in the map

    @classmethod
    def for_offsets(cls, count: int, bytes_max: int, load_factor: float) -> OffsetMap:
        """Room for `count` keys, as far as `bytes_max` allow."""
        wanted = int(count / load_factor) + SLOTS_MIN if load_factor > 0 else count + SLOTS_MIN
        return cls(min(wanted, bytes_max // SLOT_BYTES), load_factor)

    def key_offsets(self) -> KeyOffsets:
        """The map as the kernel takes it."""
        return KeyOffsets(
            self.slots, self.hash_key, self.entries, self.entries_max, self.latest_offset
        )

    @property
    def utilization(self) -> float:
        return self.entries * SLOT_BYTES / len(self.slots)

    def reach(self, offset: int) -> None:
        """There is nothing more to map up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)


class IoThrottle:
    """A bound on the bytes a second that all cleaner threads read and write together.

    For any thread. `wait(seconds)` sleeps; whoever stops the cleaner cuts it short.

    Bytes are counted in periods of at least CHECK_INTERVAL_S, as Kafka's Throttler does. Whoever
    ends a period waits until its bytes are paid for; what a period leaves unused is lost.
    """

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], object]
    ) -> None:
        self._limiter = RateLimiter(bytes_per_second, clock, burst_s=inf)
        self._clock = clock
        self._wait = wait
        self._lock = Lock()
        self._period_start_s = clock.monotonic()

    def change(self, bytes_per_second: float) -> None:
        """From the broker loop, which must not wait for the lock: a cleaner may sleep with it."""
        self._limiter.change(bytes_per_second)

    def take(self, count: int) -> None:
        """Before or after so many bytes are read or written."""
        with self._lock:
            self._limiter.spend(count)
            if self._clock.monotonic() - self._period_start_s <= CHECK_INTERVAL_S:
                return
            wait_s = self._limiter.wait_s()
            if wait_s > 0:
                self._wait(wait_s)
            self._period_start_s = self._clock.monotonic()
            self._limiter.restart()


class SegmentPass(ABC):
    """What is common to building the map and to filtering. One thread, one log, one round."""

    def __init__(
        self, buffer: bytearray, throttle: IoThrottle, check: Callable[[], object]
    ) -> None:
        self._buffer = buffer
        self._throttle = throttle
        self._check = check  # raises CleaningAborted
        self._verdicts = b""  # on the transactional batches of the piece that are not passed yet
        self._next_offset = 0
        self.bytes_read = 0

    def run(self, source: SourceSegment, position: int = 0) -> bool:
        """From `position` on; False when it ended early, because there is no room for more."""
        self._next_offset = source.base_offset
        with source.open() as descriptor:
            while position < source.size:
                self._check()
                filled = read_into(self._buffer, descriptor, position, source.size)
                self._throttle.take(filled)
                passed, why = self._pass_piece(filled)
                self.bytes_read += passed
                if why == kernel.MAP_FULL:
                    return False
                if why not in (kernel.AT_END, kernel.INCOMPLETE):
                    raise _damaged(source, position + passed, why)
                if self._next_offset > source.end_offset:
                    raise _damaged(source, position + passed, kernel.BAD_OFFSET)
                if passed == 0:
                    self._make_room(source, position, filled)
                position += passed
        return True

    def _make_room(self, source: SourceSegment, position: int, filled: int) -> None:
        """For the batch at `position`, which is longer than the buffer."""
        if filled < LOG_OVERHEAD:
            raise _damaged(source, position, kernel.INCOMPLETE)
        size = size_at(self._buffer)
        if size <= len(self._buffer) or position + size > source.size:
            raise _damaged(source, position, kernel.INCOMPLETE)
        self._buffer = bytearray(size)

    def _pass_piece(self, end: int) -> tuple[int, int]:
        """(bytes passed, why it stopped) of the first `end` bytes in the buffer."""
        self._verdicts = self._judge(kernel.list_transactional(self._buffer, 0, end))
        position = 0
        while True:
            position, why = self._take_batches(position, end)
            if why != kernel.NEEDS_INFLATION:
                return position, why
            size = size_at(self._buffer, position)
            with memoryview(self._buffer)[position : position + size] as batch:
                why = self._take_compressed(batch)
                if why != kernel.AT_END:
                    return position, why
                self._step_over(batch)
            position += size

    def _step_over(self, batch: memoryview) -> None:
        last_offset = base_offset_at(batch)
        if batch[MAGIC_POSITION] == MAGIC:
            header = BatchHeader(batch)
            last_offset = header.last_offset
            if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
                self._verdicts = self._verdicts[1:]
        self._next_offset = last_offset + 1

    @abstractmethod
    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        """A verdict for each, in their order."""

    @abstractmethod
    def _take_batches(self, position: int, end: int) -> tuple[int, int]:
        """Batches from `position` on: (where it stopped, why)."""

    @abstractmethod
    def _take_compressed(self, batch: memoryview) -> int:
        """One batch that the kernel has left to us: why it cannot be taken, or AT_END."""


def _damaged(source: SourceSegment, position: int, why: int) -> CannotClean:
    return CannotClean(f"{source.path} holds {_PROBLEMS[why]} at position {position}")


def unreadable(error: KafkaError) -> CannotClean:
    return CannotClean(f"a compressed batch cannot be read: {error.message}")


class MapPass(SegmentPass):
    """`run` is False once the map is full; what lies behind is for the next round."""

    def __init__(
        self,
        offsets: OffsetMap,
        tracker: CleanedTransactionMetadata,
        first_dirty_offset: int,
        buffer: bytearray,
        throttle: IoThrottle,
        check: Callable[[], object],
    ) -> None:
        super().__init__(buffer, throttle, check)
        self._map = offsets
        self._tracker = tracker
        self._first_dirty_offset = first_dirty_offset
        self.records_read = 0

    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        return self._tracker.mapping_verdicts(batches)

    def _take_batches(self, position: int, end: int) -> tuple[int, int]:
        mapped = self._map_keys(
            kernel.BatchWalk(
                self._buffer, self._verdicts, position, end, self._next_offset, verify_crc=True
            )
        )
        self._next_offset = mapped.next_offset
        self._verdicts = self._verdicts[mapped.verdicts_used :]
        return mapped.position, mapped.why

    def _take_compressed(self, batch: memoryview) -> int:
        from tidelog.log.cleaner.inflated_batch import inflate

        try:
            content = inflate(batch, keep_old_tombstones=True).content
        except KafkaError as error:
            raise unreadable(error) from error
        walk = kernel.BatchWalk(content, self._verdicts, 0, len(content), 0, verify_crc=False)
        return self._map_keys(walk).why

    def _map_keys(self, walk: kernel.BatchWalk) -> kernel.Mapped:
        offsets = self._map
        mapped = kernel.map_batches(walk, offsets.key_offsets(), self._first_dirty_offset)
        offsets.entries = mapped.entries
        offsets.latest_offset = mapped.latest_offset
        self.records_read += mapped.records
        return mapped


class FilterPass(SegmentPass):
    def __init__(
        self,
        offsets: OffsetMap,
        retention: BatchRetention,
        *,
        now_ms: int,
        horizon_ms: int,
        buffer: bytearray,
        throttle: IoThrottle,
        check: Callable[[], object],
    ) -> None:
        super().__init__(buffer, throttle, check)
        self._map = offsets
        self._retention = retention
        self._kept_offsets = array("q", retention.kept_offsets)
        self._now_ms = now_ms
        self._horizon_ms = horizon_ms  # of tombstones and markers that get one now
        self._output = bytearray(len(buffer) + HEADER_SIZE)
        self._cleaned: CleanedSegment
        self.keep_old_tombstones = True
        self.records_read = 0
        self.records_kept = 0
        self.records_without_key = 0
        self.bytes_written = 0

    def write_to(self, cleaned: CleanedSegment) -> None:
        """What the following segments leave."""
        self._cleaned = cleaned

    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        return self._retention.verdicts(batches)

    def _take_batches(self, position: int, end: int) -> tuple[int, int]:
        while True:
            began_at = position
            filtered = kernel.filter_batches(
                kernel.BatchWalk(
                    self._buffer, self._verdicts, position, end, self._next_offset, verify_crc=True
                ),
                self._map.key_offsets(),
                kernel.Retention(
                    self._kept_offsets, self._now_ms, self._horizon_ms, self.keep_old_tombstones
                ),
                self._output,
            )
            position = filtered.position
            self._next_offset = filtered.next_offset
            self._verdicts = self._verdicts[filtered.verdicts_used :]
            self._count(filtered)
            if filtered.bytes_written:
                with memoryview(self._output)[: filtered.bytes_written] as written:
                    self._write(written)
            if filtered.why != kernel.OUTPUT_FULL:
                return position, filtered.why
            if position == began_at:
                self._output = bytearray(2 * len(self._output))

    def _take_compressed(self, batch: memoryview) -> int:
        from tidelog.log.cleaner.inflated_batch import inflate

        try:
            inflated = inflate(batch, keep_old_tombstones=self.keep_old_tombstones)
        except KafkaError as error:
            raise unreadable(error) from error
        header = BatchHeader(inflated.content)
        room = len(inflated.content) + RECORD_GROWTH_MAX * max(header.records_count, 0)
        output = bytearray(room)
        filtered = self._filter_inflated(inflated, output)
        if filtered.why != kernel.AT_END:
            return filtered.why
        self._count(filtered)
        length = filtered.bytes_written
        if length and not filtered.batches_rewritten:
            self._write(batch)
        elif length and not filtered.records_kept:
            self._write(output[:length])
        elif length:
            self._write(inflated.compressed(memoryview(output)[:length]))
        return kernel.AT_END

    def _filter_inflated(self, inflated: InflatedBatch, output: bytearray) -> kernel.Filtered:
        content = inflated.content
        walk = kernel.BatchWalk(content, self._verdicts, 0, len(content), 0, verify_crc=False)
        retention = kernel.Retention(self._kept_offsets, self._now_ms, self._horizon_ms, False)
        if inflated.is_old:  # it has neither empty batches nor delete horizons
            retention = kernel.Retention(b"", INT64_MAX, -1, False)
        return kernel.filter_batches(walk, self._map.key_offsets(), retention, output)

    def _count(self, filtered: kernel.Filtered) -> None:
        self.records_read += filtered.records_read
        self.records_kept += filtered.records_kept
        self.records_without_key += filtered.records_without_key

    def _write(self, batches: bytes | bytearray | memoryview) -> None:
        self._cleaned.append(batches)
        self.bytes_written += len(batches)
        self._throttle.take(len(batches))
