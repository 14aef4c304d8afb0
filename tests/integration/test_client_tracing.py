"""Spans of OpenTelemetry around what the clients send and poll."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.eventually import eventually
from tidelog.client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
    trace_context,
)
from tidelog.config.definition import ConfigError

SDK = "needs opentelemetry-sdk, which `make setup` installs"
trace = pytest.importorskip("opentelemetry.trace", reason=SDK)
sdk_trace = pytest.importorskip("opentelemetry.sdk.trace", reason=SDK)
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=SDK)
in_memory = pytest.importorskip(
    "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=SDK
)

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Spans = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def exporter() -> Any:
    """OpenTelemetry takes one provider for the life of a process."""
    exporter = in_memory.InMemorySpanExporter()
    provider = sdk_trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: Any) -> Iterator[Spans]:
    """The ended spans of a name."""
    exporter.clear()

    def named(name: str) -> list[Any]:
        return [span for span in exporter.get_finished_spans() if span.name == name]

    yield named
    exporter.clear()


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings) as reader:
        reader.assign([TopicPartition(topic, 0)])

        def has_all() -> bool:
            records.extend(reader.poll(1.0))
            return len(records) >= count

        eventually(has_all)
    return records


def test_a_record_carries_the_span_that_sent_it(bootstrap: str, topic: str, spans: Spans) -> None:
    tracer = trace.get_tracer("application")
    with (
        Producer(bootstrap_servers=bootstrap, client_id="shop", tidelog_tracing=True) as producer,
        tracer.start_as_current_span("order") as order,
    ):
        place = producer.send(topic, b"1", headers={"lang": b"en"}).result(60)
    (sent,) = spans(f"send {topic}")
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.parent.span_id == order.get_span_context().span_id
    assert dict(sent.attributes) == {
        "messaging.system.name": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "shop",
        "kafka.offset": place.offset,
    }
    (record,) = read(bootstrap, topic, 1)
    assert record.headers[0] == ("lang", b"en")
    name, parent = record.headers[1]
    assert name == "traceparent"
    context = sent.get_span_context()
    assert parent is not None
    assert parent.startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-".encode())


def test_a_poll_links_to_the_spans_of_its_records(bootstrap: str, topic: str, spans: Spans) -> None:
    with Producer(bootstrap_servers=bootstrap, tidelog_tracing=True) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"without a span").result(60)
    records = read(bootstrap, topic, 4, group_id="billing", tidelog_tracing=True)
    assert len(records) == 4
    polls = spans(f"poll {topic}")
    linked = [link.context.span_id for poll in polls for link in poll.links]
    assert linked == [sent.get_span_context().span_id for sent in spans(f"send {topic}")]
    assert sum(poll.attributes["messaging.batch.message_count"] for poll in polls) == 4
    assert polls[0].kind is trace.SpanKind.CLIENT
    assert polls[0].attributes["messaging.system.name"] == "kafka"
    assert polls[0].attributes["messaging.operation.type"] == "receive"
    assert polls[0].attributes["messaging.consumer.group.name"] == "billing"
    assert polls[0].start_time <= polls[0].end_time


def test_the_application_goes_on_in_the_trace_of_the_sender(
    bootstrap: str, topic: str, spans: Spans
) -> None:
    with Producer(bootstrap_servers=bootstrap, tidelog_tracing=True) as producer:
        producer.send(topic, b"1").result(60)
    (record,) = read(bootstrap, topic, 1)
    with trace.get_tracer("application").start_as_current_span("work", trace_context(record)):
        pass
    (sent,), (work,) = spans(f"send {topic}"), spans("work")
    assert work.parent.span_id == sent.get_span_context().span_id
    assert work.get_span_context().trace_id == sent.get_span_context().trace_id


def test_the_header_that_the_application_has_set_stays(
    bootstrap: str, topic: str, spans: Spans
) -> None:
    with Producer(bootstrap_servers=bootstrap, tidelog_tracing=True) as producer:
        producer.send(topic, b"1", headers=[("traceparent", GIVEN.encode())]).result(60)
        producer.send(topic, b"2", headers=[("traceparent", b"\xff nonsense")]).result(60)
    first, second = spans(f"send {topic}")
    assert [link.context.span_id for link in first.links] == [0xB7AD6B7169203331]
    assert list(second.links) == []
    records = read(bootstrap, topic, 2)
    assert records[0].headers == (("traceparent", GIVEN.encode()),)


def test_a_record_that_fails_ends_its_span_with_the_error(
    bootstrap: str, topic: str, spans: Spans
) -> None:
    told: list[ClientError | None] = []
    with Producer(
        bootstrap_servers=bootstrap, tidelog_tracing=True, tidelog_tracing_conventions="1.44"
    ) as producer:
        producer.send(topic, b"1").result(60)
        delivery = producer.send(topic, on_delivery=lambda _, problem: told.append(problem))
        producer.close(0)
    (sent,) = [
        span for span in spans(f"send {topic}") if "messaging.kafka.offset" not in span.attributes
    ]
    assert sent.attributes["messaging.system"] == "kafka"
    assert sent.attributes["messaging.kafka.message.tombstone"] is True
    assert sent.attributes["error.type"] == type(delivery.exception()).__name__
    assert not sent.status.is_ok
    assert told == [delivery.exception()]


def test_asyncio_clients_have_spans_too(bootstrap: str, topic: str, spans: Spans) -> None:
    async def talk() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, tidelog_tracing=True) as producer:
            await (await producer.send(topic, {"n": 1}))

    async def talk_twice() -> None:
        settings = {"bootstrap.servers": bootstrap, "tidelog.tracing": True}
        async with AsyncProducer(settings, value_serializer=str.encode) as producer:
            await (await producer.send(topic, "1"))
        async with AsyncConsumer(settings, value_deserializer=bytes.decode) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            values: list[Any] = [record.value for record in await consumer.poll(60)]
            assert values == ["1"]

    with pytest.raises(ClientError):
        asyncio.run(talk())  # refused by `send` itself: nobody serializes it
    assert spans(f"send {topic}") == []
    asyncio.run(talk_twice())
    (sent,), (poll,) = spans(f"send {topic}"), spans(f"poll {topic}")
    assert [link.context.span_id for link in poll.links] == [sent.get_span_context().span_id]
    assert poll.attributes["kafka.offset"] == 0


def test_without_tracing_there_are_no_spans_and_no_headers(
    bootstrap: str, topic: str, spans: Spans, exporter: Any
) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"1").result(60)
    (record,) = read(bootstrap, topic, 1)
    assert record.headers == ()
    assert exporter.get_finished_spans() == ()


def test_tracing_without_the_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[otel\]'"):
        Producer(bootstrap_servers="127.0.0.1:1", tidelog_tracing=True)
