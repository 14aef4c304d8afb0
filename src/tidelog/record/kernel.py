"""The record kernel: everything that would loop over records or bytes, in one place.

`_kernel` is compiled C; `_pure` is its twin in Python, equal in every answer, valid input or
hostile, and slow. The compiled one is taken when it was built; TIDELOG_PURE=1 forces the twin.
Neither does I/O, reads a clock or keeps state. All arguments are positional. A buffer is anything
with the buffer protocol (bytes, bytearray, memoryview, mmap) and is not written to, bar offset_map
and output.

crc32c(data, crc=0) -> int
    CRC-32C; feed the last answer as `crc` to go on.

check_batch(data) -> 16 ints: the v2 batch that starts `data`
     0 status              OK, or the first of the problems below
     1 size                of the whole batch, 12 + batch_length
     2 base_offset    3 magic    4 attributes    5 last_offset_delta    6 base_timestamp
     7 max_timestamp (header)    8 producer_id   9 producer_epoch      10 base_sequence
    11 records_count
    12 min_timestamp       smallest of the records' own timestamps other than -1; -1 if none
    13 largest_timestamp   of the records' own timestamps, at least -1
    14 delta_of_largest    offset delta of the first record that has it; -1 if none
    15 flags               WALKED (uncompressed: 12-14 were found), NULL_KEY, SPARSE_OFFSETS
   The records of uncompressed batches are walked; compressed ones are left to check_records.
   status  OK               checksum and (if walked) structure hold and records_count is exact
           NO_BATCH         too few bytes for a batch; all other fields 0
           BAD_SIZE         impossible length; all other fields 0
           BAD_MAGIC        none of 0, 1, 2; all other fields 0
           OLD_FORMAT       magic 0 or 1; size and magic filled, all other fields 0
           BAD_CRC          1-11 filled, 12-14 are -1, 15 is 0
           BAD_RECORDS      1-11 filled, 12-14 are -1, 15 is 0
   Bytes after the batch are not looked at. Whether records_count agrees with last_offset_delta is
   left to the caller.

check_records(payload, records_count, base_timestamp) -> 5 ints
    status (OK or BAD_RECORDS), then fields 12-15 of check_batch, for uncompressed record bytes.

list_batches(buffer, position, end, batches_max) -> (position, why, [13 ints each])
    Headers of the batches in [position, end), any magic, unverified. Each is
     0 position  1 size  2 magic  3 attributes  4 base_offset  5 last_offset  6 leader_epoch
     7 base_timestamp  8 max_timestamp  9 producer_id  10 producer_epoch  11 base_sequence
    12 records_count
    In v0/v1 base_offset = last_offset = the wrapper's offset, base_timestamp = max_timestamp,
    records_count 1 or, compressed, -1, the others -1. `position` is where the walk ended; `why` as
    in scan_log (AT_END, INCOMPLETE, BAD_SIZE, BAD_MAGIC or AT_LIMIT).

scan_log(buffer, position, end, file_position, segment_base_offset, next_offset,
         index_interval_bytes, bytes_since_last_index_entry, max_timestamp,
         offset_of_max_timestamp, last_time_index_timestamp, leader_epoch, verify_crc,
         batches_max, bytes_max)
    Walks whole batches of any magic in [position, end) for recovery, loading and followers, and
    rebuilds what the index files would hold. `file_position` is the place of buffer[0] in its file.
    The values from next_offset to leader_epoch (bar the interval) are state: for a whole segment
    begin with its base offset, 0 bytes, -1, -1, -1 and the last known epoch (-1), and hand back
    what came out to go on. verify_crc: 0 or 1. AT_LIMIT comes before batch number batches_max + 1
    and once bytes_max are passed.
    -> 13 values
     0 position             end of the last good batch
     1 why                  AT_END; INCOMPLETE (the last batch is cut); BAD_SIZE; BAD_MAGIC;
                            BAD_CRC; BAD_OFFSET (below next_offset, or more than an index entry can
                            say from the segment's base); AT_LIMIT
     2 next_offset  3 max_timestamp  4 offset_of_max_timestamp (last offset of the first batch with
     it)  5 bytes_since_last_index_entry  6 last_time_index_timestamp  7 leader_epoch
     8 batches_count
     9 offset index         bytes, 8 each, big-endian (last offset - base i32, file position i32)
    10 time index           bytes, 12 each, big-endian (timestamp i64, offset - base i32)
    11 epochs               [(leader_epoch, base_offset)] where the epoch grows
    12 producers            [(producer_id, producer_epoch, base_sequence, last_sequence,
                            base_offset, last_offset, max_timestamp, attributes, file position,
                            control_type, coordinator_epoch)], one per batch with a producer id;
                            the last two -1 unless it is a readable control batch

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

records_to_columns(parts, spare=None) -> 15 values
    parts: a sequence of (payload, records_count, base_offset, base_timestamp, append_time), the
    uncompressed records of one v2 batch each; append_time is None or the timestamp of all.
     0 count                 1 offsets i64          2 timestamps i64
     3 key_offsets i32       4 key_validity         5 key_data
     6 value_offsets i32     7 value_validity       8 value_data
     9 header_offsets i32   10 header_key_offsets i32   11 header_key_data
    12 header_value_offsets i32   13 header_value_validity   14 header_value_data
    bytearrays in native byte order, laid out as Arrow does: n + 1 offsets, validity bitmaps with
    the low bit first, header_offsets as the offsets of a list column. spare is an earlier answer
    that is no longer needed: of its buffers those that nobody else refers to may be used again.
    ValueError for malformed records and for payloads beyond 2 GiB in all.

encode_records(records, reserve_bytes) -> (encoded, base_timestamp, max_timestamp)
    records: a sequence of (key, value, headers, timestamp); key and value bytes-like or None;
    headers a sequence of (str | bytes, bytes-like | None). encoded is a bytearray of reserve_bytes
    zeros and then the records of one v2 batch: offset deltas 0..n-1, timestamps relative to the
    first.

encode_columns(columns, start, stop, base_offset, reserve_bytes)
    -> (encoded, base_timestamp, max_timestamp)
    The rows [start, stop) of what records_to_columns gave. base_offset is what the offset deltas
    are relative to; None numbers the rows 0..n-1.

encode_rows(columns, order, start, stop, reserve_bytes) -> (encoded, base_timestamp, max_timestamp)
    The same for rows in any order: order is a buffer of i64 row numbers, of which [start, stop) are
    taken and numbered 0..n-1.

key_partitions(offsets, validity, data, start, count, partitions_count) -> bytearray
    i32 for each row [start, start + count) of an Arrow binary column of keys: its partition as
    Kafka's producers find it (murmur2 without the sign bit, modulo partitions_count), -1 for a null
    key. validity may be None. ValueError for buffers that do not fit together.

check_messages(buffer, position, end, verify_crc, message_bytes_max, one_run) -> 9 ints
    The entries of a message set of magic 0 or 1 in [position, end); a cut one ends it. verify_crc:
    0 or 1. one_run: 0 walks to the end, 1 stops without complaint before what is compressed, of
    another magic than the first, or no entry at all.
     0 status               OK; BAD_SIZE, BAD_MAGIC, NEW_FORMAT (a v2 batch), TOO_LARGE (an entry
                            above message_bytes_max) or BAD_CRC, at the first entry that has it;
                            BAD_RECORDS if nothing else and a key or value does not fit its entry
     1 position             end of the last entry counted
     2 count
     3 magic of the first   4 its offset   5 offset of the last                    -1 if none
     6 min_timestamp        7 largest_timestamp, as in check_batch
     8 flags                NULL_KEY, COMPRESSED, MIXED_MAGIC, APPEND_TIME (any entry has it),
                            NO_TIMESTAMP (any entry lacks one)
    Compressed entries count as one; what they hold is not looked at.

messages_to_records(buffer, position, end, base_offset, append_time, reserve_bytes)
    -> (encoded, base_timestamp, max_timestamp)
    The uncompressed entries that fill [position, end) as records of one v2 batch, as
    encode_records gives them. base_offset: what offset deltas are relative to; None numbers
    0..n-1. append_time: None or the timestamp of all. ValueError for malformed entries and for
    deltas beyond 32 bits.

records_to_messages(payload, records_count, base_offset, base_timestamp, append_time, magic,
                    is_relative, first_offset) -> (encoded, count, last_offset, max_timestamp)
    The records of a v2 batch from first_offset on as a message set of magic 0 or 1, headers
    dropped. append_time: None, or the timestamp of all, which then are LogAppendTime. is_relative:
    1 makes offsets relative to the first one written. last_offset is absolute; it and max_timestamp
    are -1 for no records. ValueError for malformed records.

list_transactional(buffer, position, end) -> [7 ints each]
    The v2 batches of transactions, data and control, among the whole batches of [position, end):
     0 last_offset  1 attributes  2 producer_id  3 producer_epoch  4 base_timestamp
     5 records_count  6 control_type (-1 unless it is a readable control batch)

map_batches(buffer, offset_map, hash_key, verdicts, position, end, next_offset, verify_crc,
            entries, entries_max, start_offset, latest_offset) -> 7 ints
    Puts the keys of the records from start_offset on into the offset map, which is written to: one
    flat buffer of 24-byte slots in native order (128-bit hash of the key, offset + 1), all zeros
    when empty. The hash is SipHash-2-4-128 under the 16 bytes of hash_key. verdicts has a byte for
    each row of list_transactional; batches whose byte is not FILTER_RECORDS are passed over.
    next_offset, entries (keys in the map) and latest_offset (last one mapped or passed) are state.
     0 position             end of the last batch that is mapped
     1 why                  AT_END; INCOMPLETE; BAD_SIZE; BAD_MAGIC; BAD_CRC; BAD_OFFSET (below
                            next_offset); BAD_RECORDS; NEEDS_INFLATION (the next batch is compressed
                            and sound); MAP_FULL (it has entries_max keys and the next batch another
                            record; those before it in that batch are in the map)
     2 next_offset  3 entries  4 latest_offset  5 verdicts used  6 records
    ValueError when the verdicts or the map do not fit.

filter_batches(buffer, offset_map, hash_key, verdicts, kept_offsets, output, position, end,
               next_offset, verify_crc, latest_offset, now_ms, horizon_ms, keep_old_tombstones)
    -> 9 ints
    Writes into `output` what compaction leaves of the batches in [position, end). A record stays
    if its offset is above latest_offset, or if it has a key, the map knows no later offset of the
    key, and it has a value or is a tombstone to be kept: in v2 as long as the batch has no delete
    horizon or now_ms is before it, in older formats if keep_old_tombstones is 1. A batch that stays
    whole is copied. Another is rewritten with its offsets, sequences and producer; one with
    tombstones gets the delete horizon horizon_ms (unless that is negative), which replaces the base
    timestamp. One without records goes, or stays empty if its last offset is in kept_offsets
    (ascending i64 in native order). verdicts as above, for batches of transactions:
     FILTER_RECORDS  as all others   DELETE_BATCH  it goes   EMPTY_BATCH  it stays, without records
     KEEP_BATCH      it stays        SET_HORIZON   it stays and gets the delete horizon
     0 position  1 why  as above, and OUTPUT_FULL when what is left of the next batch may not fit
     2 next_offset  3 bytes written  4 verdicts used  5 records read  6 records kept
     7 batches rewritten or emptied  8 records without a key, which go

xxh32(data) -> int
    xxHash-32 with seed 0: checksums of LZ4 headers and, where a client sends them, of blocks.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer as Buffer

    Record = tuple[Buffer | None, Buffer | None, Sequence[tuple[str | bytes, Buffer | None]], int]
    RecordsPart = tuple[Buffer, int, int, int, int | None]
    ColumnsTuple = tuple[
        int,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
        bytearray,
    ]
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
    encode_records = _chosen.encode_records
    encode_columns = _chosen.encode_columns
    encode_rows = _chosen.encode_rows
    key_partitions = _chosen.key_partitions
    check_messages = _chosen.check_messages
    messages_to_records = _chosen.messages_to_records
    records_to_messages = _chosen.records_to_messages
    list_transactional = _cleaning.list_transactional
    map_batches = _cleaning.map_batches
    filter_batches = _cleaning.filter_batches
    xxh32 = _chosen.xxh32
except AttributeError as error:
    raise ImportError(
        f"the compiled kernel is older than its source ({error}): "
        "build it again with `python setup.py build_ext --inplace`"
    ) from error
