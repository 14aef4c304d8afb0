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
from tidelog.log.cleaner.transactions import BatchRetention
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, BatchHeader
from tidelog.record.kernel import TransactionalBatch

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

    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        return self._retention.verdicts(batches)

    def _take(self, position: int, end: int) -> tuple[int, int]:
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
            retention = kernel.Retention(b"", _INT64_MAX, -1, False)
        return kernel.filter_batches(walk, self._map.key_offsets(), retention, output)

    def _count(self, filtered: kernel.Filtered) -> None:
        self.records_read += filtered.records_read
        self.records_kept += filtered.records_kept
        self.records_without_key += filtered.records_without_key

    def _write(self, batches: bytes | bytearray | memoryview) -> None:
        self._cleaned.append(batches)
        self.bytes_written += len(batches)
        self._throttle.take(len(batches))
