"""A batch: the records gathered for one partition, then their bytes, then what became of them.

    open      records are appended, as tuples
    closed    full or due: no more records
    encoded   one kernel call made bytes of the records; the records themselves are gone. Where
              compression takes long, a thread does it before the batch is drained
    done      acknowledged or failed, told to whoever waits

The sequence is set when a batch is first drained and stays, for the broker knows a batch that is
sent again by it. Only when the epoch is bumped, or a batch before it has failed for good, is it
rewritten: in the bytes, for the records are no longer there.

Sizes count records before compression. Kafka's producer guesses what compression will save and
fills its batches accordingly; here a compressed batch is smaller than `batch.size`.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.client.errors import ClientError
from tidelog.client.producer.delivery import (
    NO_OFFSET,
    OnDelivery,
    Outcome,
    RecordMetadata,
    timestamp_of,
)
from tidelog.record import kernel
from tidelog.record.batch import (
    ATTRIBUTE_BITS_POSITION,
    HEADER_SIZE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    increment_sequence,
    stamp_crc,
)
from tidelog.record.builder import finish_batch
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tidelog.client.producer.compression_threads import CompressionThreads
    from tidelog.record.kernel import Record
    from tidelog.types import TopicPartition

# What a short record takes besides its key and value; and the most that any record without headers
# takes.
RECORD_OVERHEAD_BYTES: Final = 11
RECORD_OVERHEAD_BYTES_MAX: Final = 36
HEADER_OVERHEAD_BYTES: Final = 10

# As the kernel gives them: bytes behind room for the header, base timestamp, largest timestamp.
EncodedRecords: TypeAlias = tuple[bytearray, int, int]

_PRODUCER = Struct(">qhi")


class ProducerBatch:
    """Touched under the producer's lock, except for what `outcome` says once it is done."""

    __slots__ = (
        "append_time_ms",
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "compression",
        "created_at",
        "data",
        "deadline",
        "encoded",
        "halves",
        "has_been_reset",
        "is_closed",
        "is_stamped",
        "is_transactional",
        "last_acked_when_sent",
        "last_problem",
        "leader_epoch_when_sent",
        "leader_id_when_sent",
        "order",
        "outcome",
        "partition",
        "producer_epoch",
        "producer_id",
        "record_errors",
        "records",
        "records_count",
        "reserved_bytes",
        "retry_at",
        "size",
        "size_max",
    )

    def __init__(
        self,
        partition: TopicPartition,
        *,
        size_max: int,
        reserved_bytes: int,
        created_at: float,
        deadline: float,
    ) -> None:
        self.partition = partition
        self.size = HEADER_SIZE  # an estimate until the batch is encoded
        self.size_max = size_max
        self.reserved_bytes = reserved_bytes  # of buffer.memory, given back at the end
        self.created_at = created_at
        self.deadline = deadline
        self.records: list[Record] = []
        self.records_count = 0  # set when the batch is closed
        self.is_closed = False
        self.callbacks: list[tuple[int, int, OnDelivery]] = []
        self.encoded: EncodedRecords | None = None
        self.compression: Future[bytearray] | None = None  # a thread's; None once it was taken
        self.data: bytearray | None = None
        self.attempts = 0
        self.retry_at = 0.0
        self.last_problem: ClientError | None = None  # for the error when time is up
        self.last_acked_when_sent = NO_SEQUENCE  # of the partition's sequences
        self.leader_id_when_sent = -1
        self.leader_epoch_when_sent = NO_LEADER_EPOCH
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.has_been_reset = False  # its sequence was rewritten since it was last sent
        self.is_transactional = False
        self.is_stamped = False  # the bytes say what the fields above say
        self.order = -1  # among those drained of the partition; never wraps, unlike sequences
        self.halves: tuple[ProducerBatch, ProducerBatch] | None = None
        self.outcome = Outcome()
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_TIMESTAMP
        self.record_errors: dict[int, ClientError] | None = None

    def __repr__(self) -> str:
        count = self.records_count or len(self.records)
        return f"ProducerBatch({self.partition}, records={count}, sequence={self.base_sequence})"

    # Bytes

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.records_count - 1)

    @property
    def next_sequence(self) -> int:
        return increment_sequence(self.base_sequence, self.records_count)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.records_count = len(self.records)

    def hold(self, encoded: EncodedRecords, records_count: int) -> None:
        """Takes records that the kernel has encoded already, behind room for the header."""
        self.is_closed = True
        self.encoded = encoded
        self.records_count = records_count
        self.size = len(encoded[0])

    def set_producer(
        self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        self.is_stamped = False

    def reset_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """A new sequence for a batch that was sent already."""
        self.has_been_reset = True
        self.set_producer(producer_id, producer_epoch, base_sequence, self.is_transactional)

    @property
    def is_compressing(self) -> bool:
        return self.compression is not None and not self.compression.done()

    def begin_compression(self, threads: CompressionThreads) -> None:
        """Gives the records to a thread. The batch has no sequences yet."""
        self.close()
        self.compression = threads.submit(
            partial(_compressed, self.records, self.encoded, self.records_count)
        )
        self.records = []
        self.encoded = None

    def take_compressed(self) -> None:
        """Takes what the thread has made."""
        assert self.compression is not None, self
        compression, self.compression = self.compression, None
        self.data = compression.result(timeout=0)
        self.size = len(self.data)
        self.is_stamped = not self.has_sequence

    def encode(self, codec: Codec, level: int | None) -> bytearray:
        """The bytes to send; made when asked for first."""
        if self.data is None:
            self.close()
            encoded = self.encoded or kernel.encode_records(self.records, HEADER_SIZE)
            self.records = []
            self.encoded = None
            self.data = _finished(
                encoded,
                self.records_count,
                codec,
                level,
                attributes=TRANSACTIONAL_BIT if self.is_transactional else 0,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
            self.size = len(self.data)
        elif not self.is_stamped:
            self.data = self._stamped(self.data)
        self.is_stamped = True
        return self.data

    def _stamped(self, data: bytearray) -> bytearray:
        """A copy, for the bytes as they were may still be on their way to a broker."""
        data = bytearray(data)
        _PRODUCER.pack_into(
            data, PRODUCER_POSITION, self.producer_id, self.producer_epoch, self.base_sequence
        )
        if self.is_transactional:
            data[ATTRIBUTE_BITS_POSITION] |= TRANSACTIONAL_BIT
        stamp_crc(data)
        return data

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches that take its place; they have no share in buffer.memory."""
        from tidelog.record.columns import columns_of, part_of

        assert self.data is not None, self
        assert self.records_count > 1, self
        header = BatchHeader(self.data)
        part = part_of(memoryview(self.data), header.attributes, 0, self.records_count)
        columns = columns_of([part]).raw
        middle = self.records_count // 2
        first, second = (
            self._piece(columns, start, stop)
            for start, stop in ((0, middle), (middle, self.records_count))
        )
        first.callbacks = [each for each in self.callbacks if each[0] < middle]
        second.callbacks = [
            (index - middle, timestamp, call)
            for index, timestamp, call in self.callbacks
            if index >= middle
        ]
        self.callbacks = []
        self.data = None
        self.halves = first, second
        return first, second

    def _piece(self, columns: kernel.RecordColumns, start: int, stop: int) -> ProducerBatch:
        piece = ProducerBatch(
            self.partition,
            size_max=self.size_max,
            reserved_bytes=0,
            created_at=self.created_at,
            deadline=self.deadline,
        )
        encoded = kernel.encode_columns(columns, start, stop, None, HEADER_SIZE)
        piece.hold(encoded, stop - start)
        if self.has_sequence:
            piece.set_producer(
                self.producer_id,
                self.producer_epoch,
                increment_sequence(self.base_sequence, start),
                self.is_transactional,
            )
        return piece

    # What became of it

    def succeed(self, base_offset: int, append_time_ms: int) -> bool:
        """Returns False if the batch was done before."""
        if self.outcome.is_done:
            return False
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self._end(None)
        return True

    def fail(self, error: ClientError, record_errors: dict[int, ClientError] | None = None) -> bool:
        if self.outcome.is_done:
            return False
        self.record_errors = record_errors
        self._end(error)
        return True

    def _end(self, error: ClientError | None) -> None:
        self.close()
        self.records = []
        self.encoded = None
        self.data = None
        if self.compression is not None:
            self.compression.cancel()
            self.compression = None
        self.outcome.done(error)

    def error_of(self, index: int) -> ClientError | None:
        error = self.outcome.error
        if error is not None and self.record_errors is not None:
            return self.record_errors.get(index, error)
        return error

    def first_error(self) -> ClientError | None:
        if self.halves is None:
            return self.outcome.error
        return self.halves[0].first_error() or self.halves[1].first_error()

    def metadata_of(self, index: int, timestamp: int) -> RecordMetadata:
        """`timestamp` is the record's own, which LogAppendTime overrides."""
        offset = self.base_offset + index if self.base_offset >= 0 else NO_OFFSET
        topic, partition = self.partition
        return RecordMetadata(
            topic, partition, offset, timestamp_of(timestamp, self.append_time_ms)
        )

    def last_offset(self) -> int:
        if self.halves is not None:
            return max(half.last_offset() for half in self.halves)
        return self.base_offset + self.records_count - 1 if self.base_offset >= 0 else NO_OFFSET


def _compressed(
    records: list[Record],
    encoded: EncodedRecords | None,
    records_count: int,
    codec: Codec,
    level: int | None,
) -> bytearray:
    """A batch without producer id and sequences; called in a thread."""
    encoded = encoded or kernel.encode_records(records, HEADER_SIZE)
    return _finished(encoded, records_count, codec, level)


def _finished(
    encoded: EncodedRecords,
    records_count: int,
    codec: Codec,
    level: int | None,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    records, base_timestamp, max_timestamp = encoded
    return finish_batch(
        records,
        codec=codec,
        level=level,
        base_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        attributes=attributes,
        last_offset_delta=records_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
    )
