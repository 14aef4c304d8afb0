"""What a sink writes: key and value for a topic, the columns as they are elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.declaration.parts import EXACTLY_ONCE, TOPIC
from tidelog.pipeline.spark_errors import spark_exception, summary
from tidelog.spark.codecs.errors import SchemaError
from tidelog.spark.codecs.record_codecs import missing_codec
from tidelog.spark.encoding import encode, without_headers
from tidelog.spark.record_format import DECODED_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelog.pipeline.declaration.parts import Pipeline, Sink


def sink_rows(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> DataFrame:
    """Raises PipelineError with the sink's line for what Spark or a codec does not accept."""
    if sink.kind != TOPIC:
        return without_headers(frame)
    if sink.format.kind in DECODED_FORMATS and (reason := missing_codec(sink.format.kind)):
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {reason}")
    try:
        return encode(frame, sink.format, sink.key)
    except (SchemaError, TypeError) as problem:
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {problem}") from None
    except spark_exception() as error:
        raise pipeline.error(sink.line, f"[sink.{sink.name}] {summary(error)}") from None


def topic_options(pipeline: Pipeline, sink: Sink | None) -> dict[str, str]:
    """Of the connector; dead letters, which have no sink, name their topics."""
    options = {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    options["kafka.bootstrap.servers"] = pipeline.bootstrap
    options["deliveryGuarantee"] = EXACTLY_ONCE if sink is None else sink.delivery
    return options if sink is None else {**options, "topic": sink.target, **sink.options}
