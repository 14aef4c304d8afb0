"""What a declared pipeline costs beside the same query by hand: `python -m
bench.spark.pipeline_workload`.

Both read JSON orders of about 110 B from a topic and write them as JSON to another, on two cores.
By hand that is `from_json` and `to_json`, and a record that does not parse becomes a row of nulls.
The pipeline looks at every record, and writes the broken ones to a dead-letter topic with the
reason. Topics have no broken record, or one in a hundred. The two take turns within a round.

Prints one line of JSON: {topic: {"by hand" | "pipeline": [rows/s of a round]}}.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark.workload import session
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.producer import Producer
from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.queries.start import start_queries
from tidelog.pipeline.topics import prepare_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id string, category string, amount bigint, at timestamp, note string"
BATCH_ROWS = 250_000
FILL_ROWS = 50_000
BROKEN_EVERY = {"orders.clean": 0, "orders.broken": 100}
DECLARATION = """\
[pipeline]
name = "bench"
bootstrap = "{bootstrap}"
trigger = "available-now"
[source.orders]
topic = "{topic}"
schema = "{schema}"
options = {{ maxOffsetsPerTrigger = {batch_rows} }}
[sink.out]
from = "orders"
topic = "out"
partitions = 2
"""


class PipelineWorkload:
    def __init__(self, spark: SparkSession, bootstrap: str, rows: int) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.rows = rows
        self.scratch = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
        self.serial = 0

    def close(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def fill(self, topic: str, broken_every: int) -> None:
        import pyarrow as pa

        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for begin in range(0, self.rows, FILL_ROWS):
                numbers = range(begin, min(begin + FILL_ROWS, self.rows))
                values = [_order(number, broken_every) for number in numbers]
                partitions = pa.array([number % 2 for number in numbers], pa.int32())
                columns = {"value": pa.array(values, pa.binary()), "partition": partitions}
                producer.send_arrow(pa.RecordBatch.from_pydict(columns), topic).result()

    def by_hand(self, topic: str) -> float:
        from pyspark.sql import functions as F

        kafka = {"kafka.bootstrap.servers": self.bootstrap}
        read = {**kafka, "subscribe": topic, "startingOffsets": "earliest"}
        rows = (
            self.spark.readStream.format("tidelog")
            .options(**read, maxOffsetsPerTrigger=str(BATCH_ROWS))
            .load()
            .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row"))
            .select("row.*")
            .select(F.to_json(F.struct("*")).alias("value"))
        )
        folder = self._folder()
        started = time.perf_counter()
        query = (
            rows.writeStream.format("tidelog")
            .options(**kafka, topic="out", checkpointLocation=str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.rows / (time.perf_counter() - started)

    def pipeline(self, topic: str) -> float:
        text = DECLARATION.format(
            bootstrap=self.bootstrap, topic=topic, schema=SCHEMA, batch_rows=BATCH_ROWS
        )
        declared = parse_pipeline(self._folder() / "pipeline.toml", text, {})
        prepare_topics(declared)
        started = time.perf_counter()
        running = start_queries(self.spark, declared)
        try:
            running.watch(lambda: None, 0.05)
        finally:
            running.stop()
        running.raise_failure()
        took_s = time.perf_counter() - started
        letters = running.progress["dead-letter.orders"].rows_out
        broken_every = BROKEN_EVERY[topic]
        assert letters == (self.rows // broken_every if broken_every else 0), letters
        return self.rows / took_s

    def _folder(self) -> Path:
        self.serial += 1
        folder = self.scratch / str(self.serial)
        folder.mkdir()
        return folder


def _order(number: int, broken_every: int) -> bytes:
    if broken_every and number % broken_every == 0:
        return b'{"id": "cut o'
    at = f"2026-01-05T08:{number // 60 % 60:02d}:{number % 60:02d}.000Z"
    order = {"id": f"o{number:07d}", "category": "tea", "amount": number, "at": at, "note": "none"}
    return json.dumps(order).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    given = parser.parse_args()
    spark = session("")
    workload = PipelineWorkload(spark, given.bootstrap, given.rows)
    found: dict[str, dict[str, list[float]]] = {}
    try:
        with Admin({"bootstrap.servers": given.bootstrap}) as admin:
            for topic, broken_every in BROKEN_EVERY.items():
                admin.create_topics([topic])[topic].get()
                workload.fill(topic, broken_every)
        for _ in range(given.rounds + 1):
            for topic in BROKEN_EVERY:
                rates = found.setdefault(topic, {"by hand": [], "pipeline": []})
                rates["by hand"].append(workload.by_hand(topic))
                rates["pipeline"].append(workload.pipeline(topic))
    finally:
        workload.close()
        spark.stop()
    # The first round warms up.
    print(json.dumps({t: {n: r[1:] for n, r in rates.items()} for t, rates in found.items()}))


if __name__ == "__main__":
    main()
