"""Batch reading: what comes, which offsets, how many tasks, and which errors."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark_queries import batch, numbers
from tests.support.spark_topics import BASE_TIMESTAMP_MS, SparkTopics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def at(number: int) -> str:
    return str(BASE_TIMESTAMP_MS + 1000 * number)


def all_rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_rows_have_the_schema_and_content_of_sparks_kafka_source(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    import pyarrow as pa

    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    topics.create(topic_name, 2)
    topics.fill(topic_name, [0, 1], 2, headers=headers, key=[None, b"k"], value=[b"", None])
    frame = batch(spark, topics.bootstrap, subscribe=topic_name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("partition").collect()
    assert (first.key, bytes(first.value), first.topic, first.partition, first.offset) == (
        None,
        b"",
        topic_name,
        0,
        0,
    )
    assert first.timestampType == 0
    moment = datetime.datetime.fromtimestamp(BASE_TIMESTAMP_MS / 1000)
    assert first.timestamp == moment
    assert [(row.key, row.value) for row in first.headers] == [("h", b"1"), ("h", None)]
    assert (bytes(second.key), second.value, second.headers) == (b"k", None, None)


def test_offsets_and_timestamps_choose_the_rows(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    """Partition 0 holds the even numbers, partition 1 the odd ones."""
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(20), 2)

    def read(**options: str) -> list[int]:
        return numbers(batch(spark, topics.bootstrap, subscribe=topic_name, **options))

    assert read() == list(range(20))
    offsets = {
        "startingOffsets": f'{{"{topic_name}": {{"0": 2, "1": -2}}}}',
        "endingOffsets": f'{{"{topic_name}": {{"0": -1, "1": 3}}}}',
    }
    assert read(**offsets) == [1, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18]
    assert read(startingTimestamp=at(5), endingTimestamp=at(9), **offsets) == [5, 6, 7, 8]
    by_partition = {
        "startingOffsetsByTimestamp": f'{{"{topic_name}": {{"0": {at(18)}, "1": {at(99)}}}}}',
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert read(**by_partition) == [18]


def test_tasks_follow_the_options_also_while_the_ends_are_words(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(100), 2)
    for options, tasks in (
        ({}, 2),
        ({"minPartitions": "10"}, 10),
        ({"maxRecordsPerPartition": "20"}, 6),
    ):
        frame = batch(spark, topics.bootstrap, subscribe=topic_name, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert numbers(frame) == list(range(100))


def test_topics_are_chosen_by_assign_and_by_pattern(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(4), 2)
    assigned = batch(spark, topics.bootstrap, assign=f'{{"{topic_name}": [1, 7]}}')
    assert numbers(assigned) == [1, 3]
    found = batch(spark, topics.bootstrap, subscribePattern=topic_name[3:-2])
    assert numbers(found) == [0, 1, 2, 3]


def test_an_empty_topic_gives_no_rows(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name)
    assert numbers(batch(spark, topics.bootstrap, subscribe=topic_name)) == []


def test_deleted_records_are_data_loss_or_skipped(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name)
    topics.fill(topic_name, range(10))
    topics.delete_before(topic_name, 4)
    wanted = {
        "subscribe": topic_name,
        "startingOffsets": f'{{"{topic_name}": {{"0": 2}}}}',
        "endingOffsets": f'{{"{topic_name}": {{"0": 15}}}}',
    }
    with pytest.raises(Exception, match="its log begins at 4"):
        numbers(batch(spark, topics.bootstrap, **wanted))
    rest = batch(spark, topics.bootstrap, failOnDataLoss="false", **wanted)
    assert numbers(rest) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets: a batch query cannot start"),
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, "leaves out TOPIC-1"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 99, "1": 0}}', "failOnDataLoss": "false"},
            "99 of TOPIC-0 lies beyond the end of its log, 0",
        ),
        ({"startingTimestamp": "1"}, "option startingTimestamp: no record of TOPIC-0, TOPIC-1"),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_query_runs(
    spark: SparkSession,
    topics: SparkTopics,
    topic_name: str,
    options: dict[str, str],
    message: str,
) -> None:
    topics.create(topic_name, 2)
    given = {name: value.replace("TOPIC", topic_name) for name, value in options.items()}
    with pytest.raises(Exception, match=message.replace("TOPIC", topic_name)):
        batch(spark, topics.bootstrap, subscribe=topic_name, **given).collect()


def test_bad_options_are_refused_by_load(spark: SparkSession, topics: SparkTopics) -> None:
    for options, message in (
        ({"subscribe": "t", "minPartitions": "0"}, "option minPartitions: must be positive"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "only one may be"),
        ({}, "assign, subscribe or subscribePattern"),
        ({"subscribe": "t", "kafka__enable__auto__commit": "true"}, "is not supported"),
    ):
        with pytest.raises(Exception, match=message):
            batch(spark, topics.bootstrap, **options)


def test_an_unknown_topic_is_an_error_and_is_not_created(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    quick = {"fetchOffset__numRetries": "1"}
    for _ in range(2):
        with pytest.raises(Exception, match=f"topic {topic_name}: UNKNOWN_TOPIC"):
            batch(spark, topics.bootstrap, subscribe=topic_name, **quick).collect()


def test_an_unreachable_broker_is_an_error_within_the_timeout(spark: SparkSession) -> None:
    quick = {"subscribe": "t", "kafka__default__api__timeout__ms": "500"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1\b.*|gave up after 500 ms"):
        batch(spark, "127.0.0.1:1", **quick).collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, topics: SparkTopics) -> None:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    with pytest.raises(Exception, match="has a schema of its own"):
        reader.option("subscribe", "t").schema("value string").load().collect()


def test_a_temporary_view_of_sql_reads_a_topic(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name)
    topics.fill(topic_name, range(5))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW rows USING tidelog OPTIONS "
        f"(`kafka.bootstrap.servers` '{topics.bootstrap}', subscribe '{topic_name}')"
    )
    assert (
        spark.sql("SELECT sum(cast(cast(value AS string) AS int)) AS s FROM rows").collect()[0].s
        == 10
    )


def test_segment_files_give_the_rows_that_the_broker_gives(
    spark: SparkSession, broker: Any, topics: SparkTopics, topic_name: str
) -> None:
    if broker.process is None:
        pytest.skip("needs the files of a broker of its own")
    topics.create(topic_name, 2, segment_bytes="20000")
    for first in range(0, 5000, 500):
        topics.fill(topic_name, range(first, first + 500), 2)
    path: Path = broker.process.data_directory
    through_broker = all_rows(batch(spark, topics.bootstrap, subscribe=topic_name))
    assert len(through_broker) == 5000
    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "999"}):
        from_files = batch(spark, None, path=str(path), subscribe=topic_name, **options)
        assert all_rows(from_files) == through_broker
    with pytest.raises(Exception, match=r"option path: .*holds no topic nothing"):
        batch(spark, None, path=str(path), subscribe="nothing").collect()
    with pytest.raises(Exception, match="option path: "):
        batch(spark, None, path=str(path / "nowhere")).collect()
