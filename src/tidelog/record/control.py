"""Control batches: end-transaction markers, which readers obey and applications never see.

A control batch holds one record. Its key is version i16 (0) and type i16 (0 abort, 1 commit); the
value of a marker is version i16 (0) and coordinator_epoch i32. With the header that makes 78 bytes.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, BatchHeader
from tidelog.record.builder import batch_of
from tidelog.record.errors import InvalidRecords
from tidelog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from tidelog.record.kernel import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


def marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    key = _KEY.pack(0, marker.control_type)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return batch_of(
        [(key, value, (), timestamp)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker in a control batch; None for control records of other kinds."""
    view = memoryview(batch).cast("B")
    header = BatchHeader(view)
    part = (view[HEADER_SIZE : header.size], header.records_count, 0, 0, None)
    try:
        columns = kernel.records_to_columns([part])
        _, control_type = _KEY.unpack_from(columns.key_data)
    except ValueError as problem:
        raise InvalidRecords(f"A control batch is unreadable: {problem}.") from None
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(columns.value_data)
    return EndTransactionMarker(ControlType(control_type), coordinator_epoch)
