"""A declaration as Spark DataFrames: streaming, or batch over the same topics for a check.

Good rows of a source are a temporary view under its name; broken ones become dead letters, ready
for a sink (`tidelog.spark.decoding` decodes, `tidelog.spark.expectations` judges).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.pipeline.frames.python_views import python_view
from tidelog.pipeline.spark_errors import spark_exception, sql_error, summary
from tidelog.spark.codecs.errors import SchemaError
from tidelog.spark.codecs.record_codecs import missing_codec
from tidelog.spark.decoding import DEAD_LETTER, decode, good_rows
from tidelog.spark.expectations import expect, observed_by_name
from tidelog.spark.options import OF_STREAMS
from tidelog.spark.record_format import DECODED_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.declaration.parts import (
        Expectation,
        Pipeline,
        Source,
        View,
        Watermark,
    )
    from tidelog.spark.expectations import Observe


class DataFrames(NamedTuple):
    by_name: dict[str, DataFrame]  # sources and views, in order of declaration
    rows: dict[str, DataFrame]  # records of each source as they came, parsed ones with a REASON


def build_dataframes(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    streaming: bool,
    spark_names: Mapping[str, str] | None = None,
    read: Callable[[Source], DataFrame] | None = None,
) -> DataFrames:
    """Raises PipelineError with the place of what Spark does not accept; reads nothing yet. With
    `spark_names` the checkpoints of queries know sources by these. `read` gives records of another
    origin than the topics, with the same columns."""
    frames: dict[str, DataFrame] = {}
    rows: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        _check_codec(pipeline, source)
        name = None if spark_names is None else spark_names[source.name]
        if read is None:
            found = read_topic(spark, pipeline, source, streaming=streaming, spark_name=name)
        else:
            found = read(source)
        rows[source.name] = _decoded(found, pipeline, source)
        _add(frames, pipeline, source, good_rows(rows[source.name]), observed_by_name)
    add_views(spark, pipeline, pipeline.views, frames, observed_by_name)
    return DataFrames(frames, rows)


def add_views(
    spark: SparkSession,
    pipeline: Pipeline,
    views: Iterable[View],
    frames: dict[str, DataFrame],
    observe: Observe,
) -> None:
    for view in views:
        if view.python_file is None:
            made = _from_sql(spark, view, list(frames))
        else:
            made = python_view(spark, view, frames)
        _add(frames, pipeline, view, made, observe)


def frames_of_batch(
    pipeline: Pipeline, source: Source, rows: DataFrame, views: Iterable[View], observe: Observe
) -> dict[str, DataFrame]:
    """The source and some views over the rows of one batch, in the session of that batch."""
    frames: dict[str, DataFrame] = {}
    _add(frames, pipeline, source, good_rows(rows), observe)
    add_views(rows.sparkSession, pipeline, views, frames, observe)
    return frames


def _decoded(rows: DataFrame, pipeline: Pipeline, source: Source) -> DataFrame:
    required = [source.watermark.column] if source.watermark else []
    try:
        rows = decode(rows, source.format, required=required, tombstones=source.tombstones)
    except (SchemaError, TypeError) as problem:
        raise pipeline.error(source.line, f"[source.{source.name}] {problem}") from None
    except spark_exception() as error:
        told = f"[source.{source.name}] schema: {summary(error)}"
        raise pipeline.error(source.line, told) from None
    for row in pipeline.expectations_of(source.name):
        if row.on_fail == DEAD_LETTER:
            rows = _as_expected(pipeline, row, rows, observed_by_name)
    return rows


def read_topic(
    spark: SparkSession,
    pipeline: Pipeline,
    source: Source,
    *,
    streaming: bool,
    spark_name: str | None = None,
) -> DataFrame:
    """The records as the connector gives them, headers included."""
    options = topic_source_options(pipeline, source, streaming=streaming)
    try:
        if streaming:
            reader = spark.readStream.format("tidelog").options(**options)
            return (reader if spark_name is None else reader.name(spark_name)).load()
        return spark.read.format("tidelog").options(**options).load()
    except spark_exception() as error:
        told = f"[source.{source.name}]: {summary(error)}"
        raise pipeline.error(source.line, told) from None


def topic_source_options(pipeline: Pipeline, source: Source, *, streaming: bool) -> dict[str, str]:
    """Of the connector."""
    options = {"startingOffsets": source.start} if streaming else {}
    options |= {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    options |= {"kafka.bootstrap.servers": pipeline.bootstrap, "includeHeaders": "true"}
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    more = dict(source.options)
    if not streaming:
        of_streams = {name.lower() for name in OF_STREAMS}
        more = {name: text for name, text in more.items() if name.lower() not in of_streams}
    return options | more


def _check_codec(pipeline: Pipeline, source: Source) -> None:
    if source.format.kind in DECODED_FORMATS and (reason := missing_codec(source.format.kind)):
        raise pipeline.error(source.line, f"[source.{source.name}] {reason}")


def _add(
    frames: dict[str, DataFrame],
    pipeline: Pipeline,
    part: Source | View,
    frame: DataFrame,
    observe: Observe,
) -> None:
    for row in pipeline.expectations_of(part.name):
        if row.on_fail != DEAD_LETTER:
            frame = _as_expected(pipeline, row, frame, observe)
    if part.watermark is not None:
        _check_watermark(pipeline, part, part.watermark, frame)
        frame = frame.withWatermark(part.watermark.column, part.watermark.delay)
    frame.createOrReplaceTempView(part.name)
    frames[part.name] = frame


def _as_expected(
    pipeline: Pipeline, expectation: Expectation, frame: DataFrame, observe: Observe
) -> DataFrame:
    name, sql = expectation.name, expectation.sql
    try:
        return expect(frame, name, sql, expectation.on_fail, of=expectation.on, observe=observe)
    except spark_exception() as error:
        told = f"[expect.{name}] sql: {summary(error)}"
        raise pipeline.error(expectation.line, told) from None


def _check_watermark(
    pipeline: Pipeline, part: Source | View, watermark: Watermark, frame: DataFrame
) -> None:
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    found = types.get(watermark.column)
    if found == "timestamp":
        return
    times = ", ".join(name for name, kind in types.items() if kind == "timestamp") or "none"
    problem = "there is no such column" if found is None else f"it is of type {found}"
    told = f"watermark {watermark.column}: {problem}; columns of type timestamp: {times}"
    raise pipeline.error(part.line, f"{part.name}: {told}")


def _from_sql(spark: SparkSession, view: View, known: list[str]) -> DataFrame:
    try:
        return spark.sql(view.sql)
    except spark_exception() as error:
        raise sql_error(view, error, known) from None
