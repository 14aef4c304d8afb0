"""Reading a partition of a coordinator's topic back into memory, a slice at a time.

A slice is what is read in one go; a turn of the loop replays a few hundred of its records. Records
of open transactions are replayed with their producer's id, and their markers after them, exactly as
they came; what that means is the shard's business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.record.columns import Columns, columns_of, part_of
from tidelog.record.control import ControlType, read_marker
from tidelog.record.errors import CorruptRecords
from tidelog.types import NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.coordinator.stored_record import CoordinatorRecord, RecordTypes
    from tidelog.log.partition_log import PartitionLog
    from tidelog.record.kernel import RecordsPart

logger = logging.getLogger(__name__)

_BATCHES_MAX: Final = 1 << 31
RECORDS_PER_TURN: Final = 250  # some milliseconds of replaying


class Replayable(Protocol):
    """State that records alone make: live as they are written, and on load alike."""

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        """`producer_id` is -1 unless the record belongs to a transaction."""

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The producer's transaction has ended."""


class PartitionLoading:
    """One partition on its way into memory."""

    def __init__(
        self, log: PartitionLog, shard: Replayable, types: RecordTypes, slice_bytes: int
    ) -> None:
        self._log = log
        self._shard = shard
        self._types = types
        self._slice_bytes = slice_bytes
        self._unknown_types: set[bytes] = set()
        self._under_way: Iterator[None] | None = None  # replays the slice that was read last
        self.next_offset = log.log_start_offset  # of the next slice
        self.record_count = 0

    def step(self) -> bool:
        """Replays some records; whether they were the last. KafkaError and DecodeError pass."""
        log = self._log
        if self._under_way is None:
            if self.next_offset >= log.log_end_offset:
                return True
            result = log.read(
                self.next_offset,
                self._slice_bytes,
                up_to_offset=log.log_end_offset,
                min_one_batch=True,
            )
            if result.records is None:
                return True
            self._under_way = self._replay(memoryview(result.records.read()))
        if next(self._under_way, self) is not self:
            return False
        self._under_way = None
        return self.next_offset >= log.log_end_offset

    def _replay(self, data: memoryview) -> Iterator[None]:
        """Runs of plain batches in one call of the kernel, transactional ones each on its own."""
        _, why, batches = kernel.list_batches(data, 0, len(data), _BATCHES_MAX)
        if not batches or why not in (kernel.AT_END, kernel.INCOMPLETE):
            raise CorruptRecords(
                f"{self._log.topic_partition} cannot be read from offset {self.next_offset} on"
            )
        plain: list[RecordsPart] = []
        for row in batches:
            attributes, producer_id = row.attributes, row.producer_id
            batch = data[row.position : row.position + row.size]
            if not attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
                plain.append(part_of(batch, attributes, row.base_offset, row.records_count))
                continue
            yield from self._replay_records(columns_of(plain), NO_PRODUCER_ID)
            plain = []
            if attributes & CONTROL_BIT:
                self._replay_control(batch, producer_id)
            else:
                part = part_of(batch, attributes, row.base_offset, row.records_count)
                yield from self._replay_records(columns_of([part]), producer_id)
        yield from self._replay_records(columns_of(plain), NO_PRODUCER_ID)
        self.next_offset = batches[-1].last_offset + 1

    def _replay_control(self, batch: memoryview, producer_id: int) -> None:
        marker = read_marker(batch)
        if marker is not None:
            committed = marker.control_type is ControlType.COMMIT
            self._shard.replay_marker(producer_id, committed=committed)

    def _replay_records(self, columns: Columns, producer_id: int) -> Iterator[None]:
        decode, replay = self._types.decode, self._shard.replay
        for row in range(len(columns)):
            if row % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                yield
            key = columns.key(row)
            if key is None:
                raise CorruptRecords(f"{self._log.topic_partition} has a record without a key")
            record = decode(key, columns.value(row))
            if record is None:
                self._skip(key)
            else:
                replay(record, columns.offsets[row], producer_id)
        self.record_count += len(columns)

    def _skip(self, key: bytes) -> None:
        if key[:2] not in self._unknown_types:
            self._unknown_types.add(key[:2])
            logger.warning(
                "skipping records of an unknown type, left by another version",
                extra={
                    "partition": str(self._log.topic_partition),
                    "type": int.from_bytes(key[:2], "big", signed=True),
                },
            )
