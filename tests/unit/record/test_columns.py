from __future__ import annotations

import pytest

from tests.support.batches import NOW, records_of, simple_batch, with_payload_bytes
from tests.support.message_sets import message_set_of
from tests.support.stored_columns import read_columns
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.columns import StoredRecord
from tidelog.record.errors import InvalidRecords
from tidelog.record.legacy import LegacyRecord


def test_batches_of_all_formats_and_codecs_become_one_table() -> None:
    data, offset = bytearray(), 0
    for codec in (Codec.NONE, Codec.GZIP):
        for magic in (0, 1):
            records = [LegacyRecord(offset + n, NOW, b"k", b"v") for n in range(2)]
            data += message_set_of(records, magic, codec=codec)
            offset += 2
    for codec in Codec:
        data += simple_batch(3, base_offset=offset, codec=codec)
        offset += 3
    columns = read_columns(data)
    assert len(columns) == offset
    assert columns.offsets.tolist() == list(range(offset))


def test_a_row_is_a_record() -> None:
    batch = batch_of([(b"k", None, [("h", b"x"), ("n", None)], NOW)], base_offset=8)
    assert list(read_columns(batch)) == [
        StoredRecord(8, NOW, b"k", None, [("h", b"x"), ("n", None)])
    ]


def test_offsets_of_a_compacted_batch_keep_their_gaps() -> None:
    from tidelog.record import kernel

    encoded, base_timestamp, _ = kernel.encode_records(records_of(6), 0)
    columns = kernel.records_to_columns([(encoded, 6, 0, base_timestamp, None)])
    tail, _, _ = kernel.encode_columns(columns, 4, 6, 0, 0)
    batch = with_payload_bytes(simple_batch(2), bytes(tail))
    assert read_columns(batch).offsets.tolist() == [4, 5]


def test_malformed_records_are_invalid() -> None:
    with pytest.raises(InvalidRecords):
        read_columns(with_payload_bytes(simple_batch(1), b"\x02"))
