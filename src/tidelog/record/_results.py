"""What both kernels share: the codes they answer with and the names of what they give.

The pure twin builds these tuples; the compiled kernel builds struct sequences with the same names
in the same order (csrc/results.h; a test compares them). Both are tuples and compare as tuples.
`kernel` documents the functions. Annotations are evaluated here: NamedTuple would compile them one
by one if they were strings, which takes milliseconds of every start.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    Record = tuple[Buffer | None, Buffer | None, Sequence[tuple[str | bytes, Buffer | None]], int]
    # payload, records_count, base_offset, base_timestamp, append_time
    RecordsPart = tuple[Buffer, int, int, int, int | None]
    # the part, timestamp_type, leader_epoch
    TypedPart = tuple[RecordsPart, int, int | None]
    # topic, partition, offset, leader_epoch, metadata, commit_timestamp, expire_timestamp
    OffsetCommitRow = tuple[str, int, int, int, str, int, int]
    # Plain ints in the order of BatchCheck: Produce unpacks them at once, and a plain tuple unpacks
    # three times as fast as a named one.
    BatchCheckTuple = tuple[
        int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int
    ]
    # status, min_timestamp, largest_timestamp, delta_of_largest, flags: as in BatchCheck
    RecordsCheckTuple = tuple[int, int, int, int, int]
else:
    Buffer = Any

# status of check_batch, check_records and check_messages
OK: Final = 0
NO_BATCH: Final = 1
BAD_SIZE: Final = 2
BAD_MAGIC: Final = 3
OLD_FORMAT: Final = 4
BAD_CRC: Final = 5
BAD_RECORDS: Final = 6
NEW_FORMAT: Final = 9
TOO_LARGE: Final = 10

# why scan_log and list_batches stopped; BAD_SIZE, BAD_MAGIC and BAD_CRC as above
AT_END: Final = 0
INCOMPLETE: Final = 1
BAD_OFFSET: Final = 7
AT_LIMIT: Final = 8

# why map_batches and filter_batches stopped; the others as above
NEEDS_INFLATION: Final = 11
MAP_FULL: Final = 12
OUTPUT_FULL: Final = 13

# verdicts on batches of transactions
FILTER_RECORDS: Final = 0
DELETE_BATCH: Final = 1
EMPTY_BATCH: Final = 2
KEEP_BATCH: Final = 3
SET_HORIZON: Final = 4

# flags of check_batch, check_records and check_messages
WALKED: Final = 1
NULL_KEY: Final = 2
SPARSE_OFFSETS: Final = 4
COMPRESSED: Final = 8
MIXED_MAGIC: Final = 16
APPEND_TIME: Final = 32
NO_TIMESTAMP: Final = 64


class BatchCheck(NamedTuple):
    """Of check_batch: the v2 batch that starts the buffer."""

    status: int  # OK, or the first of the problems
    size: int  # of the whole batch, 12 + batch_length
    base_offset: int
    magic: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int  # by the header
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    min_timestamp: int  # smallest of the records' own timestamps other than -1; -1 if none
    largest_timestamp: int  # of the records' own timestamps, at least -1
    delta_of_largest: int  # offset delta of the first record that has it; -1 if none
    flags: int  # WALKED (uncompressed: the last three were found), NULL_KEY, SPARSE_OFFSETS


class BatchRow(NamedTuple):
    """Of list_batches: the header of a batch of any magic.

    In v0 and v1 base_offset and last_offset are the wrapper's offset, base_timestamp is
    max_timestamp, records_count is 1 or, compressed, -1, and the others are -1.
    """

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


class ScanState(NamedTuple):
    """A segment as far as scan_log has walked it: hand it back to go on."""

    segment_base_offset: int
    index_interval_bytes: int
    file_position: int  # of the buffer's first byte; afterwards, of the end of the last good batch
    next_offset: int  # no batch may begin before it
    max_timestamp: int
    offset_of_max_timestamp: int  # last offset of the first batch with max_timestamp
    bytes_since_last_index_entry: int
    last_time_index_timestamp: int
    leader_epoch: int  # the last one known; -1 if none

    @classmethod
    def at_start(
        cls, segment_base_offset: int, index_interval_bytes: int, leader_epoch: int = -1
    ) -> "ScanState":
        return cls(
            segment_base_offset=segment_base_offset,
            index_interval_bytes=index_interval_bytes,
            file_position=0,
            next_offset=segment_base_offset,
            max_timestamp=-1,
            offset_of_max_timestamp=-1,
            bytes_since_last_index_entry=0,
            last_time_index_timestamp=-1,
            leader_epoch=leader_epoch,
        )


class ProducerBatch(NamedTuple):
    """A batch with a producer id."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    attributes: int
    file_position: int
    control_type: int  # -1 unless it is a readable control batch
    coordinator_epoch: int  # likewise


class LogScan(NamedTuple):
    """Of scan_log: what the walk found, and what the index files would hold of it."""

    position: int  # in the buffer, end of the last good batch
    why: int
    state: ScanState
    batches_count: int
    offset_index: bytes  # 8 each, big-endian: last offset - base i32, file position i32
    time_index: bytes  # 12 each, big-endian: timestamp i64, offset - base i32
    epochs: list[tuple[int, int]]  # (leader_epoch, base_offset) where the epoch grows
    producers: list[ProducerBatch]  # one per batch with a producer id


class RecordColumns(NamedTuple):
    """Of records_to_columns: bytearrays in native byte order, laid out as Arrow does.

    Binary columns have n + 1 offsets, a validity bitmap with the low bit first, and their data.
    header_offsets are the offsets of a list column.
    """

    records_count: int
    offsets: bytearray  # i64
    timestamps: bytearray  # i64
    key_offsets: bytearray  # i32, as are the other offsets
    key_validity: bytearray
    key_data: bytearray
    value_offsets: bytearray
    value_validity: bytearray
    value_data: bytearray
    header_offsets: bytearray
    header_key_offsets: bytearray
    header_key_data: bytearray
    header_value_offsets: bytearray
    header_value_validity: bytearray
    header_value_data: bytearray


class ConsumerRecord(NamedTuple):
    """A record as a consumer gets it. records_to_tuples of both kernels makes this very class."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class MessagesCheck(NamedTuple):
    """Of check_messages. Compressed entries count as one."""

    status: int
    position: int  # end of the last entry counted
    messages_count: int
    magic: int  # of the first entry; -1 if there is none, as are the offsets
    first_offset: int
    last_offset: int
    min_timestamp: int  # as in BatchCheck
    largest_timestamp: int
    flags: int  # NULL_KEY, COMPRESSED, MIXED_MAGIC, APPEND_TIME (any has it), NO_TIMESTAMP (any)


class TransactionalBatch(NamedTuple):
    """Of list_transactional: a v2 batch that belongs to a transaction, data or control."""

    last_offset: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_timestamp: int
    records_count: int
    control_type: int  # -1 unless it is a readable control batch


class BatchWalk(NamedTuple):
    """What map_batches and filter_batches walk: the whole batches in [position, end), in order."""

    buffer: Buffer
    verdicts: Buffer  # a byte for each row of list_transactional
    position: int
    end: int
    next_offset: int  # no batch may begin before it
    verify_crc: int


class KeyOffsets(NamedTuple):
    """The offset map of a cleaning round: the last offset of each key.

    `slots` is one flat buffer of 24-byte slots in native order (128-bit hash of the key, offset +
    1), all zeros when empty. The hash is SipHash-2-4-128 under the 16 bytes of hash_key.
    """

    slots: Buffer
    hash_key: Buffer
    entries: int  # keys in the map
    entries_max: int
    latest_offset: int  # last one mapped or passed


class Retention(NamedTuple):
    """What filter_batches may let go."""

    kept_offsets: Buffer  # ascending i64 in native order: a batch that ends there stays, if empty
    now_ms: int
    horizon_ms: int  # the delete horizon for tombstones that have none; negative: give none
    keep_old_tombstones: int  # those of magic 0 and 1


class Mapped(NamedTuple):
    """Of map_batches."""

    position: int  # end of the last batch that is mapped
    why: int
    next_offset: int
    entries: int
    latest_offset: int
    verdicts_used: int
    records: int


class Filtered(NamedTuple):
    """Of filter_batches."""

    position: int
    why: int
    next_offset: int
    bytes_written: int
    verdicts_used: int
    records_read: int
    records_kept: int
    batches_rewritten: int  # or emptied
    records_without_key: int  # which go
