"""What a sink writes: key and value for a topic, the columns as they are elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.codecs.errors import SchemaError
from tidelog.pipeline.declaration import DECODED_FORMATS, EXACTLY_ONCE, RAW, TOPIC
from tidelog.pipeline.formats import value_column
from tidelog.pipeline.record_codecs import missing_codec
from tidelog.pipeline.spark_errors import spark_exception, summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.pipeline.declaration import Pipeline, Sink

# Of a source's record; a sink writes them under another name only.
HEADERS: Final = "_headers"


def sink_rows(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> DataFrame:
    """Raises PipelineError with the sink's line for what Spark or a codec does not accept."""
    if sink.kind != TOPIC:
        return frame.drop(HEADERS)
    if sink.format.kind in DECODED_FORMATS and (reason := missing_codec(sink.format.kind)):
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {reason}")
    try:
        return _records(sink, frame)
    except (SchemaError, TypeError) as problem:
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {problem}") from None
    except spark_exception() as error:
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {summary(error)}") from None


def _records(sink: Sink, frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    key = [F.expr(sink.key).cast("string").alias("key")] if sink.key else []
    if sink.format.kind == RAW:
        return frame.withColumn("key", key[0]) if key else frame
    written = frame.drop(HEADERS)
    return written.select(*key, value_column(sink.format, written.schema).alias("value"))


def topic_options(pipeline: Pipeline, sink: Sink | None) -> dict[str, str]:
    """Of the connector; dead letters, which have no sink, name their topics."""
    options = {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    options["kafka.bootstrap.servers"] = pipeline.bootstrap
    options["deliveryGuarantee"] = EXACTLY_ONCE if sink is None else sink.delivery
    return options if sink is None else {**options, "topic": sink.target, **sink.options}
