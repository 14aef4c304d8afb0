"""Records as Arrow record batches, in exactly the form of Spark's kafka source.

    key            binary
    value          binary
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[us, UTC]
    timestampType  int32     0 create time, 1 log append time, -1 none (messages of Kafka 0.9)
    headers        list<struct<key: string, value: binary>>, only if asked for; null where a
                   record has none

The buffers of key, value and headers are those the kernel wrote, unchanged. Topic, partition and
timestamp type hardly change, so they are slices of constant columns made once. Memory that is used
for the first time costs more than the decoding into it, so the kernel gets the buffers of batches
that are gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from tidelog.record import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.record.kernel import RecordColumns, RecordsPart
    from tidelog.types import TopicPartition

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS: Final = pa.list_(pa.field("element", HEADER))

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS))

_CONSTANT_ROWS_MIN = 65_536
# Whoever iterates over batches still holds the last one when the next is made.
_BATCHES_IN_USE = 2


class Run(NamedTuple):
    """Rows that come from one range of one partition, and have one timestamp type."""

    partition: TopicPartition
    timestamp_type: int
    rows: int
    start_offset: int  # rows before it are to be left out
    end_offset: int  # rows from it on as well


class BatchAssembler:
    """Makes record batches of records; keeps constant columns and buffers between calls."""

    __slots__ = ("_constants", "_decoded", "schema")

    def __init__(self, *, with_headers: bool) -> None:
        self.schema = SCHEMA_WITH_HEADERS if with_headers else SCHEMA
        self._constants: dict[tuple[Any, Any], Any] = {}
        self._decoded: deque[RecordColumns] = deque()

    def decode(self, parts: Sequence[RecordsPart]) -> RecordColumns:
        """The kernel's columns of the parts; raises ValueError for malformed records."""
        is_full = len(self._decoded) == _BATCHES_IN_USE
        columns = kernel.records_to_columns(parts, self._decoded.popleft() if is_full else None)
        self._decoded.append(columns)
        return columns

    def assemble(
        self, columns: RecordColumns, runs: Sequence[Run], rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """The wanted rows in order, in batches of at most `rows_max` (slices of one whole)."""
        whole = self._record_batch(columns, runs)
        for start, stop in wanted_stretches(memoryview(columns.offsets).cast("q"), runs):
            for first in range(start, stop, rows_max):
                rows = min(rows_max, stop - first)
                yield whole if rows == whole.num_rows else whole.slice(first, rows)

    def _record_batch(self, columns: RecordColumns, runs: Sequence[Run]) -> pa.RecordBatch:
        count = columns.records_count
        arrays = [
            binary_array(count, columns.key_validity, columns.key_offsets, columns.key_data),
            binary_array(count, columns.value_validity, columns.value_offsets, columns.value_data),
            self._constant_runs(pa.string(), [(run.partition.topic, run.rows) for run in runs]),
            self._constant_runs(pa.int32(), [(run.partition.partition, run.rows) for run in runs]),
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
            timestamp_array(count, columns.timestamps),
            self._constant_runs(pa.int32(), [(run.timestamp_type, run.rows) for run in runs]),
        ]
        if len(self.schema) > len(arrays):
            arrays.append(headers_array(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant_runs(self, type: Any, runs: list[tuple[Any, int]]) -> Any:
        merged: list[tuple[Any, int]] = []
        for value, rows in runs:
            if merged and merged[-1][0] == value:
                merged[-1] = value, merged[-1][1] + rows
            else:
                merged.append((value, rows))
        pieces = [self._constant(type, value, rows) for value, rows in merged]
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def _constant(self, type: Any, value: Any, rows: int) -> Any:
        column = self._constants.get((type, value))
        if column is None or len(column) < rows:
            column = constant_array(type, value, max(rows, _CONSTANT_ROWS_MIN))
            self._constants[type, value] = column
        return column.slice(0, rows)


def wanted_stretches(offsets: memoryview, runs: Sequence[Run]) -> list[tuple[int, int]]:
    """Row ranges that lie inside their run's offsets, as few as possible."""
    stretches: list[tuple[int, int]] = []
    first = 0
    for run in runs:
        after = first + run.rows
        start = bisect_left(offsets, run.start_offset, first, after)
        stop = bisect_left(offsets, run.end_offset, start, after)
        if stretches and stretches[-1][1] == start:
            stretches[-1] = stretches[-1][0], stop
        elif start < stop:
            stretches.append((start, stop))
        first = after
    return stretches


@lru_cache(maxsize=64)
def constant_array(type: Any, value: str | int, count: int) -> Any:
    """The text or int32 so many times. Not by pa.scalar: that imports pandas, a third of a second
    for each Python worker that Spark starts."""
    if isinstance(value, str):
        text = value.encode()
        ends = array("i", range(0, (count + 1) * len(text), len(text))) if text else None
        offsets = pa.py_buffer(ends if ends is not None else bytes(4 * (count + 1)))
        return pa.Array.from_buffers(type, count, [None, offsets, pa.py_buffer(text * count)])
    return pa.Array.from_buffers(type, count, [None, pa.py_buffer(array("i", [value]) * count)])


def binary_array(count: int, validity: bytearray, offsets: bytearray, data: bytearray) -> Any:
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def timestamp_array(count: int, milliseconds: bytearray) -> Any:
    """Milliseconds of which there are no as many microseconds raise pa.ArrowInvalid."""
    column = pa.Array.from_buffers(
        pa.timestamp("ms", tz="UTC"), count, [None, pa.py_buffer(milliseconds)]
    )
    return column.cast(TIMESTAMP)


def headers_array(columns: RecordColumns) -> Any:
    count = columns.records_count
    headers_count = len(columns.header_key_offsets) // 4 - 1
    if headers_count == 0:
        return pa.nulls(count, HEADERS)
    keys = pa.Array.from_buffers(
        pa.binary(),
        headers_count,
        [None, pa.py_buffer(columns.header_key_offsets), pa.py_buffer(columns.header_key_data)],
    )
    values = binary_array(
        headers_count,
        columns.header_value_validity,
        columns.header_value_offsets,
        columns.header_value_data,
    )
    structs = pa.StructArray.from_arrays([_text_array(keys), values], fields=list(HEADER))
    offsets = pa.Array.from_buffers(
        pa.int32(), count + 1, [None, pa.py_buffer(columns.header_offsets)]
    )
    return pa.ListArray.from_arrays(offsets, structs, type=HEADERS, mask=_is_empty(offsets))


def _is_empty(offsets: Any) -> Any:
    import pyarrow.compute as pc

    return pc.equal(offsets.slice(1), offsets.slice(0, len(offsets) - 1))


def _text_array(binary: Any) -> Any:
    """Header keys as text; what is no UTF-8 is replaced as Java does when it decodes."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [key.decode(errors="replace") for key in binary.to_pylist()]
        return pa.array(texts, pa.string())
