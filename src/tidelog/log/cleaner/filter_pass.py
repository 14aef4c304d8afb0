"""The second walk of a round: what stays of a segment goes into a cleaned one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.errors import KafkaError
from tidelog.log.cleaner.cleaned_segment import CleanedSegment
from tidelog.log.cleaner.offset_map import OffsetMap
from tidelog.log.cleaner.segment_pass import SegmentPass, unreadable
from tidelog.log.cleaner.throttle import IoThrottle
from tidelog.log.cleaner.transactions import BatchRetention, TransactionalRow
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from tidelog.log.cleaner.inflated_batch import InflatedBatch

RECORD_GROWTH_MAX: Final = 10  # bytes, when its timestamp becomes relative to a delete horizon
_INT64_MAX: Final = (1 << 63) - 1


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

    def _judge(self, rows: Sequence[TransactionalRow]) -> bytes:
        return self._retention.verdicts(rows)

    def _take(self, position: int, end: int) -> tuple[int, int]:
        while True:
            began_at = position
            position, why, self._next_offset, length, used, read, kept, _, keyless = (
                kernel.filter_batches(
                    self._buffer,
                    self._map.slots,
                    self._map.hash_key,
                    self._verdicts,
                    self._kept_offsets,
                    self._output,
                    position,
                    end,
                    self._next_offset,
                    1,
                    self._map.latest_offset,
                    self._now_ms,
                    self._horizon_ms,
                    int(self.keep_old_tombstones),
                )
            )
            self._verdicts = self._verdicts[used:]
            self._count(read, kept, keyless)
            if length:
                with memoryview(self._output)[:length] as written:
                    self._write(written)
            if why != kernel.OUTPUT_FULL:
                return position, why
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
        why, length, read, kept, rewritten, keyless = self._filter_inflated(inflated, output)
        if why != kernel.AT_END:
            return why
        self._count(read, kept, keyless)
        if length and not rewritten:
            self._write(batch)
        elif length and not kept:
            self._write(output[:length])
        elif length:
            self._write(inflated.compressed(memoryview(output)[:length]))
        return kernel.AT_END

    def _filter_inflated(
        self, inflated: InflatedBatch, output: bytearray
    ) -> tuple[int, int, int, int, int, int]:
        """Old formats have neither empty batches nor delete horizons."""
        is_old = inflated.is_old
        _, why, _, length, _, read, kept, rewritten, keyless = kernel.filter_batches(
            inflated.content,
            self._map.slots,
            self._map.hash_key,
            self._verdicts,
            b"" if is_old else self._kept_offsets,
            output,
            0,
            len(inflated.content),
            0,
            0,
            self._map.latest_offset,
            _INT64_MAX if is_old else self._now_ms,
            -1 if is_old else self._horizon_ms,
            0,
        )
        return why, length, read, kept, rewritten, keyless

    def _count(self, read: int, kept: int, without_key: int) -> None:
        self.records_read += read
        self.records_kept += kept
        self.records_without_key += without_key

    def _write(self, batches: bytes | bytearray | memoryview) -> None:
        self._cleaned.append(batches)
        self.bytes_written += len(batches)
        self._throttle.take(len(batches))
