"""Avro, Protobuf and JSON with the ids of schemas, through pipelines on Spark."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.protobuf_files import shop_descriptors, shop_messages
from tests.support.schema_registry import FakeRegistry, running_registry
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"

[registry]
"schema.registry.url" = "{registry}"
"basic.auth.user.info" = "shop:secret"
"max.retries" = 0

[source.avro]
topic = "{name}.avro"
format = "avro"
framing = "confluent"
schema = "id string not null, cents bigint, at timestamp, price decimal(12,2), tags array<string>"

[source.proto]
topic = "{name}.proto"
format = "protobuf"
framing = "confluent"
descriptors = "shop.desc"
message = "shop.Order"
schema = "id string not null, cents bigint not null, item array<struct<sku: bigint>>"

[source.json]
topic = "{name}.json"
format = "json"
framing = "confluent"
schema = "id string not null, cents bigint"

[view.orders]
sql = \"\"\"
  select id, cents, at, date '2026-01-05' as day, price, cast(id as binary) as raw, tags from avro
\"\"\"

[view.messages]
sql = "select id, cents, item from proto"

[view.texts]
sql = "select id, cents from json"

[sink.avro]
from = "orders"
topic = "{name}.avro-out"
format = "avro"
framing = "confluent"

[sink.proto]
from = "messages"
topic = "{name}.proto-out"
format = "protobuf"
framing = "confluent"
descriptors = "shop.desc"
message = "shop.Order"

[sink.json]
from = "texts"
topic = "{name}.json-out"
format = "json"
framing = "confluent"
"""
SMALL_DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"

[source.avro]
topic = "{name}.avro"
format = "avro"
framing = "confluent"
schema = "id string"

[source.avro.registry]
"schema.registry.url" = "{registry}"
"basic.auth.user.info" = "shop:secret"
"max.retries" = 0

[sink.out]
from = "avro"
parquet = "out"
"""
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "cents", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {
        "name": "price",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}],
    },
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
AT = datetime.datetime(2026, 1, 5, 8, 30, 0, 123000, datetime.UTC)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry("shop:secret") as running:
        yield running


def run_to_the_end(spark: SparkSession, folder: Path) -> None:
    from tidelog.pipeline.declaration.file import load_pipeline
    from tidelog.pipeline.queries.start import start_queries
    from tidelog.pipeline.topics import prepare_topics

    pipeline = load_pipeline(folder)
    prepare_topics(pipeline)
    running = start_queries(spark, pipeline)
    try:
        running.watch(lambda: None, 0.2)
        running.raise_failure()
    finally:
        running.stop()


def fill(topics: SparkTopics, topic: str, values: list[bytes | None]) -> None:
    import pyarrow as pa

    topics.create(topic)
    topics.fill(topic, range(len(values)), value=pa.array(values, pa.binary()))


def values_of(topics: SparkTopics, topic: str) -> list[bytes]:
    from tidelog.demo.ledger_check import read_all

    return [row["value"] for row in read_all(topics.bootstrap, topic)]


def reasons(topics: SparkTopics, topic: str) -> dict[bytes | None, str]:
    from tidelog.demo.ledger_check import read_all

    def reason(row: dict[str, Any]) -> str:
        headers = {header["key"]: header["value"] for header in row["headers"]}
        return str(headers["dead-letter.reason"].decode())

    return {row["value"]: reason(row) for row in read_all(topics.bootstrap, topic)}


def order(number: int) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "cents": number * 10**9,
        "at": AT + datetime.timedelta(minutes=number),
        "price": None if number % 3 else decimal.Decimal(number).scaleb(-2),
        "tags": ["new"] * (number % 4),
    }


def avro(schema: dict[str, Any], schema_id: int, value: dict[str, Any]) -> bytes:
    from fastavro import parse_schema, schemaless_writer

    stream = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    stream.seek(5)
    schemaless_writer(stream, parse_schema(schema), value)
    return stream.getvalue()


def test_records_are_decoded_by_the_schema_of_their_writer_and_written_with_an_id(
    spark: SparkSession,
    topics: SparkTopics,
    topic_name: str,
    tmp_path: Path,
    registry: FakeRegistry,
) -> None:
    """A record whose writer has two fields swapped is read by that writer's schema."""
    declared = DECLARATION.format(
        name=topic_name, bootstrap=topics.bootstrap, registry=registry.url
    )
    (tmp_path / "pipeline.toml").write_text(declared)
    (tmp_path / "shop.desc").write_bytes(shop_descriptors())
    one: dict[str, Any] = {"type": "record", "name": "Order", "fields": FIELDS}
    other: dict[str, Any] = {**one, "fields": FIELDS[::-1]}
    numbers = {f"o{number}": order(number) for number in range(200)}
    ids = [registry.add("orders-value", one), registry.add("orders-value", other)]
    sent: list[bytes | None] = [
        avro((one, other)[number % 2], ids[number % 2], order(number)) for number in range(200)
    ]
    broken_avro: dict[bytes | None, str] = {
        None: "the record has no value",
        b"\0\0": "has no frame: it is shorter than 5 bytes",
        b"\1\0\0\0\1xyz": "has no frame: its first byte is not 0",
        b"\0\0\0\0\x63xyz": "schema id 99 is not in the registry",
        b"\0\0\0\0\1\x06ab": "is no avro record of the schema: it ends early",
    }
    sent[50:50] = list(broken_avro)
    fill(topics, f"{topic_name}.avro", sent)

    message = shop_messages()["shop.Order"]
    files = registry.add("orders-proto", "message Order {} message Refund {}", "PROTOBUF")
    registry.schemas[files - 1]["schema"] = "package shop; " + registry.schemas[files - 1]["schema"]
    frame = b"\0" + files.to_bytes(4, "big")
    messages = [message(id=f"m{number}", cents=number % 2) for number in range(20)]
    broken_proto = {
        frame + b"\x02\x02": f"schema id {files}: holds shop.Refund, not shop.Order",
        frame + b"\0\x0a\xff": "is no protobuf record of shop.Order: ",
        frame: "has no frame of Protobuf: it has no message indexes",
    }
    fill(
        topics,
        f"{topic_name}.proto",
        [*broken_proto, *(frame + b"\0" + row.SerializeToString() for row in messages)],
    )
    broken_json: dict[bytes | None, str] = {
        b"\0\0\0\0\1[]": "is no JSON object",
        b'{"id": "j2"}': "has no frame: its first byte is not 0",
        b"\0": "has no frame: it is shorter than 5 bytes",
    }
    fill(topics, f"{topic_name}.json", [b'\0\0\0\0\1{"id": "j1", "cents": 7}', *broken_json])

    run_to_the_end(spark, tmp_path)

    found = reasons(topics, f"{topic_name}.dead-letter")
    for value, reason in (broken_avro | broken_proto | broken_json).items():
        assert found.pop(value).startswith(reason)
    assert found == {}

    check_avro(registry, values_of(topics, f"{topic_name}.avro-out"), numbers, topic_name)
    written = values_of(topics, f"{topic_name}.proto-out")
    assert sorted(message.FromString(row[6:]).id for row in written) == sorted(
        row.id for row in messages
    )
    assert {row[:6] for row in written} == {
        b"\0" + id_of(registry, f"{topic_name}.proto-out") + b"\0"
    }
    written = values_of(topics, f"{topic_name}.json-out")
    assert written == [b"\0" + id_of(registry, f"{topic_name}.json-out") + b'{"id":"j1","cents":7}']


def id_of(registry: FakeRegistry, topic: str) -> bytes:
    return registry.subjects[f"{topic}-value"][0].to_bytes(4, "big")


def check_avro(
    registry: FakeRegistry, records: list[bytes], orders: dict[str, Any], topic_name: str
) -> None:
    from fastavro import parse_schema, schemaless_reader

    schema_id = id_of(registry, f"{topic_name}.avro-out")
    schema = json.loads(registry.schemas[int.from_bytes(schema_id, "big") - 1]["schema"])
    assert {record[:5] for record in records} == {b"\0" + schema_id}
    for record in records:
        read: Any = schemaless_reader(io.BytesIO(record[5:]), parse_schema(schema), None)
        expected = orders.pop(read["id"])
        more = {"day": datetime.date(2026, 1, 5), "raw": read["id"].encode()}
        assert read == {**expected, **more}
    assert orders == {}


def test_a_registry_that_does_not_answer_fails_the_batch_and_no_record(
    spark: SparkSession,
    topics: SparkTopics,
    topic_name: str,
    tmp_path: Path,
    registry: FakeRegistry,
) -> None:
    from tidelog.pipeline.declaration.parts import PipelineError

    declared = SMALL_DECLARATION.format(
        name=topic_name, bootstrap=topics.bootstrap, registry=registry.url
    )
    (tmp_path / "pipeline.toml").write_text(declared)
    schema: dict[str, Any] = {"type": "record", "name": "Order", "fields": FIELDS}
    schema_id = registry.add("orders-value", schema)
    path = f"/schemas/ids/{schema_id}"
    registry.answers[path] = [(503, {"error_code": 50003, "message": "no leader"})]
    fill(topics, f"{topic_name}.avro", [avro(schema, schema_id, order(1))])
    with pytest.raises(
        PipelineError, match=r"does not answer after 1 tries: 503 no leader"
    ) as told:
        run_to_the_end(spark, tmp_path)
    assert "secret" not in str(told.value)
    assert "secret" not in repr(told.value)

    del registry.answers[path]
    run_to_the_end(spark, tmp_path)
    assert [row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()] == ["o1"]


def test_a_batch_is_decoded_once_and_no_plan_shows_the_password(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    """The filter of dead letters and the columns above it share one pass through Python."""
    from tidelog.pipeline.declaration.file import load_pipeline
    from tidelog.pipeline.frames.dataframes import build_dataframes
    from tidelog.spark.decoding import dead_letters

    declared = SMALL_DECLARATION.format(
        name=topic_name, bootstrap=topics.bootstrap, registry="http://127.0.0.1:1"
    )
    (tmp_path / "pipeline.toml").write_text(declared)
    topics.create(f"{topic_name}.avro")
    pipeline = load_pipeline(tmp_path)
    frames = build_dataframes(spark, pipeline, streaming=False)
    letters = dead_letters(frames.rows["avro"], pipeline.sources[0].dead_letter, "avro")
    for frame in (frames.by_name["avro"].where("id > 'a'"), letters):
        execution: Any = frame._jdf.queryExecution()
        plan = execution.toString()
        assert execution.executedPlan().toString().count("ArrowEvalPython") == 1, plan
        assert "secret" not in plan
