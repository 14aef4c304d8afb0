"""The sink's writers called as Spark calls them, without its JVM: pickled, and in fresh copies."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from tests.integration.test_producer_client import values  # noqa: E402
from tests.support.eventually import eventually  # noqa: E402
from tidelog.spark import task_slots, writer  # noqa: E402
from tidelog.spark.source import TidelogDataSource  # noqa: E402
from tidelog.spark.task_slots import QueryRun  # noqa: E402
from tidelog.spark.writer import RowsHandedOver, StreamTask  # noqa: E402

ROWS = 20_000
SCHEMA = StructType().add("value", "string")
WAYS = pytest.mark.parametrize("driver_bytes", ["8388608", "0"], ids=["by driver", "by tasks"])


class SparkCalls:
    """What Spark does for one query, each call with an object of its own. Without `driver_bytes` it
    writes at least once."""

    def __init__(self, bootstrap: str, topic: str, driver_bytes: str | None) -> None:
        self.topic = topic
        self.is_exactly_once = driver_bytes is not None
        self.is_written_by_tasks = driver_bytes in (None, "0")
        self.bootstrap = bootstrap
        self.run = QueryRun(f"query-{topic}", "run-1")
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": topic,
            "deliveryGuarantee": "at-least-once",
        }
        if driver_bytes is not None:
            self._options |= {
                "deliveryGuarantee": "exactly-once",
                "driverBytesPerTask": driver_bytes,
            }

    def writer(self) -> Any:
        source = TidelogDataSource(self._options)
        return pickle.loads(pickle.dumps(source.streamWriter(SCHEMA, False)))

    def attempt(self, batch_id: int, numbers: range, *, fails: bool = False) -> Any:
        """The message of a task's attempt. One that fails does so once the broker has its rows."""
        batches = self._failing(numbers) if fails else batches_of(numbers)
        if self.is_exactly_once:
            message = self.writer()._sink.hand_over(batches, StreamTask(self.run, batch_id))
        else:
            message = self.writer().write(batches)
        return pickle.loads(pickle.dumps(message))

    def _failing(self, numbers: range) -> Iterator[Any]:
        yield from batches_of(numbers)
        if self.is_written_by_tasks:
            eventually(lambda: len(values(self.bootstrap, self.topic)) == len(numbers), 30)
        raise RuntimeError("the attempt fails")

    def committed(self) -> list[int]:
        found = values(self.bootstrap, self.topic, isolation="read_committed")
        return sorted(map(int, found))

    def commit(self, batch_id: int, *messages: Any) -> None:
        self.writer().commit(list(messages), batch_id)

    def require_once(self, count: int) -> None:
        eventually(lambda: self.committed() == list(range(count)), 30)


def batches_of(numbers: range) -> Iterator[Any]:
    for start in range(numbers.start, numbers.stop, 1_000):
        part = range(start, min(start + 1_000, numbers.stop))
        yield pa.RecordBatch.from_pydict({"value": [str(number) for number in part]})


@pytest.fixture(autouse=True)
def fresh_producers() -> Iterator[None]:
    yield
    for slots in task_slots._slots.values():
        slots.close()
    task_slots._slots.clear()
    for producer in writer._producers.values():
        producer.close()
    writer._producers.clear()


@WAYS
def test_a_task_that_fails_once_and_a_repeated_batch_write_their_rows_once(
    bootstrap: str, topic: str, driver_bytes: str
) -> None:
    spark = SparkCalls(bootstrap, topic, driver_bytes)
    with pytest.raises(RuntimeError, match="the attempt fails"):
        spark.attempt(0, range(ROWS // 2), fails=True)
    spark.attempt(0, range(ROWS // 2))  # a speculative one, which loses
    first = spark.attempt(0, range(ROWS // 2))
    second = spark.attempt(0, range(ROWS // 2, ROWS))
    assert isinstance(first, RowsHandedOver)
    assert (first.transaction is None) == (driver_bytes != "0")
    spark.commit(0, first, second)
    spark.require_once(ROWS)
    spark.run = QueryRun(spark.run.query_id, "run-2")
    spark.commit(0, *(spark.attempt(0, range(n, n + ROWS // 4)) for n in range(0, ROWS, ROWS // 4)))
    spark.commit(1, spark.attempt(1, range(ROWS, ROWS + 10)), spark.attempt(1, range(0)))
    spark.require_once(ROWS + 10)


def test_at_least_once_the_same_faults_write_rows_again(bootstrap: str, topic: str) -> None:
    """So the story above has faults in it, and its reader would see them."""
    spark = SparkCalls(bootstrap, topic, None)
    half = range(ROWS // 2)
    with pytest.raises(RuntimeError, match="the attempt fails"):
        spark.attempt(0, half, fails=True)
    first, second = spark.attempt(0, half), spark.attempt(0, range(ROWS // 2, ROWS))
    spark.commit(0, first, second)
    assert spark.committed() == sorted([*half, *range(ROWS)])
    spark.commit(0, spark.attempt(0, range(ROWS)))  # the batch again, after a restart
    assert spark.committed() == sorted([*half, *range(ROWS), *range(ROWS)])


def test_small_and_large_tasks_share_a_batch(bootstrap: str, topic: str) -> None:
    spark = SparkCalls(bootstrap, topic, "1000")
    small, large = spark.attempt(0, range(10)), spark.attempt(0, range(10, ROWS))
    assert small.arrow
    assert large.transaction is not None
    spark.commit(0, small, large)
    spark.require_once(ROWS)


def test_a_batch_that_spark_aborts_leaves_nothing(bootstrap: str, topic: str) -> None:
    spark = SparkCalls(bootstrap, topic, "0")
    spark.writer().abort([spark.attempt(0, range(10)), None], 0)
    spark.commit(0, spark.attempt(0, range(10)))
    spark.require_once(10)


def test_a_job_writes_its_rows_in_one_transaction(bootstrap: str, topic: str) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
    }
    writer = TidelogDataSource(options).writer(SCHEMA, False)
    sent = pickle.dumps(writer)
    messages = [
        pickle.loads(sent).write(batches_of(numbers))
        for numbers in (range(5_000), range(5_000, ROWS), range(0))
    ]
    pickle.loads(sent).commit(messages)
    SparkCalls(bootstrap, topic, "0").require_once(ROWS)
