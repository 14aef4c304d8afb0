"""Queries of a pipeline started on Spark, each on its folder of the checkpoint.

What is started, and on which folder, follows from the restart plan and from what Spark says of each
sink (layout). The record of the checkpoint is written before the first query starts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.lineage import upstream_sources
from tidelog.pipeline.declaration.parts import AVAILABLE_NOW, PARQUET, TOPIC, PipelineError
from tidelog.pipeline.frames.dataframes import build_dataframes
from tidelog.pipeline.frames.sink_rows import check_topic_options, sink_rows, topic_options
from tidelog.pipeline.queries.checkpoint import Checkpoint
from tidelog.pipeline.queries.layout import (
    PlanShape,
    lay_out,
    member_alone,
    records,
    without_members,
)
from tidelog.pipeline.queries.restart_plan import RestartPlan, allowed, refuse_occupied
from tidelog.pipeline.queries.running import OUT_METRIC, RunningPipeline
from tidelog.pipeline.queries.topic_writer import (
    SharedWriter,
    UpdateWriter,
    letter_metrics,
    row_metrics,
)
from tidelog.pipeline.spark_errors import spark_exception, summary
from tidelog.spark.decoding import REASON, dead_letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelog.pipeline.declaration.parts import Pipeline, Sink
    from tidelog.pipeline.frames.dataframes import DataFrames
    from tidelog.pipeline.queries.layout import Query
    from tidelog.pipeline.queries.topic_writer import BatchCounts

# Spark keeps offsets by the names of sources in a log of this version.
_NAMED_SOURCES: Final = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
_EVOLUTION_ERROR: Final = "STREAMING_QUERY_EVOLUTION_ERROR"


def start_queries(
    spark: SparkSession, pipeline: Pipeline, plan: RestartPlan | None = None
) -> RunningPipeline:
    """Raises PipelineError for what may not start; nothing runs then."""
    plan = plan or allowed(RestartPlan(pipeline, Checkpoint(pipeline)))
    refuse_occupied(pipeline, plan)
    check_topic_options(pipeline)
    frames = StreamingFrames(spark, pipeline, plan.checkpoint)
    shapes = {
        sink.name: PlanShape(
            frames.any.by_name[sink.source],
            is_remote=bool(pipeline.remote),
            has_names=frames.has_names,
        )
        for sink in pipeline.sinks
    }
    queries = lay_out(pipeline, plan, shapes, has_names=frames.has_names)
    starts = [_Start(pipeline, query, frames) for query in queries]
    plan.checkpoint.save(records(pipeline, plan.checkpoint, queries))
    part = partial(_part, pipeline, plan.checkpoint, frames) if plan.checkpoint.is_local else None
    running = RunningPipeline(pipeline, part=part)
    try:
        for start in starts:
            running.add(start.query, start, start.counts)
    except BaseException:
        running.stop()
        raise
    return running


def _part(
    pipeline: Pipeline,
    checkpoint: Checkpoint,
    frames: StreamingFrames,
    query: Query,
    leaving: frozenset[str],
    counts: BatchCounts,
) -> list[_Start]:
    """The query without members that fail, and a query for each of these. The query has stopped.

    A copy of its checkpoint has the offsets of the batch that failed, and the same id marks the
    batches of the member, so it repeats that batch exactly once. The record that they are two is
    written when the copy is complete: whoever starts before that finds one query."""
    rest, alone = without_members(query, leaving), []
    for member in sorted(leaving):
        named = member_alone(query, member, "")
        writer = checkpoint.copy_folder(query.name, named.name)
        alone.append(member_alone(query, member, query.writer or writer))
    checkpoint.save(records(pipeline, checkpoint, [rest, *alone]))
    return [
        _Start(pipeline, rest, frames, counts),
        *(_Start(pipeline, made, frames) for made in alone),
    ]


class StreamingFrames:
    """The same declaration twice, where it is needed: over sources that Spark knows by name, and
    over sources that it knows by their order, in a session beside the first."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._named: DataFrames | None = None
        self._unnamed: DataFrames | None = None
        if not pipeline.remote and hasattr(spark.readStream, "name"):
            self._named = self._with_names(checkpoint.spark_names)

    @property
    def has_names(self) -> bool:
        return self._named is not None

    @property
    def any(self) -> DataFrames:
        return self._named or self.unnamed

    @property
    def unnamed(self) -> DataFrames:
        if self._unnamed is None:
            self._unnamed = build_dataframes(self._spark, self._pipeline, streaming=True)
        return self._unnamed

    def of(self, query: Query) -> DataFrames:
        return self._named if query.is_named and self._named is not None else self.unnamed

    def _with_names(self, spark_names: Mapping[str, str]) -> DataFrames | None:
        """None if a Python view reads a stream that has no name."""
        session = self._spark.newSession()
        for name, value in _NAMED_SOURCES.items():
            session.conf.set(name, value)
        try:
            return build_dataframes(
                session, self._pipeline, streaming=True, spark_names=spark_names
            )
        except PipelineError as error:
            if _EVOLUTION_ERROR in str(error):
                return None
            raise


class _Start:
    """How one query starts, once or again."""

    def __init__(
        self,
        pipeline: Pipeline,
        query: Query,
        frames: StreamingFrames,
        counts: BatchCounts | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.query = query
        self.counts = counts
        found = frames.of(query)
        if query.is_shared:
            self._writer = self._shared(found)
        elif query.letters_of:
            self._writer = self._letters(found)
        else:
            self._writer = self._of_sink(found, query.sinks[0])

    def __call__(self) -> StreamingQuery:
        writer = self._writer()
        writer = writer.queryName(f"{self.pipeline.name}.{self.query.name}")
        folder = f"{self.pipeline.checkpoint}/{self.query.name}"
        writer = writer.option("checkpointLocation", folder)
        if self.pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        try:
            started: StreamingQuery = writer.start()
        except spark_exception() as error:
            line = self.query.sinks[0].line if self.query.sinks else 0
            told = f"query {self.query.name}: {summary(error)}"
            raise self.pipeline.error(line, told) from None
        return started

    def _shared(self, frames: DataFrames) -> Callable[[], Any]:
        sources = {row.name: row for row in self.pipeline.sources}
        name = (
            self.query.letters_of or upstream_sources(self.pipeline, self.query.sinks[0].source)[0]
        )
        shared = SharedWriter(
            self.pipeline,
            sources[name],
            self.query.sinks,
            has_letters=bool(self.query.letters_of),
            writer=self.query.writer,
            counts=self.counts,
        )
        self.counts = shared.counts
        rows = frames.rows[name]
        return lambda: rows.writeStream.foreachBatch(shared)

    def _letters(self, frames: DataFrames) -> Callable[[], Any]:
        name = self.query.letters_of
        source = next(row for row in self.pipeline.sources if row.name == name)
        letters = dead_letters(frames.rows[name], source.dead_letter, source.name)
        counted = letters.observe(OUT_METRIC, *letter_metrics()).drop(REASON)
        options = topic_options(self.pipeline, None)
        return lambda: counted.writeStream.format("tidelog").options(**options)

    def _of_sink(self, frames: DataFrames, sink: Sink) -> Callable[[], Any]:
        rows = sink_rows(self.pipeline, sink, frames.by_name[sink.source])
        if sink.kind == TOPIC and sink.mode == "update":
            if self.pipeline.remote:
                told = "mode update needs a session in this process, not Spark Connect"
                raise self.pipeline.error(sink.line, f"[sink.{sink.name}] {told}")
            updates = UpdateWriter(self.pipeline, sink)
            self.counts = updates.counts
            return lambda: rows.writeStream.foreachBatch(updates).outputMode("update")
        return partial(_plain_writer, self.pipeline, sink, rows)


def _plain_writer(pipeline: Pipeline, sink: Sink, rows: DataFrame) -> Any:
    writer: Any = rows.observe(OUT_METRIC, *row_metrics()).writeStream.outputMode(sink.mode)
    if sink.kind == TOPIC:
        return writer.format("tidelog").options(**topic_options(pipeline, sink))
    if sink.kind == PARQUET:
        writer = writer.format("parquet").option("path", sink.target)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
    else:
        writer = writer.format("console").option("truncate", "false")
    return writer.options(**sink.options)
