"""Protobuf messages to Arrow columns and back, a field of all messages at a time.

A field without presence, as proto3 has them, gives its value or zero, never null. A field with
presence (optional, in a oneof, a message, all of proto2's) gives null where it is not set. Enums
are their names, or their numbers in a column of numbers; a number without a name is its digits.
google.protobuf.Timestamp is a timestamp, wrappers are their value or null. In a column of texts, a
message, a list and a map are the text that they have in Protobuf's JSON; Duration, Struct, Value,
ListValue and FieldMask can only be such texts.

Columns take fields by name; a column that the message does not have is null.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from tidelog.spark.codecs.arrow_arrays import list_array, map_array, struct_array
from tidelog.spark.codecs.broken_rows import BrokenRows, Indexes, converted, shown
from tidelog.spark.codecs.column_types import TIMESTAMP, conversion, json_text, spark_name
from tidelog.spark.codecs.errors import EncodeError, SchemaError
from tidelog.spark.codecs.protobuf_schema import ProtobufSchema

Values = list[Any]
ToColumn = Callable[[Values, Indexes, BrokenRows], Any]  # Python values to an Arrow array
ToValues = Callable[[Any], Values]  # the other way

_REPEATED: Final = 3  # FieldDescriptorProto.LABEL_REPEATED
# FieldDescriptor.type to Arrow's type.
_SCALARS: Final = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.uint64(),
    5: pa.int32(),
    6: pa.uint64(),
    7: pa.uint32(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.uint32(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_ENUM: Final = 14
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TEXTS: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Duration", "Struct", "Value", "ListValue", "FieldMask")
)


class ProtobufReader:
    def __init__(self, schema: ProtobufSchema, columns: Any, zone: str = "UTC") -> None:
        self._schema = schema
        self._zone = zone
        self._read = self._message(schema.descriptor, columns, "")

    def read(self, records: Sequence[bytes], rows: Indexes, broken: BrokenRows) -> Any:
        """A struct for each record; `rows` are their rows in the batch."""
        from google.protobuf.message import DecodeError

        try:
            messages = list(map(self._schema.message.FromString, records))
        except DecodeError:
            messages = [
                self._parsed(record, rows[number : number + 1], broken)
                for number, record in enumerate(records)
            ]
        return self._read(messages, rows, broken)

    def _parsed(self, record: bytes, row: Indexes, broken: BrokenRows) -> Any:
        from google.protobuf.message import DecodeError

        try:
            return self._schema.message.FromString(record)
        except DecodeError as problem:
            name = self._schema.descriptor.full_name
            broken.add(row, f"is no protobuf record of {name}: {problem}")
            return self._schema.message()

    def _message(self, descriptor: Any, columns: Any, path: str) -> ToColumn:
        repeated = _repeated_names(descriptor)
        fields = descriptor.fields_by_name
        steps: list[tuple[Any, Any]] = []
        for column in columns:
            place = f"{path}.{column.name}" if path else column.name
            field = fields.get(column.name)
            if field is None:
                steps.append((None, column.type))
            elif types.is_string(column.type) and column.name in repeated:
                texts = self._fitted(_json_texts, pa.string(), column.type, place)
                steps.append((_json_getter(field.name), texts))
            else:
                is_repeated = column.name in repeated
                make = self._many if is_repeated else self._one
                get = _getter(field, is_repeated=is_repeated)
                steps.append((get, make(field, column.type, place)))

        def read(messages: Values, owners: Indexes, broken: BrokenRows) -> Any:
            arrays = [
                pa.nulls(len(messages), step)
                if get is None
                else step(get(messages), owners, broken)
                for get, step in steps
            ]
            return struct_array(arrays, columns, len(messages))

        return read

    def _one(self, field: Any, column: Any, path: str) -> ToColumn:
        """For values that are not repeated; None is null."""
        message = field.message_type
        if message is None:
            return self._scalar(field, column, path)
        if types.is_string(column) and message.full_name not in _WRAPPERS:
            return self._fitted(_message_texts, column, column, path)
        if message.full_name == _TIMESTAMP:
            return self._fitted(_moments, TIMESTAMP, column, path)
        if message.full_name in _WRAPPERS:
            inner = self._one(message.fields_by_name["value"], column, path)
            return lambda values, *more: inner([_wrapped(value) for value in values], *more)
        if message.full_name in _TEXTS or not types.is_struct(column):
            raise SchemaError(_misfit(f"message {message.full_name}", column, path))
        nested = self._message(message, column, path)
        empty = _empty(message)

        def read(values: Values, owners: Indexes, broken: BrokenRows) -> Any:
            there = np.array([value is not None for value in values], bool)
            messages = [empty if value is None else value for value in values]
            found = nested(messages, owners, broken)
            if there.all():
                return found
            places = pa.array(np.arange(len(values)), mask=~there)
            return found.take(places)

        return read

    def _scalar(self, field: Any, column: Any, path: str) -> ToColumn:
        if field.type == _ENUM and types.is_string(column):
            names = {number: row.name for number, row in field.enum_type.values_by_number.items()}

            def texts(values: Values) -> Any:
                known = (
                    (None if value is None else names.get(value, str(value))) for value in values
                )
                return pa.array(known, pa.string())

            return self._fitted(texts, pa.string(), column, path)
        found = pa.int32() if field.type == _ENUM else _SCALARS.get(field.type)
        if found is None:
            raise SchemaError(f"field {path}: groups of proto2 have no column")
        return self._fitted(lambda values: pa.array(values, found), found, column, path)

    def _many(self, field: Any, column: Any, path: str) -> ToColumn:
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            return self._map(message, column, path)
        if not types.is_list(column) or types.is_map(column):
            raise SchemaError(_misfit(f"repeated {field.name}", column, path))
        item = self._one(field, column.value_type, path)

        def read(values: Values, owners: Indexes, broken: BrokenRows) -> Any:
            flat: Values = []
            for value in values:
                flat.extend(value)
            lengths = np.array([len(value) for value in values], np.int64)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            return list_array([item(flat, np.repeat(owners, lengths), broken)], offsets, column)

        return read

    def _map(self, entry: Any, column: Any, path: str) -> ToColumn:
        if not types.is_map(column):
            raise SchemaError(_misfit("map", column, path))
        fields = entry.fields_by_name
        to_key = self._one(fields["key"], column.key_type, path)
        to_item = self._one(fields["value"], column.item_type, path)

        def read(values: Values, owners: Indexes, broken: BrokenRows) -> Any:
            keys: Values = []
            items: Values = []
            lengths = np.zeros(len(values), np.int64)
            for number, value in enumerate(values):
                try:
                    own = list(value.items())
                except UnicodeDecodeError:  # of a key, which proto2 does not check when it parses
                    broken.add(owners[number : number + 1], f"field {path}: a key is not UTF-8")
                    continue
                keys.extend(name for name, _ in own)
                items.extend(item for _, item in own)
                lengths[number] = len(own)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            repeated = np.repeat(owners, lengths)
            # No key of a map may be null, not even where the row is broken.
            found = to_key(keys, repeated, broken).fill_null(pa.scalar(0).cast(column.key_type))
            return map_array(found, to_item(items, repeated, broken), offsets, column)

        return read

    def _fitted(
        self, to_array: Callable[[Values], Any], found: Any, column: Any, path: str
    ) -> ToColumn:
        convert = conversion(found, column, self._zone)
        if convert is None:
            raise SchemaError(_misfit(spark_name(found), column, path))

        def told(value: Any) -> str:
            if types.is_string(found) and isinstance(value, bytes):
                return f"field {path}: is not UTF-8"  # proto2 does not check when it parses
            return f"field {path}: {shown(value)} is no {spark_name(column)}"

        def from_values(values: Values) -> Any:
            return convert(to_array(values))

        def read(values: Values, owners: Indexes, broken: BrokenRows) -> Any:
            return converted(values, from_values, column, owners, broken, told)

        return read


def _misfit(what: str, column: Any, path: str) -> str:
    return f"field {path}: the message's {what} is no {spark_name(column)}"


def _repeated_names(descriptor: Any) -> set[str]:
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(proto)
    return {row.name for row in proto.field if row.label == _REPEATED}


def _getter(field: Any, *, is_repeated: bool) -> Callable[[Values], Values]:
    """The field of all messages; None where it is not set."""
    name = field.name
    get = operator.attrgetter(name)
    if is_repeated or not field.has_presence:
        return lambda messages: list(map(get, messages))
    has = operator.methodcaller("HasField", name)
    return lambda messages: [get(row) if has(row) else None for row in messages]


def _empty(message: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(message)()


def _moments(values: Values) -> Any:
    micros = [
        None if value is None else value.seconds * 1_000_000 + value.nanos // 1000
        for value in values
    ]
    return pa.array(micros, pa.int64()).cast(TIMESTAMP)


def _wrapped(value: Any) -> Any:
    return None if value is None else value.value


def _json_getter(name: str) -> Callable[[Values], Values]:
    from google.protobuf.json_format import MessageToDict

    return lambda messages: [
        MessageToDict(message, preserving_proto_field_name=True).get(name) for message in messages
    ]


def _message_texts(values: Values) -> Any:
    from google.protobuf.json_format import MessageToDict

    return _json_texts(
        [
            None if value is None else MessageToDict(value, preserving_proto_field_name=True)
            for value in values
        ]
    )


def _json_texts(values: Values) -> Any:
    texts = (None if value is None else json_text(value) for value in values)
    return pa.array(texts, pa.string())


class ProtobufWriter:
    """Raises SchemaError when a column is no field of the message, or never fits it."""

    def __init__(self, schema: ProtobufSchema, columns: Any) -> None:
        self._schema = schema
        self._columns = columns
        self._values = _message_values(schema.descriptor, columns, "")

    def write(self, rows: Any) -> Any:
        """The records of a struct array, as a binary array."""
        records = []
        for row in self._values(rows):
            try:
                records.append(self._schema.message(**row).SerializeToString())
            except (TypeError, ValueError) as problem:
                raise EncodeError(f"{self._schema.descriptor.full_name}: {problem}") from None
        return pa.array(records, pa.binary())


def _message_values(descriptor: Any, columns: Any, path: str) -> ToValues:
    """Dicts that the message's constructor takes; a null is a field that is not set."""
    repeated = _repeated_names(descriptor)
    steps: list[tuple[str, ToValues]] = []
    for column in columns:
        place = f"{path}.{column.name}" if path else column.name
        field = descriptor.fields_by_name.get(column.name)
        if field is None:
            raise SchemaError(f"column {place}: {descriptor.full_name} has no such field")
        if column.name in repeated:
            steps.append((column.name, _many_values(field, column.type, place)))
        else:
            steps.append((column.name, _one_value(field, column.type, place)))
    names = [name for name, _ in steps]

    def values(array: Any) -> Values:
        parts = [step(column) for (_, step), column in zip(steps, array.flatten(), strict=True)]
        rows = zip(*parts, strict=True) if parts else [()] * len(array)
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in rows
        ]

    return values


def _many_values(field: Any, column: Any, path: str) -> ToValues:
    message = field.message_type
    is_map = message is not None and message.GetOptions().map_entry
    if is_map != types.is_map(column) or not (is_map or types.is_list(column)):
        raise SchemaError(_unfit(field, column, path))
    if not is_map:
        item = _one_value(field, column.value_type, path)
        return lambda array: _sliced(array, item(array.flatten()))
    fields = message.fields_by_name
    key = _one_value(fields["key"], column.key_type, path)
    value = _one_value(fields["value"], column.item_type, path)

    def values(array: Any) -> Values:
        bounds = array.offsets.to_numpy()
        used = slice(int(bounds[0]), int(bounds[-1]))
        pairs = list(zip(key(array.keys[used]), value(array.items[used]), strict=True))
        first = int(bounds[0])
        return [
            dict(pairs[start - first : end - first])
            for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]

    return values


def _sliced(array: Any, items: Values) -> Values:
    lengths = array.value_lengths().fill_null(0).to_pylist()
    rows, start = [], 0
    for length in lengths:
        rows.append(items[start : start + length])
        start += length
    return rows


def _one_value(field: Any, column: Any, path: str) -> ToValues:
    message = field.message_type
    if message is None:
        return _scalar_values(field, column, path)
    if message.full_name == _TIMESTAMP and column == TIMESTAMP:
        return _timestamp_values
    if message.full_name in _WRAPPERS:
        inner = _scalar_values(message.fields_by_name["value"], column, path)
        return lambda array: [None if value is None else {"value": value} for value in inner(array)]
    if message.full_name not in _TEXTS and types.is_struct(column):
        nested = _message_values(message, column, path)

        def values(array: Any) -> Values:
            there = array.is_valid().to_pylist()
            return [
                row if is_there else None
                for row, is_there in zip(nested(array), there, strict=True)
            ]

        return values
    raise SchemaError(_unfit(field, column, path))


def _timestamp_values(array: Any) -> Values:
    return [
        None
        if micros is None
        else {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1000}
        for micros in array.cast(pa.int64()).to_pylist()
    ]


def _scalar_values(field: Any, column: Any, path: str) -> ToValues:
    kind = _SCALARS.get(field.type)
    if field.type == _ENUM and types.is_string(column):
        numbers = {row.name: row.number for row in field.enum_type.values}

        def values(array: Any) -> Values:
            return [_symbol(name, numbers, field, path) for name in array.to_pylist()]

        return values
    is_whole = types.is_integer(column) or (types.is_decimal(column) and column.scale == 0)
    is_number = types.is_integer(column) or types.is_floating(column) or types.is_decimal(column)
    if field.type == _ENUM and types.is_integer(column):
        return operator.methodcaller("to_pylist")
    if kind is not None and types.is_integer(kind) and is_whole:
        return lambda array: [None if value is None else int(value) for value in array.to_pylist()]
    if kind is not None and types.is_floating(kind) and is_number:
        return lambda array: [
            None if value is None else float(value) for value in array.to_pylist()
        ]
    if kind is not None and kind == column:
        return operator.methodcaller("to_pylist")
    raise SchemaError(_unfit(field, column, path))


def _symbol(name: str | None, numbers: dict[str, int], field: Any, path: str) -> int | None:
    if name is None:
        return None
    if name not in numbers:
        raise EncodeError(f"field {path}: {name} is no value of {field.enum_type.full_name}")
    return numbers[name]


def _unfit(field: Any, column: Any, path: str) -> str:
    return f"field {path}: a column of type {spark_name(column)} does not fit {field.name}"
