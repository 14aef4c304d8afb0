"""Batches of Avro and Protobuf records; each kind is skipped where its library is not installed."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.support.protobuf_files import shop_descriptors, shop_messages
from tidelog.spark.codecs.errors import SchemaError
from tidelog.spark.codecs.record_codecs import RecordDecoder, RecordEncoder, missing_codec
from tidelog.spark.codecs.schema_registry import SchemaFolder, registry_settings
from tidelog.spark.record_format import AVRO, PROTOBUF

pa = pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SWAPPED = {**ORDER, "fields": [{"name": "cents", "type": "int"}, ORDER["fields"][0]]}
COLUMNS = pa.struct([("id", pa.string()), ("cents", pa.int64())])


def avro(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def decoded(decoder: RecordDecoder, records: list[bytes | None]) -> list[Any]:
    """What was parsed, or the reason."""
    rows = decoder.decode(pa.array(records, pa.binary())).to_pylist()
    assert all((row["parsed"] is None) == (row["reason"] is not None) for row in rows)
    return [row["reason"] or row["parsed"] for row in rows]


def folder_of(tmp_path: Path, **schemas: dict[str, Any]) -> SchemaFolder:
    for name, schema in schemas.items():
        (tmp_path / f"{name.removeprefix('id')}.avsc").write_text(json.dumps(schema))
    return SchemaFolder(tmp_path)


def test_avro_without_a_frame_is_read_by_its_schema() -> None:
    columns = pa.struct([("at", pa.string()), ("id", pa.string()), ("more", pa.int32())])
    decoder = RecordDecoder(AVRO, columns, schema=json.dumps(ORDER).encode())
    record = avro(ORDER, {"id": "o1", "cents": 450, "at": 1_000})
    assert decoded(decoder, [record, None, b"", record + b"x", b"\xff" * 30]) == [
        {"at": "1970-01-01T00:00:01+00:00", "id": "o1", "more": None},
        "the record has no value",
        "is no avro record of the schema: it ends early",
        "is no avro record of the schema: bytes are left over",
        "is no avro record of the schema: a number has too many bytes",
    ]


def test_a_value_that_does_not_fit_its_column_breaks_its_row() -> None:
    columns = pa.struct([("id", pa.string()), ("cents", pa.int8())])
    decoder = RecordDecoder(AVRO, columns, schema=json.dumps(ORDER).encode())
    records: list[bytes | None] = [
        avro(ORDER, {"id": "o", "cents": cents, "at": 0}) for cents in (1, 300, -128, 2**40)
    ]
    assert decoded(decoder, records) == [
        {"id": "o", "cents": 1},
        "field cents: 300 is no tinyint",
        {"id": "o", "cents": -128},
        "field cents: 1099511627776 is no tinyint",
    ]


def test_records_of_several_writers_are_read_by_their_ids(tmp_path: Path) -> None:
    schemas = folder_of(tmp_path, id7=ORDER, id8=SWAPPED)
    for schema in (b"", json.dumps({**ORDER, "fields": ORDER["fields"][:2]}).encode()):
        decoder = RecordDecoder(AVRO, COLUMNS, schema=schema, schemas=schemas, is_framed=True)
        value = {"id": "o1", "cents": 450, "at": 0}
        old = b"\0\0\0\0\x07" + avro(ORDER, value)
        new = b"\0\0\0\0\x08" + avro(SWAPPED, value)
        assert decoded(decoder, [old, new, None, new, b"\0\0\0\1\0", old]) == [
            {"id": "o1", "cents": 450},
            {"id": "o1", "cents": 450},
            "the record has no value",
            {"id": "o1", "cents": 450},
            f"schema id 256 is not in {tmp_path}",
            {"id": "o1", "cents": 450},
        ]


def test_a_writer_that_does_not_resolve_breaks_its_rows_with_the_field(tmp_path: Path) -> None:
    text = {**ORDER, "fields": [ORDER["fields"][0], {"name": "cents", "type": "string"}]}
    less = {**ORDER, "fields": ORDER["fields"][:1]}
    schemas = folder_of(tmp_path, id1=text, id2=less)
    reader = json.dumps({**ORDER, "fields": ORDER["fields"][:2]}).encode()
    decoder = RecordDecoder(AVRO, COLUMNS, schema=reader, schemas=schemas, is_framed=True)
    records: list[bytes | None] = [
        b"\0\0\0\0\1" + avro(text, {"id": "o1", "cents": "450"}),
        b"\0\0\0\0\2" + avro(less, {"id": "o1"}),
    ]
    assert decoded(decoder, records) == [
        "schema id 1: field cents: the writer's string does not resolve to long",
        "schema id 2: field cents: is not in the writer's schema, and the reader's has no default",
    ]


def test_columns_that_no_record_can_fill_are_refused_at_once() -> None:
    schema = json.dumps(ORDER).encode()
    for name, kind in (("id", pa.int64()), ("cents", pa.bool_()), ("at", pa.list_(pa.string()))):
        with pytest.raises(SchemaError, match=rf"field {name}: the writer's .* is no "):
            RecordDecoder(AVRO, pa.struct([(name, kind)]), schema=schema).check()
    shop: dict[str, Any] = {"schema": shop_descriptors(), "message": "shop.Order"}
    with pytest.raises(SchemaError, match=r"field item: .* is no bigint"):
        RecordDecoder(PROTOBUF, pa.struct([("item", pa.int64())]), **shop).check()
    with pytest.raises(SchemaError, match=r"has no message shop.Ordr; there is shop.Item"):
        RecordDecoder(PROTOBUF, COLUMNS, schema=shop_descriptors(), message="shop.Ordr").check()


def test_protobuf_goes_there_and_back() -> None:
    shop: dict[str, Any] = {"schema": shop_descriptors(), "message": "shop.Order"}
    rows = [{"id": "o1", "cents": 450}, {"id": "", "cents": 0}]
    encoder = RecordEncoder(PROTOBUF, COLUMNS, **shop)
    records = encoder.encode(pa.array(rows, COLUMNS)).to_pylist()
    assert records == [b"\x0a\x02o1\x10\xc2\x03", b""]
    decoder = RecordDecoder(PROTOBUF, COLUMNS, **shop)
    assert decoded(decoder, [*records, None])[:2] == rows
    assert decoded(decoder, [b"\x0a\xff"])[0].startswith("is no protobuf record of shop.Order: ")


def test_protobuf_without_schemas_goes_by_the_place_of_the_message() -> None:
    shop: dict[str, Any] = {"schema": shop_descriptors(), "is_framed": True}
    record = shop_messages()["shop.Refund.Reason"](id="r1").SerializeToString()
    columns = pa.struct([("id", pa.string())])
    decoder = RecordDecoder(PROTOBUF, columns, message="shop.Refund.Reason", **shop)
    nested = b"\0\0\0\0\7\x04\x02\0" + record
    assert decoded(decoder, [nested, b"\0\0\0\0\7\0" + record, b"\0\0\0\0\7\xff"]) == [
        {"id": "r1"},
        "holds message [0] of its schema; shop.Refund.Reason is [1, 0]",
        "has no frame of Protobuf: it has no message indexes",
    ]


def test_a_codec_travels_to_workers_with_its_schema_and_no_cache() -> None:
    decoder = RecordDecoder(AVRO, COLUMNS, schema=json.dumps(ORDER).encode())
    record = avro(ORDER, {"id": "o1", "cents": 450, "at": 0})
    decoded(decoder, [record])
    copy = pickle.loads(pickle.dumps(decoder))
    assert copy._made == {}
    assert decoded(copy, [record]) == [{"id": "o1", "cents": 450}]


def test_no_repr_shows_the_password_of_a_registry() -> None:
    settings = registry_settings(
        {"schema.registry.url": "http://r:8081", "basic.auth.user.info": "shop:secret"}
    )
    decoder = RecordDecoder(AVRO, COLUMNS, schemas=settings, is_framed=True)
    assert settings.user_info == "shop:secret"
    assert "secret" not in f"{settings!r} {settings} {decoder!r} {decoder}"


def test_a_sink_writes_with_the_id_of_its_schema_in_a_folder(tmp_path: Path) -> None:
    small = {**ORDER, "fields": ORDER["fields"][:2]}
    schemas = folder_of(tmp_path, id7=ORDER, id9=small)
    encoder = RecordEncoder(
        AVRO, COLUMNS, schema=json.dumps(small).encode(), schemas=schemas, is_framed=True
    )
    value = {"id": "o1", "cents": 450}
    assert encoder.encode(pa.array([value], COLUMNS)).to_pylist() == [
        b"\0\0\0\0\x09" + avro(small, value)
    ]


def test_what_is_not_installed_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.spark.codecs.record_codecs.find_spec", lambda name: None)
    assert missing_codec(AVRO) == "format avro needs an extra: pip install 'tidelog[avro]'"
    assert missing_codec(PROTOBUF) == (
        "format protobuf needs an extra: pip install 'tidelog[protobuf]'"
    )
