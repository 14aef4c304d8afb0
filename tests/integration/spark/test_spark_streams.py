"""Streaming reading: limits, checkpoints, faults."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from tests.support.spark_queries import needs_limits, run_available_now, start, stream, written
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def rows_of_batches(query: Any) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


@needs_limits
def test_available_now_reads_all_in_limited_batches_and_resumes_where_it_ended(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(100), 2)

    def run() -> Any:
        frame = stream(
            spark,
            topics.bootstrap,
            subscribe=topic_name,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="40",
            minOffsetsPerTrigger="30",
        )
        return run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")

    assert rows_of_batches(run()) == [40, 40, 20]
    assert written(spark, tmp_path / "out") == list(range(100))
    topics.add_partitions(topic_name, 3)
    topics.fill(topic_name, range(100, 130), 3)
    query = run()
    assert written(spark, tmp_path / "out") == list(range(130))
    source = query.lastProgress["sources"][0]
    latest = source["latestOffset"]
    assert (latest if isinstance(latest, dict) else json.loads(latest))[topic_name]["2"] == 10


def test_a_query_from_latest_starts_with_an_empty_batch_and_then_follows(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name)
    topics.fill(topic_name, range(5))
    frame = stream(spark, topics.bootstrap, subscribe=topic_name)
    query = start(frame, tmp_path / "out", tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        eventually(lambda: len(query.recentProgress) > 0, 60)
        topics.fill(topic_name, range(5, 9))
        eventually(lambda: sum(rows_of_batches(query)) >= 4, 60)
        assert rows_of_batches(query)[0] == 0
    finally:
        query.stop()
    assert written(spark, tmp_path / "out") == [5, 6, 7, 8]


def test_a_query_survives_restarts_of_the_broker(
    spark: SparkSession, start_broker: Any, topic_name: str, tmp_path: Path
) -> None:
    broker = start_broker()
    topics = SparkTopics(broker.bootstrap)
    topics.create(topic_name, 2)
    frame = stream(spark, broker.bootstrap, subscribe=topic_name, startingOffsets="earliest")
    query = start(frame, tmp_path / "out", tmp_path / "checkpoint", processingTime="0 seconds")
    try:
        for turn in range(3):
            topics.fill(topic_name, range(turn * 50, turn * 50 + 50), 2)
            eventually(lambda: sum(rows_of_batches(query)) >= turn * 50 + 50, 60)  # noqa: B023
            broker.kill()
            broker.start()
        assert query.exception() is None
    finally:
        query.stop()
    assert written(spark, tmp_path / "out") == list(range(150))


def test_records_deleted_between_runs_are_data_loss_or_skipped(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name)
    topics.fill(topic_name, range(5))
    given = {"subscribe": topic_name, "startingOffsets": "earliest"}

    def run(**more: str) -> None:
        frame = stream(spark, topics.bootstrap, **given, **more)
        run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")

    run()
    topics.fill(topic_name, range(5, 20))
    topics.delete_before(topic_name, 12)
    with pytest.raises(Exception, match=r"offsets 5 to 11 .* are gone: its log begins at 12"):
        run()
    run(failOnDataLoss="false")
    assert written(spark, tmp_path / "out") == [*range(5), *range(12, 20)]


def test_a_topic_made_anew_between_runs_is_data_loss_or_read_from_its_beginning(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    """The new topic has more records than the old one, so offsets alone show nothing."""
    topics.create(topic_name)
    topics.fill(topic_name, range(5))
    given = {"subscribe": topic_name, "startingOffsets": "earliest"}

    def run(**more: str) -> None:
        frame = stream(spark, topics.bootstrap, **given, **more)
        run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")

    run()
    topics.delete(topic_name)
    topics.create(topic_name)
    topics.fill(topic_name, range(100, 120))
    with pytest.raises(Exception, match=f"{topic_name}: deleted and made anew"):
        run()
    run(failOnDataLoss="false")
    assert written(spark, tmp_path / "out") == [*range(5), *range(100, 120)]


def test_a_checkpoint_without_topic_ids_is_gone_on_from(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name)
    topics.fill(topic_name, range(5))
    given = {"subscribe": topic_name, "startingOffsets": "earliest"}

    def run() -> None:
        frame = stream(spark, topics.bootstrap, **given)
        run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")

    run()
    for path in (tmp_path / "checkpoint" / "offsets").iterdir():
        if path.name.isdecimal():
            text, without_ids = re.subn(r',"id":"[^"]+"|, "id": "[^"]+"', "", path.read_text())
            assert without_ids == 1, text
            path.write_text(text)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    topics.fill(topic_name, range(5, 9))
    run()
    assert written(spark, tmp_path / "out") == list(range(9))


def test_a_schema_of_ones_own_is_refused_by_a_stream(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name)
    reader = spark.readStream.format("tidelog").option("subscribe", topic_name)
    reader = reader.option("kafka.bootstrap.servers", topics.bootstrap).schema("value string")
    with pytest.raises(Exception, match="has a schema of its own"):
        run_available_now(reader.load(), tmp_path / "out", tmp_path / "checkpoint")


def test_a_checkpoint_of_another_topic_is_refused(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    for topic in (topic_name, topic_name + "-b"):
        topics.create(topic)
        topics.fill(topic, range(3))

    def run(topic: str) -> None:
        frame = stream(spark, topics.bootstrap, subscribe=topic, startingOffsets="earliest")
        run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")

    run(topic_name)
    with pytest.raises(Exception, match="the checkpoint belongs to another query"):
        run(topic_name + "-b")


@needs_limits
def test_the_offsets_of_a_query_show_up_in_a_consumer_group(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path
) -> None:
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(10), 2)
    group = topic_name + "-group"
    frame = stream(
        spark,
        topics.bootstrap,
        subscribe=topic_name,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="6",
        commitGroupId=group,
    )
    run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert topics.committed(group) == {(topic_name, 0): 5, (topic_name, 1): 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a streaming query has no end"),
        ({"path": "/data"}, "option path: segment files"),
        ({"startingOffsets": '{"TOPIC": {"7": 1}}'}, "leaves out TOPIC-0 and names TOPIC-7"),
    ],
)
def test_what_a_stream_cannot_do_is_told_at_its_start(
    spark: SparkSession,
    topics: SparkTopics,
    topic_name: str,
    tmp_path: Path,
    options: dict[str, str],
    message: str,
) -> None:
    topics.create(topic_name)
    given = {name: value.replace("TOPIC", topic_name) for name, value in options.items()}
    frame = stream(spark, topics.bootstrap, subscribe=topic_name, **given)
    with pytest.raises(Exception, match=message.replace("TOPIC", topic_name)) as raised:
        run_available_now(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert "UnboundLocalError" not in str(raised.value)
