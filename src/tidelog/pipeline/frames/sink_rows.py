"""What a sink writes: key and value for a topic, the columns as they are elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.declaration.parts import EXACTLY_ONCE, TOPIC
from tidelog.pipeline.spark_errors import spark_exception, summary
from tidelog.spark.codecs.errors import SchemaError
from tidelog.spark.codecs.record_codecs import missing_codec
from tidelog.spark.encoding import encode, without_headers
from tidelog.spark.options import InvalidOption, sink_options
from tidelog.spark.record_format import DECODED_FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def check_topic_options(pipeline: Pipeline) -> None:
    """Raises PipelineError, before any query starts, for options with which no batch could be
    written; Spark would show them to the connector with the first batch."""
    for sink in pipeline.sinks:
        if sink.kind == TOPIC:
            _check_options(
                pipeline, sink.line, f"[sink.{sink.name}]", topic_options(pipeline, sink)
            )
    for source in pipeline.lettered_sources:
        place = f"dead letters of [source.{source.name}]"
        _check_options(pipeline, source.line, place, topic_options(pipeline, None))


def _check_options(pipeline: Pipeline, line: int, place: str, options: Mapping[str, str]) -> None:
    try:
        sink_options(options)
    except InvalidOption as problem:
        raise pipeline.error(line, f"{place} {problem}") from None


def topic_options(pipeline: Pipeline, sink: Sink | None) -> dict[str, str]:
    """Of the connector; dead letters, which have no sink, name their topics."""
    options = {f"kafka.{name}": text for name, text in pipeline.kafka.items()}
    options["kafka.bootstrap.servers"] = pipeline.bootstrap
    options["deliveryGuarantee"] = EXACTLY_ONCE if sink is None else sink.delivery
    return options if sink is None else {**options, "topic": sink.target, **sink.options}
