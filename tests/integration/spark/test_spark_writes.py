"""Writing, batch and streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark_queries import TIMEOUT_S, batch, needs_limits, numbers, stream
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def save(frame: DataFrame, bootstrap: str, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode(mode).save()


def test_columns_decide_topic_partition_key_and_headers(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    other = topic_name + "-b"
    topics.create(topic_name, 3)
    topics.create(other, 3)
    rows = spark.range(30).selectExpr(
        f"if(id % 2 = 0, '{topic_name}', '{other}') AS topic",
        "cast(id AS string) AS value",
        "if(id < 10, NULL, cast('k' AS binary)) AS key",
        "cast(if(id < 20, 2, NULL) AS int) AS partition",
        "array(struct('h' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers",
        "timestamp'2001-01-01' AS timestamp",
    )
    save(rows, topics.bootstrap)
    written = batch(
        spark, topics.bootstrap, subscribe=f"{topic_name},{other}", includeHeaders="true"
    ).selectExpr("*", "cast(cast(value AS string) AS int) AS number")
    found = written.collect()
    assert sorted(row.number for row in found) == list(range(30))
    for row in found:
        assert row.topic == (other if row.number % 2 else topic_name)
        assert row.partition == 2 or row.number >= 20
        assert (row.key is None) == (row.number < 10)
        assert row.headers[0].key == "h"
        assert row.timestamp.year > 2001
    keyed = {row.partition for row in found if row.number >= 20 and row.topic == other}
    assert len(keyed) == 1


def test_the_option_topic_comes_before_the_column(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name)
    rows = spark.range(3).selectExpr("'elsewhere' AS topic", "cast(id AS string) AS value")
    save(rows, topics.bootstrap, topic=f" {topic_name} ", kafka__compression__type="zstd")
    assert numbers(batch(spark, topics.bootstrap, subscribe=topic_name)) == [0, 1, 2]


def test_rows_that_cannot_be_written_are_refused_with_the_reason(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name)
    ids = spark.range(1)
    for columns, mode, options, message in (
        (["'a' AS key"], "append", {"topic": topic_name}, "'value' is not there"),
        (["'a' AS value"], "append", {}, "no topic to write to"),
        (["id AS value"], "append", {"topic": topic_name}, "'value' of type bigint"),
        (
            ["'a' AS value", "id AS partition"],
            "append",
            {"topic": topic_name},
            "'partition' of type bigint",
        ),
        (["'a' AS value"], "overwrite", {"topic": topic_name}, "cannot be overwritten"),
        (["'a' AS value", "cast(NULL AS string) AS topic"], "append", {}, "null topic"),
        (
            ["'a' AS value", "9 AS partition"],
            "append",
            {"topic": topic_name},
            "partition",
        ),
        (
            ["'a' AS value"],
            "append",
            {"topic": topic_name, "kafka__key__serializer": "x"},
            "is not supported",
        ),
    ):
        with pytest.raises(Exception, match=message):
            save(ids.selectExpr(*columns), topics.bootstrap, mode, **options)
    assert numbers(batch(spark, topics.bootstrap, subscribe=topic_name)) == []


@needs_limits
def test_a_stream_copies_a_topic_and_a_complete_result_is_appended_each_time(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    copy, counts = topic_name + "-copy", topic_name + "-counts"
    for topic in (topic_name, copy, counts):
        topics.create(topic, 2)
    topics.fill(topic_name, range(200), 2)
    source = stream(
        spark,
        topics.bootstrap,
        subscribe=topic_name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="100",
    )

    def run(frame: DataFrame, topic: str, mode: str) -> None:
        writer: Any = frame.writeStream.format("tidelog").outputMode(mode)
        query = (
            writer.option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / topic))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    run(source.select("key", "value"), copy, "append")
    assert numbers(batch(spark, topics.bootstrap, subscribe=copy)) == list(range(200))
    total = source.groupBy().count().selectExpr("cast(count AS string) AS value")
    run(total, counts, "complete")
    assert numbers(batch(spark, topics.bootstrap, subscribe=counts)) == [100, 200]
