"""What a leader checks and rewrites before records enter its log, and what a follower checks.

A leader's checks, in Kafka's order, each with the code of Kafka 3.9.2
 1. whole batches: none at all 87, an impossible size or magic 2, magic 0 or 1 in Produce v3+ 87,
    zstd in Produce v3-v6 76, an unknown codec -1, a second v2 batch 87 (a cut one is dropped)
 2. base offset other than 0, from clients 87
 3. larger than max.message.bytes 10
 4. checksum 2
 5. from clients: record count against offsets, control batch, producer id without sequence 87
 6. compressed data does not decompress -1; inflates beyond its budget 10; records malformed 87
 7. no key on a compacted topic 87; timestamp out of range, or LogAppendTime set by a client 32
 8. a timestamp below -1 in what must be rewritten -1
 9. rewritten larger than max.message.bytes 10; larger than segment.bytes 18

What changes in an accepted batch: base offset and leader epoch always (not under the checksum);
max_timestamp and timestamp type where they differ from what the topic wants (checksum anew); the
payload only where `compression.type` names another codec (the same record bytes, compressed anew),
where offset deltas have gaps (numbered anew), or where the format is old (converted to v2: every
log stores v2). The common batch is changed in place and copied nowhere.

offset_of_max_timestamp is what Kafka 3.8+ puts in the time index: the batch's last offset.

Unlike Kafka, offset deltas that are not 0, 1, 2 ... are put right. Kafka stores them as they are:
readers then meet offsets twice or out of order. In compressed batches it refuses them.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final, NoReturn

from tidelog.log.log_errors import UnexpectedAppendOffset
from tidelog.log.segment.log_segment import LogSegment
from tidelog.log.segment.segment_scan import WHY_STOPPED
from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    OLD_ATTRIBUTES_POSITION,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
    base_offset_at,
    increment_sequence,
    size_at,
    stamp_offset,
    stamp_timestamps,
)
from tidelog.record.errors import (
    BatchAboveSegment,
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamps,
    NotOneBatch,
    RecordsTooLarge,
    UndecodableRecords,
    UnknownCodec,
    UnsupportedCodec,
)
from tidelog.record.kernel import BatchCheck, check_batch
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.config.topic import LogConfig
    from tidelog.record.inflation import InflationBudget
    from tidelog.record.kernel import BatchCheckTuple, Buffer, LogScan, MessagesCheck

_OFFSET_LENGTH_EPOCH: Final = Struct(">qii")
_stamp: Final = _OFFSET_LENGTH_EPOCH.pack_into
_V2_PRODUCE_VERSION: Final = 3
_ZSTD_PRODUCE_VERSION: Final = 7
_RECORDS_BLAMED_MAX: Final = 100
_RECORDS_SEARCHED_MAX: Final = 10_000
_SEARCH_NS_PER_RECORD: Final = 1000
_REWRITE_NS_PER_BYTE: Final = 4
_WALKED: Final = kernel.WALKED
_WALKED_NULL_KEY: Final = kernel.WALKED | kernel.NULL_KEY
_UNUSUAL: Final = CODEC_MASK | APPEND_TIME_BIT | CONTROL_BIT

_TARGET_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class ValidBatch:
    """One v2 batch, offsets and epoch in place, ready to be written. Lives for one append."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "data",
        "last_offset",
        "log_append_time_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    magic: Final = 2

    def __init__(
        self,
        data: memoryview | bytearray,
        size: int,
        attributes: int,
        base_offset: int,
        last_offset: int,
        records_count: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> None:
        self.data = data
        self.size = size
        self.attributes = attributes
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.records_count = records_count
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def place(self, next_offset: int, leader_epoch: int, now_ms: int) -> None:
        """Number a batch that was checked before its place in the log was known."""
        data = memoryview(self.data)
        if self.log_append_time_ms not in (-1, now_ms):
            stamp_timestamps(data, TimestampType.LOG_APPEND_TIME, now_ms)
            self.log_append_time_ms = self.max_timestamp = now_ms
        stamp_offset(data, next_offset, leader_epoch)
        shift = next_offset - self.base_offset
        self.base_offset += shift
        self.last_offset += shift
        if self.offset_of_max_timestamp >= 0:
            self.offset_of_max_timestamp += shift

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)


class AppendOrigin(Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"


def validate_for_append(
    records: memoryview | bytearray | bytes,
    *,
    config: LogConfig,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    produce_version: int = 11,
    inflation: InflationBudget | None = None,
) -> ValidBatch:
    """The batch in `records` as it is to be written at next_offset; KafkaError if it may not be.

    A writable buffer is changed in place, a read-only one is copied first. `inflation` is what the
    batches of one request share; without it the batch has a budget of its own. HeavyRecords if the
    budget is one for the event loop, and this takes longer: nothing has been changed then. In a
    thread `next_offset` is 0, and `ValidBatch.place` gives the batch its offsets later.
    """
    if type(records) is not memoryview:
        records = memoryview(records)
    if records.readonly:
        records = memoryview(bytearray(records))
    check = check_batch(records)
    (
        status,
        size,
        base_offset,
        _,
        attributes,
        last_offset_delta,
        _,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
        min_timestamp,
        largest_timestamp,
        _,
        flags,
    ) = check
    if (
        status == 0
        and not attributes & _UNUSUAL
        and (flags == _WALKED or (flags == _WALKED_NULL_KEY and not config.compact))
        and size == len(records)
        and base_offset == 0
        and size <= config.max_message_bytes
        and size <= config.segment_bytes
        and 0 <= last_offset_delta == records_count - 1
        and (producer_id < 0 or base_sequence >= 0)
        and largest_timestamp == max_timestamp
        and min_timestamp >= 0
        and now_ms - min_timestamp <= config.message_timestamp_before_max_ms
        and largest_timestamp - now_ms <= config.message_timestamp_after_max_ms
        and config.compression_type in ("producer", "uncompressed")
        and config.message_timestamp_type == "CreateTime"
    ):
        last_offset = next_offset + last_offset_delta
        _stamp(records, 0, next_offset, size - LOG_OVERHEAD, leader_epoch)
        return ValidBatch(
            records,
            size,
            attributes,
            next_offset,
            last_offset,
            records_count,
            largest_timestamp,
            last_offset,
            -1,
            producer_id,
            producer_epoch,
            base_sequence,
        )
    return _Append(
        records,
        config,
        next_offset,
        now_ms,
        leader_epoch,
        origin,
        produce_version,
        inflation,
        check,
    ).validate()


def must_be_one_batch(records: memoryview, produce_version: int) -> None:
    """The first of the checks alone, which Kafka makes before it asks for a log."""
    if produce_version < _V2_PRODUCE_VERSION:
        return
    check = BatchCheck(*check_batch(records))
    _require_batch(check.status)
    if check.status == kernel.OLD_FORMAT:
        raise _old_format(produce_version)
    _require_known_codec(check.attributes, produce_version)
    _require_nothing_follows(records[check.size :])


class _Append:
    """One append that does not take the common way; holds what its steps share."""

    def __init__(
        self,
        records: memoryview,
        config: LogConfig,
        next_offset: int,
        now_ms: int,
        leader_epoch: int,
        origin: AppendOrigin,
        produce_version: int,
        inflation: InflationBudget | None,
        check: BatchCheckTuple,
    ) -> None:
        self.records = records
        self.config = config
        self.next_offset = next_offset
        self.now_ms = now_ms
        self.leader_epoch = leader_epoch
        self.is_client = origin is AppendOrigin.CLIENT
        self.produce_version = produce_version
        self.inflation = inflation
        self.has_append_time = config.message_timestamp_type == "LogAppendTime"
        # What the kernel found in the batch: the fields of its BatchCheck.
        (
            self.status,
            self.size,
            self.base_offset,
            _,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
            self.min_timestamp,
            self.largest_timestamp,
            _,
            self.flags,
        ) = check

    def validate(self) -> ValidBatch:
        _require_batch(self.status)
        if self.status == kernel.OLD_FORMAT:
            return self._validate_old()
        return self._validate_v2()

    def _validate_v2(self) -> ValidBatch:
        codec = self._allowed_codec(self.attributes)
        _require_nothing_follows(self.records[self.size :])
        if self.is_client and self.base_offset != 0:
            raise InvalidRecords(f"The batch begins at offset {self.base_offset}, not at 0.")
        self._require_size(self.size)
        if self.status == kernel.BAD_CRC:
            raise CorruptRecords("The batch fails its checksum.")
        if self.is_client:
            self._require_consistent()
        batch = self.records[: self.size]
        payload: Buffer = batch[HEADER_SIZE:]
        if codec != Codec.NONE:
            payload = self._budget().decompress(codec, payload)
            self.status, self.min_timestamp, self.largest_timestamp, _, self.flags = (
                kernel.check_records(payload, self.records_count, self.base_timestamp)
            )
        if self.status == kernel.BAD_RECORDS:
            raise InvalidRecords("The records of the batch are malformed or miscounted.")
        return self._accept_v2(batch, payload, codec)

    def _accept_v2(self, batch: memoryview, payload: Buffer, codec: Codec) -> ValidBatch:
        attributes, flags = self.attributes, self.flags
        smallest, largest = self.min_timestamp, self.largest_timestamp
        if attributes & APPEND_TIME_BIT:
            smallest = self.max_timestamp
            largest = max(self.max_timestamp, NO_TIMESTAMP)
        self._require_records_allowed(payload, smallest, largest)
        target = self._target_codec(codec)
        if codec == Codec.NONE and attributes & CONTROL_BIT:
            target = codec
        if target != codec or flags & kernel.SPARSE_OFFSETS:
            _require_rewritable(smallest)
            return self._rebuilt(payload, target, largest)
        return self._in_place(batch, codec, largest)

    def _in_place(self, batch: memoryview, codec: Codec, largest: int) -> ValidBatch:
        attributes = self.attributes
        last_offset = self.next_offset + self.last_offset_delta
        offset_of_max = last_offset
        if self.has_append_time:
            largest = self.now_ms
        elif largest == NO_TIMESTAMP and codec == Codec.NONE:
            offset_of_max = -1
        wanted = TimestampType(self.has_append_time)
        had_append_time = attributes & APPEND_TIME_BIT != 0
        if self.max_timestamp != largest or had_append_time != self.has_append_time:
            stamp_timestamps(batch, wanted, largest)
            attributes = attributes & 0x77 | wanted << 3
        self._require_below_segment(len(batch))
        _stamp(batch, 0, self.next_offset, len(batch) - LOG_OVERHEAD, self.leader_epoch)
        return self._valid(batch, attributes, last_offset, largest, offset_of_max)

    def _rebuilt(self, payload: Buffer, target: Codec, largest: int) -> ValidBatch:
        """A new batch: the same record bytes, unless their offsets or timestamps must change."""
        from tidelog.record.builder import finish_batch, with_payload

        attributes, records_count = self.attributes, self.records_count
        base_timestamp = self.base_timestamp
        self._take_time_to_rewrite(target, memoryview(payload).nbytes)
        if self.flags & kernel.SPARSE_OFFSETS or attributes & APPEND_TIME_BIT:
            append_time = self.max_timestamp if attributes & APPEND_TIME_BIT else None
            columns = kernel.records_to_columns(
                [(payload, records_count, 0, base_timestamp, append_time)]
            )
            encoded, base_timestamp, _ = kernel.encode_columns(
                columns, 0, records_count, None, HEADER_SIZE
            )
        else:
            encoded = with_payload(payload)
        if self.has_append_time:
            largest = self.now_ms
        attributes = attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) | target
        attributes |= APPEND_TIME_BIT * self.has_append_time
        batch = finish_batch(
            encoded,
            codec=target,
            level=self._level(target),
            base_offset=self.next_offset,
            leader_epoch=self.leader_epoch,
            attributes=attributes,
            last_offset_delta=records_count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=largest,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            records_count=records_count,
        )
        return self._valid_rewritten(batch, attributes, largest)

    def _take_time_to_rewrite(self, target: Codec, payload_bytes: int) -> None:
        from tidelog.record.compression import compression_ns

        compressing_ns = compression_ns(target, payload_bytes, self._level(target))
        self._budget().take_time(compressing_ns + _REWRITE_NS_PER_BYTE * payload_bytes)

    def _budget(self) -> InflationBudget:
        from tidelog.record.inflation import InflationBudget

        return self.inflation or InflationBudget()

    def _validate_old(self) -> ValidBatch:
        from tidelog.record.compression import codec_of
        from tidelog.record.conversion import up_convert

        if self.is_client and self.produce_version >= _V2_PRODUCE_VERSION:
            raise _old_format(self.produce_version)
        messages, check, messages_time, is_append_time = self._read_old()
        self._require_old_records_allowed(messages, check, messages_time, is_append_time)
        target = self._target_codec(codec_of(self.records[OLD_ATTRIBUTES_POSITION]))
        self._take_time_to_rewrite(target, memoryview(messages).nbytes)
        batch, max_timestamp = up_convert(
            messages,
            check.messages_count,
            messages_time=messages_time,
            codec=target,
            level=self._level(target),
            append_time_ms=self.now_ms if self.has_append_time else None,
            base_offset=self.next_offset,
            leader_epoch=self.leader_epoch,
        )
        attributes = target | APPEND_TIME_BIT * self.has_append_time
        self.records_count = check.messages_count
        self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        return self._valid_rewritten(batch, attributes, max_timestamp)

    def _read_old(self) -> tuple[Buffer, MessagesCheck, int | None, bool]:
        """(uncompressed v0 or v1 messages, what is in them, the timestamp of all where a wrapper
        gives one, whether a client set LogAppendTime)"""
        from tidelog.record.legacy import (
            Message,
            check_inner,
            check_messages,
            inner_set,
            require_fields,
            require_whole,
        )

        check = check_messages(
            self.records, verify=True, message_bytes_max=self.config.max_message_bytes
        )
        require_whole(check)
        if check.status == kernel.TOO_LARGE:
            self._require_size(size_at(self.records, check.position))
        if check.flags & kernel.COMPRESSED and check.messages_count > 1:
            raise InvalidRecords("A compressed message is not alone.")
        if check.flags & kernel.MIXED_MAGIC:
            raise InvalidRecords("Messages of different magic are mixed.")
        require_fields(check)
        is_append_time = check.flags & kernel.APPEND_TIME != 0
        messages: Buffer = self.records[: check.position]
        if not check.flags & kernel.COMPRESSED:
            return messages, check, None, is_append_time
        wrapper = Message(self.records[: check.position])
        messages = inner_set(wrapper, self._budget())
        check = check_inner(wrapper, messages, verify=True)
        messages_time = wrapper.timestamp if is_append_time else None
        return memoryview(messages)[: check.position], check, messages_time, is_append_time

    def _require_old_records_allowed(
        self,
        messages: Buffer,
        check: MessagesCheck,
        messages_time: int | None,
        is_append_time: bool,
    ) -> None:
        smallest, largest = check.min_timestamp, check.largest_timestamp
        lacks_timestamp = check.flags & kernel.NO_TIMESTAMP
        if messages_time is not None:
            smallest = largest = messages_time
            lacks_timestamp = messages_time == NO_TIMESTAMP
        if is_append_time and (self.has_append_time or lacks_timestamp):
            raise _append_time_by_client()
        if self._are_allowed(check.flags, smallest, largest):
            _require_rewritable(smallest)
            return
        view = memoryview(messages)
        payload, base_timestamp, _ = kernel.messages_to_records(
            view, 0, view.nbytes, None, messages_time, 0
        )
        self._refuse_records(payload, check.messages_count, base_timestamp, None, check.flags)

    def _allowed_codec(self, attributes: int) -> Codec:
        if not attributes & CODEC_MASK:
            return Codec.NONE
        from tidelog.record.compression import codec_of

        if self.is_client:
            _require_known_codec(attributes, self.produce_version)
        return codec_of(attributes)

    def _target_codec(self, source: Codec) -> Codec:
        return _TARGET_CODECS.get(self.config.compression_type, source)

    def _level(self, codec: Codec) -> int | None:
        if codec == Codec.GZIP:
            return self.config.compression_gzip_level
        if codec == Codec.LZ4:
            return self.config.compression_lz4_level
        if codec == Codec.ZSTD:
            return self.config.compression_zstd_level
        return None

    def _require_size(self, size: int) -> None:
        if size > self.config.max_message_bytes:
            raise RecordsTooLarge(
                f"A batch of {size} bytes exceeds max.message.bytes "
                f"({self.config.max_message_bytes})."
            )

    def _require_below_segment(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise BatchAboveSegment(
                f"A batch of {size} bytes exceeds segment.bytes ({self.config.segment_bytes})."
            )

    def _require_records_allowed(self, payload: Buffer, smallest: int, largest: int) -> None:
        is_append_time = self.attributes & APPEND_TIME_BIT != 0
        if is_append_time and (self.has_append_time or largest == NO_TIMESTAMP):
            raise _append_time_by_client()
        if not self._are_allowed(self.flags, smallest, largest):
            append_time = largest if is_append_time else None
            self._refuse_records(
                payload, self.records_count, self.base_timestamp, append_time, self.flags
            )

    def _are_allowed(self, flags: int, smallest: int, largest: int) -> bool:
        if flags & kernel.NULL_KEY and self.config.compact:
            return False
        return smallest == NO_TIMESTAMP or self._allows(smallest, largest)

    def _refuse_records(
        self,
        payload: Buffer,
        records_count: int,
        base_timestamp: int,
        append_time: int | None,
        flags: int,
    ) -> NoReturn:
        """Names the records at fault if they are among the first."""
        from tidelog.record.columns import columns_of

        searched_ns = _SEARCH_NS_PER_RECORD * min(records_count, _RECORDS_SEARCHED_MAX)
        self._budget().take_time(searched_ns + _REWRITE_NS_PER_BYTE * memoryview(payload).nbytes)
        columns = columns_of([(payload, records_count, 0, base_timestamp, append_time)])
        rows = range(min(len(columns), _RECORDS_SEARCHED_MAX))
        self._require_keys_and_timestamps(
            (columns.has_key(row), columns.timestamps[row]) for row in rows
        )
        if flags & kernel.NULL_KEY and self.config.compact:
            raise InvalidRecords("Records of a compacted topic need keys.")
        raise InvalidTimestamps("Timestamps of records are out of range.")

    def _require_keys_and_timestamps(self, records: Iterable[tuple[bool, int]]) -> None:
        """Raises for the records at fault; a bad timestamp anywhere outranks a missing key."""
        blamed: list[tuple[int, str]] = []
        has_bad_timestamp = False
        for index, (has_key, timestamp) in enumerate(records):
            if self.config.compact and not has_key:
                blamed.append((index, "The topic is compacted and the record has no key."))
            elif timestamp != NO_TIMESTAMP and not self._allows(timestamp, timestamp):
                has_bad_timestamp = True
                blamed.append((index, f"Timestamp {timestamp} is out of range."))
        blamed = blamed[:_RECORDS_BLAMED_MAX]
        if has_bad_timestamp:
            raise InvalidTimestamps("Timestamps of records are out of range.", blamed)
        if blamed:
            raise InvalidRecords("Records of a compacted topic need keys.", blamed)

    def _allows(self, smallest: int, largest: int) -> bool:
        return self.has_append_time or (
            self.now_ms - smallest <= self.config.message_timestamp_before_max_ms
            and largest - self.now_ms <= self.config.message_timestamp_after_max_ms
        )

    def _valid_rewritten(self, batch: bytearray, attributes: int, max_timestamp: int) -> ValidBatch:
        self._require_size(len(batch))
        self._require_below_segment(len(batch))
        last_offset = self.next_offset + self.records_count - 1
        offset_of_max = last_offset if max_timestamp != NO_TIMESTAMP else -1
        return self._valid(batch, attributes, last_offset, max_timestamp, offset_of_max)

    def _valid(
        self,
        batch: memoryview | bytearray,
        attributes: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> ValidBatch:
        return ValidBatch(
            batch,
            len(batch),
            attributes,
            self.next_offset,
            last_offset,
            self.records_count,
            max_timestamp,
            offset_of_max_timestamp,
            self.now_ms if self.has_append_time else -1,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
        )

    def _require_consistent(self) -> None:
        last_offset_delta, records_count = self.last_offset_delta, self.records_count
        if last_offset_delta < 0:
            raise InvalidRecords(f"The last offset delta is {last_offset_delta}.")
        if records_count <= 0:
            raise InvalidRecords(f"The batch announces {records_count} records.")
        if records_count != last_offset_delta + 1:
            raise InvalidRecords(
                f"{records_count} records do not fit a last offset delta of {last_offset_delta}."
            )
        if self.attributes & CONTROL_BIT:
            raise InvalidRecords("Clients may not write control records.")
        if self.producer_id > NO_PRODUCER_ID and self.base_sequence < 0:
            raise InvalidRecords(f"Producer {self.producer_id} sent sequence {self.base_sequence}.")


def _append_time_by_client() -> InvalidTimestamps:
    return InvalidTimestamps("A producer may not set the timestamp type LogAppendTime.")


def _require_rewritable(smallest_timestamp: int) -> None:
    if smallest_timestamp < NO_TIMESTAMP:
        raise UndecodableRecords(f"A record has the timestamp {smallest_timestamp}.")


def _old_format(produce_version: int) -> NotOneBatch:
    return NotOneBatch(f"Produce v{produce_version} takes record batches of magic 2 only.")


def _require_batch(status: int) -> None:
    if status == kernel.NO_BATCH:
        raise NotOneBatch("There is no whole record batch.")
    if status in (kernel.BAD_SIZE, kernel.BAD_MAGIC):
        raise CorruptRecords("A record batch has an impossible size or magic.")


def _require_known_codec(attributes: int, produce_version: int) -> None:
    # Kafka looks into the records of v3 and later only, and from v7 on any codec may be there.
    if not _V2_PRODUCE_VERSION <= produce_version < _ZSTD_PRODUCE_VERSION:
        return
    codec_id = attributes & CODEC_MASK
    if codec_id == Codec.ZSTD:
        raise UnsupportedCodec(f"Produce v{produce_version} may not carry zstd.")
    if codec_id > Codec.ZSTD:
        raise UnknownCodec(f"Unknown compression type id: {codec_id}")


def _require_nothing_follows(rest: memoryview) -> None:
    """After a v2 batch only what is too short to be another one may stand."""
    if not rest:
        return
    status = BatchCheck(*check_batch(rest)).status
    if status in (kernel.BAD_MAGIC, kernel.BAD_SIZE):
        raise CorruptRecords("Bytes after the batch are neither a batch nor the beginning of one.")
    if status != kernel.NO_BATCH:
        raise NotOneBatch("There is more than one record batch.")


class FetchedBatches:
    """Batches as a follower has fetched them from its leader.

    Their offsets are the leader's and stay. The last batch may be cut off; those before it count.
    """

    __slots__ = ("data", "first_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, data: memoryview) -> None:
        self.topic_partition = topic_partition
        self.data = data
        self.first_offset = base_offset_at(data) if len(data) >= 8 else -1

    def begin_around(self, log_end_offset: int) -> bool:
        """Whether the log would go on inside of a batch."""
        return 0 <= self.first_offset < log_end_offset <= self._last_offset()

    def must_continue(self, log_end_offset: int) -> None:
        if 0 <= self.first_offset < log_end_offset:
            raise UnexpectedAppendOffset(
                f"{self.topic_partition} was given offset {self.first_offset} "
                f"but goes on at {log_end_offset}",
                self.first_offset,
                -1,
            )

    def leave_gaps(self, log_end_offset: int, end: int) -> bool:
        """Whether offsets are missing before or between the batches up to position `end`."""
        expected = log_end_offset
        _, _, rows = kernel.list_batches(self.data, 0, end, 1 << 31)
        for row in rows:
            has_last_offset_only = row.magic < MAGIC and row.records_count < 0
            if row.base_offset != expected and not has_last_offset_only:
                return True
            expected = row.last_offset + 1
        return False

    def reach_beyond(self, segment: LogSegment, scan: LogScan) -> bool:
        """Whether the scan has failed because the segment's indexes cannot say their offsets."""
        return scan.why == kernel.BAD_OFFSET and not segment.has_room_for(self._last_offset())

    def _last_offset(self) -> int:
        """Of the last whole batch, by its header."""
        _, _, rows = kernel.list_batches(self.data, 0, len(self.data), 1 << 31)
        return rows[-1].last_offset if rows else -1

    def must_be_good(self, scan: LogScan) -> None:
        if scan.position == 0 or scan.why not in (kernel.AT_END, kernel.INCOMPLETE):
            raise CorruptRecords(
                f"{self.topic_partition} was given {WHY_STOPPED.get(scan.why, 'no batch')}"
            )
