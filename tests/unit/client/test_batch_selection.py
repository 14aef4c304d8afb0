"""Which batches of an answer are read: ranges, control batches, aborted transactions, damage."""

from __future__ import annotations

import pytest

from tests.support.batches import NOW, simple_batch, with_fields, with_payload_bytes
from tidelog.client.columns.batch_selection import NO_TIMESTAMP_TYPE, parts_of, select_batches
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.protocol.messages.fetch import AbortedTransaction
from tidelog.record import kernel
from tidelog.record.batch import TRANSACTIONAL_BIT, Codec
from tidelog.record.columns import columns_of
from tidelog.record.compression import compress
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.record.legacy import encode_message
from tidelog.types import TopicPartition

TP = TopicPartition("t", 0)
END = 1 << 60


def of_producer(producer_id: int, base_offset: int, count: int = 2) -> bytes:
    batch = simple_batch(
        count,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    return bytes(batch)


def marker(producer_id: int, offset: int, control_type: ControlType) -> bytes:
    return bytes(
        marker_batch(
            EndTransactionMarker(control_type, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=NOW,
            base_offset=offset,
        )
    )


def old_messages(magic: int, codec: Codec) -> bytes:
    """Three messages at offsets 4 to 6, in one wrapper if compressed."""
    first = 4 if magic == 0 or codec == Codec.NONE else 0
    inner = b"".join(encode_message(magic, first + row, NOW, b"k", b"v") for row in range(3))
    if codec == Codec.NONE:
        return inner
    return encode_message(magic, 6, NOW, None, compress(codec, inner, magic=magic), int(codec))


def offsets(
    data: bytes,
    start: int = 0,
    end: int = END,
    aborted: list[AbortedTransaction] | None = None,
) -> list[int]:
    """Offsets of all records in the batches that were taken."""
    selection = select_batches(TP, memoryview(data), start, end, aborted)
    parts = [part.records for part in parts_of(TP, selection, check_crcs=True)]
    return list(columns_of(parts).offsets)


def test_batches_outside_the_range_are_left_alone() -> None:
    data = b"".join(bytes(simple_batch(3, base_offset=base)) for base in (0, 3, 6, 9))
    assert offsets(data, 4, 7) == [3, 4, 5, 6, 7, 8]
    assert offsets(data, 3, 6) == [3, 4, 5]


def test_the_next_offset_is_after_the_last_whole_batch() -> None:
    data = bytes(simple_batch(3)) + bytes(simple_batch(3, base_offset=3))[:-1]
    selection = select_batches(TP, memoryview(data), 0, END, None)
    assert selection.next_offset == 3
    assert len(selection.batches) == 1


def test_a_batch_cut_off_alone_tells_its_size() -> None:
    batch = bytes(simple_batch(3))
    for cut in (20, 100):
        selection = select_batches(TP, memoryview(batch[:cut]), 0, END, None)
        assert selection.next_offset is None
        assert selection.size_needed == len(batch)
    assert select_batches(TP, memoryview(batch[:5]), 0, END, None).size_needed > 5


def test_a_batch_emptied_by_compaction_moves_the_position() -> None:
    emptied = with_payload_bytes(simple_batch(5, base_offset=5), b"")
    data = bytes(with_fields(emptied, records_count=0))
    selection = select_batches(TP, memoryview(data), 5, END, None)
    assert selection.next_offset == 10
    assert list(parts_of(TP, selection, check_crcs=True)) == []


def test_control_batches_are_never_seen() -> None:
    data = of_producer(7, 0) + marker(7, 2, ControlType.COMMIT) + bytes(simple_batch(base_offset=3))
    assert offsets(data) == [0, 1, 3, 4, 5]
    assert offsets(data, aborted=[]) == [0, 1, 3, 4, 5]


def test_read_committed_leaves_aborted_transactions_out() -> None:
    data = (
        of_producer(7, 0)
        + of_producer(8, 2)
        + marker(7, 4, ControlType.ABORT)
        + of_producer(7, 5)
        + marker(8, 7, ControlType.COMMIT)
        + marker(7, 8, ControlType.COMMIT)
    )
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert offsets(data, aborted=aborted) == [2, 3, 5, 6]
    assert offsets(data) == [0, 1, 2, 3, 5, 6]


def test_a_transaction_that_began_before_the_answer_is_left_out_too() -> None:
    data = of_producer(7, 10) + marker(7, 12, ControlType.ABORT) + of_producer(7, 13)
    aborted = [AbortedTransaction(producer_id=7, first_offset=2)]
    assert offsets(data, 10, aborted=aborted) == [13, 14]


def test_two_aborted_transactions_of_one_producer() -> None:
    data = (
        of_producer(7, 0)
        + marker(7, 2, ControlType.ABORT)
        + of_producer(7, 3)
        + marker(7, 5, ControlType.COMMIT)
        + of_producer(7, 6)
        + marker(7, 8, ControlType.ABORT)
    )
    aborted = [
        AbortedTransaction(producer_id=7, first_offset=6),
        AbortedTransaction(producer_id=7, first_offset=0),
    ]
    assert offsets(data, aborted=aborted) == [3, 4]


def test_plain_batches_of_an_aborting_producer_are_kept() -> None:
    plain = with_fields(bytearray(of_producer(7, 0)), attributes=0)
    assert plain[21:23] != TRANSACTIONAL_BIT.to_bytes(2, "big")
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert offsets(bytes(plain), aborted=aborted) == [0, 1]


@pytest.mark.parametrize("codec", list(Codec))
def test_all_codecs_are_read(codec: Codec) -> None:
    assert offsets(bytes(simple_batch(5, codec=codec, base_offset=4))) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_formats_are_read(magic: int, codec: Codec) -> None:
    data = old_messages(magic, codec)
    assert offsets(data) == [4, 5, 6]
    selection = select_batches(TP, memoryview(data), 0, END, [])
    kinds = {part.timestamp_type for part in parts_of(TP, selection, check_crcs=True)}
    assert kinds == {NO_TIMESTAMP_TYPE if magic == 0 else 0}


def test_append_time_is_the_timestamp_of_all() -> None:
    data = bytes(simple_batch(2, append_time_ms=77))
    selection = select_batches(TP, memoryview(data), 0, END, None)
    (part,) = parts_of(TP, selection, check_crcs=True)
    assert part.timestamp_type == 1
    assert list(columns_of([part.records]).timestamps) == [77, 77]


def test_a_wrong_checksum_is_an_error_that_names_partition_and_offset() -> None:
    damaged = bytes(with_fields(simple_batch(base_offset=42), crc=1))
    with pytest.raises(CorruptRecordsFetched, match=r"t-0, batch at offset 42.*checksum"):
        offsets(damaged)
    selection = select_batches(TP, memoryview(damaged), 0, END, None)
    assert len(list(parts_of(TP, selection, check_crcs=False))) == 1


def test_a_payload_that_does_not_decompress_is_an_error() -> None:
    batch = with_fields(simple_batch(base_offset=1), attributes=int(Codec.ZSTD))
    with pytest.raises(CorruptRecordsFetched, match=r"t-0, batch at offset 1.*zstd"):
        offsets(bytes(batch))


def test_bytes_that_are_no_batch_are_an_error() -> None:
    with pytest.raises(CorruptRecordsFetched, match="t-0, fetch from offset 3"):
        offsets(bytes(100), 3)


def test_one_call_decodes_what_many_batches_hold() -> None:
    data = b"".join(bytes(simple_batch(10, base_offset=base)) for base in range(0, 1000, 10))
    selection = select_batches(TP, memoryview(data), 0, END, None)
    parts = [part.records for part in parts_of(TP, selection, check_crcs=True)]
    assert kernel.records_to_columns(parts).records_count == 1000
