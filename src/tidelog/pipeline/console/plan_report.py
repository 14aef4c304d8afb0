"""What `tidelog pipeline validate` shows: every part with its schema, every sink with its plan.

DataFrames are built and analysed, and each sink's plan is checked for what streams cannot do; no
stream runs and no broker is asked. A session of Spark Connect shows neither plan nor that check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.parts import PARQUET, TOPIC
from tidelog.pipeline.frames.dataframes import DataFrames, build_dataframes
from tidelog.pipeline.frames.sink_rows import check_topic_options, sink_rows
from tidelog.pipeline.spark_errors import spark_exception, summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline, Sink, Source, Watermark

_NAME_WIDTH: Final = 22
_PLAN_WIDTH: Final = 110
_EXPRESSION_ID = re.compile(r"#\d+L?")


def plan_report(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """The lines to show; raises PipelineError for what would not run."""
    check_topic_options(pipeline)
    frames = build_dataframes(spark, pipeline, streaming=True)
    lines = list(_parts(pipeline, frames))
    for sink in pipeline.sinks:
        rows = sink_rows(pipeline, sink, frames.by_name[sink.source])
        if not pipeline.remote:
            check_streams(pipeline, sink, rows)
            lines += ["", f"plan of sink {sink.name}", *_plan(rows, pipeline.sources)]
    return lines


def check_streams(pipeline: Pipeline, sink: Sink, rows: DataFrame) -> None:
    """Raises for what Spark would refuse when the query starts, such as an aggregation that never
    ends for want of a watermark. Only a session in this process has such a check."""
    jvm: Any = rows.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "complete": modes.Complete, "update": modes.Update}[sink.mode]
    analyzed = rows._jdf.queryExecution().analyzed()
    try:
        checker.checkForStreaming(analyzed, mode())
    except spark_exception() as error:
        told = summary(error)
        if "without watermark" in told:
            told += " Give its source a watermark and group by a window of that column."
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {told}") from None


def _parts(pipeline: Pipeline, frames: DataFrames) -> Iterator[str]:
    for source in pipeline.sources:
        yield from ("", f"source {source.name}", f"  reads {_read(source)}")
        yield from _schema(frames.by_name[source.name])
    for view in pipeline.views:
        yield from ("", f"view {view.name}{_watermark(view.watermark)}")
        yield from _schema(frames.by_name[view.name])
    for row in pipeline.expectations:
        sql = " ".join(row.sql.split())
        yield from ("", f"expect {row.name}", f"  of {row.on}: {sql}, else {row.on_fail}")
    for sink in pipeline.sinks:
        yield from ("", f"sink {sink.name}", f"  writes {sink.source} to {_written(sink)}")
    for topic in pipeline.dead_letter_topics:
        yield from ("", f"dead letters go to topic {topic}")
    for unused in _unused(pipeline):
        yield from ("", f"note: nothing uses {unused}")


def _read(source: Source) -> str:
    topics = f"pattern {source.pattern}" if source.pattern else f"topic {', '.join(source.topics)}"
    return f"{topics}, {source.format.kind}, from {source.start}{_watermark(source.watermark)}"


def _watermark(watermark: Watermark | None) -> str:
    return "" if watermark is None else f", late by {watermark.delay} at most ({watermark.column})"


def _written(sink: Sink) -> str:
    if sink.kind == TOPIC:
        key = f", key {sink.key}" if sink.key else ""
        return f"topic {sink.target}, {sink.format.kind}{key}, {sink.mode}"
    return f"Parquet files in {sink.target}" if sink.kind == PARQUET else "the console"


def _schema(frame: DataFrame) -> Iterator[str]:
    for field in frame.schema.fields:
        if not field.name.startswith("_"):
            yield f"    {field.name:<{_NAME_WIDTH}} {field.dataType.simpleString()}"


def _plan(rows: DataFrame, sources: Sequence[Source]) -> list[str]:
    """The analysed plan, one operator a line, down to the sources; Spark makes the physical one
    when a batch runs."""
    told = _EXPRESSION_ID.sub("", rows._jdf.queryExecution().analyzed().toString())
    ends = tuple(f"SubqueryAlias {source.name}" for source in sources)
    lines: list[str] = []
    below = sys.maxsize
    for line in told.strip().splitlines():
        operator = line.lstrip(" :+-~")
        depth = len(line) - len(operator)
        if depth > below:
            continue
        below = depth if operator in ends else sys.maxsize
        shown = line.replace("~", "", 1)
        lines.append(f"  {shown if len(shown) <= _PLAN_WIDTH else shown[:_PLAN_WIDTH] + ' ...'}")
    return lines


def _unused(pipeline: Pipeline) -> list[str]:
    used = {sink.source for sink in pipeline.sinks}
    for view in pipeline.views:
        used.update(view.inputs)
    text = " ".join(view.sql for view in pipeline.views)
    names = [source.name for source in pipeline.sources] + [view.name for view in pipeline.views]
    return [name for name in names if name not in used and name not in text]
