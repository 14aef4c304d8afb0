from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog.client.errors import RequestTimedOut
from tidelog.spark.options import sink_options
from tidelog.spark.writer import InvalidSinkSchema, RowSink, process_producer, written_columns

HEADERS = "array<struct<key:string,value:binary>>"


def test_known_columns_are_written_and_others_left() -> None:
    columns = [
        ("timestamp", "timestamp"),
        ("value", "binary"),
        ("key", "string"),
        ("headers", HEADERS),
        ("partition", "int"),
        ("topic", "string"),
        ("Extra", "double"),
    ]
    assert written_columns(columns, None) == ["topic", "key", "value", "headers", "partition"]


def test_the_option_topic_comes_before_the_column() -> None:
    assert written_columns([("topic", "int"), ("value", "string")], "out") == ["value"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("key", "string")], "'value' is not there"),
        ([("Value", "string")], "'value' is not there"),
        ([("value", "string")], "no topic to write to"),
        ([("value", "int"), ("topic", "string")], "'value' of type int .* string or binary"),
        ([("value", "string"), ("topic", "binary")], "'topic' of type binary"),
        (
            [("value", "string"), ("topic", "string"), ("partition", "bigint")],
            "'partition' of type bigint .* must be int",
        ),
        (
            [("value", "string"), ("topic", "string"), ("headers", "map<string,binary>")],
            "'headers' of type map",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(
    columns: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(InvalidSinkSchema, match=message):
        written_columns(columns, None)


def test_an_unreachable_broker_is_waited_for_as_kafka_max_block_ms_says() -> None:
    options = sink_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "out", "kafka.max.block.ms": "90"}
    )
    rows = pa.RecordBatch.from_pydict({"value": ["a"]})

    try:
        with pytest.raises(RequestTimedOut, match=r"gave up after 90 ms \(max\.block\.ms\)"):
            RowSink(options, ["value"]).write(iter([rows]))
    finally:
        process_producer(options.client).close(timeout=0)
