"""Avro records to columns: equal to what fastavro reads one by one, and safe with any bytes."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")
fastavro = pytest.importorskip("fastavro")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests.support.avro_pairs import AvroPair, avro_pairs  # noqa: E402
from tidelog.spark.codecs.avro_reader import AvroReader  # noqa: E402
from tidelog.spark.codecs.avro_schema import AvroSchema  # noqa: E402
from tidelog.spark.codecs.broken_rows import BrokenRows  # noqa: E402
from tidelog.spark.codecs.errors import SchemaError  # noqa: E402


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def read(
    writer: Any, reader: Any, columns: Any, records: list[bytes]
) -> tuple[list[Any], list[str | None]]:
    found, reasons = read_columns(writer, reader, columns, records)
    return found.to_pylist(), reasons


def read_columns(
    writer: Any, reader: Any, columns: Any, records: list[bytes]
) -> tuple[Any, list[str | None]]:
    resolved = AvroReader(
        AvroSchema(json.dumps(writer)),
        None if reader is None else AvroSchema(json.dumps(reader)),
        columns,
    )
    values = pa.array([b"before", *records], pa.binary())[1:]
    broken = BrokenRows(len(values))
    rows = np.arange(len(values))
    found = resolved.read(values, np.zeros(len(rows), np.int64), rows, broken)
    found.validate(full=True)
    assert found.type == columns
    return found, broken.reasons().to_pylist()


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": kind, **more} for n, kind, more in fields],
    }


def one(kind: Any) -> dict[str, Any]:
    return record(("x", kind, {}))


def plain(value: Any, column: Any) -> Any:
    """Maps as dicts, in what Arrow gives."""
    if value is None:
        return None
    if pa.types.is_map(column):
        return {key: plain(item, column.item_type) for key, item in value}
    if pa.types.is_list(column):
        return [plain(item, column.value_type) for item in value]
    if pa.types.is_struct(column):
        return {row.name: plain(value[row.name], row.type) for row in column}
    return value


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_pair_of_schemas_reads_as_with_fastavro(data: st.DataObject) -> None:
    pair: AvroPair = data.draw(avro_pairs())
    values = data.draw(st.lists(pair.values, max_size=5))
    records = [encoded(pair.writer, value) for value in values]
    parsed = [fastavro.parse_schema(schema) for schema in (pair.writer, pair.reader)]
    expected = [fastavro.schemaless_reader(io.BytesIO(row), *parsed) for row in records]
    found, reasons = read(pair.writer, pair.reader, pair.column, records)
    assert reasons == [None] * len(records)
    assert [plain(row, pair.column) for row in found] == expected


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_records_break_their_own_rows_only(data: st.DataObject) -> None:
    pair: AvroPair = data.draw(avro_pairs())
    good = encoded(pair.writer, data.draw(pair.values))
    damaged = data.draw(
        st.one_of(
            st.binary(max_size=30),
            st.integers(0, len(good)).map(lambda length: good[:length]),
            st.binary(min_size=1, max_size=3).map(lambda more: good + more),
            st.tuples(st.integers(0, max(len(good) - 1, 0)), st.integers(0, 255)).map(
                lambda change: good[: change[0]] + bytes([change[1]]) + good[change[0] + 1 :]
            ),
        )
    )
    expected, _ = read(pair.writer, pair.reader, pair.column, [good])
    found, reasons = read_columns(pair.writer, pair.reader, pair.column, [good, damaged, good])
    # A damaged time may lie beyond the years that Python knows.
    assert found.take([0, 2]).to_pylist() == expected * 2
    assert [reasons[0], reasons[2]] == [None, None]


@pytest.mark.parametrize(
    ("kind", "column", "value", "expected"),
    [
        ("long", pa.string(), 450, "450"),
        ("double", pa.string(), 1.0, "1.0"),
        ("boolean", pa.string(), True, "true"),
        ("bytes", pa.string(), b"\0\1", "AAE="),
        ("int", pa.decimal128(10, 2), 7, decimal.Decimal("7.00")),
        ("double", pa.decimal128(10, 2), 1.5, decimal.Decimal("1.50")),
        ("long", pa.timestamp("us", "UTC"), 1, datetime.datetime(1970, 1, 1, 0, 0, 1)),
        (
            "string",
            pa.timestamp("us", "UTC"),
            "2026-01-05T08:00:00Z",
            datetime.datetime(2026, 1, 5, 8),
        ),
        ("string", pa.timestamp("us", "UTC"), "2026-01-05 08:00", datetime.datetime(2026, 1, 5, 8)),
        ("string", pa.date32(), "2026-01-05", datetime.date(2026, 1, 5)),
        ("string", pa.decimal128(10, 2), "1.5", decimal.Decimal("1.50")),
        ("string", pa.binary(), "aGk=", b"hi"),
        ({"type": "array", "items": "int"}, pa.string(), [1, 2], "[1,2]"),
        ({"type": "map", "values": "long"}, pa.string(), {"ä": 1}, '{"ä":1}'),
        (one(["null", "bytes"]), pa.string(), {"x": b"hi"}, '{"x":"aGk="}'),
        ({"type": "int", "logicalType": "time-millis"}, pa.string(), 1_000, "00:00:01"),
        ({"type": "int", "logicalType": "time-millis"}, pa.int64(), 1_000, 1_000),
        ({"type": "int", "logicalType": "date"}, pa.string(), 0, "1970-01-01"),
        (
            {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
            pa.string(),
            b"\0" * 16,
            "00000000-0000-0000-0000-000000000000",
        ),
    ],
)
def test_values_go_into_columns_that_can_hold_them(
    kind: Any, column: Any, value: Any, expected: Any
) -> None:
    schema = one({**kind, "name": "Inner"} if isinstance(kind, dict) and "fields" in kind else kind)
    bare = json.loads(json.dumps(schema).replace("logicalType", "was"))
    found, reasons = read(schema, None, pa.struct([("x", column)]), [encoded(bare, {"x": value})])
    assert reasons == [None]
    got = found[0]["x"]
    assert (got.replace(tzinfo=None) if isinstance(got, datetime.datetime) else got) == expected


@pytest.mark.parametrize(
    ("wrote", "reads", "told"),
    [
        ("string", "long", "the writer's string does not resolve to long"),
        ("double", "float", "the writer's double does not resolve to float"),
        ("long", ["null", "string"], "the writer's long is none of the reader's union"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "the writer's fixed F does not resolve to fixed F",
        ),
        (one("int"), record(("y", "int", {}), name="Q"), "does not resolve to record Q"),
    ],
)
def test_schemas_that_do_not_resolve_name_the_field(wrote: Any, reads: Any, told: str) -> None:
    column = pa.struct([("y", pa.int32())]) if "fields" in wrote else pa.string()
    top, other = (record(("f", kind, {}), name="Top") for kind in (wrote, reads))
    with pytest.raises(SchemaError, match=f"^field f: .*{told}"):
        read(top, other, pa.struct([("f", column)]), [])


def test_a_branch_of_a_union_that_does_not_resolve_breaks_only_rows_that_have_it() -> None:
    writer = record(("x", ["null", "long", "string"], {}))
    reader = record(("x", "long", {}))
    records = [encoded(writer, {"x": value}) for value in (1, "one", 2, None)]
    found, reasons = read(writer, reader, pa.struct([("x", pa.int64())]), records)
    assert [found[0], found[2]] == [{"x": 1}, {"x": 2}]
    assert reasons == [
        None,
        "field x: the writer's string does not resolve to long",
        None,
        "field x: the writer's null does not resolve to long",
    ]


def test_a_type_that_holds_itself_is_skipped() -> None:
    tree = record(("v", "int", {}), ("next", ["null", "R"], {}))
    writer = record(("deep", tree, {}), ("x", "int", {}), name="Top")
    value: Any = None
    for number in range(40):
        value = {"v": number, "next": value}
    good = encoded(writer, {"deep": value, "x": 7})
    endless = b"\x02" * 200_000
    found, reasons = read(writer, None, pa.struct([("x", pa.int32())]), [good, endless, good])
    assert [found[0], found[2]] == [{"x": 7}, {"x": 7}]
    assert reasons == [None, "is no avro record of the schema: it is nested too deeply", None]


def test_a_few_bytes_cannot_claim_many_items() -> None:
    writer = one({"type": "array", "items": "null"})
    million = b"\xfe\xff\xff\xff\x7f\0"
    columns = pa.struct([("x", pa.list_(pa.int32()))])
    found, reasons = read(writer, None, columns, [million, encoded(writer, {"x": [None] * 3})])
    assert reasons == ["is no avro record of the schema: it ends early", None]
    assert found[1] == {"x": [None, None, None]}


def test_items_may_come_in_blocks_that_tell_their_size() -> None:
    writer = one({"type": "array", "items": "int"})
    record_bytes = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\0"
    columns = pa.struct([("x", pa.list_(pa.int32()))])
    assert read(writer, None, columns, [record_bytes]) == ([{"x": [1, 2, 3]}], [None])


def test_many_items_may_come_in_many_blocks() -> None:
    writer = one({"type": "array", "items": "int"})
    record_bytes = b"\x02\x0e" * 3_000 + b"\0"
    columns = pa.struct([("x", pa.list_(pa.int32()))])
    assert read(writer, None, columns, [record_bytes]) == ([{"x": [7] * 3_000}], [None])


def test_a_timestamp_beyond_64_bits_breaks_its_row() -> None:
    writer = one({"type": "long", "logicalType": "timestamp-millis"})
    least = b"\xff" * 9 + b"\x01"
    columns = pa.struct([("x", pa.timestamp("us", "UTC"))])
    assert read(writer, None, columns, [least])[1] == ["field x: is no timestamp"]


def test_a_default_that_never_ends_is_told() -> None:
    itself = record(("r", "R", {"default": {}}))
    reader = record(("x", itself, {"default": {}}), name="Top")
    columns = pa.struct([("x", pa.struct([("r", pa.string())]))])
    with pytest.raises(SchemaError, match=r"^field x: default"):
        read(record(name="Top"), reader, columns, [])


def test_a_map_with_a_key_twice_is_broken() -> None:
    writer = one({"type": "map", "values": "int"})
    twice = b"\x04\x02a\x02\x02a\x04\0"
    columns = pa.struct([("x", pa.map_(pa.string(), pa.int32()))])
    assert read(writer, None, columns, [twice])[1] == ["field x: a key of the map comes twice"]


def test_texts_that_are_not_utf_8_break_their_rows() -> None:
    writer = one("string")
    columns = pa.struct([("x", pa.string())])
    found, reasons = read(writer, None, columns, [b"\x02a", b"\x02\xff", b"\x02b"])
    assert reasons == [None, "field x: is not UTF-8", None]
    assert [found[0], found[2]] == [{"x": "a"}, {"x": "b"}]


def test_decimals_of_any_number_of_bytes_are_read() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    columns = pa.struct([("x", pa.decimal128(38, 0))])
    numbers = [0, -1, 127, 128, -129, 10**38 - 1, -(10**38) + 1]

    def bytes_of(number: int, size: int) -> bytes:
        return bytes([size << 1]) + number.to_bytes(size, "big", signed=True)

    records = [bytes_of(number, size) for number in numbers for size in (16, 20)]
    found, reasons = read(one(kind), None, columns, [*records, bytes_of(2**140, 20), b"\0"])
    assert reasons[:-2] == [None] * len(records)
    assert [int(row["x"]) for row in found[: len(records)]] == [n for n in numbers for _ in "12"]
    assert reasons[-2:] == ["field x: is too large", None]
    too_many_digits = [bytes_of(10**38, 16)]
    assert read(one(kind), None, columns, too_many_digits)[1] == ["field x: is no decimal(38,0)"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"long"', '{"type": "record"}', '{"type": "wat"}', '{"type":' * 50_000]
)
def test_what_is_no_schema_of_a_record_is_told(text: str) -> None:
    with pytest.raises(SchemaError):
        AvroReader(AvroSchema(text), None, pa.struct([]))
