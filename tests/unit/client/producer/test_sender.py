"""The producer against scripted brokers: retries, order, time limits, answers that are lies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from tests.support.scripted_broker import HangUp, Misnumbered, NoAnswer, Raw, ScriptedCluster, run
from tests.support.scripted_log import LoseAnswer, Refuse, ScriptedLog, Step, TearAnswer
from tidelog.client.errors import (
    BrokerRefused,
    BufferExhausted,
    ClientError,
    Closed,
    ConnectionFailed,
    InvalidRow,
    MessageTooLarge,
    NotAuthorized,
    RequestTimedOut,
    Serialization,
    UnknownTopic,
    UnsupportedByBroker,
)
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.delivery import RecordMetadata
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.record.legacy import read_messages
from tidelog.types import TopicPartition

T0 = TopicPartition("t", 0)
T = TypeVar("T")
Story = Callable[[ScriptedCluster, ScriptedLog, AsyncProducer], Awaitable[None]]


def told(
    story: Story,
    *,
    brokers: int = 1,
    partitions: int = 1,
    versions: dict[ApiKey, tuple[int, int]] | None = None,
    **config: object,
) -> None:
    """Runs the story with brokers that write, and a producer that is quick to try again."""

    async def whole() -> None:
        async with ScriptedCluster(brokers, {"t": partitions}, versions) as cluster:
            log = ScriptedLog()
            for broker in cluster.brokers.values():
                log.serve(broker)
            settings: dict[str, object] = {
                "bootstrap_servers": cluster.bootstrap,
                "linger_ms": 0,
                "retry_backoff_ms": 5,
                "retry_backoff_max_ms": 20,
                "reconnect_backoff_ms": 5,
                "reconnect_backoff_max_ms": 20,
                **config,
            }
            async with AsyncProducer(**settings) as producer:  # type: ignore[arg-type]
                await story(cluster, log, producer)

    run(whole)


def test_a_record_is_written_and_its_place_is_told() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        first = await producer.send("t", b"a", timestamp=5)
        second = await producer.send("t", b"b", timestamp=6)
        assert await first == RecordMetadata("t", 0, 0, 5)
        assert (await second).offset == 1
        assert log.records[T0] == [b"a", b"b"]

    told(story)


def test_callbacks_are_called_with_the_place_or_the_error() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        calls: list[tuple[RecordMetadata, ClientError | None]] = []
        await producer.send("t", b"a", on_delivery=lambda *call: calls.append(call), timestamp=1)
        await producer.flush()
        log.steps.append(Refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await producer.send("t", b"b", on_delivery=lambda *call: calls.append(call), timestamp=2)
        await producer.flush()
        await asyncio.sleep(0)
        assert calls[0] == (RecordMetadata("t", 0, 0, 1), None)
        assert (calls[1][0].offset, calls[1][0].partition) == (-1, 0)
        assert isinstance(calls[1][1], NotAuthorized)

    told(story)


def test_a_callback_that_raises_keeps_no_other_from_being_called() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        calls: list[int] = []

        def fail(*_: object) -> None:
            raise KeyError("mine")

        await producer.send("t", b"a", on_delivery=fail)
        await producer.send("t", b"b", on_delivery=lambda *_: calls.append(1))
        await producer.flush()
        async with asyncio.timeout(30):
            while not calls:
                await asyncio.sleep(0)
        assert [type(each) for each in reported] == [KeyError]

    told(story)


# Retries


@pytest.mark.parametrize(
    "step",
    [
        Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
        Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
        HangUp(),
        LoseAnswer(),
        TearAnswer(),
    ],
    ids=["not leader", "too few replicas", "storage", "hang up", "lost answer", "torn answer"],
)
def test_a_batch_is_sent_again_until_it_is_acknowledged_and_is_there_once(step: Step) -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.steps.extend([step, step, step])
        assert (await (await producer.send("t", b"a"))).offset == 0
        assert log.records[T0] == [b"a"]
        assert len(log.requests) == 4

    told(story)


def test_order_and_exactly_once_hold_over_lost_and_late_answers() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        chance = random.Random(5)
        trouble: list[Step] = [
            None,
            None,
            HangUp(),
            LoseAnswer(),
            TearAnswer(),
            Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            Refuse(ErrorCode.REQUEST_TIMED_OUT),
        ]
        log.steps.extend(chance.choice(trouble) for _ in range(60))
        deliveries = []
        for number in range(400):
            deliveries.append(await producer.send("t", b"%d" % number, partition=number % 3))
            if chance.random() < 0.2:
                await asyncio.sleep(0.001)
        await producer.flush()
        for number, delivery in enumerate(deliveries):
            place = await delivery
            partition = TopicPartition("t", place.partition)
            assert log.records[partition][place.offset] == b"%d" % number
        for index in range(3):
            expected = [b"%d" % number for number in range(400) if number % 3 == index]
            assert log.records[TopicPartition("t", index)] == expected

    told(story, brokers=2, partitions=3, batch_size=200)


def test_without_idempotence_one_request_in_flight_keeps_the_order() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.steps.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS), None, HangUp()])
        for number in range(40):
            await producer.send("t", b"%d" % number)
            await asyncio.sleep(0)
        await producer.flush()
        assert log.records[T0] == [b"%d" % number for number in range(40)]

    told(
        story,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        batch_size=100,
    )


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        for number in range(30):
            await producer.send("t", b"%d" % number)
        broker = producer.sender._brokers[0]
        async with asyncio.timeout(30):
            while broker.in_flight < 3:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.in_flight == 3
        assert producer.accumulator.undrained_bytes > 0
        await producer.close(0)

    told(story, batch_size=80, max_in_flight_requests_per_connection=3)


def test_retries_are_counted() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.steps.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 3)
        delivery = await producer.send("t", b"a")
        with pytest.raises(BrokerRefused, match="NOT_ENOUGH_REPLICAS"):
            await delivery
        assert len(log.requests) == 3
        assert (await (await producer.send("t", b"b"))).offset == 0

    told(story, retries=2)


def test_a_leader_that_moved_is_found() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"a"))
        cluster.lead(T0, 1, 1)
        cluster.broker(0).on(
            ProduceRequest,
            lambda request, _: _answer(request, cluster, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        )
        assert (await (await producer.send("t", b"b"))).offset == 1
        assert len(cluster.broker(1).requests(ProduceRequest)) == 1

    told(story, brokers=2)


def _answer(
    request: ProduceRequest, cluster: ScriptedCluster, code: int, **fields: object
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=row.index,
                        error_code=code,
                        **fields,  # type: ignore[arg-type]
                    )
                    for row in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.batch_records_max = 3
        deliveries = [await producer.send("t", b"%d" % number) for number in range(20)]
        places = [(await delivery).offset for delivery in deliveries]
        assert places == list(range(20))
        assert log.records[T0] == [b"%d" % number for number in range(20)]

    told(story, linger_ms=20)


def test_a_single_record_that_is_too_large_fails_alone() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.steps.append(Refuse(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(MessageTooLarge):
            await (await producer.send("t", b"a"))
        assert (await (await producer.send("t", b"b"))).offset == 0

    told(story)


def test_only_the_records_that_a_broker_names_are_at_fault() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        wrong = BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
        cluster.broker().on(
            ProduceRequest,
            lambda request, _: _answer(
                request, cluster, ErrorCode.INVALID_RECORD, record_errors=[wrong]
            ),
        )
        deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
        errors = []
        for delivery in deliveries:
            with pytest.raises(BrokerRefused) as raised:
                await delivery
            errors.append(str(raised.value))
        assert "no key" in errors[1]
        assert "another record" in errors[0] == errors[2]

    told(story, linger_ms=20)


def test_a_duplicate_that_the_broker_has_forgotten_counts_as_written() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        log.steps.append(Refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        assert (await (await producer.send("t", b"a"))).offset == -1

    told(story)


def test_a_broker_that_forgot_the_producer_gets_the_records_under_a_new_epoch() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"a"))
        log.steps.append(Refuse(ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=0))
        assert (await (await producer.send("t", b"b"))).offset == 1
        assert [header.producer_epoch for header in log.headers[T0]] == [0, 1]

    told(story)


# Time


def test_delivery_timeout_holds_for_records_that_cannot_be_sent() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        await cluster.broker().stop()
        began = time.monotonic()
        delivery = await producer.send("t", b"a")
        with pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
            await delivery
        assert 2.0 <= time.monotonic() - began < 2.1 + BUSY_S
        assert producer.accumulator.pool.available_bytes == producer.accumulator.pool.total_bytes

    told(story, delivery_timeout_ms=2000, request_timeout_ms=1900)


# What a busy machine may add to a time limit; on a quiet one it is a few milliseconds.
BUSY_S = 30.0


def test_delivery_timeout_holds_for_records_that_are_not_answered() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        began = time.monotonic()
        with pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
            await (await producer.send("t", b"a"))
        assert 2.0 <= time.monotonic() - began < 2.1 + BUSY_S

    told(story, delivery_timeout_ms=2000, request_timeout_ms=2000)


def test_after_a_batch_that_expired_in_flight_the_next_is_written_under_a_new_epoch() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        with pytest.raises(RequestTimedOut):
            await (await producer.send("t", b"lost"))
        assert (await (await producer.send("t", b"next"))).offset == 1
        assert log.records[T0] == [b"first", b"next"]
        assert log.headers[T0][-1].producer_epoch == 1

    told(story, delivery_timeout_ms=2000, request_timeout_ms=2000)


def test_a_request_that_is_not_answered_is_sent_again_on_another_connection() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        assert (await (await producer.send("t", b"a"))).offset == 1

    told(story, request_timeout_ms=1000)


def test_buffer_memory_makes_send_wait_and_max_block_bounds_that() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        for _ in range(2):
            await producer.send("t", b"x" * 800)
        began = time.monotonic()
        with pytest.raises(BufferExhausted, match=r"buffer\.memory=2000"):
            await producer.send("t", b"x" * 800)
        assert 0.3 <= time.monotonic() - began < 0.4 + BUSY_S
        await producer.close(timeout=0)

    told(
        story,
        batch_size=1000,
        buffer_memory=2000,
        max_block_ms=300,
        delivery_timeout_ms=20_000,
        request_timeout_ms=20_000,
    )


def test_send_goes_on_when_there_is_room_again() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        for number in range(100):
            await producer.send("t", b"%d" % number + b"x" * 800)
        await producer.flush()
        assert len(log.records[T0]) == 100
        assert producer.accumulator.pool.available_bytes == 2000

    told(story, batch_size=1000, buffer_memory=2000)


def test_a_topic_that_does_not_come_into_being_is_waited_for_max_block_ms() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        began = time.monotonic()
        with pytest.raises(UnknownTopic):
            await producer.send("nowhere", b"a")
        assert 0.2 <= time.monotonic() - began < 0.3 + BUSY_S

    told(story, max_block_ms=200)


def test_a_partition_that_is_not_there_is_waited_for_max_block_ms() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        with pytest.raises(RequestTimedOut, match="partition 3 of topic t is not there"):
            await producer.send("t", b"a", partition=3)
        cluster.topics["t"] = 4
        assert (await (await producer.send("t", b"a", partition=3))).partition == 3

    told(story, max_block_ms=200)


def test_a_topic_that_a_send_creates_is_used() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        cluster.creates_topics = True
        assert (await (await producer.send("new", b"a"))).topic == "new"

    told(story)


def test_a_broker_that_asks_for_a_pause_gets_it() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        def throttled(request: ProduceRequest, _: int) -> ProduceResponse:
            answer = _answer(request, cluster, 0)
            answer.throttle_time_ms = 200
            return answer

        cluster.broker().on(ProduceRequest, throttled)
        await (await producer.send("t", b"a"))
        began = time.monotonic()
        await (await producer.send("t", b"b"))
        assert time.monotonic() - began >= 0.19

    told(story)


# Flush and close


def test_flush_waits_for_what_was_sent_before() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(10)]
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)

    told(story, linger_ms=60_000, delivery_timeout_ms=120_000)


def test_flush_gives_up_when_its_time_is_over() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        await producer.send("t", b"a")
        with pytest.raises(RequestTimedOut, match="flush: 1 batches"):
            await producer.flush(timeout=0.1)
        await producer.close(timeout=0)

    told(story)


def test_close_sends_what_is_there() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        delivery = await producer.send("t", b"a")
        await producer.close()
        assert (await delivery).offset == 0
        with pytest.raises(Closed):
            await producer.send("t", b"b")
        with pytest.raises(Closed):
            await producer.send("other", b"b")
        await producer.close()

    told(story, linger_ms=60_000, delivery_timeout_ms=120_000)


def test_close_with_a_time_limit_fails_what_is_left() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        await (await producer.send("t", b"first"))
        log.steps.append(NoAnswer())
        delivery = await producer.send("t", b"a")
        began = time.monotonic()
        await producer.close(timeout=0.2)
        assert time.monotonic() - began < 0.3 + BUSY_S
        with pytest.raises(Closed):
            await delivery

    told(story)


# What a user may get wrong


def test_values_must_be_bytes_or_be_serialized() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        with pytest.raises(Serialization, match="value_serializer"):
            await producer.send("t", "text")
        with pytest.raises(Serialization, match="key_serializer"):
            await producer.send("t", b"v", key=5)
        with pytest.raises(Serialization, match="header"):
            await producer.send("t", b"v", headers=[(b"name", b"v")])  # type: ignore[list-item]
        with pytest.raises(Serialization, match="timestamp"):
            await producer.send("t", b"v", timestamp=-5)
        with pytest.raises(InvalidRow, match="partition -1"):
            await producer.send("t", b"v", partition=-1)
        await (await producer.send("t", bytearray(b"v"), headers={"a": memoryview(b"1")}))

    told(story)


def test_serializers_are_called_once_a_record() -> None:
    calls: list[object] = []

    def text(value: str) -> bytes:
        calls.append(value)
        return value.encode()

    async def whole() -> None:
        async with ScriptedCluster(1, {"t": 1}) as cluster:
            log = ScriptedLog()
            log.serve(cluster.broker())
            async with AsyncProducer(
                bootstrap_servers=cluster.bootstrap, key_serializer=text, value_serializer=text
            ) as producer:
                await (await producer.send("t", "value", key="key"))
        assert calls == ["value", "key"]
        assert log.records[T0] == [b"value"]

    run(whole)


# Old brokers and other versions


def versions_up_to(produce: int, **others: int) -> dict[ApiKey, tuple[int, int]]:
    offered = {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
    offered[ApiKey.PRODUCE] = (0, produce)
    for name, version in others.items():
        offered[ApiKey[name.upper()]] = (0, version)
    return offered


def test_a_broker_of_0_10_gets_messages_of_its_format() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        seen: list[tuple[bytes | None, bytes | None, int]] = []

        def write(request: ProduceRequest, version: int) -> ProduceResponse:
            assert version == 2
            for message in read_messages(request.topic_data[0].partition_data[0].records):
                message.require_valid()
                seen.append((*message.key_and_value(), message.timestamp))
            return _answer(request, cluster, 0, base_offset=5)

        cluster.broker().on(ProduceRequest, write)
        first = await producer.send("t", b"a", key=b"k", timestamp=77)
        second = await producer.send("t", None, key=b"k", timestamp=78)
        assert ((await first).offset, (await second).offset) == (5, 6)
        assert seen == [(b"k", b"a", 77), (b"k", None, 78)]

    told(
        story,
        versions=versions_up_to(2, metadata=2),
        enable_idempotence=False,
        linger_ms=20,
    )


def test_an_idempotent_producer_needs_0_11() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        delivery = await producer.send("t", b"a")
        with pytest.raises(UnsupportedByBroker, match="INIT_PRODUCER_ID"):
            await delivery

    offered = versions_up_to(2, metadata=2)
    del offered[ApiKey.INIT_PRODUCER_ID]
    told(story, versions=offered)


def test_zstd_needs_2_1() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        with pytest.raises(UnsupportedByBroker, match=r"compression\.type=zstd"):
            await (await producer.send("t", b"a"))

    told(story, versions=versions_up_to(6), compression_type="zstd", enable_idempotence=False)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written(codec: str) -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        for number in range(50):
            await producer.send("t", b"value %d" % number)
        await producer.flush()
        assert log.records[T0] == [b"value %d" % number for number in range(50)]

    told(story, compression_type=codec, linger_ms=20)


def test_with_acks_0_nobody_waits_for_an_answer() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        def silent(request: ProduceRequest, _: int) -> Raw:
            assert request.acks == 0
            return Raw(b"")

        cluster.broker().on(ProduceRequest, silent)
        for number in range(20):
            place = await (await producer.send("t", b"%d" % number))
            assert place.offset == -1
        async with asyncio.timeout(30):
            while len(cluster.broker().requests(ProduceRequest)) < 20:
                await asyncio.sleep(0.01)
        assert cluster.broker().connections <= 2

    told(story, acks=0)


# Lies


@pytest.mark.parametrize(
    "lie",
    [
        lambda request, _: Misnumbered(ProduceResponse()),
        lambda request, _: Raw(b"\xff\xff\xff\xff\0\0"),
        lambda request, _: Raw(b"\0\0\0\x08\0\0\0\x05\xde\xad\xbe\xef"),
        lambda request, _: ProduceResponse(),
    ],
    ids=["wrong number", "negative size", "no answer at all", "without the partition"],
)
def test_an_answer_that_is_a_lie_is_followed_by_another_try(
    lie: Callable[[ProduceRequest, int], object],
) -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        honest = cluster.broker()._scripts[ProduceRequest.API_KEY][0]
        cluster.broker().on(ProduceRequest, lie, lie, honest)  # type: ignore[arg-type]
        assert (await (await producer.send("t", b"a"))).offset == 0

    told(story)


def test_a_broker_that_lies_for_ever_is_given_up_in_time() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        cluster.broker().on(ProduceRequest, Raw(b"\x7f\xff\xff\xff"))
        began = time.monotonic()
        with pytest.raises(RequestTimedOut):
            await (await producer.send("t", b"a"))
        assert time.monotonic() - began < 0.6 + BUSY_S

    told(story, delivery_timeout_ms=500, request_timeout_ms=400)


class SkippingClock:
    """Goes on as the system's does, some time ahead of it."""

    skipped_s = 0.0

    def time_ms(self) -> int:
        return SystemClock().time_ms()

    def monotonic(self) -> float:
        return SystemClock().monotonic() + self.skipped_s


@pytest.mark.parametrize(
    "answer",
    [Raw(b"\x7f\xff\xff\xff"), HangUp(), Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["unreadable", "none", "refused"],
)
def test_a_problem_that_might_pass_is_a_timeout_once_no_time_is_left(
    answer: Raw | HangUp | Refuse,
) -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        honest = cluster.broker()._scripts[ProduceRequest.API_KEY][0]

        def late(request: ProduceRequest, version: int) -> object:
            clock.skipped_s = 60.0  # time is up, and the answer is there before any timer
            if isinstance(answer, Refuse):
                log.steps.append(answer)
                return honest(request, version)  # type: ignore[operator]
            return answer

        await (await producer.send("t", b"first"))
        cluster.broker().on(ProduceRequest, late)  # type: ignore[arg-type]
        with pytest.raises(RequestTimedOut, match=r"delivery\.timeout\.ms"):
            await (await producer.send("t", b"a"))

    clock = SkippingClock()
    told(story, clock=clock, delivery_timeout_ms=60_000)


def test_a_producer_id_that_never_comes_does_not_hold_records_for_ever() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        cluster.broker().on(InitProducerIdRequest, HangUp())
        with pytest.raises(RequestTimedOut):
            await (await producer.send("t", b"a"))

    told(story, delivery_timeout_ms=400, request_timeout_ms=300)


def test_a_producer_without_the_right_to_an_id_says_so_and_may_get_it_later() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        granted = cluster.broker()._scripts[InitProducerIdRequest.API_KEY][0]
        cluster.broker().on(InitProducerIdRequest, InitProducerIdResponse(error_code=code), granted)
        with pytest.raises(NotAuthorized):
            await (await producer.send("t", b"a"))
        assert (await (await producer.send("t", b"b"))).offset == 0

    told(story)


def test_metadata_that_names_a_listener_out_of_reach_is_told_of() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        cluster.lead(T0, 1, 1)
        await cluster.broker(1).stop()
        delivery = await producer.send("t", b"a")
        with pytest.raises(RequestTimedOut, match="cannot connect"):
            await delivery

    told(story, brokers=2, delivery_timeout_ms=500, request_timeout_ms=400)


def test_nobody_there_at_all_is_told_within_max_block_ms() -> None:
    async def whole() -> None:
        async with AsyncProducer(
            bootstrap_servers="127.0.0.1:1", max_block_ms=200, reconnect_backoff_ms=10
        ) as producer:
            with pytest.raises((RequestTimedOut, ConnectionFailed)):
                await producer.send("t", b"a")

    run(whole)


# Compression in threads


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_large_compressed_batches_arrive_whole_and_in_order(codec: str) -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        values = [b"%06d" % number * 50_000 for number in range(6)]
        deliveries = [await producer.send("t", value) for value in values]
        assert [(await delivery).offset for delivery in deliveries] == list(range(6))
        assert log.records[T0] == values

    told(story, compression_type=codec, batch_size=400_000)


def test_a_batch_that_cannot_be_compressed_fails_at_once() -> None:
    async def story(cluster: ScriptedCluster, log: ScriptedLog, producer: AsyncProducer) -> None:
        def fail(*_: object) -> bytearray:
            raise MemoryError

        threads = producer._compression_threads

        class FailingAtFirst(ThreadPoolExecutor):
            def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
                threads._executor = None
                return super().submit(fail)  # type: ignore[arg-type]

        threads._executor = FailingAtFirst(1)
        with pytest.raises(ClientError, match="MemoryError"):
            await (await producer.send("t", b"x" * 400_000))
        await (await producer.send("t", b"y" * 400_000))
        assert log.records[T0] == [b"y" * 400_000]

    told(story, compression_type="gzip")
