"""Spans of OpenTelemetry for records that a producer sends and a consumer polls.

    send TOPIC   kind PRODUCER: of each record, from `send` until its delivery is known
    poll TOPIC   kind CLIENT: of each poll that returns records, with a link to the span of each

A record carries its span in the header `traceparent` (W3C Trace Context), and `tracestate` where
there is one. A `traceparent` that the application has set stays, and the span links to it.
`trace_context` takes the sender's context out of a record, for spans of the application.

`tidelog.tracing` turns this on, and opentelemetry-api is imported only then. It decides where spans
go: without an SDK nowhere. `tidelog.tracing.conventions` chooses the names of attributes, because
OpenTelemetry has renamed them.

Columns and batches (`send_arrow`, `poll_arrow`, `poll_batches`) have no spans. Neither has a record
that `send` refuses: its caller gets the exception.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog import __version__
from tidelog.client.producer.checked_record import checked_headers
from tidelog.config.definition import InvalidValue
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, Tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from tidelog.client.errors import ClientError
    from tidelog.client.producer.checked_record import Headers
    from tidelog.client.producer.delivery import OnDelivery, RecordMetadata
    from tidelog.config.client import KafkaConfig
    from tidelog.record.kernel import ConsumerRecord

TRACEPARENT: Final = "traceparent"
CARRIED: Final = (TRACEPARENT, "tracestate")


class Conventions(NamedTuple):
    """Names of attributes that differ between versions of the semantic conventions."""

    system: str
    offset: str
    tombstone: str


CONVENTIONS: Final = {
    "1.44": Conventions(
        "messaging.system", "messaging.kafka.offset", "messaging.kafka.message.tombstone"
    ),
    "1.45": Conventions("messaging.system.name", "kafka.offset", "kafka.message.tombstone"),
}


class ProducerSpans:
    """Of one producer; used by the threads that send and by its event loop."""

    def __init__(self, config: KafkaConfig) -> None:
        self._tracer = _tracer(config)
        self._names = CONVENTIONS[config.text("tidelog.tracing.conventions")]
        self._client_id = config.text_or_none("client.id")

    def begin(
        self, topic: str, value: object, headers: Headers, on_delivery: OnDelivery | None
    ) -> tuple[Headers, OnDelivery]:
        """What to send instead: the span ends when the callback is called."""
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

        names = self._names
        attributes = _attributes(names, "send", "send", self._client_id)
        attributes["messaging.destination.name"] = topic
        if value is None:
            attributes[names.tombstone] = True
        pairs = list(checked_headers(headers)[0])
        given = _span_context(pairs)
        span = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            links=[] if given is None else [Link(given)],
        )
        if given is None:
            carrier: dict[str, str] = {}
            _propagator().inject(carrier, set_span_in_context(span))
            pairs += [(name, text.encode()) for name, text in carrier.items()]

        def delivered(place: RecordMetadata, problem: ClientError | None) -> None:
            span.set_attribute("messaging.destination.partition.id", str(place.partition))
            if problem is not None:
                span.set_attribute("error.type", _error_type(problem))
                span.set_status(Status(StatusCode.ERROR, problem.message))
            elif place.offset >= 0:
                span.set_attribute(names.offset, place.offset)
            span.end()
            if on_delivery is not None:
                on_delivery(place, problem)

        return pairs, delivered


class ConsumerSpans:
    """Of one consumer; used by the thread or task that polls."""

    def __init__(self, config: KafkaConfig) -> None:
        self._tracer = _tracer(config)
        self._names = CONVENTIONS[config.text("tidelog.tracing.conventions")]
        self._client_id = config.text_or_none("client.id")
        self._group_id = config.text_or_none("group.id")

    @staticmethod
    def now_ns() -> int:
        return time.time_ns()

    def received(self, records: Sequence[ConsumerRecord], began_ns: int) -> None:
        """A poll that began then returns these."""
        from opentelemetry.trace import Link, SpanKind

        attributes = _attributes(self._names, "poll", "receive", self._client_id)
        attributes["messaging.batch.message_count"] = len(records)
        if self._group_id is not None:
            attributes["messaging.consumer.group.name"] = self._group_id
        partitions = {(record.topic, record.partition) for record in records}
        topics = {topic for topic, _ in partitions}
        name = "poll"
        if len(topics) == 1:
            (topic,) = topics
            name = f"poll {topic}"
            attributes["messaging.destination.name"] = topic
        if len(partitions) == 1:
            attributes["messaging.destination.partition.id"] = str(records[0].partition)
        if len(records) == 1:
            attributes[self._names.offset] = records[0].offset
        senders = (_span_context(record.headers) for record in records)
        self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=[Link(sender) for sender in senders if sender is not None],
            start_time=began_ns,
        ).end()


def trace_context(record: ConsumerRecord) -> Context:
    """The context of whoever sent the record, as the parent of a span of yours. Without the header
    it is empty, and such a span has no parent. Needs opentelemetry-api.
    """
    return _context(record.headers)


def _tracer(config: KafkaConfig) -> Tracer:
    try:
        from opentelemetry.trace import get_tracer
    except ImportError:
        raise InvalidValue(
            "tidelog.tracing", "true", "needs opentelemetry-api: pip install 'tidelog[otel]'"
        ) from None
    version = config.text("tidelog.tracing.conventions")
    schema = f"https://opentelemetry.io/schemas/{version}.0"
    return get_tracer("tidelog.client", __version__, schema_url=schema)


def _attributes(
    names: Conventions, name: str, kind: str, client_id: str | None
) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {
        names.system: "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if client_id:
        attributes["messaging.client.id"] = client_id
    return attributes


def _context(headers: Iterable[tuple[str, bytes | None]]) -> Context:
    from opentelemetry.context import Context

    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in headers
        if name in CARRIED and value is not None
    }
    return _propagator().extract(carrier, Context()) if carrier else Context()


def _span_context(headers: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
    from opentelemetry.trace import get_current_span

    found = get_current_span(_context(headers)).get_span_context()
    return found if found.is_valid else None


def _propagator() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _error_type(problem: ClientError) -> str:
    if problem.code != ErrorCode.NONE:
        return ErrorCode.of(problem.code).name
    return type(problem).__name__
