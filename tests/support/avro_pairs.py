"""Random pairs of Avro schemas that resolve, with values of the writer's and the columns of the
reader's: fields in another order, more of them, fewer of them, promoted, unions made and taken
apart."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_WIDE = 2**63 - 1
_EXACT = 2**24  # whole numbers up to here are floats too
_FLOATS = st.floats(width=32, allow_nan=False)
_TIMES = st.datetimes(
    datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(datetime.UTC)
)


@dataclass(frozen=True)
class AvroPair:
    writer: Any
    reader: Any
    values: st.SearchStrategy[Any]  # of the writer's
    column: Any  # Arrow's type of the reader's


def _numbers(limit: int) -> st.SearchStrategy[int]:
    return st.integers(-limit, limit)


def _millis(time: datetime.datetime) -> datetime.datetime:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


_DECIMALS = st.integers(-(10**9), 10**9).map(lambda number: decimal.Decimal(number).scaleb(-3))
_DECIMAL = {"logicalType": "decimal", "precision": 10, "scale": 3}

_LEAVES = [
    AvroPair("boolean", "boolean", st.booleans(), pa.bool_()),
    AvroPair("int", "int", _numbers(2**31 - 1), pa.int32()),
    AvroPair("int", "long", _numbers(2**31 - 1), pa.int64()),
    AvroPair("int", "float", _numbers(_EXACT), pa.float32()),
    AvroPair("int", "double", _numbers(2**31 - 1), pa.float64()),
    AvroPair("long", "long", _numbers(_WIDE), pa.int64()),
    AvroPair("long", "float", _numbers(_EXACT), pa.float32()),
    AvroPair("long", "double", _numbers(_WIDE), pa.float64()),
    AvroPair("float", "float", _FLOATS, pa.float32()),
    AvroPair("float", "double", _FLOATS, pa.float64()),
    AvroPair("double", "double", st.floats(allow_nan=False), pa.float64()),
    AvroPair("string", "string", st.text(max_size=9), pa.string()),
    AvroPair("string", "bytes", st.text(max_size=9), pa.binary()),
    AvroPair("bytes", "bytes", st.binary(max_size=200), pa.binary()),
    AvroPair("bytes", "string", st.text(max_size=9).map(str.encode), pa.string()),
    AvroPair(
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-millis"},
        _TIMES.map(_millis),
        pa.timestamp("us", "UTC"),
    ),
    AvroPair(
        {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "long", "logicalType": "timestamp-micros"},
        _TIMES,
        pa.timestamp("us", "UTC"),
    ),
    AvroPair(
        {"type": "int", "logicalType": "date"},
        {"type": "int", "logicalType": "date"},
        st.dates(),
        pa.date32(),
    ),
    AvroPair({"type": "bytes", **_DECIMAL}, {"type": "bytes", **_DECIMAL}, _DECIMALS, None),
]


@st.composite
def _leaf(draw: st.DrawFn) -> AvroPair:
    pair = draw(st.sampled_from(_LEAVES))
    column = pa.decimal128(10, 3) if pair.column is None else pair.column
    return AvroPair(pair.writer, pair.reader, pair.values, column)


def _name(draw: st.DrawFn) -> str:
    """Of a type; no two of one schema may have the same."""
    return "T" + draw(st.uuids()).hex


@st.composite
def _named(draw: st.DrawFn) -> AvroPair:
    name = _name(draw)
    if draw(st.booleans()):
        size = draw(st.integers(1, 20))
        fixed = {"type": "fixed", "name": name, "size": size}
        return AvroPair(fixed, dict(fixed), st.binary(min_size=size, max_size=size), pa.binary())
    writer = {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
    reader = {"type": "enum", "name": name, "symbols": ["C", "A"], "default": "A"}
    return AvroPair(writer, reader, st.sampled_from("ABC"), pa.string())


@st.composite
def _record(draw: st.DrawFn, inner: st.SearchStrategy[AvroPair]) -> AvroPair:
    name = _name(draw)
    pairs = draw(st.lists(inner, min_size=1, max_size=4))
    names = [f"f{number}" for number in range(len(pairs))]
    wrote = [{"name": n, "type": pair.writer} for n, pair in zip(names, pairs, strict=True)]
    kept = draw(st.lists(st.sampled_from(range(len(pairs))), unique=True, min_size=1))
    reads: list[dict[str, Any]] = []
    columns = []
    for number in draw(st.permutations(kept)):
        renamed = draw(st.booleans())
        field_name = f"r{number}" if renamed else names[number]
        aliases = {"aliases": [names[number]]} if renamed else {}
        reads.append({"name": field_name, "type": pairs[number].reader, **aliases})
        columns.append((field_name, pairs[number].column))
    if draw(st.booleans()):
        reads.append({"name": "more", "type": ["string", "null"], "default": "ä"})
        columns.append(("more", pa.string()))
    if draw(st.booleans()):
        default = {"type": {"type": "map", "values": "int"}, "default": {"k": 1}}
        reads.append({"name": "most", **default})
        columns.append(("most", pa.map_(pa.string(), pa.int32())))
    values = st.fixed_dictionaries(
        {name: pair.values for name, pair in zip(names, pairs, strict=True)}
    )
    record = {"type": "record", "name": name}
    return AvroPair(
        {**record, "fields": wrote}, {**record, "fields": reads}, values, pa.struct(columns)
    )


def _containers(inner: st.SearchStrategy[AvroPair]) -> st.SearchStrategy[AvroPair]:
    def array(pair: AvroPair) -> AvroPair:
        return AvroPair(
            {"type": "array", "items": pair.writer},
            {"type": "array", "items": pair.reader},
            st.lists(pair.values, max_size=4),
            pa.list_(pair.column),
        )

    def mapped(pair: AvroPair) -> AvroPair:
        return AvroPair(
            {"type": "map", "values": pair.writer},
            {"type": "map", "values": pair.reader},
            st.dictionaries(st.text(max_size=3), pair.values, max_size=3),
            pa.map_(pa.string(), pair.column),
        )

    def nullable(pair: AvroPair) -> AvroPair:
        if isinstance(pair.writer, list) or isinstance(pair.reader, list):
            return pair
        values = st.none() | pair.values
        return AvroPair(["null", pair.writer], [pair.reader, "null"], values, pair.column)

    def widened(pair: AvroPair) -> AvroPair:
        if isinstance(pair.reader, list):
            return pair
        return AvroPair(pair.writer, ["null", pair.reader], pair.values, pair.column)

    def narrowed(pair: AvroPair) -> AvroPair:
        if isinstance(pair.writer, list) or isinstance(pair.reader, list):
            return pair
        return AvroPair(["null", pair.writer], pair.reader, pair.values, pair.column)

    return st.one_of(
        inner.map(array),
        inner.map(mapped),
        inner.map(nullable),
        inner.map(widened),
        inner.map(narrowed),
        _record(inner),
    )


def avro_pairs() -> st.SearchStrategy[AvroPair]:
    """Of records."""
    return _record(st.recursive(_leaf() | _named(), _containers, max_leaves=6))
