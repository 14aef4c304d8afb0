"""A declaration as Spark DataFrames: streaming, or batch over the same topics for a check.

Good rows of a source are a temporary view under its name; broken ones of all sources together are
one frame of dead letters, ready for a sink: the record as it came, with headers that say why.

    dead-letter.reason      why the row could not be parsed
    dead-letter.source      the source of the pipeline
    dead-letter.topic, dead-letter.partition, dead-letter.offset    where the record stands
"""

from __future__ import annotations

import runpy
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.codecs.errors import SchemaError
from tidelog.pipeline.declaration import DECODED_FORMATS, RAW, PipelineError, Place, Problem
from tidelog.pipeline.formats import PARSED, REASON, judged
from tidelog.pipeline.record_codecs import missing_codec
from tidelog.pipeline.spark_errors import spark_exception, sql_error, summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidelog.pipeline.declaration import Pipeline, Source, View, Watermark

METADATA: Final = ("key", "topic", "partition", "offset", "timestamp")
HEADER_PREFIX: Final = "dead-letter."


class DataFrames(NamedTuple):
    by_name: dict[str, DataFrame]  # sources and views, in order of declaration
    dead_letters: DataFrame | None  # None when no source is parsed


def build_dataframes(spark: SparkSession, pipeline: Pipeline, *, streaming: bool) -> DataFrames:
    """Raises PipelineError with the place of what Spark does not accept; reads nothing yet."""
    frames: dict[str, DataFrame] = {}
    dead: list[DataFrame] = []
    for source in pipeline.sources:
        _check_codec(pipeline, source)
        rows = read_topic(spark, pipeline, source, streaming=streaming)
        if source.format.kind == RAW:
            good = _with_metadata(rows, ["value"])
        else:
            told = _judged(rows, pipeline, source, parsed_schema(spark, pipeline, source))
            good = _with_metadata(told.where(f"{REASON} is null"), [f"{PARSED}.*"])
            good = good.drop("__broken")
            dead.append(_dead_letters(told.where(f"{REASON} is not null"), source))
        _add(frames, pipeline, source, good)
    for view in pipeline.views:
        if view.python_file is None:
            made = _from_sql(spark, view, list(frames))
        else:
            made = _from_python(spark, view, frames)
        _add(frames, pipeline, view, made)
    return DataFrames(frames, reduce(lambda one, other: one.union(other), dead) if dead else None)


def read_topic(
    spark: SparkSession, pipeline: Pipeline, source: Source, *, streaming: bool
) -> DataFrame:
    """The records as the connector gives them, headers included."""
    options = {"startingOffsets": source.start} if streaming else {}
    options |= {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    options |= {"kafka.bootstrap.servers": pipeline.bootstrap, "includeHeaders": "true"}
    if source.pattern:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    options |= source.options
    try:
        if streaming:
            return spark.readStream.format("tidelog").options(**options).load()
        return spark.read.format("tidelog").options(**options).load()
    except spark_exception() as error:
        told = f"[source.{source.name}]: {summary(error)}"
        raise pipeline.error(source.line, told) from None


def parsed_schema(spark: SparkSession, pipeline: Pipeline, source: Source) -> StructType:
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(source.format.schema)
    except spark_exception() as error:
        told = f"[source.{source.name}] schema: {summary(error)}"
        raise pipeline.error(source.line, told) from None
    assert isinstance(schema, StructType), schema
    return schema


def _judged(rows: DataFrame, pipeline: Pipeline, source: Source, schema: StructType) -> DataFrame:
    try:
        return judged(rows, source, schema)
    except (SchemaError, TypeError) as problem:
        raise pipeline.error(source.line, f"[source.{source.name}] {problem}") from None


def _check_codec(pipeline: Pipeline, source: Source) -> None:
    if source.format.kind in DECODED_FORMATS and (reason := missing_codec(source.format.kind)):
        raise pipeline.error(source.line, f"[source.{source.name}] {reason}")


def _add(
    frames: dict[str, DataFrame], pipeline: Pipeline, part: Source | View, frame: DataFrame
) -> None:
    if part.watermark is not None:
        _check_watermark(pipeline, part, part.watermark, frame)
        frame = frame.withWatermark(part.watermark.column, part.watermark.delay)
    frame.createOrReplaceTempView(part.name)
    frames[part.name] = frame


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


def _with_metadata(rows: DataFrame, columns: list[str]) -> DataFrame:
    return rows.selectExpr(*columns, *(f"{name} as _{name}" for name in METADATA))


def _dead_letters(broken: DataFrame, source: Source) -> DataFrame:
    from pyspark.sql import functions as F

    def header(name: str, text: str) -> str:
        return f"named_struct('key', '{HEADER_PREFIX}{name}', 'value', cast({text} as binary))"

    added = ", ".join(
        [
            header("reason", REASON),
            header("source", f"'{source.name}'"),
            header("topic", "topic"),
            header("partition", "cast(partition as string)"),
            header("offset", "cast(offset as string)"),
        ]
    )
    kind = "array<struct<key:string,value:binary>>"
    own = f"coalesce(headers, cast(array() as {kind}))"
    headers = F.expr(f"cast(concat({own}, array({added})) as {kind})")
    topic = F.lit(source.dead_letter)
    return broken.select(topic.alias("topic"), "key", "value", headers.alias("headers"))


def _from_sql(spark: SparkSession, view: View, known: list[str]) -> DataFrame:
    try:
        return spark.sql(view.sql)
    except spark_exception() as error:
        raise sql_error(view, error, known) from None


def _from_python(spark: SparkSession, view: View, frames: dict[str, DataFrame]) -> DataFrame:
    """The file runs under no module's name, so functions in it travel to the workers by value."""
    from pyspark.sql import DataFrame

    assert view.python_file is not None, view
    place = Place(view.python_file, 0)
    try:
        names = runpy.run_path(str(view.python_file))
        if view.function not in names:
            raise PipelineError(Problem(place, f"has no function {view.function}"))
        made = names[view.function](spark, *(frames[name] for name in view.inputs))
    except PipelineError:
        raise
    except Exception as error:
        told = f"{view.function}: {type(error).__name__}: {summary(error)}"
        raise PipelineError(
            Problem(Place(view.python_file, _line_in(view, error)), told)
        ) from error
    if not isinstance(made, DataFrame):
        told = f"{view.function} returned {type(made).__name__}; it must return a DataFrame"
        raise PipelineError(Problem(place, told))
    return made


def _line_in(view: View, error: BaseException) -> int:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(view.python_file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
