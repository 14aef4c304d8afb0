"""The same orders in JSON, Avro and Protobuf, and how a program decodes them.

Avro and Protobuf have Confluent's frame; Avro's schema comes from a folder, so that no registry is
measured.
"""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

from tidelog.spark.codecs.schema_registry import SchemaFolder
from tidelog.spark.record_format import AVRO, JSON, PROTOBUF, RecordFormat

KINDS = (JSON, AVRO, PROTOBUF)
COLUMNS = "id string not null, cents bigint, at timestamp, city string, paid boolean, rate double"
SCHEMA_ID = 7
OPENING = datetime.datetime(2026, 1, 5, 8, tzinfo=datetime.UTC)
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": "boolean"},
        {"name": "rate", "type": "double"},
    ],
}
_FRAME = b"\0" + SCHEMA_ID.to_bytes(4, "big")


def order(number: int) -> dict[str, Any]:
    return {
        "id": f"order-{number:08d}",
        "cents": number * 7919 % 1_000_000,
        "at": OPENING + datetime.timedelta(milliseconds=number * 10),
        "city": ("Berlin", "Lisboa", "Wien")[number % 3],
        "paid": number % 2 == 0,
        "rate": number / 7,
    }


def records(kind: str, count: int) -> list[bytes]:
    orders = [order(number) for number in range(count)]
    if kind == JSON:
        return [json.dumps({**row, "at": row["at"].isoformat()}).encode() for row in orders]
    if kind == AVRO:
        return _avro(orders)
    from google.protobuf import message_factory

    message = message_factory.GetMessageClass(_pool().FindMessageTypeByName("bench.Order"))
    return [_FRAME + b"\0" + message(**row).SerializeToString() for row in map(_plain, orders)]


def _avro(orders: list[dict[str, Any]]) -> list[bytes]:
    from fastavro import parse_schema, schemaless_writer

    schema, made = parse_schema(AVRO_SCHEMA), []
    for row in orders:
        stream = io.BytesIO()
        schemaless_writer(stream, schema, row)
        made.append(_FRAME + stream.getvalue())
    return made


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    micros = round(row["at"].timestamp() * 1_000_000)
    return {**row, "at": {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1000}}


def _files() -> Any:
    from google.protobuf import descriptor_pb2, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        (("id", 9), ("cents", 3), ("at", 11), ("city", 9), ("paid", 8), ("rate", 1)), 1
    ):
        field = message.field.add(name=name, number=number, type=kind, label=1)
        if name == "at":
            field.type_name = ".google.protobuf.Timestamp"
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.add().CopyFrom(file)
    return files


def _pool() -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in _files().file:
        pool.Add(file)
    return pool


def record_format(kind: str, folder: Path) -> RecordFormat:
    """`folder` is where files of schemas may stand."""
    if kind == AVRO:
        (folder / f"{SCHEMA_ID}.avsc").write_text(json.dumps(AVRO_SCHEMA))
        return RecordFormat(AVRO, COLUMNS, is_confluent=True, schemas=SchemaFolder(folder))
    if kind == PROTOBUF:
        descriptors = folder / "bench.desc"
        descriptors.write_bytes(_files().SerializeToString())
        return RecordFormat(
            PROTOBUF, COLUMNS, schema_file=descriptors, message="bench.Order", is_confluent=True
        )
    return RecordFormat(JSON, COLUMNS)
