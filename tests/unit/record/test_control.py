from __future__ import annotations

import pytest
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import NOW, with_payload_bytes
from tidelog.record.batch import BatchHeader
from tidelog.record.builder import batch_of
from tidelog.record.control import (
    ControlType,
    EndTransactionMarker,
    marker_batch,
    read_marker,
)
from tidelog.record.errors import InvalidRecords


def marker(control_type: ControlType) -> bytearray:
    return marker_batch(
        EndTransactionMarker(control_type, 9),
        producer_id=4,
        producer_epoch=1,
        timestamp=NOW,
        base_offset=30,
    )


@pytest.mark.parametrize("control_type", list(ControlType))
def test_a_marker_is_kafkas_78_bytes(control_type: ControlType) -> None:
    batch = marker(control_type)
    header = BatchHeader(batch)
    assert len(batch) == 78
    assert header.attributes == 0x30
    assert (header.base_sequence, header.records_count) == (-1, 1)
    assert batch[61:].hex() == f"20000000080000000{control_type:d}0c00000000000900"


@pytest.mark.parametrize("control_type", list(ControlType))
def test_a_marker_is_read_back(control_type: ControlType) -> None:
    assert read_marker(marker(control_type)) == (control_type, 9)


def test_kafka_python_sees_a_control_batch() -> None:
    batch = KafkaPythonRecords(bytes(marker(ControlType.ABORT))).next_batch()
    assert batch.is_control_batch
    assert batch.validate_crc()


def test_control_records_of_other_kinds_are_no_markers() -> None:
    key = bytes.fromhex("00000002")
    assert read_marker(batch_of([(key, b"", (), NOW)], is_control=True)) is None


def test_an_unreadable_marker_is_refused() -> None:
    with pytest.raises(InvalidRecords):
        read_marker(with_payload_bytes(marker(ControlType.ABORT), b"\x02"))
