"""Batches against foreign readers and writers: kafka-python and aiokafka, both directions."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import NOW, codecs, record_lists
from tests.support.stored_columns import read_columns
from tidelog.record import kernel
from tidelog.record.batch import BatchHeader, Codec
from tidelog.record.builder import batch_of, finish_batch

RECORDS: list[Any] = [
    (b"key", b"value", [("name", b"content"), ("null", None)], NOW),
    (None, b"v" * 300, [], NOW + 5),
    (b"", None, [], NOW - 3),
    (b"k" * 70_000, b"v" * 70_000, [("h" * 100, b"")], NOW + 100_000),
]

every_codec = pytest.mark.parametrize("codec", list(Codec))
readers = pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])


def read_by(reader: Any, data: bytes) -> list[Any]:
    records = reader(data)
    read = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        read += [
            (record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in batch
        ]
    return read


def as_read(records: Any, base_offset: int = 0) -> list[Any]:
    return [
        (base_offset + index, timestamp, key, value, list(headers))
        for index, (key, value, headers, timestamp) in enumerate(records)
    ]


@every_codec
@readers
def test_foreign_clients_read_our_batches(codec: Codec, reader: Any) -> None:
    data = bytes(batch_of(RECORDS, base_offset=1000, codec=codec))
    assert read_by(reader, data) == as_read(RECORDS, 1000)


@settings(deadline=None, max_examples=60)
@given(record_lists, codecs)
def test_whatever_we_write_foreign_clients_and_we_read(records: Any, codec: Codec) -> None:
    if not records:
        return
    data = bytes(batch_of(records, codec=codec))
    assert read_by(KafkaPythonRecords, data) == as_read(records)
    assert [tuple(record) for record in read_columns(data)] == as_read(records)


@every_codec
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])
def test_we_read_batches_of_foreign_clients(codec: Codec, builder: Any) -> None:
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=9,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for index, (key, value, headers, timestamp) in enumerate(RECORDS):
        assert made.append(index, timestamp, key, value, headers) is not None
    data = bytes(made.build())
    check = kernel.BatchCheck(*kernel.check_batch(data))
    assert check.status == kernel.OK
    assert (check.producer_id, check.producer_epoch) == (9, 3)
    assert (check.base_sequence, check.records_count) == (17, len(RECORDS))
    assert [tuple(record) for record in read_columns(data)] == as_read(RECORDS)


def test_uncompressed_bytes_equal_those_of_kafka_python() -> None:
    made = KafkaPythonBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, (key, value, headers, timestamp) in enumerate(RECORDS):
        made.append(index, timestamp, key, value, headers)
    # Foreign producers send partition_leader_epoch 0 or -1; the leader stamps it anyway.
    ours = batch_of(RECORDS)
    theirs = made.build()
    assert ours[:12] == theirs[:12]
    assert ours[16:] == theirs[16:]


def test_golden_bytes_of_one_record() -> None:
    batch = batch_of([(b"k", b"v", [("h", b"x")], NOW)], base_offset=5, leader_epoch=1)
    assert batch.hex() == (
        "0000000000000005"  # base_offset
        "0000003e"  # batch_length
        "00000001"  # partition_leader_epoch
        "02"  # magic
        "5e93538d"  # crc
        "0000"  # attributes
        "00000000"  # last_offset_delta
        "0000018bcfe56800"  # base_timestamp
        "0000018bcfe56800"  # max_timestamp
        "ffffffffffffffff"  # producer_id
        "ffff"  # producer_epoch
        "ffffffff"  # base_sequence
        "00000001"  # records_count
        "18"  # length 12
        "00"  # attributes
        "00"  # timestamp delta
        "00"  # offset delta
        "026b"  # key
        "0276"  # value
        "02"  # one header
        "0268"  # its name
        "0278"  # its value
    )


def test_append_time_is_the_timestamp_of_every_record() -> None:
    data = batch_of(RECORDS, append_time_ms=NOW + 7)
    assert [record.timestamp for record in read_columns(data)] == [NOW + 7] * len(RECORDS)
    assert read_by(KafkaPythonRecords, bytes(data))[0][1] == NOW + 7


def test_an_emptied_batch_keeps_offsets_and_sequence() -> None:
    emptied = finish_batch(
        bytearray(61),
        codec=Codec.NONE,
        level=None,
        base_offset=10,
        leader_epoch=2,
        attributes=0,
        last_offset_delta=4,
        base_timestamp=-1,
        max_timestamp=NOW,
        producer_id=3,
        producer_epoch=0,
        base_sequence=40,
        records_count=0,
    )
    left = BatchHeader(emptied)
    assert (left.base_offset, left.last_offset, left.records_count) == (10, 14, 0)
    assert (left.base_timestamp, left.last_sequence) == (-1, 44)
    assert kernel.check_batch(emptied)[0] == kernel.OK
    assert list(read_columns(emptied)) == []
