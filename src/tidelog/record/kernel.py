"""The record kernel: everything that would loop over records or bytes, in one place.

`_kernel` is compiled C; `_pure` is its twin in Python, equal in every answer, valid input or
hostile, and slow. The compiled one is taken when it was built; TIDELOG_PURE=1 forces the twin.
Neither does I/O, reads a clock or keeps state. All arguments are positional. A buffer is anything
with the buffer protocol (bytes, bytearray, memoryview, mmap) and is not written to, bar the slots
of KeyOffsets, `output` and the batch that is sealed. `_results` names the fields of what goes in
and out.

crc32c(data, crc=0) -> int
    CRC-32C; feed the last answer as `crc` to go on.

check_batch(data) -> the 16 ints of BatchCheck, as a plain tuple: the v2 batch that starts `data`
    The records of uncompressed batches are walked; compressed ones are left to check_records.
    status  OK               checksum and (if walked) structure hold and records_count is exact
            NO_BATCH         too few bytes for a batch; all other fields 0
            BAD_SIZE         impossible length; all other fields 0
            BAD_MAGIC        none of 0, 1, 2; all other fields 0
            OLD_FORMAT       magic 0 or 1; size and magic filled, all other fields 0
            BAD_CRC          the header's fields filled, the records' -1, flags 0
            BAD_RECORDS      the header's fields filled, the records' -1, flags 0
    Bytes after the batch are not looked at. Whether records_count agrees with last_offset_delta is
    left to the caller. Produce calls this for every batch, so the answer is a plain tuple that is
    unpacked at once; BatchCheck(*answer) names it where that is not so.

check_records(payload, records_count, base_timestamp)
    -> (status, min_timestamp, largest_timestamp, delta_of_largest, flags)
    The same of uncompressed record bytes: OK or BAD_RECORDS, and the records' fields.

list_batches(buffer, position, end, batches_max) -> (position, why, [BatchRow])
    Headers of the batches in [position, end), any magic, unverified. `position` is where the walk
    ended; `why` as in scan_log (AT_END, INCOMPLETE, BAD_SIZE, BAD_MAGIC or AT_LIMIT).

scan_log(buffer, end, state, verify_crc, batches_max, bytes_max) -> LogScan
    Walks whole batches of any magic in [0, end) for recovery, loading and followers, and rebuilds
    what the index files would hold. `state` is a ScanState. verify_crc: 0 or 1. AT_LIMIT comes
    before batch number batches_max + 1 and once bytes_max are passed.
    why     AT_END; INCOMPLETE (the last batch is cut); BAD_SIZE; BAD_MAGIC; BAD_CRC; BAD_OFFSET
            (below next_offset, or more than an index entry can say from the segment's base);
            AT_LIMIT

find_offset(buffer, position, end, target_offset)
find_timestamp(buffer, position, end, target_timestamp, starting_offset)
    -> (found, position, size, base_offset, last_offset)
    The first batch whose last offset >= target_offset; the first whose max_timestamp >=
    target_timestamp and whose last offset >= starting_offset. Only headers need lie in
    [position, end). found is 1; or 0 with the position at which to go on, which may lie beyond
    `end`; or -1 at a position that holds no batch. The last three are 0 then.

find_record(payload, records_count, base_offset, base_timestamp, target_timestamp, starting_offset)
    -> (offset, timestamp) | None
    The first record with timestamp >= target_timestamp and offset >= starting_offset. ValueError
    for malformed records up to there.

records_to_columns(parts, spare=None) -> RecordColumns
    parts: a sequence of (payload, records_count, base_offset, base_timestamp, append_time), the
    uncompressed records of one v2 batch each; append_time is None or the timestamp of all. spare is
    an earlier answer that is no longer needed: of its buffers those that nobody else refers to may
    be used again. ValueError for malformed records and for payloads beyond 2 GiB in all.

records_to_tuples(parts, topic, partition, first_offset) -> [ConsumerRecord]
    A row for each record from first_offset on. parts: a sequence of (part, timestamp_type,
    leader_epoch), the first as records_to_columns takes it; leader_epoch may be None. Rows without
    headers share an empty tuple; a header's name that is no UTF-8 gets replacement characters.
    ValueError as in records_to_columns.

encode_records(records, reserve_bytes) -> (encoded, base_timestamp, max_timestamp)
    records: a sequence of (key, value, headers, timestamp); key and value bytes-like or None;
    headers a sequence of (str | bytes, bytes-like | None). encoded is a bytearray of reserve_bytes
    zeros and then the records of one v2 batch: offset deltas 0..n-1, timestamps relative to the
    first.

encode_columns(columns, start, stop, base_offset, reserve_bytes)
    -> (encoded, base_timestamp, max_timestamp)
    The rows [start, stop) of a RecordColumns. base_offset is what the offset deltas are relative
    to; None numbers the rows 0..n-1.

encode_rows(columns, order, start, stop, reserve_bytes) -> (encoded, base_timestamp, max_timestamp)
    The same for rows in any order: order is a buffer of i64 row numbers, of which [start, stop) are
    taken and numbered 0..n-1.

encode_offset_commits(group_id, rows, first_delta, reserve_bytes) -> bytearray
    reserve_bytes zeros and then the records of a group's commit, all with the batch's timestamp,
    numbered from first_delta on. rows: a list of OffsetCommitRow. The key of a record is an
    OffsetCommitKey of type 1; the value is an OffsetCommitValue of version 3, or of version 1,
    which has no leader epoch, where expire_timestamp is not -1. ValueError for strings beyond
    32767 bytes and numbers that do not fit.

seal_batch(batch, base_offset, leader_epoch, attributes, last_offset_delta, base_timestamp,
           max_timestamp, producer_id, producer_epoch, base_sequence, records_count)
    Fills in the first 61 bytes of a writable buffer that is exactly one v2 batch: these numbers,
    its length and, last, its checksum. ValueError for a buffer of an impossible size and for
    numbers that do not fit; the buffer may be half changed then.

key_partitions(offsets, validity, data, start, count, partitions_count) -> bytearray
    i32 for each row [start, start + count) of an Arrow binary column of keys: its partition as
    Kafka's producers find it (murmur2 without the sign bit, modulo partitions_count), -1 for a null
    key. validity may be None. ValueError for buffers that do not fit together.

check_messages(buffer, position, end, verify_crc, message_bytes_max, one_run) -> MessagesCheck
    The entries of a message set of magic 0 or 1 in [position, end); a cut one ends it. verify_crc:
    0 or 1. one_run: 0 walks to the end, 1 stops without complaint before what is compressed, of
    another magic than the first, or no entry at all. What compressed entries hold is not looked at.
    status  OK; BAD_SIZE, BAD_MAGIC, NEW_FORMAT (a v2 batch), TOO_LARGE (an entry above
            message_bytes_max) or BAD_CRC, at the first entry that has it; BAD_RECORDS if nothing
            else and a key or value does not fit its entry

messages_to_records(buffer, position, end, base_offset, append_time, reserve_bytes)
    -> (encoded, base_timestamp, max_timestamp)
    The uncompressed entries that fill [position, end) as records of one v2 batch, as
    encode_records gives them. base_offset: what offset deltas are relative to; None numbers
    0..n-1. append_time: None or the timestamp of all. ValueError for malformed entries and for
    deltas beyond 32 bits.

records_to_messages(part, magic, is_relative, first_offset)
    -> (encoded, count, last_offset, max_timestamp)
    The records of a part, as records_to_columns takes them, from first_offset on as a message set
    of magic 0 or 1, headers dropped. Where the part has an append_time, the messages have
    LogAppendTime. is_relative: 1 makes offsets relative to the first one written. last_offset is
    absolute; it and max_timestamp are -1 for no records. ValueError for malformed records.

list_transactional(buffer, position, end) -> [TransactionalBatch]
    The v2 batches of transactions, data and control, among the whole batches of [position, end).

map_batches(walk, keys, start_offset) -> Mapped
    Puts the keys of the records from start_offset on into the slots of `keys`, a KeyOffsets. `walk`
    is a BatchWalk; batches whose verdict is not FILTER_RECORDS are passed over.
    why     AT_END; INCOMPLETE; BAD_SIZE; BAD_MAGIC; BAD_CRC; BAD_OFFSET (below next_offset);
            BAD_RECORDS; NEEDS_INFLATION (the next batch is compressed and sound); MAP_FULL (it has
            entries_max keys and the next batch another record; those before it in that batch are in
            the map)
    ValueError when the verdicts or the map do not fit.

filter_batches(walk, keys, retention, output) -> Filtered
    Writes into `output` what compaction leaves of the batches of `walk`. A record stays if its
    offset is above the latest_offset of `keys`, or if it has a key, the map knows no later offset
    of the key, and it has a value or is a tombstone to be kept: in v2 as long as the batch has no
    delete horizon or now_ms is before it, in older formats if keep_old_tombstones is 1. A batch
    that stays whole is copied. Another is rewritten with its offsets, sequences and producer; one
    with tombstones gets the delete horizon horizon_ms (unless that is negative), which replaces the
    base timestamp. One without records goes, or stays empty if its last offset is in kept_offsets.
    verdicts, for batches of transactions:
     FILTER_RECORDS  as all others   DELETE_BATCH  it goes   EMPTY_BATCH  it stays, without records
     KEEP_BATCH      it stays        SET_HORIZON   it stays and gets the delete horizon
    why     as above, and OUTPUT_FULL when what is left of the next batch may not fit

xxh32(data) -> int
    xxHash-32 with seed 0: checksums of LZ4 headers and, where a client sends them, of blocks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tidelog.record._results import (
    APPEND_TIME,
    AT_END,
    AT_LIMIT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_OFFSET,
    BAD_RECORDS,
    BAD_SIZE,
    COMPRESSED,
    DELETE_BATCH,
    EMPTY_BATCH,
    FILTER_RECORDS,
    INCOMPLETE,
    KEEP_BATCH,
    MAP_FULL,
    MIXED_MAGIC,
    NEEDS_INFLATION,
    NEW_FORMAT,
    NO_BATCH,
    NO_TIMESTAMP,
    NULL_KEY,
    OK,
    OLD_FORMAT,
    OUTPUT_FULL,
    SET_HORIZON,
    SPARSE_OFFSETS,
    TOO_LARGE,
    WALKED,
    BatchCheck,
    BatchRow,
    BatchWalk,
    ConsumerRecord,
    Filtered,
    KeyOffsets,
    LogScan,
    Mapped,
    MessagesCheck,
    ProducerBatch,
    RecordColumns,
    Retention,
    ScanState,
    TransactionalBatch,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tidelog.record._results import (
        BatchCheckTuple,
        OffsetCommitRow,
        Record,
        RecordsPart,
        TypedPart,
    )
else:
    BatchCheckTuple = Buffer = OffsetCommitRow = Record = RecordsPart = TypedPart = Any

__all__ = [
    "APPEND_TIME",
    "AT_END",
    "AT_LIMIT",
    "BAD_CRC",
    "BAD_MAGIC",
    "BAD_OFFSET",
    "BAD_RECORDS",
    "BAD_SIZE",
    "COMPILED",
    "COMPRESSED",
    "DELETE_BATCH",
    "EMPTY_BATCH",
    "FILTER_RECORDS",
    "INCOMPLETE",
    "KEEP_BATCH",
    "MAP_FULL",
    "MIXED_MAGIC",
    "NEEDS_INFLATION",
    "NEW_FORMAT",
    "NO_BATCH",
    "NO_TIMESTAMP",
    "NULL_KEY",
    "OK",
    "OLD_FORMAT",
    "OUTPUT_FULL",
    "SET_HORIZON",
    "SPARSE_OFFSETS",
    "TOO_LARGE",
    "WALKED",
    "BatchCheck",
    "BatchCheckTuple",
    "BatchRow",
    "BatchWalk",
    "Buffer",
    "ConsumerRecord",
    "Filtered",
    "KeyOffsets",
    "LogScan",
    "Mapped",
    "MessagesCheck",
    "OffsetCommitRow",
    "ProducerBatch",
    "Record",
    "RecordColumns",
    "RecordsPart",
    "Retention",
    "ScanState",
    "TransactionalBatch",
    "TypedPart",
    "check_batch",
    "check_messages",
    "check_records",
    "crc32c",
    "encode_columns",
    "encode_offset_commits",
    "encode_records",
    "encode_rows",
    "filter_batches",
    "find_offset",
    "find_record",
    "find_timestamp",
    "key_partitions",
    "list_batches",
    "list_transactional",
    "map_batches",
    "messages_to_records",
    "records_to_columns",
    "records_to_messages",
    "records_to_tuples",
    "scan_log",
    "seal_batch",
    "xxh32",
]

if TYPE_CHECKING or os.environ.get("TIDELOG_PURE") == "1":
    from tidelog.record import _pure as _chosen
    from tidelog.record import _pure_cleaning as _cleaning

    COMPILED = False
else:
    try:
        from tidelog.record import _kernel as _chosen

        _cleaning = _chosen
        COMPILED = True
    except ImportError:
        from tidelog.record import _pure as _chosen
        from tidelog.record import _pure_cleaning as _cleaning

        COMPILED = False

try:
    crc32c = _chosen.crc32c
    check_batch = _chosen.check_batch
    check_records = _chosen.check_records
    list_batches = _chosen.list_batches
    scan_log = _chosen.scan_log
    find_offset = _chosen.find_offset
    find_timestamp = _chosen.find_timestamp
    find_record = _chosen.find_record
    records_to_columns = _chosen.records_to_columns
    records_to_tuples = _chosen.records_to_tuples
    encode_records = _chosen.encode_records
    encode_columns = _chosen.encode_columns
    encode_rows = _chosen.encode_rows
    encode_offset_commits = _chosen.encode_offset_commits
    seal_batch = _chosen.seal_batch
    key_partitions = _chosen.key_partitions
    check_messages = _chosen.check_messages
    messages_to_records = _chosen.messages_to_records
    records_to_messages = _chosen.records_to_messages
    list_transactional = _cleaning.list_transactional
    map_batches = _cleaning.map_batches
    filter_batches = _cleaning.filter_batches
    xxh32 = _chosen.xxh32
    if not hasattr(_chosen, "LogScan"):
        raise AttributeError("answers have no names")
except AttributeError as error:
    raise ImportError(
        f"the compiled kernel is older than its source ({error}): "
        "build it again with `python setup.py build_ext --inplace`"
    ) from error
