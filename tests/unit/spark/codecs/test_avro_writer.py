"""Columns to Avro records: the bytes of fastavro, all logical types, errors with a field."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests.support.avro_pairs import AvroPair, avro_pairs  # noqa: E402
from tidelog.spark.codecs.avro_schema import AvroSchema, schema_of_columns  # noqa: E402
from tidelog.spark.codecs.avro_writer import AvroWriter  # noqa: E402
from tidelog.spark.codecs.errors import EncodeError, SchemaError  # noqa: E402

AT = datetime.datetime(2026, 1, 5, 8, 30, 0, 123456)


def one(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **more}]}


def written(schema: Any, column: Any, values: list[Any]) -> list[bytes]:
    columns = pa.struct([("x", column)])
    rows = pa.array([{"x": None}, *({"x": value} for value in values)], columns)[1:]
    records: list[bytes] = (
        AvroWriter(AvroSchema(json.dumps(schema)), columns).write(rows).to_pylist()
    )
    return records


def read_back(schema: Any, records: list[bytes]) -> list[Any]:
    parsed = fastavro.parse_schema(schema)
    return [fastavro.schemaless_reader(io.BytesIO(row), parsed, None)["x"] for row in records]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_records_of_any_columns_are_those_of_fastavro(data: st.DataObject) -> None:
    """The columns are those of a random schema; the schema is made of them."""
    pair: AvroPair = data.draw(avro_pairs())
    parsed = [fastavro.parse_schema(schema) for schema in (pair.writer, pair.reader)]
    values = []
    for value in data.draw(st.lists(pair.values, max_size=4)):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed[0], value)
        stream.seek(0)
        values.append(fastavro.schemaless_reader(stream, *parsed))
    schema = schema_of_columns(pair.column, "topic")
    rows = pa.array(values, pair.column)
    records = AvroWriter(AvroSchema(schema), pair.column).write(rows).to_pylist()
    made = fastavro.parse_schema(json.loads(schema))
    assert [fastavro.schemaless_reader(io.BytesIO(row), made, None) for row in records] == values
    for record, value in zip(records, values, strict=True):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, made, value)
        assert record == stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            pa.timestamp("us", "UTC"),
            [AT.replace(tzinfo=datetime.UTC), AT.replace(year=1900, tzinfo=datetime.UTC)],
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.timestamp("us", "UTC"),
            [AT.replace(microsecond=123000, tzinfo=datetime.UTC)],
        ),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), [AT]),
        ({"type": "int", "logicalType": "date"}, pa.date32(), [datetime.date(1800, 1, 5)]),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
            pa.decimal128(10, 2),
            [decimal.Decimal(text) for text in ("0.00", "-0.01", "1.27", "1.28", "99999999.99")],
        ),
        (
            {
                "type": "fixed",
                "name": "D",
                "size": 20,
                "logicalType": "decimal",
                "precision": 12,
                "scale": 2,
            },
            pa.decimal128(10, 2),
            [decimal.Decimal("-12.34"), decimal.Decimal("12.34")],
        ),
        ("bytes", pa.binary(), [b"", b"\0\xff" * 100]),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), [b"ab"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), ["B", "A"]),
        (["null", "string", "long"], pa.int64(), [7, None]),
        ("double", pa.int32(), [7]),
        ("float", pa.float64(), [0.5]),
    ],
)
def test_logical_types_and_bytes_are_written(kind: Any, column: Any, values: list[Any]) -> None:
    assert read_back(one(kind), written(one(kind), column, values)) == values


@pytest.mark.parametrize(
    ("kind", "column", "value", "told"),
    [
        ("string", pa.string(), None, "is null, which the schema does not allow"),
        (["int", "string"], pa.string(), None, "is null, which the schema does not allow"),
        ("int", pa.int64(), 2**40, "not in range"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "B", "B is no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), b"ab", "has not 3 bytes"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2},
            pa.decimal128(10, 2),
            decimal.Decimal("10.00"),
            "does not fit",
        ),
    ],
)
def test_a_value_that_the_schema_cannot_hold_is_told_with_its_field(
    kind: Any, column: Any, value: Any, told: str
) -> None:
    with pytest.raises(EncodeError, match=rf"^field x: .*{told}"):
        written(one(kind), column, [value])


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.string()),
        ("string", pa.int64()),
        ("long", pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us")),
        ("null", pa.int64()),
        (["null"], pa.int64()),
        ({"type": "array", "items": "long"}, pa.int64()),
    ],
)
def test_a_column_that_never_fits_is_refused_before_any_row(kind: Any, column: Any) -> None:
    with pytest.raises(SchemaError, match=r"^field x: "):
        written(one(kind), column, [])


def test_a_field_without_a_column_has_its_default_or_is_refused() -> None:
    columns = pa.struct([("y", pa.int64())])
    rows = pa.array([{"y": 1}, {"y": 2}], columns)
    schema = one({"type": "array", "items": "string"}, default=["ä"])
    schema["fields"].append({"name": "y", "type": "long"})
    records = AvroWriter(AvroSchema(json.dumps(schema)), columns).write(rows).to_pylist()
    assert read_back(schema, records) == [["ä"], ["ä"]]
    del schema["fields"][0]["default"]
    with pytest.raises(SchemaError, match=r"field x: no column has its name"):
        AvroWriter(AvroSchema(json.dumps(schema)), columns)


def test_columns_whose_names_avro_cannot_have_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"column a.b c: rename it"):
        schema_of_columns(pa.struct([("a", pa.struct([("b c", pa.int32())]))]), "topic")
    with pytest.raises(SchemaError, match=r"column m: Avro's maps have keys of type string"):
        schema_of_columns(pa.struct([("m", pa.map_(pa.int32(), pa.int32()))]), "topic")
    assert json.loads(schema_of_columns(pa.struct([]), "1.shop-orders"))["name"] == "_1_shop_orders"
