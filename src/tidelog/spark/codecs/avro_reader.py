"""Avro records to Arrow columns: one field of all rows at a time, not one row at a time.

The records of a batch lie in one buffer. For every row there is a position in it, and reading a
field reads it of all rows with a few calls of numpy, moves the positions, and gives a column. The
items of an array have no such order: a plain loop finds where each one begins, and then they are
read as rows of their own.

The writer's schema says what the bytes are, the reader's which fields there are, with which types
and defaults (Avro's schema resolution), and the columns which of them are wanted. Only these are
resolved: a field that is no column is skipped, whatever it is. Without a reader's schema, a column
takes the writer's field of its name.

Of a union of the reader the branch of the writer's own type comes first, then the first one that
the type can be promoted to, as in Avro for Java. Logical types are those of the writer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from tidelog.spark.codecs.arrow_arrays import buffer_of, list_array, map_array, struct_array
from tidelog.spark.codecs.avro_schema import (
    DECIMAL_PRECISION_MAX,
    NAMED,
    AvroSchema,
    Schema,
    schema_name,
)
from tidelog.spark.codecs.broken_rows import BrokenRows, Indexes, converted, shown
from tidelog.spark.codecs.column_types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    conversion,
    spark_name,
)
from tidelog.spark.codecs.errors import SchemaError

PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
# Items without bytes, such as nulls, which a few bytes could claim any number of.
EMPTY_ITEMS_MAX: Final = 1_000
TEXT_DEPTH_MAX: Final = 10
_VARINT_BYTES_MAX: Final = 10
_INT_RANGE: Final = np.iinfo(np.int32)
_MILLIS_MAX: Final = np.iinfo(np.int64).max // 1000
_NO_RECORD: Final = "is no avro record of the schema: "
_ENDS_EARLY: Final = f"{_NO_RECORD}it ends early"

Read = Callable[["Rows"], Any]  # gives an Arrow array
Skip = Callable[["Rows"], None]
SkipOne = Callable[[bytes, int, int], int]


class _Cut(Exception):
    """Bytes that are no value; the text says why."""


class Rows:
    """What is to be read next: a position for each row, and where its record ends.

    `owners` are the rows of the batch; several items of an array may have the same.
    """

    __slots__ = ("broken", "data", "ends", "owners", "positions")

    def __init__(
        self, data: Any, positions: Indexes, ends: Indexes, owners: Indexes, broken: BrokenRows
    ) -> None:
        self.data = data  # of numpy, uint8
        self.positions = positions
        self.ends = ends
        self.owners = owners
        self.broken = broken

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, where: Indexes) -> Rows:
        return Rows(
            self.data, self.positions[where], self.ends[where], self.owners[where], self.broken
        )

    def fail(self, bad: Any, reason: str) -> None:
        """Rows of a mask have nothing more to read."""
        if bad.any():
            self.broken.add(self.owners[bad], reason)
            self.positions[bad] = self.ends[bad]

    def move(self, lengths: Any) -> None:
        moved = self.positions + lengths
        late = moved > self.ends
        self.positions = moved
        self.fail(late, _ENDS_EARLY)

    def bytes(self) -> bytes:
        return self.data.tobytes()  # type: ignore[no-any-return]


class AvroReader:
    """Reads records of one writer's schema; raises SchemaError when the schemas do not resolve."""

    def __init__(
        self, writer: AvroSchema, reader: AvroSchema | None, columns: Any, zone: str = "UTC"
    ) -> None:
        reader = writer if reader is None else reader
        for schema, whose in ((writer, "writer's"), (reader, "reader's")):
            if isinstance(schema.root, list) or schema.root["type"] not in ("record", "error"):
                raise SchemaError(f"the {whose} schema is no record but {schema_name(schema.root)}")
        resolution = _Resolution(writer, reader, zone)
        try:
            self._read = resolution.value(writer.root, reader.root, columns, "")
        except RecursionError:
            raise SchemaError("the schema is nested too deeply") from None

    def read(self, values: Any, starts: Indexes, rows: Indexes, broken: BrokenRows) -> Any:
        """A struct for each of `rows` of a binary array; records begin at `starts` in them."""
        data, offsets = buffer_of(values)
        positions = offsets[rows] + starts
        batch = Rows(data, positions, offsets[rows + 1], rows, broken)
        read = self._read(batch)
        batch.fail(batch.positions != batch.ends, f"{_NO_RECORD}bytes are left over")
        return read


class _Resolution:
    """Of one schema to another: functions that read, made once and used for every batch."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema, zone: str) -> None:
        self._writer = writer
        self._reader = reader
        self._zone = zone
        # By the names of records.
        self._skips: dict[str, SkipOne] = {}
        self._row_skips: dict[str, Skip] = {}

    # Values

    def value(self, writer: Any, reader: Any, column: Any, path: str) -> Read:
        """Reads what `writer` describes, resolved to `reader`, into Arrow's type `column`."""
        wrote, reads = self._writer.of(writer), self._reader.of(reader)
        if isinstance(wrote, list):
            return self._union(wrote, reads, column, path)
        if isinstance(reads, list):
            reads = self._branch(wrote, reads, path)
        if not _is_resolvable(wrote, reads):
            raise SchemaError(_unresolved(wrote, reads, path))
        kind = wrote["type"]
        if kind == "null":
            return lambda rows: pa.nulls(len(rows), column)
        if kind in ("record", "error") and types.is_struct(column):
            return self._record(wrote, reads, column, path)
        if kind == "array" and types.is_list(column) and not types.is_map(column):
            return self._array(wrote, reads, column, path)
        if kind == "map" and types.is_map(column) and types.is_string(column.key_type):
            return self._map(wrote, reads, column, path)
        if kind in ("record", "error", "array", "map"):
            if not types.is_string(column):
                raise SchemaError(_misfit(wrote, column, path))
            natural = self._natural(wrote, reads, path)
            return self._fitted(self.value(wrote, reads, natural, path), natural, column, path)
        found, read = self._leaf(wrote, reads, path)
        if conversion(found, column, self._zone) is None:
            raise SchemaError(_misfit(wrote, column, path))
        return self._fitted(read, found, column, path)

    def _fitted(self, read: Read, found: Any, column: Any, path: str) -> Read:
        convert = conversion(found, column, self._zone)
        assert convert is not None, (found, column)
        if found == column:
            return read

        def told(value: Any) -> str:
            return f"field {path}: {shown(value)} is no {spark_name(column)}"

        def fitted(rows: Rows) -> Any:
            return converted(read(rows), convert, column, rows.owners, rows.broken, told)

        return fitted

    def _branch(self, wrote: dict[str, Any], branches: list[Any], path: str) -> dict[str, Any]:
        known = [
            branch for place in branches if not isinstance(branch := self._reader.of(place), list)
        ]
        same = [
            branch
            for branch in known
            if branch["type"] == wrote["type"] and _is_resolvable(wrote, branch)
        ]
        for branch in (*same, *known):
            if _is_resolvable(wrote, branch):
                return branch
        raise SchemaError(_unresolved(wrote, branches, path))

    def _union(self, wrote: list[Any], reads: Schema, column: Any, path: str) -> Read:
        """A branch that does not resolve breaks only the rows that have it."""
        branches: list[Read | None] = []
        problems: list[SchemaError] = []
        for branch in wrote:
            if self._writer.of(branch) == {"type": "null"} and _takes_null(self._reader, reads):
                branches.append(None)
                continue
            try:
                branches.append(self.value(branch, reads, column, path))
            except SchemaError as problem:
                problems.append(problem)
                branches.append(self._failing(str(problem), column))
        if len(problems) == len(branches):
            raise problems[0]

        def read(rows: Rows) -> Any:
            chosen = _varints(rows)
            known = (chosen >= 0) & (chosen < len(branches))
            rows.fail(~known, f"{_NO_RECORD}field {path}: the union has no such branch")
            indexes = np.zeros(len(rows), np.int64)
            is_null = ~known
            parts: list[Any] = []
            length = 0
            for number, branch in enumerate(branches):
                where = np.flatnonzero(known & (chosen == number))
                if branch is None:
                    is_null[where] = True
                elif len(where):
                    inner = rows.at(where)
                    parts.append(branch(inner))
                    rows.positions[where] = inner.positions
                    indexes[where] = length + np.arange(len(where))
                    length += len(where)
            if not parts:
                return pa.nulls(len(rows), column)
            values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
            if len(parts) == 1 and length == len(rows):
                return values
            return values.take(pa.array(indexes, mask=is_null))

        return read

    def _failing(self, reason: str, column: Any) -> Read:
        def read(rows: Rows) -> Any:
            rows.fail(np.ones(len(rows), bool), reason)
            return pa.nulls(len(rows), column)

        return read

    def _record(self, wrote: Any, reads: Any, column: Any, path: str) -> Read:
        of_reader = {field["name"]: field for field in reads["fields"]}
        aliases = {alias: field for field in reads["fields"] for alias in field.get("aliases", ())}
        wanted = {field.name: field for field in column}
        steps: list[tuple[str | None, Any]] = []
        found = set()
        for field in wrote["fields"]:
            theirs = of_reader.get(field["name"]) or aliases.get(field["name"])
            if theirs is not None:
                found.add(theirs["name"])
            if theirs is None or theirs["name"] not in wanted:
                steps.append((None, self._skipped(field["type"])))
                continue
            name = theirs["name"]
            place = f"{path}.{name}" if path else name
            kind = wanted[name].type
            steps.append((name, self.value(field["type"], theirs["type"], kind, place)))
        constants = {
            name: self._default(of_reader[name], wanted[name].type, f"{path}.{name}".lstrip("."))
            for name in wanted
            if name in of_reader and name not in found
        }

        def read(rows: Rows) -> Any:
            columns: dict[str, Any] = {}
            for name, step in steps:
                if name is None:
                    step(rows)
                else:
                    columns[name] = step(rows)
            zeros = np.zeros(len(rows), np.int64)
            for name, constant in constants.items():
                columns[name] = constant.take(pa.array(zeros))
            arrays = [
                columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type)
                for field in column
            ]
            return struct_array(arrays, column, len(rows))

        return read

    def _default(self, field: dict[str, Any], column: Any, path: str) -> Any:
        if "default" not in field:
            raise SchemaError(
                f"field {path}: is not in the writer's schema, and the reader's has no default"
            )
        try:
            encoded = self._reader.encoded_default(field["type"], field["default"])
        except SchemaError as problem:
            raise SchemaError(f"field {path}: {problem}") from None
        alone = _Resolution(self._reader, self._reader, self._zone)
        read = alone.value(field["type"], field["type"], column, path)
        broken = BrokenRows(1)
        data, offsets = buffer_of(pa.array([encoded], pa.binary()))
        constant = read(Rows(data, offsets[:1].copy(), offsets[1:], np.zeros(1, np.int64), broken))
        if not broken.is_empty:
            raise SchemaError(f"the reader's default: {broken.reasons()[0].as_py()}")
        return constant

    def _array(self, wrote: Any, reads: Any, column: Any, path: str) -> Read:
        item = self.value(wrote["items"], reads["items"], column.value_type, path)
        skip_item = self._skip_one(wrote["items"])

        def read(rows: Rows) -> Any:
            items, offsets = _items(rows, skip_item)
            return list_array([item(items)], offsets, column)

        return read

    def _map(self, wrote: Any, reads: Any, column: Any, path: str) -> Read:
        value = self.value(wrote["values"], reads["values"], column.item_type, path)
        skip_value = self._skip_one(wrote["values"])

        def skip_entry(data: bytes, position: int, end: int) -> int:
            return skip_value(data, _skip_bytes(data, position, end), end)

        def read(rows: Rows) -> Any:
            items, offsets = _items(rows, skip_entry)
            keys = _strings(items, path).fill_null("")  # null where the row is broken
            pairs = np.stack([items.owners, keys.dictionary_encode().indices.to_numpy()])
            unique = np.unique(pairs, axis=1).shape[1] if len(items) else 0
            if unique != len(items):
                _refuse_repeated_keys(rows, offsets, keys, path)
            return map_array(keys, value(items), offsets, column)

        return read

    # Leaves

    def _leaf(self, wrote: Any, reads: Any, path: str) -> tuple[Any, Read]:
        """The Arrow type that the writer's value has by itself, and how to read it."""
        kind, logical = wrote["type"], wrote.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(wrote, path)
        if kind == "int":
            if logical == "date":
                return pa.date32(), lambda rows: pa.array(_ints(rows, path)).cast(pa.date32())
            if logical == "time-millis":
                return pa.time32("ms"), lambda rows: pa.array(_ints(rows, path)).cast(
                    pa.time32("ms")
                )
            return pa.int32(), lambda rows: pa.array(_ints(rows, path))
        if kind == "long":
            return _long(logical, path)
        if kind == "boolean":
            return pa.bool_(), lambda rows: _booleans(rows, path)
        if kind == "float":
            return pa.float32(), lambda rows: _floats(rows, 4)
        if kind == "double":
            return pa.float64(), lambda rows: _floats(rows, 8)
        if kind == "enum":
            return pa.string(), _enum(wrote, reads, path)
        if kind == "fixed":
            size = wrote["size"]
            if logical == "uuid" and size == 16:
                return pa.string(), lambda rows: _uuids(_fixed(rows, size))
            return pa.binary(), lambda rows: _fixed(rows, size)
        # Avro promotes bytes and strings to each other, and the reader says which it is.
        if reads["type"] == "string":
            return pa.string(), lambda rows: _strings(rows, path)
        return pa.binary(), lambda rows: _gathered(rows, *_lengths(rows))

    def _natural(self, wrote: Any, reads: Any, path: str) -> Any:
        """The Arrow type of something nested that is to become text."""
        kind = wrote["type"]
        if kind == "array":
            return pa.list_(self._natural_of(wrote["items"], reads["items"], path))
        if kind == "map":
            return pa.map_(pa.string(), self._natural_of(wrote["values"], reads["values"], path))
        return pa.struct(
            [
                (field["name"], self._natural_of(field["type"], field["type"], path))
                for field in reads["fields"]
            ]
        )

    def _natural_of(self, writer: Any, reader: Any, path: str) -> Any:
        schema = self._reader.of(reader)
        if isinstance(schema, list):
            some = [place for place in schema if self._reader.of(place) != {"type": "null"}]
            if len(some) != 1:
                raise SchemaError(f"field {path}: unions of several types have no text")
            schema = self._reader.of(some[0])
        assert isinstance(schema, dict), schema
        if schema["type"] in ("array", "map", "record", "error"):
            if path.count(".") > TEXT_DEPTH_MAX:
                raise SchemaError(f"field {path}: is nested too deeply for a text")
            return self._natural(schema, schema, f"{path}.{schema['type']}")
        return self._leaf(schema, schema, path)[0]

    # What is not read

    def _skipped(self, place: Any) -> Skip:
        schema = self._writer.of(place)
        simple: dict[str, Skip] = {
            "null": lambda rows: None,
            "boolean": lambda rows: rows.move(1),
            "int": _skip_numbers,
            "long": _skip_numbers,
            "enum": _skip_numbers,
            "float": lambda rows: rows.move(4),
            "double": lambda rows: rows.move(8),
            "bytes": _skip_texts,
            "string": _skip_texts,
        }
        if isinstance(schema, dict):
            if schema["type"] in simple:
                return simple[schema["type"]]
            if schema["type"] == "fixed":
                size = schema["size"]
                return lambda rows: rows.move(size)
        if isinstance(schema, list):
            return self._skipped_union(schema)
        if schema["type"] in ("record", "error") and not self._holds_itself(schema):
            return self._skipped_record(schema)
        skip_one = self._skip_one(place)

        def skip(rows: Rows) -> None:
            data = rows.bytes()
            for number in range(len(rows)):
                position, end = int(rows.positions[number]), int(rows.ends[number])
                try:
                    rows.positions[number] = skip_one(data, position, end)
                except (_Cut, RecursionError) as problem:
                    rows.broken.add(rows.owners[number : number + 1], _told(problem))
                    rows.positions[number] = end

        return skip

    def _skipped_union(self, branches: list[Any]) -> Skip:
        skips = [self._skipped(branch) for branch in branches]

        def skip(rows: Rows) -> None:
            chosen = _varints(rows)
            known = (chosen >= 0) & (chosen < len(skips))
            rows.fail(~known, f"{_NO_RECORD}a union has no such branch")
            for number, branch in enumerate(skips):
                where = np.flatnonzero(known & (chosen == number))
                if len(where):
                    inner = rows.at(where)
                    branch(inner)
                    rows.positions[where] = inner.positions

        return skip

    def _skipped_record(self, schema: dict[str, Any]) -> Skip:
        name = schema["name"]
        if name not in self._row_skips:
            fields = [self._skipped(field["type"]) for field in schema["fields"]]

            def skip(rows: Rows) -> None:
                for field in fields:
                    field(rows)

            self._row_skips[name] = skip
        return self._row_skips[name]

    def _holds_itself(self, schema: dict[str, Any]) -> bool:
        """Whether some record that is part of it is part of itself."""
        return self._is_endless(schema, [], set())

    def _is_endless(self, place: Any, above: list[str], done: set[str]) -> bool:
        schema = self._writer.of(place)
        if isinstance(schema, list):
            return any(self._is_endless(branch, above, done) for branch in schema)
        if schema["type"] in ("array", "map"):
            inner = schema["items" if schema["type"] == "array" else "values"]
            return self._is_endless(inner, above, done)
        if schema["type"] not in ("record", "error"):
            return False
        name = schema["name"]
        if name in above:
            return True
        if name in done:
            return False
        found = any(
            self._is_endless(field["type"], [*above, name], done) for field in schema["fields"]
        )
        done.add(name)
        return found

    def _skip_one(self, place: Any) -> SkipOne:
        schema = self._writer.of(place)
        if isinstance(schema, list):
            return self._skip_union(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._skip_record(schema)
        if kind in ("array", "map"):
            inner = self._skip_one(schema["items" if kind == "array" else "values"])

            def skip_entry(data: bytes, position: int, end: int) -> int:
                return inner(data, _skip_bytes(data, position, end), end)

            skip_item = inner if kind == "array" else skip_entry

            def skip_blocks(data: bytes, position: int, end: int) -> int:
                starts: list[int] = []
                return _block_starts(data, position, end, skip_item, starts)

            return skip_blocks
        if kind in ("int", "long", "enum"):
            return lambda data, position, end: _varint(data, position, end)[1]
        if kind in ("bytes", "string"):
            return _skip_bytes
        size = {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(kind) or schema.get("size", 0)

        def skip_fixed(data: bytes, position: int, end: int) -> int:
            if position + size > end:
                raise _Cut(_ENDS_EARLY)
            return position + size

        return skip_fixed

    def _skip_union(self, branches: list[Any]) -> SkipOne:
        skips = [self._skip_one(branch) for branch in branches]

        def skip(data: bytes, position: int, end: int) -> int:
            chosen, position = _varint(data, position, end)
            if not 0 <= chosen < len(skips):
                raise _Cut(f"{_NO_RECORD}a union has no such branch")
            return skips[chosen](data, position, end)

        return skip

    def _skip_record(self, schema: dict[str, Any]) -> SkipOne:
        """By name, since a record may hold itself."""
        name = schema["name"]
        if name not in self._skips:
            fields: list[SkipOne] = []

            def skip(data: bytes, position: int, end: int) -> int:
                for field in fields:
                    position = field(data, position, end)
                return position

            self._skips[name] = skip
            fields.extend(self._skip_one(field["type"]) for field in schema["fields"])
        return self._skips[name]


# Resolution


def _is_resolvable(wrote: dict[str, Any], reads: Any) -> bool:
    """Whether two types, no unions, can match; what they hold is seen when it is resolved."""
    if isinstance(reads, list):
        return False
    kind, other = wrote["type"], reads["type"]
    if kind in NAMED and kind == other:
        names = {reads["name"], *reads.get("aliases", ())}
        same_size = kind != "fixed" or wrote["size"] == reads["size"]
        return bool(same_size and _last(wrote["name"]) in {_last(name) for name in names})
    return kind == other or other in PROMOTIONS.get(kind, ())


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _takes_null(schema: AvroSchema, reads: Schema) -> bool:
    if isinstance(reads, list):
        return any(schema.of(branch) == {"type": "null"} for branch in reads)
    return bool(reads["type"] == "null")


def _unresolved(wrote: Schema, reads: Schema, path: str) -> str:
    where = f"field {path}: " if path else ""
    if isinstance(reads, list):
        return f"{where}the writer's {schema_name(wrote)} is none of the reader's union"
    return f"{where}the writer's {schema_name(wrote)} does not resolve to {schema_name(reads)}"


def _misfit(wrote: Schema, column: Any, path: str) -> str:
    where = f"field {path}: " if path else ""
    return f"{where}the writer's {schema_name(wrote)} is no {spark_name(column)}"


def _told(problem: Exception) -> str:
    return (
        f"{_NO_RECORD}it is nested too deeply"
        if isinstance(problem, RecursionError)
        else str(problem)
    )


# Bytes of all rows


def _varints(rows: Rows) -> Any:
    """Zigzag numbers of up to 64 bits; any number for a row that has none, which is broken."""
    first = rows.data[rows.positions]
    values = (first & 0x7F).astype(np.uint64)
    sizes = np.ones(len(rows), np.int64)
    more = np.flatnonzero(first >= 0x80)
    shift = 0
    while len(more) and shift < 7 * (_VARINT_BYTES_MAX - 1):
        shift += 7
        byte = rows.data[np.minimum(rows.positions[more] + shift // 7, len(rows.data) - 1)]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        sizes[more] += 1
        more = more[byte >= 0x80]
    too_long = np.zeros(len(rows), bool)
    too_long[more] = True
    rows.move(sizes)
    rows.fail(too_long, f"{_NO_RECORD}a number has too many bytes")
    return (values >> np.uint64(1)).astype(np.int64) ^ -(values & np.uint64(1)).astype(np.int64)


def _skip_numbers(rows: Rows) -> None:
    _varints(rows)


def _skip_texts(rows: Rows) -> None:
    _lengths(rows)


def _ints(rows: Rows, path: str) -> Any:
    numbers = _varints(rows)
    rows.fail((numbers < _INT_RANGE.min) | (numbers > _INT_RANGE.max), f"field {path}: is no int")
    return numbers.astype(np.int32)


def _lengths(rows: Rows) -> tuple[Any, Any]:
    """Where bytes begin and how many they are; the rows move behind them."""
    lengths = _varints(rows)
    bad = (lengths < 0) | (lengths > rows.ends - rows.positions)
    rows.fail(bad, _ENDS_EARLY)
    lengths[bad] = 0
    starts = rows.positions
    rows.positions = starts + lengths
    return starts, lengths


def _gathered(rows: Rows, starts: Any, lengths: Any) -> Any:
    """A binary array of pieces of the buffer, which come in the order in which they lie there.

    Pieces and the gaps between them are one array without a copy; every other value is taken.
    """
    count = len(starts)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + lengths
    bounds[-1] = bounds[-2] if count else 0
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(rows.data)]
    )
    return pieces.take(pa.array(np.arange(0, 2 * count, 2)))


def _strings(rows: Rows, path: str) -> Any:
    found = _gathered(rows, *_lengths(rows))
    return converted(
        found,
        lambda array: array.cast(pa.string()),
        pa.string(),
        rows.owners,
        rows.broken,
        lambda value: f"field {path}: is not UTF-8",
    )


def _fixed(rows: Rows, size: int) -> Any:
    starts = rows.positions
    rows.move(size)
    lengths = np.where(rows.positions == starts + size, size, 0)
    return _gathered(rows, np.where(lengths == size, starts, rows.positions), lengths)


def _uuids(array: Any) -> Any:
    texts = (
        str(uuid.UUID(bytes=value)) if len(value) == 16 else None for value in array.to_pylist()
    )
    return pa.array(texts, pa.string())


def _matrix(rows: Rows, size: int) -> Any:
    """`size` bytes of each row; zeros for a row that has no more of them."""
    starts = rows.positions
    rows.move(size)
    starts = np.minimum(starts, len(rows.data) - size)
    return rows.data[starts[:, None] + np.arange(size)]


def _booleans(rows: Rows, path: str) -> Any:
    values = _matrix(rows, 1)[:, 0]
    rows.fail(values > 1, f"field {path}: is no boolean")
    return pa.array(values == 1)


def _floats(rows: Rows, size: int) -> Any:
    return pa.array(np.ascontiguousarray(_matrix(rows, size)).view(f"<f{size}")[:, 0])


def _long(logical: str | None, path: str) -> tuple[Any, Read]:
    kinds = {
        "timestamp-millis": (TIMESTAMP, "ms"),
        "timestamp-micros": (TIMESTAMP, "us"),
        "timestamp-nanos": (TIMESTAMP, "ns"),
        "local-timestamp-millis": (TIMESTAMP_NTZ, "ms"),
        "local-timestamp-micros": (TIMESTAMP_NTZ, "us"),
        "local-timestamp-nanos": (TIMESTAMP_NTZ, "ns"),
        "time-micros": (pa.time64("us"), "us"),
    }
    if logical not in kinds:
        return pa.int64(), lambda rows: pa.array(_varints(rows))
    found, unit = kinds[logical]

    def read(rows: Rows) -> Any:
        numbers = _varints(rows)
        if unit == "ms":
            far = (numbers > _MILLIS_MAX) | (numbers < -_MILLIS_MAX)
            rows.fail(far, f"field {path}: is no timestamp")
            numbers = numbers * 1000
        elif unit == "ns":
            numbers = numbers // 1000
        return pa.array(numbers).cast(found)

    return found, read


def _decimal(wrote: Any, path: str) -> tuple[Any, Read]:
    precision, scale = wrote["precision"], wrote.get("scale", 0)
    if precision > DECIMAL_PRECISION_MAX:
        told = f"a decimal of {precision} digits; Spark has {DECIMAL_PRECISION_MAX}"
        raise SchemaError(f"field {path}: {told}")
    found = pa.decimal128(precision, scale)

    def told_of(value: Any) -> str:
        return f"field {path}: is no {spark_name(found)}"

    def checked(array: Any) -> Any:
        array.validate(full=True)
        return array

    def read(rows: Rows) -> Any:
        if wrote["type"] == "fixed":
            starts, lengths = rows.positions, np.full(len(rows), wrote["size"])
            rows.move(wrote["size"])
            lengths[rows.positions != starts + lengths] = 0
        else:
            starts, lengths = _lengths(rows)
        words = _little_endian(rows, starts, lengths, path)
        array = pa.Array.from_buffers(found, len(rows), [None, pa.py_buffer(words)])
        return converted(array, checked, found, rows.owners, rows.broken, told_of)

    return found, read


def _little_endian(rows: Rows, starts: Any, lengths: Any, path: str) -> Any:
    """Big-endian numbers of any length as 16 bytes each, the lowest first."""
    places = np.arange(16)
    is_negative = (rows.data[np.minimum(starts, len(rows.data) - 1)] >= 0x80) & (lengths > 0)
    sign = np.where(is_negative, 0xFF, 0).astype(np.uint8)
    sources = np.maximum((starts + lengths)[:, None] - 1 - places, 0)
    words = np.where(places < lengths[:, None], rows.data[sources], sign[:, None])
    for number in np.flatnonzero(lengths > 16):
        start, length = int(starts[number]), int(lengths[number])
        is_extended = (rows.data[start : start + length - 16] == sign[number]).all()
        if not is_extended or (words[number, 15] >= 0x80) != bool(is_negative[number]):
            rows.broken.add(rows.owners[number : number + 1], f"field {path}: is too large")
            words[number] = 0
    return np.ascontiguousarray(words)


def _enum(wrote: Any, reads: Any, path: str) -> Read:
    symbols, known = wrote["symbols"], set(reads["symbols"])
    default = reads.get("default")
    texts = pa.array([name if name in known else default for name in symbols], pa.string())
    unknown = np.array([name not in known and default is None for name in symbols])

    def read(rows: Rows) -> Any:
        chosen = _varints(rows)
        bad = (chosen < 0) | (chosen >= len(symbols))
        rows.fail(bad, f"{_NO_RECORD}field {path}: the enum has no such symbol")
        chosen[bad] = 0
        for number in np.unique(chosen[unknown[chosen]]):
            told = f"field {path}: {symbols[number]} is no symbol of the reader's {reads['name']}"
            rows.fail(chosen == number, told)
        return texts.take(pa.array(chosen))

    return read


# Items of arrays and maps


def _items(rows: Rows, skip: SkipOne) -> tuple[Rows, Any]:
    """The items of all rows as rows of their own, and where each row's items begin among them."""
    data = rows.bytes()
    starts: list[int] = []
    counts = np.zeros(len(rows), np.int64)
    for number in range(len(rows)):
        before = len(starts)
        position, end = int(rows.positions[number]), int(rows.ends[number])
        try:
            rows.positions[number] = _block_starts(data, position, end, skip, starts)
        except (_Cut, RecursionError) as problem:
            del starts[before:]
            rows.broken.add(rows.owners[number : number + 1], _told(problem))
            rows.positions[number] = end
        counts[number] = len(starts) - before
    offsets = np.concatenate([[0], np.cumsum(counts)])
    positions = np.array(starts, np.int64)
    ends, owners = np.repeat(rows.ends, counts), np.repeat(rows.owners, counts)
    return Rows(rows.data, positions, ends, owners, rows.broken), offsets


def _block_starts(data: bytes, position: int, end: int, skip: SkipOne, starts: list[int]) -> int:
    """Adds where the items of one array begin, and gives the position behind it."""
    empty_count = 0
    while True:
        count, position = _varint(data, position, end)
        if count == 0:
            return position
        if count < 0:
            count = -count
            _, position = _varint(data, position, end)
        if count > end - position + EMPTY_ITEMS_MAX:
            raise _Cut(_ENDS_EARLY)
        for _ in range(count):
            starts.append(position)
            before, position = position, skip(data, position, end)
            empty_count += position == before
            if empty_count > EMPTY_ITEMS_MAX:
                raise _Cut(f"{_NO_RECORD}it has more than {EMPTY_ITEMS_MAX} items without bytes")


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while position < end and shift < 7 * _VARINT_BYTES_MAX:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
    raise _Cut(_ENDS_EARLY)


def _skip_bytes(data: bytes, position: int, end: int) -> int:
    length, position = _varint(data, position, end)
    if not 0 <= length <= end - position:
        raise _Cut(_ENDS_EARLY)
    return position + length


def _refuse_repeated_keys(rows: Rows, offsets: Any, keys: Any, path: str) -> None:
    for number in range(len(rows)):
        own = keys[int(offsets[number]) : int(offsets[number + 1])].to_pylist()
        if len(set(own)) != len(own):
            told = f"field {path}: a key of the map comes twice"
            rows.broken.add(rows.owners[number : number + 1], told)
