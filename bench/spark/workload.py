"""What is timed, inside one warm Spark session of two cores: `python -m bench.spark.workload`.

Prints one line of JSON: {measure: {connector: [a figure a round]}}, rows/s, or ms for the floor.
Connectors take turns within a round. With --cold it is only the first read of a fresh session.
Every read sums the lengths of the values and the offsets, so that no column can be skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.spark.record_formats import record_format, records
from tidelog.client.blocking.producer import Producer

TOPIC = "bench"
FLOOR_TOPIC = "floor"
FLOOR_BATCHES = 40
WARM_UP_BATCHES = 10
WRITE_PARTITIONS = 2
STREAM_BATCH_ROWS = 500_000
READER_TASKS = 2
FORMAT_ROWS_PER_BATCH = 50_000


def session(jars: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Workload:
    def __init__(self, spark: SparkSession, bootstrap: str, rows: int, data: str, has_peer: bool):
        self.spark = spark
        self.bootstrap = bootstrap
        self.rows = rows
        self.data = data
        self.connectors = ["kafka", "tidelog"] if has_peer else ["tidelog"]
        self.scratch = tempfile.mkdtemp(prefix="bench-spark-")
        self.serial = 0
        self.filled: set[str] = set()  # topics of formats

    def close(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _options(self, reader: Any, connector: str) -> Any:
        return (
            reader.format(connector)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", TOPIC)
        )

    def _consume(self, frame: DataFrame) -> float:
        started = time.perf_counter()
        row = frame.selectExpr("count(*) n", "sum(length(value))", "sum(offset)").collect()[0]
        assert row.n == self.rows, (row, self.rows)
        return self.rows / (time.perf_counter() - started)

    def batch_read(self, connector: str) -> float:
        return self._consume(self._options(self.spark.read, connector).load())

    def direct_read(self, connector: str) -> float:
        reader = self.spark.read.format("tidelog").option("subscribe", TOPIC)
        return self._consume(reader.option("path", self.data).load())

    def readers_alone(self, kind: str) -> float:
        """What feeds Spark, without Spark: its two tasks at once, as processes of their own."""
        given = ["--bootstrap", self.bootstrap, "--data", self.data, "--topic", TOPIC]
        command = [sys.executable, "-m", "bench.spark.reader", kind]
        readers = [
            subprocess.Popen(
                [*command, str(task), *given, "--rows", str(self.rows)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for task in range(READER_TASKS)
        ]
        try:
            for reader in readers:
                assert reader.stdout is not None
                assert reader.stdout.readline() == "ready\n", kind
            started = time.perf_counter()
            rows = sum(int(said) for said in _told_to_read(readers))
            assert rows == self.rows, rows
            return rows / (time.perf_counter() - started)
        finally:
            for reader in readers:
                reader.kill()
                reader.wait()

    def ceiling(self, connector: str) -> float:
        reader = self.spark.read.format("ceiling").option("rows", str(self.rows))
        return self._consume(reader.load())

    def stream_read(self, connector: str) -> float:
        """Large batches, to a sink that does nothing."""
        frame = (
            self._options(self.spark.readStream, connector)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(STREAM_BATCH_ROWS))
            .load()
        )
        return self._run_stream(frame.writeStream.format("noop"))

    def _run_stream(self, writer: Any) -> float:
        self.serial += 1
        query = (
            writer.option("checkpointLocation", f"{self.scratch}/checkpoint-{self.serial}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [row for row in query.recentProgress if row["numInputRows"]]
        rows = sum(row["numInputRows"] for row in batches)
        assert rows >= self.rows - 8, rows
        return rows / sum(row["durationMs"]["triggerExecution"] for row in batches) * 1000

    def _sink(self, writer: Any, connector: str) -> Any:
        self.serial += 1
        return (
            writer.format(connector)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", f"written-{self.serial}")
        )

    def batch_write(self, connector: str) -> float:
        started = time.perf_counter()
        self._sink(self._to_write().write, connector).mode("append").save()
        return self.rows / (time.perf_counter() - started)

    def _to_write(self) -> DataFrame:
        ids = self.spark.range(0, self.rows, 1, WRITE_PARTITIONS)
        return ids.selectExpr("lpad(id, 8, '0') AS key", "repeat('v', 100) AS value")

    def exactly_once_write(self, guarantee: str) -> float:
        """Large batches of a stream, so that tasks have transactions of their own."""
        sink = self._sink(self._rows_as_stream().writeStream, "tidelog")
        return self._run_stream(sink.option("deliveryGuarantee", guarantee))

    def stream_write(self, connector: str) -> float:
        return self._run_stream(self._sink(self._rows_as_stream().writeStream, connector))

    def _rows_as_stream(self) -> DataFrame:
        files = Path(self.scratch, "rows")
        if not files.exists():
            frame = self._to_write()
            frame.repartition(self.rows // STREAM_BATCH_ROWS).write.parquet(str(files))
        source = self.spark.readStream.schema("key string, value string")
        return source.option("maxFilesPerTrigger", "1").parquet(str(files))

    def floor(self, connector: str) -> float:
        """Median ms of a micro-batch with hardly a row in it."""
        if connector == "empty source":
            frame = self.spark.readStream.format("floor").load()
            return self._median_batch_ms(frame)
        frame = (
            self.spark.readStream.format(connector)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", FLOOR_TOPIC)
            .load()
        )
        stop = threading.Event()
        trickle = threading.Thread(target=self._trickle, args=(stop,))
        trickle.start()
        try:
            return self._median_batch_ms(frame)
        finally:
            stop.set()
            trickle.join()

    def _trickle(self, stop: threading.Event) -> None:
        import pyarrow as pa

        rows = pa.RecordBatch.from_pydict(
            {"value": [b"x", b"x"], "partition": pa.array([0, 1], pa.int32())}
        )
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            while not stop.wait(0.02):
                producer.send_arrow(rows, FLOOR_TOPIC).result()

    def _median_batch_ms(self, frame: DataFrame) -> float:
        self.serial += 1
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", f"{self.scratch}/checkpoint-{self.serial}")
            .trigger(processingTime="0 seconds")
            .start()
        )
        wanted = WARM_UP_BATCHES + FLOOR_BATCHES
        deadline = time.monotonic() + 120
        try:
            while True:
                batches = [row for row in query.recentProgress if row["numInputRows"]]
                if len(batches) >= wanted or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        finally:
            query.stop()
        times = [row["durationMs"]["triggerExecution"] for row in batches[WARM_UP_BATCHES:]]
        return statistics.median(times)

    def format_read(self, kind: str) -> float:
        """Records decoded and judged, all of their columns used."""
        from tidelog.spark.decoding import PARSED, REASON, decode

        topic = f"format-{kind}"
        if topic not in self.filled:
            self._fill_with(topic, records(kind, FORMAT_ROWS_PER_BATCH))
            self.filled.add(topic)
        reader = self.spark.read.format("tidelog").option("subscribe", topic)
        rows = reader.option("kafka.bootstrap.servers", self.bootstrap).load()
        told = decode(rows, record_format(kind, Path(self.scratch)))
        parsed = told.where(f"{REASON} is null").select(f"{PARSED}.*")
        started = time.perf_counter()
        row = parsed.selectExpr(
            "count(*) n", "sum(length(id) + length(city))", "sum(cents)", "max(at)", "sum(rate)"
        ).collect()[0]
        assert row.n == self.rows, (row, self.rows)
        return self.rows / (time.perf_counter() - started)

    def _fill_with(self, topic: str, values: list[bytes]) -> None:
        import pyarrow as pa

        partitions = pa.array([n % 2 for n in range(len(values))], pa.int32())
        column = pa.array(values, pa.binary())
        rows = pa.RecordBatch.from_arrays([column, partitions], ["value", "partition"])
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for _ in range(self.rows // len(values)):
                producer.send_arrow(rows, topic)
            producer.flush()

    def fill(self) -> None:
        import pyarrow as pa

        count = 50_000
        values = pa.array([b"v" * 100] * count, pa.binary())
        partitions = pa.array([n % 2 for n in range(count)], pa.int32())
        keys = pa.array([b"%08d" % n for n in range(count)], pa.binary())
        rows = pa.RecordBatch.from_arrays([keys, values, partitions], ["key", "value", "partition"])
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for _ in range(self.rows // count):
                producer.send_arrow(rows, TOPIC)
            producer.flush()


def _told_to_read(readers: Sequence[subprocess.Popen[str]]) -> list[str]:
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
    return [reader.stdout.readline() for reader in readers if reader.stdout is not None]


def measured(workload: Workload, rounds: int, only: set[str]) -> dict[str, dict[str, list[float]]]:
    both = workload.connectors
    measures: list[tuple[str, Callable[[str], float], list[str]]] = [
        ("batch read", workload.batch_read, both),
        ("direct read", workload.direct_read, ["tidelog"]),
        ("ceiling", workload.ceiling, ["spark"]),
        ("readers alone", workload.readers_alone, ["files", "broker"]),
        ("stream read", workload.stream_read, both),
        ("batch write", workload.batch_write, both),
        ("stream write", workload.stream_write, both),
        ("exactly once", workload.exactly_once_write, ["at-least-once", "exactly-once"]),
        ("floor", workload.floor, ["empty source", *both]),
        ("formats", workload.format_read, ["json", "avro", "protobuf"]),
    ]
    found: dict[str, dict[str, list[float]]] = {}
    read_kinds = [row for row in measures[:3] if row[0] in only]
    groups = [read_kinds, *([row] for row in measures[3:] if row[0] in only)]
    for group in groups:
        runs = [(name, run, kind) for name, run, kinds in group for kind in kinds]
        turns = rounds if group and group[0][0] != "floor" else max(rounds // 2, 1)
        for turn in range(turns + 1):
            for name, run, kind in runs:
                figure = run(kind)
                if turn or name == "floor":  # the first turn warms up
                    found.setdefault(name, {}).setdefault(kind, []).append(figure)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--data", required=True, help="the broker's data directory")
    parser.add_argument("--jars", default="", help="those of Spark's own connector")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", default="", help="only the first read, by this connector")
    parser.add_argument("--fill", action="store_true", help="write the topic first")
    parser.add_argument(
        "--only",
        default="batch read,direct read,ceiling,readers alone,stream read,batch write,stream write,"
        "exactly once,floor,formats",
    )
    given = parser.parse_args()
    spark = session(given.jars)
    workload = Workload(spark, given.bootstrap, given.rows, given.data, bool(given.jars))
    try:
        if given.fill:
            workload.fill()
        if given.cold:
            result = {"cold read": {given.cold: [workload.batch_read(given.cold)]}}
        else:
            from bench.spark.plain_source import CeilingSource, FloorSource

            spark.dataSource.register(CeilingSource)
            spark.dataSource.register(FloorSource)
            result = measured(workload, given.rounds, set(given.only.split(",")))
    finally:
        workload.close()
        spark.stop()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
