"""Writing exactly once: each row is there once, whatever Spark runs twice.

The stories are told for rows that go through the driver and for tasks with transactions of their
own (`driverBytesPerTask` 0).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from tests.support.spark_queries import TIMEOUT_S, batch, needs_limits, numbers, stream
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.batch_commit import BatchMarker

ROWS = 20_000
BY_DRIVER, BY_TASKS = {"driverBytesPerTask": "8388608"}, {"driverBytesPerTask": "0"}
WAYS = pytest.mark.parametrize("way", [BY_DRIVER, BY_TASKS], ids=["by driver", "by tasks"])


def committed(spark: SparkSession, topics: SparkTopics, topic: str) -> list[int]:
    """What a reader with read_committed finds."""
    level = {"kafka__isolation__level": "read_committed"}
    return numbers(batch(spark, topics.bootstrap, subscribe=topic, **level))


def require_once(spark: SparkSession, topics: SparkTopics, topic: str, count: int) -> None:
    """Soon: a commit is answered before readers see it."""
    eventually(lambda: committed(spark, topics, topic) == list(range(count)), 60)


def transactional_ids(topics: SparkTopics, *states: str) -> set[str]:
    from tidelog.client import Admin

    with Admin({"bootstrap.servers": topics.bootstrap}) as admin:
        listed = admin.list_transactions(states=states)
    return {row.transactional_id for row in listed}


def failing(attempts: int) -> Any:
    """For mapInArrow: so many attempts of the first task fail, after their last row. It is made
    here because workers cannot import this module."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() < attempts:
            raise RuntimeError("this attempt fails")

    return fail


def values_of(source: DataFrame) -> DataFrame:
    return source.select("key", "value")


def run_query(frame: DataFrame, topics: SparkTopics, topic: str, at: Path, **options: str) -> None:
    writer: Any = frame.writeStream.format("tidelog")
    given = {"deliveryGuarantee": "exactly-once", **options}
    for name, text in given.items():
        writer = writer.option(name, text)
    running = (
        writer.option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(at))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(TIMEOUT_S)


def source_of(spark: SparkSession, topics: SparkTopics, topic: str, **options: str) -> DataFrame:
    return stream(spark, topics.bootstrap, subscribe=topic, startingOffsets="earliest", **options)


@pytest.fixture
def numbered(topics: SparkTopics, topic_name: str) -> str:
    """A topic with ROWS numbers in 2 partitions."""
    topics.create(topic_name, 2)
    topics.fill(topic_name, range(ROWS), 2)
    return topic_name


@WAYS
def test_a_task_that_fails_once_writes_its_rows_once(
    spark: SparkSession, topics: SparkTopics, numbered: str, tmp_path: Path, way: dict[str, str]
) -> None:
    output = numbered + "-out"
    topics.create(output, 3)
    rows = values_of(source_of(spark, topics, numbered))
    frame = rows.mapInArrow(failing(1), rows.schema)
    run_query(frame, topics, output, tmp_path / "checkpoint", **way)
    require_once(spark, topics, output, ROWS)


@needs_limits
@WAYS
def test_a_repeated_batch_writes_nothing_though_its_partitioning_has_changed(
    spark: SparkSession, topics: SparkTopics, numbered: str, tmp_path: Path, way: dict[str, str]
) -> None:
    output, checkpoint = numbered + "-out", tmp_path / "checkpoint"
    topics.create(output, 3)
    limit = {"maxOffsetsPerTrigger": str(ROWS // 4)}
    run_query(
        values_of(source_of(spark, topics, numbered, **limit)), topics, output, checkpoint, **way
    )
    require_once(spark, topics, output, ROWS)
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    other = source_of(spark, topics, numbered, minPartitions="5", **limit)
    run_query(values_of(other), topics, output, checkpoint, **way)
    assert last.exists(), "the batch was repeated"
    require_once(spark, topics, output, ROWS)
    topics.fill(numbered, range(ROWS, ROWS + 10), 2)
    run_query(values_of(other), topics, output, checkpoint, **way)
    require_once(spark, topics, output, ROWS + 10)


def markers(spark: SparkSession, topics: SparkTopics, checkpoint: Path) -> list[BatchMarker]:
    """What the drivers of a query have decided, batch by batch."""
    from tidelog.spark.batch_commit import BatchMarker
    from tidelog.spark.options import PROGRESS_TOPIC

    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    level = {"kafka__isolation__level": "read_committed"}
    rows = batch(spark, topics.bootstrap, subscribe=PROGRESS_TOPIC, **level).collect()
    own = [row for row in rows if row.key == query_id.encode()]
    return [BatchMarker.from_bytes(row.value) for row in sorted(own, key=lambda row: row.offset)]


@needs_limits
def test_a_process_has_as_many_slots_as_it_had_tasks_of_a_batch(
    spark: SparkSession, topics: SparkTopics, numbered: str, tmp_path: Path
) -> None:
    """Each slot is one transactional id, with one producer id over its life. Which process writes a
    task is Spark's choice."""
    output, checkpoint = numbered + "-out", tmp_path / "checkpoint"
    topics.create(output, 3)
    rows = source_of(spark, topics, numbered, maxOffsetsPerTrigger=str(ROWS // 10))
    run_query(values_of(rows), topics, output, checkpoint, **BY_TASKS)
    require_once(spark, topics, output, ROWS)

    producer_ids: dict[str, set[int]] = {}
    tasks_max: Counter[str] = Counter()
    decided = markers(spark, topics, checkpoint)
    for marker in decided:
        handed = [each.handed for each in marker.transactions]
        assert len({each.transactional_id for each in handed}) == len(handed) == 2
        for each in handed:
            producer_ids.setdefault(each.transactional_id, set()).add(each.producer_id)
        tasks_max |= Counter(process_of(each.transactional_id) for each in handed)
    assert [marker.batch_id for marker in decided] == list(range(10))
    assert producer_ids.keys() == {
        f"{process}-{slot}" for process, tasks in tasks_max.items() for slot in range(tasks)
    }
    assert all(len(ids) == 1 for ids in producer_ids.values())
    assert len(set.union(*producer_ids.values())) == len(producer_ids)


def process_of(transactional_id: str) -> str:
    return transactional_id.rpartition("-")[0]


def test_a_batch_that_fails_leaves_nothing_visible_and_nothing_open(
    spark: SparkSession, topics: SparkTopics, numbered: str, tmp_path: Path
) -> None:
    output, checkpoint = numbered + "-out", tmp_path / "checkpoint"
    topics.create(output, 3)
    rows = values_of(source_of(spark, topics, numbered))
    frame = rows.mapInArrow(failing(9), rows.schema)
    with pytest.raises(Exception, match="this attempt fails"):
        run_query(frame, topics, output, checkpoint, **BY_TASKS)
    eventually(lambda: not transactional_ids(topics, "Ongoing"), 60)
    assert committed(spark, topics, output) == []
    run_query(rows, topics, output, checkpoint, **BY_TASKS)
    require_once(spark, topics, output, ROWS)


def save(frame: DataFrame, topics: SparkTopics, topic: str, **options: str) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.option("topic", topic).option("deliveryGuarantee", "exactly-once")
    for name, text in options.items():
        writer = writer.option(name.replace("__", "."), text)
    writer.mode("append").save()


def test_the_rows_of_a_job_become_visible_together_or_not_at_all(
    spark: SparkSession, topics: SparkTopics, topic_name: str
) -> None:
    topics.create(topic_name, 2)
    rows = spark.range(ROWS).selectExpr("cast(id AS string) AS value")
    with pytest.raises(Exception, match="this attempt fails"):
        save(rows.mapInArrow(failing(9), rows.schema), topics, topic_name)
    assert committed(spark, topics, topic_name) == []
    save(rows.mapInArrow(failing(1), rows.schema), topics, topic_name)
    require_once(spark, topics, topic_name, ROWS)
    before = transactional_ids(topics)
    save(spark.range(1).selectExpr(f"'{ROWS}' AS value"), topics, topic_name)
    require_once(spark, topics, topic_name, ROWS + 1)
    assert len(transactional_ids(topics) - before) == 1
    save(rows.where("value = 'none'"), topics, topic_name)
    with pytest.raises(Exception, match="1000000 is more than these brokers allow"):
        save(rows, topics, topic_name, kafka__transaction__timeout__ms="1000000")


@WAYS
def test_a_job_of_the_same_name_and_number_writes_once(
    spark: SparkSession, topics: SparkTopics, topic_name: str, tmp_path: Path, way: dict[str, str]
) -> None:
    """`way` sends rows through the driver, or through transactions of the tasks."""
    topics.create(topic_name, 2)
    rows = spark.range(ROWS).selectExpr("cast(id AS string) AS value")
    named = {"txnAppId": topic_name, **way}
    save(rows, topics, topic_name, txnVersion="7", **named)
    save(rows.repartition(5), topics, topic_name, txnVersion="7", **named)
    require_once(spark, topics, topic_name, ROWS)
    more = spark.range(1).selectExpr(f"'{ROWS}' AS value")
    save(more, topics, topic_name, txnVersion="8", **named)
    require_once(spark, topics, topic_name, ROWS + 1)
    with pytest.raises(Exception, match="the topics already hold"):
        save(more, topics, topic_name, txnVersion="6", **named)
    copied = values_of(source_of(spark, topics, topic_name))
    with pytest.raises(Exception, match="is for batch jobs"):
        run_query(copied, topics, topic_name, tmp_path, txnVersion="9", **named)
