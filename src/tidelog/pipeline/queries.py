"""Sinks as running streaming queries, one each, and one more for the dead letters.

Each query has a checkpoint of its own under the pipeline's, named after the sink. `RunningPipeline`
belongs to the main thread.

How far a query is comes out of the progress reports that Spark makes. Rows out are counted by an
observed metric, since not every sink of Spark counts what it writes. Lag is what the source has
seen in the topics and not yet read.
"""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.dataframes import DataFrames
from tidelog.pipeline.declaration import (
    AVAILABLE_NOW,
    DECODED_FORMATS,
    EXACTLY_ONCE,
    PARQUET,
    RAW,
    TOPIC,
)
from tidelog.pipeline.formats import value_column
from tidelog.pipeline.record_codecs import missing_codec
from tidelog.pipeline.spark_errors import spark_exception, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipeline.declaration import Pipeline, Sink

logger = logging.getLogger(__name__)

DEAD_LETTER: Final = "dead-letter"
WORKER_TOO_SLOW: Final = "Python worker failed to connect back"
RESTARTS_MAX: Final = 5  # of one query
OUT_METRIC: Final = "tidelog_rows_out"


class QueryProgress:
    """Reports may be given more than once; each counts once."""

    def __init__(self) -> None:
        self.batch_id = -1
        self.rows_in = 0
        self.rows_out = 0
        self.rows_in_per_s = 0.0
        self.rows_out_per_s = 0.0
        self.lag = 0
        self.batch_ms = 0
        self.rows_too_late = 0
        self._last = ""

    def take(self, progress: Mapping[str, Any]) -> None:
        moment = str(progress["timestamp"])
        if moment <= self._last:
            return
        self._last = moment
        rows_in = sum(int(source["numInputRows"]) for source in progress["sources"])
        rows_out = _rows_out(progress)
        batch_ms = int(progress["durationMs"].get("triggerExecution", 0))
        self.batch_id = int(progress["batchId"])
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.rows_too_late += sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for operator in progress.get("stateOperators", ())
        )
        self.lag = sum(source_lag(source) for source in progress["sources"])
        if "addBatch" in progress["durationMs"]:
            self.batch_ms = batch_ms
        seconds = max(batch_ms, 1) / 1000
        self.rows_in_per_s = rows_in / seconds
        self.rows_out_per_s = rows_out / seconds


def source_lag(source: Mapping[str, Any]) -> int:
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    return sum(
        max(0, offset - end.get(partition, {}).get(index, 0))
        for partition, offsets in latest.items()
        for index, offset in offsets.items()
    )


def _offsets(told: Any) -> dict[str, dict[str, int]]:
    """Of each topic's partitions. Spark gives offsets as JSON, or as text of JSON; a topic's id may
    be among them.
    """
    found = json.loads(told) if isinstance(told, str) else told
    if not isinstance(found, dict):
        return {}
    return {
        topic: {index: offset for index, offset in rows.items() if isinstance(offset, int)}
        for topic, rows in found.items()
    }


def _rows_out(progress: Mapping[str, Any]) -> int:
    """The metric by name, or its values alone as Spark Connect reports them."""
    observed = progress.get("observedMetrics", {}).get(OUT_METRIC) or {}
    values = observed.get("values", [observed.get("rows")])
    return int(values[0] or 0)


class RunningPipeline:
    """Queries that were started together and stop together.

    Spark gives a Python worker ten seconds to start, and fails the query if the machine is too busy
    for that. Such a query starts again from its checkpoint, a few times.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.queries: dict[str, StreamingQuery] = {}
        self.progress: dict[str, QueryProgress] = {}
        self._starts: dict[str, Callable[[], StreamingQuery]] = {}
        self._restarts_left: dict[str, int] = {}

    def add(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        self.queries[name] = start()
        self.progress[name] = QueryProgress()
        self._starts[name] = start
        self._restarts_left[name] = RESTARTS_MAX

    @property
    def is_active(self) -> bool:
        return any(query.isActive for query in self.queries.values())

    def refresh(self) -> None:
        """Takes in Spark's newest progress reports; raises what made a query fail."""
        for name, query in list(self.queries.items()):
            for report in _progress_reports(query):
                self.progress[name].take(json.loads(report))
            if not query.isActive and (error := query.exception()) is not None:
                self._start_again(name, error)

    def process_all_available(self) -> None:
        """Waits until everything that is in the topics by now has been written."""
        for name in self.queries:
            while not self._has_processed_all(name):
                pass

    def _has_processed_all(self, name: str) -> bool:
        try:
            self.queries[name].processAllAvailable()
        except spark_exception() as error:
            self._start_again(name, error)
            return False
        return True

    def _start_again(self, name: str, error: BaseException) -> None:
        if WORKER_TOO_SLOW not in str(error) or not self._restarts_left[name]:
            raise self._failure(name, error) from None
        self._restarts_left[name] -= 1
        logger.warning("Spark gave up on a slow Python worker; starting query %s again", name)
        self.queries[name] = self._starts[name]()

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()

    def watch(self, show: Callable[[], None], poll_s: float) -> None:
        """Until all queries have ended by themselves."""
        while True:
            ended = None if self.is_active else list(self.queries.values())
            self.refresh()
            if ended == list(self.queries.values()):
                return
            show()
            time.sleep(poll_s)

    def _failure(self, name: str, error: BaseException) -> Exception:
        lines = {sink.name: sink.line for sink in self.pipeline.sinks}
        what = "the query of dead letters" if name == DEAD_LETTER else f"[sink.{name}]"
        return self.pipeline.error(lines.get(name, 0), f"{what} failed: {summary(error)}")


def _progress_reports(query: Any) -> list[str]:
    """As JSON. A classic session would fetch every field of every report by a call of its own, so
    its JVM object is asked instead."""
    in_jvm = getattr(query, "_jsq", None)
    if in_jvm is None:
        return [progress.json for progress in query.recentProgress]
    return [progress.json() for progress in in_jvm.recentProgress()]


def start_queries(pipeline: Pipeline, frames: DataFrames) -> RunningPipeline:
    running = RunningPipeline(pipeline)
    try:
        for sink in pipeline.sinks:
            rows = sink_rows(pipeline, sink, frames.by_name[sink.source])
            running.add(sink.name, partial(_start, pipeline, sink.name, rows, sink))
        if frames.dead_letters is not None:
            letters = frames.dead_letters
            running.add(DEAD_LETTER, partial(_start, pipeline, DEAD_LETTER, letters, None))
    except BaseException:
        running.stop()
        raise
    return running


def sink_rows(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> DataFrame:
    """What the sink writes: key and value for a topic, the columns as they are elsewhere."""
    if sink.kind != TOPIC:
        return frame
    if sink.format.kind in DECODED_FORMATS and (reason := missing_codec(sink.format.kind)):
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {reason}")
    try:
        return _records(sink, frame)
    except spark_exception() as error:
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {summary(error)}") from None


def _records(sink: Sink, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    key = [F.expr(sink.key).cast("string").alias("key")] if sink.key else []
    if sink.format.kind != RAW:
        return frame.select(*key, value_column(sink.format).alias("value"))
    return frame.withColumn("key", key[0]) if key else frame


def _start(pipeline: Pipeline, name: str, rows: DataFrame, sink: Sink | None) -> StreamingQuery:
    from pyspark.sql import functions as F

    counted = rows.observe(OUT_METRIC, F.count(F.lit(1)).alias("rows"))
    writer: Any = counted.writeStream.queryName(f"{pipeline.name}.{name}")
    writer = writer.option("checkpointLocation", f"{pipeline.checkpoint}/{name}")
    if pipeline.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=pipeline.trigger)
    if sink is not None:
        writer = writer.outputMode(sink.mode)
    if sink is None or sink.kind == TOPIC:
        writer = _to_topic(writer, pipeline, sink)
    elif sink.kind == PARQUET:
        writer = writer.format("parquet").option("path", sink.target)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    else:
        writer = writer.format("console").option("truncate", "false")
    if sink is not None:
        writer = writer.options(**sink.options)
    try:
        query: StreamingQuery = writer.start()
    except spark_exception() as error:
        line = 0 if sink is None else sink.line
        raise pipeline.error(line, f"[sink.{name}] {summary(error)}") from None
    return query


def _to_topic(writer: Any, pipeline: Pipeline, sink: Sink | None) -> Any:
    """Dead letters have a column that names their topic."""
    writer = writer.format("tidelog").option("kafka.bootstrap.servers", pipeline.bootstrap)
    for name, text in pipeline.kafka.items():
        writer = writer.option(f"kafka.{name}", text)
    delivery = EXACTLY_ONCE if sink is None else sink.delivery
    writer = writer.option("deliveryGuarantee", delivery)
    return writer if sink is None else writer.option("topic", sink.target)
