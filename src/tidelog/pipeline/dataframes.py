"""A declaration as Spark DataFrames: streaming, or batch over the same topics for a check.

Good rows of a source are a temporary view under its name; broken ones become dead letters, ready
for a sink: the record as it came, with headers that say why.

    dead-letter.reason      why the row could not be parsed
    dead-letter.source      the source of the pipeline
    dead-letter.topic, dead-letter.partition, dead-letter.offset    where the record stands
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.codecs.errors import SchemaError
from tidelog.pipeline.declaration import (
    DEAD_LETTER,
    DECODED_FORMATS,
    DROP,
    FAIL,
    KEEP,
    RAW,
)
from tidelog.pipeline.formats import PARSED, REASON, judged
from tidelog.pipeline.python_views import python_view
from tidelog.pipeline.record_codecs import missing_codec
from tidelog.pipeline.spark_errors import spark_exception, sql_error, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from tidelog.pipeline.declaration import (
        Expectation,
        Pipeline,
        PipelineError,
        Source,
        View,
        Watermark,
    )

    Observe = Callable[[DataFrame, str, Column], DataFrame]

METADATA: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
HEADER_PREFIX: Final = "dead-letter."
EXPECT_METRIC: Final = "tidelog_expect."
# In the message of a query that an expectation has stopped.
EXPECTATION_FAILED: Final = "tidelog expectation"


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
        rows[source.name] = _judged(found, pipeline, source)
        good = good_rows(pipeline, source, rows[source.name])
        _add(frames, pipeline, source, good, _observe)
    add_views(spark, pipeline, pipeline.views, frames, _observe)
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
    _add(frames, pipeline, source, good_rows(pipeline, source, rows), observe)
    add_views(rows.sparkSession, pipeline, views, frames, observe)
    return frames


def _observe(frame: DataFrame, name: str, metric: Column) -> DataFrame:
    """By name; a streaming query reports it with its progress."""
    return frame.observe(EXPECT_METRIC + name, metric)


def _judged(rows: DataFrame, pipeline: Pipeline, source: Source) -> DataFrame:
    """With PARSED and REASON, where they are needed. Spark would parse a record again for every
    column and filter that is made of it; it does not move a filter below a column that is not
    deterministic, so REASON is made one."""
    from pyspark.sql import functions as F

    if source.tombstones == DROP:
        rows = rows.where("value is not null")
    if source.format.kind != RAW:
        try:
            rows = judged(rows, source, parsed_schema(pipeline, source))
        except (SchemaError, TypeError) as problem:
            raise pipeline.error(source.line, f"[source.{source.name}] {problem}") from None
        reason = F.when(F.spark_partition_id() >= 0, F.col(REASON))
        if source.tombstones == KEEP:
            reason = F.when(F.col("value").isNotNull(), reason)
        rows = rows.withColumn(REASON, reason)
    elif pipeline.is_lettered(source):
        rows = rows.withColumn(REASON, F.lit(None).cast("string"))
    for row in pipeline.expectations_of(source.name):
        if row.on_fail == DEAD_LETTER:
            rows = _with_expected_reason(rows, pipeline, source, row)
    return rows


def _with_expected_reason(
    rows: DataFrame, pipeline: Pipeline, source: Source, expectation: Expectation
) -> DataFrame:
    """The expectation is about the columns of the source, so these stand beside the whole row while
    it is asked."""
    from pyspark.sql import functions as F

    columns = _columns(source)
    kept = F.struct(*rows.columns).alias("__row")
    told = F.lit(f"expectation {expectation.name}: not {' '.join(expectation.sql.split())}")
    try:
        asked = rows.select(kept, *map(F.expr, columns))
        missed = F.coalesce(~F.expr(f"({expectation.sql})"), F.lit(True))
        reason = F.coalesce(F.col(f"__row.{REASON}"), F.when(missed, told))
        return asked.select(
            *(f"__row.{name}" for name in rows.columns if name != REASON), reason.alias(REASON)
        )
    except spark_exception() as error:
        raise _expectation_error(pipeline, expectation, error) from None


def _expectation_error(
    pipeline: Pipeline, expectation: Expectation, error: Exception
) -> PipelineError:
    return pipeline.error(expectation.line, f"[expect.{expectation.name}] sql: {summary(error)}")


def good_rows(pipeline: Pipeline, source: Source, rows: DataFrame) -> DataFrame:
    if pipeline.is_lettered(source):
        rows = rows.where(f"{REASON} is null")
    return rows.selectExpr(*_columns(source)).drop("__broken")


def _columns(source: Source) -> list[str]:
    """Of the table that a source is, made of the columns of its records."""
    content = "value" if source.format.kind == RAW else f"{PARSED}.*"
    return [content, *(f"{name} as _{name}" for name in METADATA)]


def read_topic(
    spark: SparkSession,
    pipeline: Pipeline,
    source: Source,
    *,
    streaming: bool,
    spark_name: str | None = None,
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
            reader = spark.readStream.format("tidelog").options(**options)
            return (reader if spark_name is None else reader.name(spark_name)).load()
        return spark.read.format("tidelog").options(**options).load()
    except spark_exception() as error:
        told = f"[source.{source.name}]: {summary(error)}"
        raise pipeline.error(source.line, told) from None


def parsed_schema(pipeline: Pipeline, source: Source) -> StructType:
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(source.format.schema)
    except spark_exception() as error:
        told = f"[source.{source.name}] schema: {summary(error)}"
        raise pipeline.error(source.line, told) from None
    assert isinstance(schema, StructType), schema
    return schema


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
    """Only the rows of which the expectation is true: neither false nor null."""
    from pyspark.sql import functions as F

    try:
        is_met = F.coalesce(F.expr(f"({expectation.sql})").cast("boolean"), F.lit(False))
        if expectation.on_fail == FAIL:
            sql = " ".join(expectation.sql.split())
            told = (
                f"{EXPECTATION_FAILED} {expectation.name}: a row of {expectation.on} is not {sql}"
            )
            stop = F.raise_error(F.lit(told)).cast("boolean")
            return frame.where(F.when(is_met, F.lit(True)).otherwise(stop))
        observed = observe(frame, expectation.name, F.count_if(~is_met).alias("rows"))
        return observed.where(is_met)
    except spark_exception() as error:
        raise _expectation_error(pipeline, expectation, error) from None


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


def dead_letters(source: Source, rows: DataFrame) -> DataFrame:
    """The broken ones of the rows, as records, with their REASON beside them."""
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
    kind = "array<struct<key: string, value: binary>>"
    own = f"coalesce(headers, cast(array() as {kind}))"
    headers = F.expr(f"cast(concat({own}, array({added})) as {kind})")
    topic = F.lit(source.dead_letter)
    broken = rows.where(f"{REASON} is not null")
    return broken.select(
        topic.alias("topic"), "key", "value", headers.alias("headers"), F.col(REASON)
    )


def _from_sql(spark: SparkSession, view: View, known: list[str]) -> DataFrame:
    try:
        return spark.sql(view.sql)
    except spark_exception() as error:
        raise sql_error(view, error, known) from None
