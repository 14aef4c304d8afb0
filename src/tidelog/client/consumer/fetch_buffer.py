"""What was fetched and not given out yet, in the order in which it came.

The fetcher appends on the event loop; the application takes, and only from here on are records
decoded, so that no more of them exist than a poll gives out. Both may happen in different threads:
whatever one side counts up, the other only reads.

An entry that belongs to an earlier stretch of its partition is dropped. One of a partition that is
paused, or about to be revoked, is set aside until that has passed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.columns.batch_selection import checksums_hold, parts_of_batch, unreadable
from tidelog.client.consumer.subscription_state import FetchState, Position
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.record import kernel
from tidelog.record._results import BatchRow
from tidelog.record.batch import APPEND_TIME_BIT, CODEC_MASK, HEADER_SIZE, TimestampType
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.client.columns.batch_selection import Part, Selection
    from tidelog.client.consumer.subscription_state import PartitionState, SubscriptionState
    from tidelog.record.kernel import ConsumerRecord, TypedPart

# Batches of one or few records are decoded so many at a time at least.
DECODED_MIN: Final = 500

_COUNT: Final = BatchRow._fields.index("records_count")
_EPOCH: Final = BatchRow._fields.index("leader_epoch")
_BASE_OFFSET: Final = BatchRow._fields.index("base_offset")
_BASE_TIMESTAMP: Final = BatchRow._fields.index("base_timestamp")
_CREATE_TIME: Final = int(TimestampType.CREATE_TIME)
_NO_INDEX: Final = (1 << 31) - 1  # entries, batches and bytes beyond any answer's


class RawBatch(NamedTuple):
    """A batch as the log has it, its checksum verified."""

    partition: TopicPartition
    base_offset: int
    last_offset: int
    records_count: int  # -1 for compressed batches before v2
    magic: int
    leader_epoch: int  # -1 where there is none
    data: bytes


class FetchFailure:
    """An answer that the application must hear of, or that must be acted on, after the records
    before it."""

    __slots__ = ("act", "bytes", "state", "stretch")

    def __init__(self, state: PartitionState, act: Callable[[PartitionState], None]) -> None:
        self.state = state
        self.stretch = state.stretch
        self.act = act
        self.bytes = 0


class FetchedPartition:
    """The batches of one partition in one answer; `position` is the next offset to give out."""

    __slots__ = (
        "_at",
        "_batch",
        "_check_crcs",
        "_decoded",
        "_end",
        "_is_plain",
        "_is_scanned",
        "_selection",
        "bytes",
        "state",
        "stretch",
    )

    def __init__(
        self, state: PartitionState, selection: Selection, end: Position, *, check_crcs: bool
    ) -> None:
        self.state = state
        self.stretch = state.stretch
        self.bytes = len(selection.records)
        self._selection = selection
        self._end = end
        self._check_crcs = check_crcs
        self._is_scanned = False
        # All that is left of a batch to do is to decode its records.
        self._is_plain = False
        self._batch = 0  # the next one to decode
        self._decoded: list[ConsumerRecord] = []
        self._at = 0  # how many of these are given out

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._decoded) and self._batch == len(self._selection.batches)

    @property
    def rows_next(self) -> int:
        """Of the next batch, as far as its header tells."""
        return max(self._selection.batches[self._batch].records_count, 1)

    def records(self, limit: int) -> list[ConsumerRecord]:
        """The next ones; moves the partition's position."""
        taken = self._decoded[self._at : self._at + limit]
        self._at += len(taken)
        batches_count = len(self._selection.batches)
        try:
            while len(taken) < limit and self._batch < batches_count:
                self._decode(limit, taken)
                more = self._decoded[: limit - len(taken)]
                self._at = len(more)
                taken = taken + more if taken else more
        except CorruptRecordsFetched:
            if not taken:
                raise
        if self.is_finished:
            self.finish()
        elif taken:
            self.state.consumed_to(_after(taken[-1]))
        return taken

    def finish(self) -> None:
        self._batch = len(self._selection.batches)
        self._decoded = []
        self._at = 0
        self.state.consumed_to(self._end)

    def _decode(self, limit: int, taken: list[ConsumerRecord]) -> None:
        """The next batches, after what was `taken` already."""
        self._decoded, self._at = [], 0
        position = _after(taken[-1]) if taken else self.state.position
        assert position is not None
        batches = self._selection.batches
        parts, batch = self._parts(max(limit, DECODED_MIN), _NO_INDEX)
        partition = self.state.partition
        try:
            decoded = kernel.records_to_tuples(
                parts, partition.topic, partition.partition, position.offset
            )
        except ValueError as problem:
            raise unreadable(partition, batches[self._batch].base_offset, problem) from problem
        if decoded and decoded[-1].offset > batches[batch - 1].last_offset:
            raise CorruptRecordsFetched(
                f"partition {partition}: a record has offset {decoded[-1].offset}, beyond its batch"
            )
        self._batch = batch
        self._decoded = decoded

    def _scan(self) -> None:
        """Checks the checksums of all batches with one call. Where one fails they are checked one
        by one, so that what is before it is given out."""
        self._is_scanned = True
        self._is_plain = all(
            row.magic == 2 and not row.attributes & (CODEC_MASK | APPEND_TIME_BIT)
            for row in self._selection.batches
        )
        if self._check_crcs:
            self._check_crcs = not checksums_hold(self._selection)
        self._is_plain = self._is_plain and not self._check_crcs

    def parts_of(self, row: BatchRow) -> list[Part]:
        if not self._is_scanned:
            self._scan()
        return parts_of_batch(
            self.state.partition, self._selection.records, row, check_crcs=self._check_crcs
        )

    def give_back_decoded(self) -> None:
        """Returns decoded records to their batches, for a caller that takes batches. Batches that
        are partly given out come first, from `position` on."""
        if self._at == len(self._decoded):
            return
        position = self.state.position
        assert position is not None
        batches = self._selection.batches
        while self._batch and batches[self._batch - 1].last_offset >= position.offset:
            self._batch -= 1
        self._decoded, self._at = [], 0

    def take_batch(self) -> tuple[BatchRow, list[Part]]:
        """The next one; the position is after it."""
        row = self._selection.batches[self._batch]
        parts = self.parts_of(row)
        self._passed(self._batch + 1)
        return row, parts

    def take_parts(self, rows_max: int, bytes_max: int) -> list[TypedPart]:
        """Of the next whole batches, at least one; the position is after them."""
        parts, batch = self._parts(rows_max, bytes_max, is_limit_hard=True)
        self._passed(batch)
        return parts

    def _parts(
        self, rows_max: int, bytes_max: int, *, is_limit_hard: bool = False
    ) -> tuple[list[TypedPart], int]:
        """Of batches from the next one on, and the number of the batch after them.

        Unless the limit is hard, the last batch may exceed it. What cannot be read is an error if
        nothing comes before it.
        """
        if not self._is_scanned:
            self._scan()
        records, batches = self._selection.records, self._selection.batches
        is_plain = self._is_plain
        parts: list[TypedPart] = []
        rows = size = 0
        batch = self._batch
        try:
            for row in batches[batch:]:
                count = row[_COUNT]
                if parts and (
                    rows + (count if is_limit_hard else 0) > rows_max or size > bytes_max
                ):
                    break
                if not is_plain:
                    parts += self.parts_of(row)
                elif count:
                    position = row[0]
                    payload = records[position + HEADER_SIZE : position + row[1]]
                    epoch = row[_EPOCH]
                    part = (payload, count, row[_BASE_OFFSET], row[_BASE_TIMESTAMP], None)
                    parts.append((part, _CREATE_TIME, None if epoch < 0 else epoch))
                rows += max(count, 1)
                size += row[1]
                batch += 1
                if rows >= rows_max:
                    break
        except CorruptRecordsFetched:
            if not parts:
                raise
        return parts, batch

    def _passed(self, batch: int) -> None:
        """Notes that the application has all batches before this one."""
        self._batch = batch
        if self.is_finished:
            self.finish()
        else:
            row = self._selection.batches[batch - 1]
            self.state.consumed_to(Position(row.last_offset + 1, row.leader_epoch))

    def untake_after(self, offset: int) -> None:
        """The application got only the records up to `offset` of the batch taken last."""
        self._batch -= 1
        epoch = self._selection.batches[self._batch].leader_epoch
        self.state.consumed_to(Position(offset + 1, epoch))

    def raw(self, row: BatchRow) -> RawBatch:
        records = self._selection.records
        return RawBatch(
            self.state.partition,
            row.base_offset,
            row.last_offset,
            row.records_count,
            row.magic,
            row.leader_epoch,
            bytes(records[row.position : row.position + row.size]),
        )


Entry = FetchedPartition | FetchFailure


def _after(record: ConsumerRecord) -> Position:
    epoch = record.leader_epoch
    return Position(record.offset + 1, -1 if epoch is None else epoch)


class FetchBuffer:
    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._queue: deque[Entry] = deque()
        self._set_aside: list[Entry] = []
        self._bytes_added = 0  # counted up by the fetcher alone
        self._bytes_removed = 0  # by the taker alone
        self.removed_count = 0

    @property
    def bytes(self) -> int:
        """Fetched and neither given out nor set aside."""
        return self._bytes_added - self._bytes_removed

    def append(self, entry: Entry) -> None:
        self._bytes_added += entry.bytes
        entry.state.fetched_count += 1
        self._queue.append(entry)

    def next_entry(self) -> Entry | None:
        """The first that may be given out now; it stays until `remove`."""
        if self._set_aside:
            self._bring_back()
        while self._queue:
            entry = self._queue[0]
            state = entry.state
            if not self._is_current(entry):
                self.remove(entry)
            elif not state.is_fetchable and not isinstance(entry, FetchFailure):
                self._queue.popleft()
                self._bytes_removed += entry.bytes
                self._set_aside.append(entry)
            else:
                return entry
        return None

    def entries(self) -> Iterator[FetchedPartition]:
        """Those to give out now, each once it is asked for; finished ones are removed.

        Of some nothing is given out: all their batches are markers, or were aborted. The position
        passes these. Ends at a failure.
        """
        while True:
            entry = self.next_entry()
            if entry is None or isinstance(entry, FetchFailure):
                return
            if entry.is_finished:
                entry.finish()
            else:
                yield entry
            if not entry.is_finished:
                return
            self.remove(entry)

    def remove(self, entry: Entry) -> None:
        removed = self._queue.popleft()
        assert removed is entry
        self.removed_count += 1
        self._bytes_removed += entry.bytes
        if entry.stretch == entry.state.stretch:
            entry.state.taken_count += 1

    def clear(self) -> None:
        while self._queue:
            self.remove(self._queue[0])
        self._set_aside.clear()

    def _is_current(self, entry: Entry) -> bool:
        state = entry.state
        return (
            state.stretch == entry.stretch
            and state.state is FetchState.FETCHING
            and self._subscription.partitions.get(state.partition) is state
        )

    def _bring_back(self) -> None:
        waiting: list[Entry] = []
        back: list[Entry] = []
        for entry in self._set_aside:
            if not self._is_current(entry):
                continue
            (back if entry.state.is_fetchable else waiting).append(entry)
        self._set_aside = waiting
        for entry in reversed(back):
            # Ahead of the queue: what came of the partition later may be there already.
            self._bytes_removed -= entry.bytes
            self._queue.appendleft(entry)


def take_records(buffer: FetchBuffer, limit: int) -> list[ConsumerRecord]:
    """At most `limit`. An error comes alone: records before it are given out first."""
    taken: list[ConsumerRecord] = []
    try:
        for entry in buffer.entries():
            records = entry.records(limit - len(taken))
            if taken:
                taken += records
            else:
                taken = records
            if len(taken) >= limit:
                if entry.is_finished:
                    buffer.remove(entry)
                break
    except CorruptRecordsFetched:
        if not taken:
            raise
    return taken


def take_raw_batches(buffer: FetchBuffer, bytes_max: int) -> list[RawBatch]:
    """At least one if there is any, and about `bytes_max` in all."""
    taken: list[RawBatch] = []
    size = 0
    try:
        for entry in buffer.entries():
            entry.give_back_decoded()
            while not entry.is_finished and size < bytes_max:
                row, _ = entry.take_batch()
                raw = entry.raw(row)
                taken.append(raw)
                size += len(raw.data)
            if size >= bytes_max:
                if entry.is_finished:
                    buffer.remove(entry)
                break
    except CorruptRecordsFetched:
        if not taken:
            raise
    return taken
