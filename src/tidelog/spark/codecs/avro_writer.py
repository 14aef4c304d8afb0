"""Arrow columns to Avro records: one field of all rows at a time.

Every field becomes an array of the bytes that Avro writes for it, and the arrays are joined row by
row. What a column cannot hold in the schema, such as a null in a field that allows none, raises
EncodeError with the field: a sink has no dead letters, so its batch fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from tidelog.spark.codecs.avro_schema import AvroSchema, schema_name
from tidelog.spark.codecs.column_types import TIMESTAMP, TIMESTAMP_NTZ, spark_name
from tidelog.spark.codecs.errors import EncodeError, SchemaError

Encode = Callable[[Any], Any]  # an array without nulls to a binary array

_EMPTY: Final = pa.scalar(b"", pa.binary())
_UNITS: Final = {"millis": 1000, "micros": 1}


class AvroWriter:
    """Raises SchemaError when columns of these types never fit the schema."""

    def __init__(self, schema: AvroSchema, columns: Any) -> None:
        if isinstance(schema.root, list) or schema.root["type"] not in ("record", "error"):
            raise SchemaError(f"the schema is no record but {schema_name(schema.root)}")
        self._schema = schema
        self._encode = self._record(schema.root, columns, "")

    def write(self, rows: Any) -> Any:
        """The records of a struct array, as a binary array."""
        return self._encode(rows)

    def _value(self, place: Any, column: Any, path: str) -> Encode:
        """For arrays that may have nulls."""
        schema = self._schema.of(place)
        if isinstance(schema, list):
            return self._union(schema, column, path)
        if schema["type"] == "null":
            raise SchemaError(f"field {path}: the schema has only null for it")
        encode = self._plain(schema, column, path)

        def checked(array: Any) -> Any:
            if array.null_count:
                raise EncodeError(f"field {path}: is null, which the schema does not allow")
            return encode(array)

        return checked

    def _union(self, branches: list[Any], column: Any, path: str) -> Encode:
        null = next(
            (i for i, row in enumerate(branches) if row in ("null", {"type": "null"})), None
        )
        chosen, encode = self._branch(branches, column, path)
        prefix = pa.scalar(bytes([chosen << 1]), pa.binary())

        def encoded(array: Any) -> Any:
            if not array.null_count:
                return _joined(prefix, encode(array))
            if null is None:
                raise EncodeError(f"field {path}: is null, which the schema does not allow")
            there = array.is_valid().to_numpy(zero_copy_only=False)
            some = _joined(prefix, encode(array.drop_null()))
            places = pa.array(np.cumsum(there) - 1, mask=~there)
            return some.take(places).fill_null(bytes([null << 1]))

        return encoded

    def _branch(self, branches: list[Any], column: Any, path: str) -> tuple[int, Encode]:
        """The first that can hold the column."""
        problem = SchemaError(f"field {path}: the union has only null for it")
        for number, place in enumerate(branches):
            schema = self._schema.of(place)
            if isinstance(schema, list) or schema["type"] == "null":
                continue
            try:
                return number, self._plain(schema, column, path)
            except SchemaError as found:
                problem = found
        raise problem

    def _plain(self, schema: dict[str, Any], column: Any, path: str) -> Encode:
        """For a type that is no union, and arrays without nulls."""
        kind = schema["type"]
        if kind in ("record", "error") and types.is_struct(column):
            return self._record(schema, column, path)
        if kind == "array" and types.is_list(column) and not types.is_map(column):
            return self._array(schema, column, path)
        if kind == "map" and types.is_map(column) and types.is_string(column.key_type):
            return self._map(schema, column, path)
        encode = _leaf(schema, column, path)
        if encode is None:
            told = f"a column of type {spark_name(column)} does not fit {schema_name(schema)}"
            raise SchemaError(f"field {path}: {told}")
        return encode

    def _record(self, schema: dict[str, Any], column: Any, path: str) -> Encode:
        fields = {field.name: (number, field) for number, field in enumerate(column)}
        steps: list[tuple[int, Any]] = []
        for row in schema["fields"]:
            name = row["name"]
            place = f"{path}.{name}" if path else name
            if name in fields:
                number, field = fields[name]
                steps.append((number, self._value(row["type"], field.type, place)))
            elif "default" in row:
                constant = self._schema.encoded_default(row["type"], row["default"])
                steps.append((-1, pa.scalar(constant, pa.binary())))
            else:
                raise SchemaError(f"field {place}: no column has its name, and it has no default")

        def encode(array: Any) -> Any:
            columns = array.flatten()
            parts = [step if number < 0 else step(columns[number]) for number, step in steps]
            if not any(number >= 0 for number, _ in steps):
                parts.append(pa.array([b""] * len(array), pa.binary()))
            return _joined(*parts)

        return encode

    def _array(self, schema: dict[str, Any], column: Any, path: str) -> Encode:
        item = self._value(schema["items"], column.value_type, path)

        def encode(array: Any) -> Any:
            lengths = pc.list_value_length(array).to_numpy()
            return _blocks(item(array.flatten()), lengths)

        return encode

    def _map(self, schema: dict[str, Any], column: Any, path: str) -> Encode:
        value = self._value(schema["values"], column.item_type, path)

        def encode(array: Any) -> Any:
            bounds = array.offsets.to_numpy()
            used = slice(int(bounds[0]), int(bounds[-1]))
            entries = _joined(_texts(array.keys[used]), value(array.items[used]))
            return _blocks(entries, np.diff(bounds))

        return encode


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _blocks(items: Any, lengths: Any) -> Any:
    """The items of each row one behind the other, their number before them and a zero after."""
    of_items = np.frombuffer(items.buffers()[1], np.int32)[items.offset :][: len(items) + 1]
    bounds = of_items[np.concatenate([[0], np.cumsum(lengths)])].astype(np.int32)
    together = pa.Array.from_buffers(
        pa.binary(), len(lengths), [None, pa.py_buffer(bounds), items.buffers()[2]]
    )
    counts = pc.if_else(pa.array(lengths == 0), _EMPTY, varints(lengths))
    return _joined(counts, together, pa.scalar(b"\0", pa.binary()))


def varints(numbers: Any) -> Any:
    """Zigzag numbers as a binary array."""
    signed = np.asarray(numbers, np.int64)
    values = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    for bits in range(7, 64, 7):
        sizes += values >= np.uint64(1 << bits)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    data = np.empty(bounds[-1], np.uint8)
    for place in range(int(sizes.max(initial=0))):
        there = sizes > place
        byte = (values[there] >> np.uint64(7 * place)) & np.uint64(0x7F)
        more = np.where(sizes[there] > place + 1, 0x80, 0).astype(np.uint8)
        data[bounds[:-1][there] + place] = byte.astype(np.uint8) | more
    return _binary(data, bounds)


def _binary(data: Any, bounds: Any) -> Any:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def _equal_sizes(matrix: Any) -> Any:
    """Rows of bytes, all of the same length."""
    count, size = matrix.shape
    return _binary(np.ascontiguousarray(matrix).reshape(-1), np.arange(count + 1) * size)


def _texts(array: Any) -> Any:
    data = array.cast(pa.binary())
    return _joined(varints(pc.binary_length(data).to_numpy()), data)


def _leaf(schema: dict[str, Any], column: Any, path: str) -> Encode | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if types.is_decimal(column) or types.is_timestamp(column) or types.is_date(column):
        return _logical(schema, column, path)
    if kind in ("int", "long") and types.is_integer(column):
        return lambda array: varints(_cast(array, f"int{32 if kind == 'int' else 64}", path))
    if kind in ("float", "double") and (types.is_integer(column) or types.is_floating(column)):
        name = "<f4" if kind == "float" else "<f8"
        return lambda array: _equal_sizes(
            array.to_numpy(zero_copy_only=False).astype(name)[:, None].view(np.uint8)
        )
    if kind == "boolean" and types.is_boolean(column):
        return lambda array: _equal_sizes(
            array.to_numpy(zero_copy_only=False).astype(np.uint8)[:, None]
        )
    if kind == "string" and types.is_string(column):
        return _texts
    if kind == "bytes" and types.is_binary(column) and logical != "decimal":
        return _texts
    if kind == "enum" and types.is_string(column):
        return lambda array: _symbols(array, schema, path)
    if kind == "fixed" and types.is_binary(column) and logical != "decimal":
        return lambda array: _sized(array, schema["size"], path)
    return None


def _cast(array: Any, name: str, path: str) -> Any:
    try:
        return array.cast(name).to_numpy()
    except pa.ArrowInvalid as problem:
        raise EncodeError(f"field {path}: {problem}") from None


def _symbols(array: Any, schema: dict[str, Any], path: str) -> Any:
    found = pc.index_in(array, value_set=pa.array(schema["symbols"], pa.string()))
    if found.null_count:
        other = array.filter(found.is_null())[0].as_py()
        raise EncodeError(f"field {path}: {other} is no symbol of {schema['name']}")
    return varints(found.to_numpy())


def _sized(array: Any, size: int, path: str) -> Any:
    if pc.any(pc.not_equal(pc.binary_length(array), size)).as_py():
        raise EncodeError(f"field {path}: has not {size} bytes")
    return array


def _logical(schema: dict[str, Any], column: Any, path: str) -> Encode | None:
    kind, logical = schema["type"], schema.get("logicalType", "")
    if types.is_date(column) and kind == "int" and logical == "date":
        return lambda array: varints(array.cast(pa.int32()).to_numpy())
    zone, _, unit = logical.rpartition("-")
    wanted = {"timestamp": TIMESTAMP, "local-timestamp": TIMESTAMP_NTZ}.get(zone)
    if kind == "long" and column == wanted and unit in _UNITS:
        divisor = _UNITS[unit]
        return lambda array: varints(array.cast(pa.int64()).to_numpy() // divisor)
    if kind == "long" and column == wanted and unit == "nanos":
        return lambda array: varints(_nanos(array, path))
    if types.is_decimal(column) and logical == "decimal" and kind in ("bytes", "fixed"):
        return lambda array: _decimals(array, schema, path)
    return None


def _nanos(array: Any, path: str) -> Any:
    try:
        return pc.multiply_checked(array.cast(pa.int64()), 1000).to_numpy()
    except pa.ArrowInvalid as problem:
        raise EncodeError(f"field {path}: {problem}") from None


def _decimals(array: Any, schema: dict[str, Any], path: str) -> Any:
    wanted = pa.decimal128(min(schema["precision"], 38), schema.get("scale", 0))
    try:
        fitted = array.cast(wanted)
    except pa.ArrowInvalid as problem:
        raise EncodeError(f"field {path}: {problem}") from None
    words = np.frombuffer(fitted.buffers()[1], np.uint8)[fitted.offset * 16 :][: len(array) * 16]
    matrix = words.reshape(-1, 16)[:, ::-1]  # the highest byte first
    sizes = _sizes(matrix)
    if schema["type"] == "bytes":
        data = matrix[np.arange(16) >= (16 - sizes)[:, None]]
        bare = _binary(data, np.concatenate([[0], np.cumsum(sizes)]))
        return _joined(varints(sizes), bare)
    size = schema["size"]
    if (sizes > size).any():
        raise EncodeError(f"field {path}: a decimal needs more than {size} bytes")
    sign = np.where(matrix[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    widened = np.concatenate([np.repeat(sign, max(size - 16, 0), axis=1), matrix], axis=1)
    return _equal_sizes(widened[:, widened.shape[1] - size :])


def _sizes(matrix: Any) -> Any:
    """How many of the 16 bytes a number needs: those after its sign, and a bit for the sign."""
    sign = np.where(matrix[:, 0] >= 0x80, 0xFF, 0)
    differs = matrix != sign[:, None]
    lead = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    top = matrix[np.arange(len(matrix)), lead] >= 0x80
    return np.minimum(16 - lead + (top != (sign == 0xFF)), 16)
