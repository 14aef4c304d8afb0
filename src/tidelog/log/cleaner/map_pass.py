"""The first walk of a round: the keys of the dirty segments go into the offset map."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.errors import KafkaError
from tidelog.log.cleaner.offset_map import OffsetMap
from tidelog.log.cleaner.segment_pass import SegmentPass, unreadable
from tidelog.log.cleaner.throttle import IoThrottle
from tidelog.log.cleaner.transactions import TransactionalRow, TransactionTracker
from tidelog.record import kernel
from tidelog.record.kernel import Buffer


class MapPass(SegmentPass):
    """`run` is False once the map is full; what lies behind is for the next round."""

    def __init__(
        self,
        offsets: OffsetMap,
        tracker: TransactionTracker,
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

    def _judge(self, rows: Sequence[TransactionalRow]) -> bytes:
        return self._tracker.mapping_verdicts(rows)

    def _take(self, position: int, end: int) -> tuple[int, int]:
        position, why, self._next_offset, used = self._map_keys(
            self._buffer, position, end, self._next_offset, verify_crc=True
        )
        self._verdicts = self._verdicts[used:]
        return position, why

    def _take_compressed(self, batch: memoryview) -> int:
        from tidelog.log.cleaner.inflated_batch import inflate

        try:
            content = inflate(batch, keep_old_tombstones=True).content
        except KafkaError as error:
            raise unreadable(error) from error
        return self._map_keys(content, 0, len(content), 0, verify_crc=False)[1]

    def _map_keys(
        self, buffer: Buffer, position: int, end: int, next_offset: int, *, verify_crc: bool
    ) -> tuple[int, int, int, int]:
        offsets = self._map
        position, why, next_offset, offsets.entries, offsets.latest_offset, used, records = (
            kernel.map_batches(
                buffer,
                offsets.slots,
                offsets.hash_key,
                self._verdicts,
                position,
                end,
                next_offset,
                int(verify_crc),
                offsets.entries,
                offsets.entries_max,
                self._first_dirty_offset,
                offsets.latest_offset,
            )
        )
        self.records_read += records
        return position, why, next_offset, used
