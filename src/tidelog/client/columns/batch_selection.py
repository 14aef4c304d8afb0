"""Which batches of a Fetch answer hold records that a reader wants, and what the kernel needs of
them. No I/O.

Taken are the batches that overlap the range, bar control batches and, with read_committed, those of
aborted transactions. A producer's batches are aborted from the first offset that the answer's list
of aborted transactions names, up to its abort marker; the list covers exactly the answer's own
batches, so nothing is remembered between answers.

Records come out as parts for `kernel.records_to_columns`: uncompressed, and old formats (magic 0
and 1) brought to v2. Every batch taken is checked against its checksum unless `check.crcs=false`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import CorruptRecordsFetched
from tidelog.errors import KafkaError
from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    TimestampType,
    crc_holds,
    size_at,
)
from tidelog.record.control import ControlType, read_marker
from tidelog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.protocol.messages.fetch import AbortedTransaction
    from tidelog.record.kernel import BatchRow, RecordsPart
    from tidelog.types import TopicPartition

NO_TIMESTAMP_TYPE: Final = -1  # of magic 0, which knows no timestamps

_BATCHES_MAX = 1 << 31
_NO_INDEX = (1 << 31) - 1  # entries, batches and bytes beyond any answer's
# Plain numbers, because rows show them.
_CREATE_TIME = int(TimestampType.CREATE_TIME)
_LOG_APPEND_TIME = int(TimestampType.LOG_APPEND_TIME)


class Part(NamedTuple):
    """Records of one batch as the kernel wants them, and what they have in common."""

    records: RecordsPart
    timestamp_type: int
    leader_epoch: int | None  # None before v2 and where the broker does not say


class Selection(NamedTuple):
    records: memoryview
    batches: list[BatchRow]  # those wanted
    next_offset: int | None  # after the last whole batch; None when there is no whole batch
    size_needed: int  # of the batch that was cut off, 0 when none was
    last_epoch: int  # leader epoch of the last whole batch, -1 if it has none


def select_batches(
    partition: TopicPartition,
    records: memoryview,
    start_offset: int,
    end_offset: int,
    aborted: Sequence[AbortedTransaction] | None,
) -> Selection:
    """`aborted` is None for read_uncommitted."""
    position, why, rows = kernel.list_batches(records, 0, len(records), _BATCHES_MAX)
    if why not in (kernel.AT_END, kernel.INCOMPLETE):
        raise CorruptRecordsFetched(
            f"partition {partition}, fetch from offset {start_offset}: bytes that are no batch"
        )
    _require_order(partition, rows)
    wanted = [
        row for row in rows if row.last_offset >= start_offset and row.base_offset < end_offset
    ]
    if aborted is None:
        wanted = [row for row in wanted if not row.attributes & CONTROL_BIT or row.magic < 2]
    else:
        committed = set(map(id, _committed(records, rows, aborted)))
        wanted = [row for row in wanted if id(row) in committed]
    return Selection(
        records,
        wanted,
        rows[-1].last_offset + 1 if rows else None,
        _size_at(records, position) if why == kernel.INCOMPLETE else 0,
        rows[-1].leader_epoch if rows else NO_LEADER_EPOCH,
    )


def _require_order(partition: TopicPartition, rows: list[BatchRow]) -> None:
    """Batches out of order would be given twice, or make a reader skip what is between them."""
    before = -1
    for row in rows:
        if row.base_offset <= before or row.last_offset < row.base_offset:
            raise CorruptRecordsFetched(
                f"partition {partition}: a batch of offsets {row.base_offset} to {row.last_offset} "
                f"comes after offset {before}"
            )
        before = row.last_offset


def _size_at(records: memoryview, position: int) -> int:
    """Size of a batch whose end is cut off; as far as that can be told."""
    if len(records) - position < LOG_OVERHEAD:
        return LOG_OVERHEAD
    return size_at(records, position)


def _committed(
    records: memoryview, rows: list[BatchRow], aborted: Sequence[AbortedTransaction]
) -> Iterator[BatchRow]:
    to_come = sorted(((row.first_offset, row.producer_id) for row in aborted), reverse=True)
    aborting: set[int] = set()
    for row in rows:
        attributes, producer_id = row.attributes, row.producer_id
        while to_come and to_come[-1][0] <= row.last_offset:
            aborting.add(to_come.pop()[1])
        if row.magic < 2:
            yield row
        elif attributes & CONTROL_BIT:
            marker = read_marker(records[row.position : row.position + row.size])
            if marker is not None and marker.control_type == ControlType.ABORT:
                aborting.discard(producer_id)
        elif not (attributes & TRANSACTIONAL_BIT and producer_id in aborting):
            yield row


def parts_of(
    partition: TopicPartition, selection: Selection, *, check_crcs: bool
) -> Iterator[Part]:
    """One part after the other, so that not all batches are decompressed at once."""
    check_crcs = check_crcs and not checksums_hold(selection)
    for row in selection.batches:
        yield from parts_of_batch(partition, selection.records, row, check_crcs=check_crcs)


def checksums_hold(selection: Selection) -> bool:
    """Of all batches, found with one call; False may also mean that it cannot be told so."""
    if not selection.batches:
        return True
    first, last = selection.batches[0], selection.batches[-1]
    records = selection.records[first.position : last.position + last.size]
    state = kernel.ScanState.at_start(first.base_offset, _NO_INDEX)
    scan = kernel.scan_log(records, len(records), state, 1, _NO_INDEX, _NO_INDEX)
    return scan.why in (kernel.AT_END, kernel.INCOMPLETE)


def parts_of_batch(
    partition: TopicPartition, records: memoryview, row: BatchRow, *, check_crcs: bool
) -> list[Part]:
    """One part of a v2 batch, none of an empty one; of older formats a part for each record."""
    (
        position,
        size,
        magic,
        attributes,
        base_offset,
        _,
        leader_epoch,
        base_timestamp,
        max_timestamp,
        _,
        _,
        _,
        records_count,
    ) = row
    batch = records[position : position + size]
    try:
        if magic < 2:
            return list(_legacy_parts(batch, check_crcs))
        if check_crcs:
            _require_checksum(batch)
        if not records_count:
            return []
        append_time = max_timestamp if attributes & APPEND_TIME_BIT else None
        payload = batch[HEADER_SIZE:]
        if attributes & CODEC_MASK:
            payload = _decompressed(payload, attributes)
    except KafkaError as problem:
        raise unreadable(partition, base_offset, problem) from problem
    return [
        Part(
            (payload, records_count, base_offset, base_timestamp, append_time),
            _CREATE_TIME if append_time is None else _LOG_APPEND_TIME,
            None if leader_epoch == NO_LEADER_EPOCH else leader_epoch,
        )
    ]


def unreadable(partition: TopicPartition, offset: int, problem: Exception) -> CorruptRecordsFetched:
    return CorruptRecordsFetched(
        f"partition {partition}, batch at offset {offset} cannot be read: {problem}"
    )


def _require_checksum(batch: memoryview) -> None:
    if not crc_holds(batch):
        from tidelog.record.errors import CorruptRecords

        raise CorruptRecords("it fails its checksum")


def _decompressed(payload: memoryview, attributes: int) -> memoryview:
    from tidelog.record.compression import codec_of, decompress

    return memoryview(decompress(codec_of(attributes), payload))


def _legacy_parts(batch: memoryview, check_crcs: bool) -> Iterator[Part]:
    from tidelog.record.legacy import Message, records_of

    message = Message(batch)
    if check_crcs:
        message.require_valid()
    timestamp_type = NO_TIMESTAMP_TYPE if message.magic == 0 else int(message.timestamp_type)
    for offset, timestamp, key, value in records_of(message, verify_inner=check_crcs):
        encoded, _, _ = kernel.encode_records([(key, value, (), timestamp)], 0)
        yield Part((encoded, 1, offset, timestamp, None), timestamp_type, None)
