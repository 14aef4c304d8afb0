"""Confluent's own serializers and ours read each other's records, through one registry."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.protobuf_files import shop_descriptors, shop_messages
from tests.support.schema_registry import FakeRegistry, running_registry
from tidelog.spark.codecs.errors import RegistryError
from tidelog.spark.codecs.record_codecs import RecordDecoder, RecordEncoder
from tidelog.spark.codecs.schema_registry import registry_settings
from tidelog.spark.record_format import AVRO, JSON, PROTOBUF

pa = pytest.importorskip("pyarrow")
pytest.importorskip("httpx2", reason="Confluent's serializers are not installed")
pytestmark = pytest.mark.integration

TOPIC = "shop.orders"
AT = datetime.datetime(2026, 1, 5, 8, 30, 0, 123456, datetime.UTC)
AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "raw", "type": "bytes"},
    ],
}
COLUMNS = pa.struct(
    [
        ("id", pa.string()),
        ("cents", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
    ]
)
ORDERS = [
    {
        "id": "o1",
        "cents": 450,
        "at": AT,
        "day": datetime.date(1969, 7, 20),
        "price": decimal.Decimal("-12.34"),
        "note": None,
        "tags": ["a", "ä"],
        "raw": b"\0\xff",
    },
    {
        "id": "",
        "cents": -(2**63),
        "at": AT.replace(year=1912),
        "day": datetime.date(2026, 1, 5),
        "price": decimal.Decimal("9999999999.99"),
        "note": "hi",
        "tags": [],
        "raw": b"",
    },
]


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry("shop:secret") as running:
        yield running


def ours(registry: FakeRegistry, **more: str) -> Any:
    keys = {"schema.registry.url": registry.url, "basic.auth.user.info": "shop:secret", **more}
    return registry_settings(keys)


@pytest.fixture
def theirs(registry: FakeRegistry) -> Iterator[Any]:
    """Confluent's client of the registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    conf = {"url": registry.url, "basic.auth.user.info": "shop:secret"}
    with SchemaRegistryClient(conf) as client:
        yield client


def context() -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(TOPIC, MessageField.VALUE)


def decoded(decoder: RecordDecoder, records: list[bytes]) -> tuple[list[Any], list[str | None]]:
    rows = decoder.decode(pa.array(records, pa.binary()))
    return rows.field("parsed").to_pylist(), rows.field("reason").to_pylist()


def test_we_read_avro_of_confluents_serializer(registry: FakeRegistry, theirs: Any) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    serialize = AvroSerializer(theirs, json.dumps(AVRO_ORDER))
    records = [serialize(order, context()) for order in ORDERS]
    decoder = RecordDecoder(AVRO, COLUMNS, schemas=ours(registry), is_framed=True)
    assert decoded(decoder, records) == (ORDERS, [None, None])


@pytest.mark.parametrize("is_derived", [False, True])
def test_confluents_deserializer_reads_our_avro(
    registry: FakeRegistry, theirs: Any, is_derived: bool
) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    schema = b"" if is_derived else json.dumps(AVRO_ORDER).encode()
    encoder = RecordEncoder(
        AVRO,
        COLUMNS,
        schema=schema,
        schemas=ours(registry),
        is_framed=True,
        subject=f"{TOPIC}-value",
    )
    records = encoder.encode(pa.array(ORDERS, COLUMNS)).to_pylist()
    deserialize = AvroDeserializer(theirs)
    assert [deserialize(record, context()) for record in records] == ORDERS
    assert list(registry.subjects) == [f"{TOPIC}-value"]


def test_both_register_one_avro_schema_under_one_subject(
    registry: FakeRegistry, theirs: Any
) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    text = json.dumps(AVRO_ORDER)
    theirs_bytes = AvroSerializer(theirs, text)(ORDERS[0], context())
    settings = ours(registry, **{"auto.register.schemas": "false"})
    encoder = RecordEncoder(
        AVRO,
        COLUMNS,
        schema=text.encode(),
        schemas=settings,
        is_framed=True,
        subject=f"{TOPIC}-value",
    )
    assert encoder.encode(pa.array(ORDERS[:1], COLUMNS)).to_pylist() == [theirs_bytes]
    assert len(registry.schemas) == 1


def test_avro_types_of_references_are_found(registry: FakeRegistry, theirs: Any) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer

    customer = {
        "type": "record",
        "name": "shop.Customer",
        "fields": [{"name": "name", "type": "string"}],
    }
    registry.add("customer", customer)
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "by", "type": "shop.Customer"},
            {"name": "to", "type": ["null", "shop.Customer"]},
        ],
    }
    reference = SchemaReference("shop.Customer", "customer", 1)
    schema = Schema(json.dumps(order), "AVRO", [reference])
    value = {"by": {"name": "ann"}, "to": {"name": "bob"}}
    record = AvroSerializer(theirs, schema)(value, context())
    person = pa.struct([("name", pa.string())])
    decoder = RecordDecoder(
        AVRO,
        pa.struct([("by", person), ("to", person)]),
        schemas=ours(registry),
        is_framed=True,
    )
    assert decoded(decoder, [record]) == ([value], [None])


def test_we_read_protobuf_of_confluents_serializer(registry: FakeRegistry, theirs: Any) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    messages = shop_messages()
    serialize = ProtobufSerializer(messages["shop.Order"], theirs)
    order = messages["shop.Order"](id="o1", cents=0, item=[{"sku": 2**40}, {"sku": 0}])
    records = [serialize(order, context())]
    columns = pa.struct(
        [
            ("id", pa.string()),
            ("cents", pa.int64()),
            ("item", pa.list_(pa.struct([("sku", pa.int64())]))),
        ]
    )
    decoder = RecordDecoder(
        PROTOBUF,
        columns,
        schema=shop_descriptors(),
        message="shop.Order",
        schemas=ours(registry),
        is_framed=True,
    )
    expected = {"id": "o1", "cents": 0, "item": [{"sku": 2**40}, {"sku": 0}]}
    assert decoded(decoder, records) == ([expected], [None])
    assert set(registry.subjects) == {f"{TOPIC}-value", "shop/item.proto"}


@pytest.mark.parametrize("name", ["shop.Order", "shop.Refund", "shop.Refund.Reason"])
def test_confluents_deserializer_reads_our_protobuf(
    registry: FakeRegistry, theirs: Any, name: str
) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    columns = pa.struct([("id", pa.string())])
    encoder = RecordEncoder(
        PROTOBUF,
        columns,
        schema=shop_descriptors(),
        message=name,
        schemas=ours(registry),
        is_framed=True,
        subject=f"{TOPIC}-value",
    )
    records = encoder.encode(pa.array([{"id": "o1"}, {"id": ""}], columns)).to_pylist()
    message = shop_messages()[name]
    deserialize = ProtobufDeserializer(message, {"use.deprecated.format": False}, theirs)
    assert [deserialize(record, context()).id for record in records] == ["o1", ""]
    decoder = RecordDecoder(
        PROTOBUF,
        columns,
        schema=shop_descriptors(),
        message=name,
        schemas=ours(registry),
        is_framed=True,
    )
    assert decoded(decoder, records) == ([{"id": "o1"}, {"id": ""}], [None, None])


def test_another_message_of_the_same_schema_is_broken(registry: FakeRegistry, theirs: Any) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    refund = shop_messages()["shop.Refund"]
    record = ProtobufSerializer(refund, theirs)(refund(id="r1"), context())
    columns = pa.struct([("id", pa.string())])
    for schemas, reason in (
        (ours(registry), "schema id 2: holds shop.Refund, not shop.Order"),
        (None, "holds message [1] of its schema; shop.Order is [0]"),
    ):
        decoder = RecordDecoder(
            PROTOBUF,
            columns,
            schema=shop_descriptors(),
            message="shop.Order",
            schemas=schemas,
            is_framed=True,
        )
        assert decoded(decoder, [record]) == ([None], [reason])


def test_confluents_deserializer_reads_our_json(registry: FakeRegistry, theirs: Any) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    columns = pa.struct([pa.field("id", pa.string(), False), ("cents", pa.int64())])
    encoder = RecordEncoder(
        JSON, columns, schemas=ours(registry), is_framed=True, subject=f"{TOPIC}-value"
    )
    record = encoder.encode(pa.array(['{"id":"o1","cents":450}'])).to_pylist()[0]
    deserialize = JSONDeserializer(None, schema_registry_client=theirs)
    assert deserialize(record, context()) == {"id": "o1", "cents": 450}
    schema = json.loads(registry.schemas[0]["schema"])
    assert schema["required"] == ["id"]
    serialize = JSONSerializer(registry.schemas[0]["schema"], theirs)
    assert serialize({"id": "o1", "cents": 450}, context())[:5] == record[:5]


def test_a_sink_may_write_by_the_latest_schema_of_its_subject(
    registry: FakeRegistry, theirs: Any
) -> None:
    """Which has another order of fields, a default, and a type of its own for a number."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    registry.add(f"{TOPIC}-value", '"string"')
    fields = [
        {"name": "more", "type": "string", "default": "none"},
        {"name": "cents", "type": ["null", "double"]},
        {"name": "id", "type": "string"},
    ]
    latest = registry.add(f"{TOPIC}-value", {"type": "record", "name": "O", "fields": fields})
    columns = pa.struct([("id", pa.string()), ("cents", pa.int64())])
    settings = ours(registry, **{"use.latest.version": "true"})
    encoder = RecordEncoder(
        AVRO, columns, schemas=settings, is_framed=True, subject=f"{TOPIC}-value"
    )
    records = encoder.encode(pa.array([{"id": "o1", "cents": 7}], columns)).to_pylist()
    assert records[0][:5] == b"\0" + latest.to_bytes(4, "big")
    expected = {"id": "o1", "cents": 7.0, "more": "none"}
    assert AvroDeserializer(theirs)(records[0], context()) == expected


def test_a_schema_that_the_registry_refuses_fails_the_batch_with_its_words(
    registry: FakeRegistry,
) -> None:
    registry.answers[f"/subjects/{TOPIC}-value/versions"] = [
        (409, {"error_code": 409, "message": "Schema being registered is incompatible"})
    ]
    encoder = RecordEncoder(
        AVRO, COLUMNS, schemas=ours(registry), is_framed=True, subject=f"{TOPIC}-value"
    )
    with pytest.raises(RegistryError, match=r"409 Schema being registered is incompatible"):
        encoder.encode(pa.array(ORDERS, COLUMNS))
