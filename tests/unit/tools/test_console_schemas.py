"""Records by the id of their schema: from a registry or a folder, hostile ones too."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.console_log import Ticks
from tests.support.protobuf_files import shop_files, shop_messages
from tests.support.schema_registry import FakeRegistry, running_registry
from tidelog.tools.console.messages.decoding import Decoder, Undecodable
from tidelog.tools.console.messages.schemas import REGISTRY_PAUSE_S, AvroRecord, Schemas

fastavro = pytest.importorskip("fastavro")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "again", "type": "State"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "double"}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "ref", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "is_new", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "ratio", "type": "float"},
    ],
}  # fmt: skip
LIST = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + data


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as running:
        yield running


def test_an_avro_record_of_every_type_is_read(registry: FakeRegistry) -> None:
    value = {
        "id": -7,
        "note": "ä",
        "price": Decimal("12.34"),
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "state": "OLD",
        "again": "NEW",
        "tags": ["a", "b"],
        "counts": {"x": 1.5},
        "mark": b"\x01\x02",
        "ref": UUID(int=5),
        "is_new": True,
        "raw": b"\xff",
        "ratio": 0.5,
    }
    schema_id = registry.add("orders-value", ORDER)

    form, document = Schemas(registry.url).decoded(framed(schema_id, avro(ORDER, value)))

    assert form == "avro"
    assert document == {
        "id": -7,
        "note": "ä",
        "price": "12.34",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00+00:00",
        "state": "OLD",
        "again": "NEW",
        "tags": ["a", "b"],
        "counts": {"x": 1.5},
        "mark": {"base64": "AQI="},
        "ref": str(UUID(int=5)),
        "is_new": True,
        "raw": {"base64": "/w=="},
        "ratio": 0.5,
    }


def test_a_protobuf_message_is_read_by_the_registrys_descriptors(registry: FakeRegistry) -> None:
    pytest.importorskip("google.protobuf")
    item, order = (
        base64.b64encode(each.SerializeToString()).decode() for each in shop_files().file
    )
    registry.add("shop/item.proto", item, "PROTOBUF")
    reference = {"name": "shop/item.proto", "subject": "shop/item.proto", "version": 1}
    schema_id = registry.add("orders-value", order, "PROTOBUF", [reference])
    messages = shop_messages()
    first = messages["shop.Order"](id="o1", cents=5, item=[messages["shop.Item"](sku=9)])
    reason = messages["shop.Refund.Reason"](id="late")
    schemas = Schemas(registry.url)

    form, document = schemas.decoded(framed(schema_id, b"\0" + first.SerializeToString()))
    nested = schemas.decoded(framed(schema_id, b"\4\2\0" + reason.SerializeToString()))

    assert form == "protobuf"
    assert document == {"id": "o1", "cents": "5", "item": [{"sku": "9"}]}
    assert nested == ("protobuf", {"id": "late"})
    with pytest.raises(Undecodable):
        schemas.decoded(framed(schema_id, b"\0\xff\xff"))
    with pytest.raises(Undecodable):
        schemas.decoded(framed(schema_id, b"\2\x20"))


def test_framed_json_is_read(registry: FakeRegistry) -> None:
    schema_id = registry.add("j-value", {"type": "object"}, "JSON")

    assert Schemas(registry.url).decoded(framed(schema_id, b'{"a": 1}')) == ("json", {"a": 1})


def test_a_folder_has_schemas_too(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps("string"))
    (tmp_path / "8.proto").write_text("message A {}")
    schemas = Schemas(str(tmp_path))

    assert schemas.decoded(framed(7, b"\4ab")) == ("avro", "ab")
    with pytest.raises(Undecodable, match=r"\.proto file cannot be read by"):
        schemas.decoded(framed(8, b"\0"))
    with pytest.raises(Undecodable, match="schema id 9 is not in"):
        schemas.decoded(framed(9, b"\0"))


def test_a_registry_that_is_silent_is_asked_again_after_a_while() -> None:
    clock = Ticks()
    with running_registry() as registry:
        schema_id = registry.add("s-value", '"string"')
        path = f"/schemas/ids/{schema_id}"
        answers = registry.answers
        answers[path] = [(500, {"message": "down"})]
        schemas = Schemas(registry.url, clock)
        for _ in range(3):
            with pytest.raises(Undecodable, match="does not answer"):
                schemas.decoded(framed(schema_id, b"\4ab"))
        asked = len(registry.requests)
        del answers[path]
        clock.now = REGISTRY_PAUSE_S

        assert asked == 1
        assert schemas.decoded(framed(schema_id, b"\4ab")) == ("avro", "ab")


def test_automatic_decoding_sees_frames_where_schemas_are_configured(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(LIST))
    decoder = Decoder("auto", Schemas(str(tmp_path)))

    assert decoder.shown(framed(7, b"\2\0")).text == '{"next":{"next":null}}'
    assert decoder.document(framed(7, b"\0")) == {"next": None}
    assert decoder.text(framed(7, b"\0")) == '{"next":null}'
    assert decoder.shown(b'{"a":1}').form == "json"
    broken = decoder.shown(framed(7, b""))
    assert (broken.form, broken.problem) == ("hex", "the record ends before its value does")


def test_a_record_that_holds_itself_beyond_measure_is_refused() -> None:
    """fastavro follows it until the process ends."""
    names: dict[str, Any] = {}
    schema = fastavro.parse_schema(LIST, names)

    with pytest.raises(Undecodable, match="deep"):
        AvroRecord(names, b"\2" * 1_000_000 + b"\0").read(schema)


def test_an_array_of_nothings_without_end_is_refused() -> None:
    schema = fastavro.parse_schema({"type": "array", "items": "null"})

    with pytest.raises(Undecodable, match="values"):
        AvroRecord({}, b"\xfe\xff\xff\xff\x0f").read(schema)
    with pytest.raises(Undecodable, match="values"):
        AvroRecord({}, b"\xc0\x9a\x0c" * 10).read(schema)


_NAMES: dict[str, Any] = {}
_ORDER = fastavro.parse_schema(ORDER, _NAMES)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=80))
def test_any_bytes_are_an_avro_record_or_refused(data: bytes) -> None:
    with suppress(Undecodable):
        json.dumps(AvroRecord(_NAMES, data).read(_ORDER))
