"""Confluent's frame before a record: a zero byte, the id of a schema in four bytes (the highest
first), and for Protobuf the indexes of the message in that schema.

The indexes are zigzag numbers: how many there are, then the index of the message in the file, and
of each nested one in the one around it. A single zero stands for the first message. Ids that stand
in headers of the record are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.codecs.arrow_arrays import buffer_of
from tidelog.spark.codecs.broken_rows import BrokenRows, Indexes

FRAME_BYTES: Final = 5
MAGIC_BYTE: Final = 0
INDEXES_MAX: Final = 64
_BYTE_AND_ID = struct.Struct(">BI")


def framed(records: Any, schema_id: int, indexes: bytes = b"") -> Any:
    """A binary array with the frame before each value."""
    prefix = pa.scalar(_BYTE_AND_ID.pack(MAGIC_BYTE, schema_id) + indexes, pa.binary())
    return pc.binary_join_element_wise(prefix, records, pa.scalar(b"", pa.binary()))


def schema_ids(values: Any, rows: Indexes, broken: BrokenRows) -> tuple[Indexes, Indexes]:
    """Those of `rows` of a binary array that begin with a frame, and their ids."""
    lengths = pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False)[rows]
    broken.add(rows[lengths < FRAME_BYTES], f"has no frame: it is shorter than {FRAME_BYTES} bytes")
    rows = rows[lengths >= FRAME_BYTES]
    data, offsets = buffer_of(values)
    matrix = data[offsets[rows][:, None] + np.arange(FRAME_BYTES)]
    is_framed = matrix[:, 0] == MAGIC_BYTE
    broken.add(rows[~is_framed], "has no frame: its first byte is not 0")
    ids = matrix[is_framed, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    return rows[is_framed], ids


def records_behind(
    values: Any, rows: Indexes, broken: BrokenRows
) -> Iterator[tuple[tuple[int, ...], Indexes, list[bytes]]]:
    """Indexes of a message, the rows that have them, and the records behind the frames."""
    data, offsets = buffer_of(values)
    is_first = data[offsets[rows] + FRAME_BYTES] == 0  # the byte that most frames have
    is_first &= offsets[rows + 1] > offsets[rows] + FRAME_BYTES
    if is_first.any():
        own = rows[is_first]
        framed_ones = values.take(pa.array(own)).to_pylist()
        yield (0,), own, [value[FRAME_BYTES + 1 :] for value in framed_ones]
    others: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
    for row in rows[~is_first].tolist():
        value = values[row].as_py()
        try:
            indexes, start = message_indexes(value, FRAME_BYTES)
        except ValueError as cut:
            broken.add(np.array([row]), str(cut))
            continue
        own_rows, records = others.setdefault(indexes, ([], []))
        own_rows.append(row)
        records.append(value[start:])
    for indexes, (own_rows, records) in others.items():
        yield indexes, np.array(own_rows), records


def message_indexes(value: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The indexes of a message and where it begins; raises ValueError when there are none."""
    count, position = _varint(value, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise ValueError("has no frame of Protobuf: it has no message indexes")
    found = []
    for _ in range(count):
        index, position = _varint(value, position)
        found.append(index)
    return tuple(found), position


def encoded_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    number <<= 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise ValueError("has no frame of Protobuf: it has no message indexes")
