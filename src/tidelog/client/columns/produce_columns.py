"""Rows of an Arrow record batch as the columns that the kernel encodes.

Columns are taken by name: `key`, `value` (binary or string, nullable), `topic` (string),
`partition` (int32), `headers` (list<struct<key: string, value: binary>>) and `timestamp`; only
`value` must be there. Large types and dictionaries are cast. Rows of several topics are split by
topic, rows of several partitions are encoded in the order of a stable sort, so the order of rows
within a partition is kept; no row is moved, and none is ever a Python object.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.client.columns.arrow import HEADERS, TIMESTAMP
from tidelog.client.errors import InvalidRow
from tidelog.record import kernel
from tidelog.record.kernel import RecordColumns

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS: Final = ("key", "value", "topic", "partition", "headers", "timestamp")

# More than the varints of any record without headers take: seven of at most five bytes.
ROW_OVERHEAD_BYTES: Final = 21
HEADER_OVERHEAD_BYTES: Final = 10


class ProduceRows(NamedTuple):
    """Rows of one topic, checked and of the exact types the kernel takes."""

    keys: Any
    values: Any
    partitions: Any | None
    headers: Any | None
    timestamps: Any | None

    @property
    def rows_count(self) -> int:
        return len(self.values)

    @property
    def average_bytes(self) -> float:
        size = self.keys.nbytes + self.values.nbytes + (self.headers.nbytes if self.headers else 0)
        return size / self.rows_count + ROW_OVERHEAD_BYTES if self.rows_count else 0.0

    def taken(self, order: Any) -> ProduceRows:
        return ProduceRows(*(column and column.take(order) for column in self))

    def filtered(self, mask: Any) -> ProduceRows:
        return ProduceRows(*(column and column.filter(mask) for column in self))


def rows_by_topic(batch: Any, default_topic: str | None) -> Iterator[tuple[str, ProduceRows]]:
    """`default_topic`, where given, comes before the column."""
    named = {name: index for index, name in enumerate(batch.schema.names) if name in COLUMNS}
    if "value" not in named:
        raise InvalidRow("the rows have no column named value")
    columns = {name: batch.column(index) for name, index in named.items()}
    rows = ProduceRows(
        binary_column("key", columns.get("key", pa.nulls(batch.num_rows, pa.binary()))),
        binary_column("value", columns["value"]),
        cast_column("partition", columns.get("partition"), pa.int32()),
        cast_column("headers", columns.get("headers"), HEADERS),
        cast_column("timestamp", columns.get("timestamp"), TIMESTAMP),
    )
    if default_topic is not None:
        yield default_topic, rows
        return
    if "topic" not in columns:
        raise InvalidRow("no topic is given, and the rows have no column named topic")
    topics = cast_column("topic", columns["topic"], pa.string())
    if topics.null_count:
        raise InvalidRow("a row has a null topic")
    names = pc.unique(topics).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filtered(pc.equal(topics, name))


def cast_column(name: str, column: Any | None, type: Any) -> Any:
    if column is None or column.type == type:
        return column
    try:
        return column.cast(type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise InvalidRow(f"column {name} of type {column.type} is no {type}: {problem}") from None


def binary_column(name: str, column: Any) -> Any:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (
        pa.types.is_binary(column.type)
        or pa.types.is_string(column.type)
        or pa.types.is_large_binary(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_fixed_size_binary(column.type)
        or column.type in (pa.string_view(), pa.binary_view())
    ):
        raise InvalidRow(f"column {name} of type {column.type} is neither binary nor string")
    return cast_column(name, column, pa.binary())


def by_partition(partitions: Any) -> tuple[Any | None, list[tuple[int, int, int]]]:
    """The order that brings the rows of a partition together (None if they are), and (partition,
    start, stop) of each in that order.
    """
    runs = pc.run_end_encode(partitions)
    order = None
    if len(runs.values) > len(pc.unique(partitions)):
        order = pc.array_sort_indices(partitions)
        runs = pc.run_end_encode(partitions.take(order))
    ends = runs.run_ends.to_pylist()
    return order, list(zip(runs.values.to_pylist(), [0, *ends], ends, strict=False))


class KernelColumns:
    """Rows as the kernel takes them, in the order given, and the sizes they will have."""

    __slots__ = ("_header_ends", "_header_sizes", "_keys", "_order", "_raw", "_sums", "_values")

    def __init__(self, rows: ProduceRows, now_ms: int, order: Any | None = None) -> None:
        if order is not None and rows.headers is not None:
            rows, order = rows.taken(order), None
        count = rows.rows_count
        timestamps = _milliseconds(rows.timestamps, count, now_ms)
        keys, values = _binary_buffers(rows.keys), _binary_buffers(rows.values)
        headers = _header_buffers(rows.headers, count)
        self._raw = RecordColumns(count, timestamps, timestamps, *keys, *values, *headers)
        self._keys = memoryview(keys[0]).cast("B").cast("i")
        self._values = memoryview(values[0]).cast("B").cast("i")
        self._header_ends = memoryview(headers[0]).cast("B").cast("i")
        self._header_sizes = (
            memoryview(headers[1]).cast("B").cast("i"),
            memoryview(headers[3]).cast("B").cast("i"),
        )
        self._order: Any | None = None
        self._sums: memoryview | None = None
        if order is not None:
            self._order = order.buffers()[1]
            self._sums = _running_sizes(rows, order)

    def encode(self, start: int, stop: int, reserve_bytes: int) -> tuple[bytearray, int, int]:
        """The records of one batch, its base timestamp and its largest."""
        if self._order is not None:
            return kernel.encode_rows(self._raw, self._order, start, stop, reserve_bytes)
        return kernel.encode_columns(self._raw, start, stop, None, reserve_bytes)

    def bytes_between(self, start: int, stop: int) -> int:
        """More than what the rows [start, stop) take when encoded, by little."""
        overhead = ROW_OVERHEAD_BYTES * (stop - start)
        if self._sums is not None:
            return self._sums[stop] - self._sums[start] + overhead
        size = self._keys[stop] - self._keys[start] + self._values[stop] - self._values[start]
        first, last = self._header_ends[start], self._header_ends[stop]
        if last > first:
            names, values = self._header_sizes
            size += names[last] - names[first] + values[last] - values[first]
            size += HEADER_OVERHEAD_BYTES * (last - first)
        return size + overhead

    def cut(self, start: int, stop: int, limit_bytes: int) -> Iterator[tuple[int, int]]:
        """[start, stop) in pieces of at most `limit_bytes`, or of one row that is larger."""
        while start < stop:
            end = self._end_within(start, stop, limit_bytes)
            yield start, end
            start = end

    def _end_within(self, start: int, stop: int, limit_bytes: int) -> int:
        if self.bytes_between(start, stop) <= limit_bytes:
            return stop
        ends = range(start + 1, stop)
        rows = bisect_right(ends, limit_bytes, key=lambda end: self.bytes_between(start, end))
        return start + max(1, rows)


def _running_sizes(rows: ProduceRows, order: Any) -> memoryview:
    """Bytes of keys and values before each row of the order, and in all."""
    sizes = pc.add(
        pc.fill_null(pc.binary_length(rows.keys), 0), pc.fill_null(pc.binary_length(rows.values), 0)
    )
    sums = pc.cumulative_sum(sizes.take(order).cast(pa.int64()))
    ends = pa.concat_arrays([pa.array([0], pa.int64()), sums])
    return memoryview(ends.buffers()[1]).cast("B").cast("q")


def _flat(column: Any) -> Any:
    """The column with its first row at the start of its buffers."""
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column


def _all_valid(count: int) -> bytes:
    return b"\xff" * ((count + 7) // 8)


def _binary_buffers(column: Any) -> tuple[Any, Any, Any]:
    """Offsets, validity and data."""
    column = _flat(column)
    validity, offsets, data = column.buffers()
    if column.null_count == 0:
        validity = _all_valid(len(column))
    return offsets or bytes(4), validity, data or b""


def _milliseconds(timestamps: Any | None, count: int, now_ms: int) -> Any:
    if timestamps is None:
        return memoryview(array("q", [now_ms]) * count).cast("B")
    column = timestamps.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return _flat(pc.fill_null(column, now_ms)).buffers()[1] or b""


def _header_buffers(headers: Any | None, count: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """List offsets, key offsets, key data, value offsets, value validity, value data."""
    if headers is None or headers.null_count == count:
        return bytes(4 * count + 4), bytes(4), b"", bytes(4), b"", b""
    structs = headers.flatten()
    names, values = structs.flatten()
    if names.null_count:
        raise InvalidRow("a header has a null key")
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    name_offsets, _, name_data = _binary_buffers(names.cast(pa.binary()))
    value_offsets, value_validity, value_data = _binary_buffers(values)
    return ends.buffers()[1], name_offsets, name_data, value_offsets, value_validity, value_data
