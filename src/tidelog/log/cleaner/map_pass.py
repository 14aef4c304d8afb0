"""The first walk of a round: the keys of the dirty segments go into the offset map."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.errors import KafkaError
from tidelog.log.cleaner.offset_map import OffsetMap
from tidelog.log.cleaner.segment_pass import SegmentPass, unreadable
from tidelog.log.cleaner.throttle import IoThrottle
from tidelog.log.cleaner.transactions import TransactionTracker
from tidelog.record import kernel
from tidelog.record.kernel import TransactionalBatch


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

    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        return self._tracker.mapping_verdicts(batches)

    def _take(self, position: int, end: int) -> tuple[int, int]:
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
