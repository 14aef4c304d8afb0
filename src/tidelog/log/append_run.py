"""Small batches that enter the active segment of a log in one write.

A run is collected before anything is written, so the log itself is never tentative: it knows
nothing of the batches until they are in the file. What the next batch of a run must know of those
before it is kept here: offset, bytes, index entries that are due, and the last sequence of each
producer. A batch for which more matters (a roll, a new leader epoch, a sequence that does not
continue) is not of a run: the log writes the run and appends that batch alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.record.batch import SEQUENCES

if TYPE_CHECKING:
    from tidelog.config.topic import LogConfig
    from tidelog.errors import KafkaError
    from tidelog.log.log_validator import ValidBatch
    from tidelog.log.partition_log import LogAppendInfo
    from tidelog.log.segment.log_segment import LogSegment


class LeaderAppend:
    """Records of a client, and what became of them. They are changed in place."""

    __slots__ = ("outcome", "produce_version", "records")

    def __init__(self, records: memoryview, produce_version: int) -> None:
        self.records = records
        self.produce_version = produce_version
        self.outcome: LogAppendInfo | KafkaError | None = None  # None until the log has judged


class AppendRun:
    """Lives within one call of `PartitionLog.append_all_as_leader`."""

    __slots__ = (
        "_entries_due",
        "_indexed_position",
        "_last_of_producer",
        "appends",
        "batches",
        "next_offset",
        "segment",
        "size_bytes",
    )

    def __init__(self, segment: LogSegment, next_offset: int) -> None:
        self.segment = segment
        self.next_offset = next_offset
        self.appends: list[LeaderAppend] = []
        self.batches: list[ValidBatch] = []  # one for each append
        self.size_bytes = 0
        self._entries_due = 0
        self._indexed_position = segment.indexed_position
        self._last_of_producer: dict[int, ValidBatch] = {}

    def knows_producer(self, batch: ValidBatch) -> bool:
        return batch.producer_id in self._last_of_producer

    def continues_sequence(self, batch: ValidBatch) -> bool:
        """Of a producer that the run knows: whether it is what the log would expect next."""
        last = self._last_of_producer[batch.producer_id]
        return (
            batch.producer_epoch == last.producer_epoch
            and batch.base_sequence == (last.last_sequence + 1) % SEQUENCES
        )

    def has_room_for(
        self, batch: ValidBatch, config: LogConfig, max_segment_ms: int, now_ms: int
    ) -> bool:
        """Whether the batch belongs to the same segment, which holds some already."""
        segment = self.segment
        if segment.size == 0 or segment.should_roll(
            self.size_bytes + batch.size,
            batch.last_offset,
            batch.max_timestamp,
            now_ms,
            config.segment_bytes,
            max_segment_ms,
        ):
            return False
        if not self._entries_due:
            return True
        return segment.index_room(config.segment_index_bytes) > self._entries_due

    def add(self, append: LeaderAppend, batch: ValidBatch) -> None:
        position = self.segment.size + self.size_bytes
        if position - self._indexed_position > self.segment.index_interval_bytes:
            self._entries_due += 1
            self._indexed_position = position
        self.appends.append(append)
        self.batches.append(batch)
        self.size_bytes += batch.size
        self.next_offset = batch.last_offset + 1
        if batch.producer_id >= 0:
            self._last_of_producer[batch.producer_id] = batch

    def write(self, index_bytes_max: int) -> None:
        self.segment.append_all(self.batches, self._entries_due, index_bytes_max)
