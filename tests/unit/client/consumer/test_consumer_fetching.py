"""The consumer against brokers that answer as a test says: positions, leaders, replicas, lies."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.batches import simple_batch, with_fields, with_payload_bytes
from tests.support.scripted_broker import HangUp, Late, Misnumbered, ScriptedCluster, Torn
from tidelog.client.consumer.consumer import AsyncConsumer
from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CorruptRecordsFetched,
    LogTruncation,
    NotAuthorized,
    UnsupportedByBroker,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.fetch import (
    EpochEndOffset as DivergingEpoch,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.record.batch import Codec
from tidelog.record.compression import compress
from tidelog.record.legacy import encode_message
from tidelog.types import TopicPartition

TP = TopicPartition("t", 0)
WITHIN_S = 30.0
MARKER_BITS = 0x30  # a control batch of a transaction


class Log:
    """What a scripted broker holds of the only partition: batches of two records each."""

    def __init__(self, cluster: ScriptedCluster, batches: int, *, epoch: int = 0) -> None:
        self.cluster = cluster
        self.batches = [batch_at(2 * number, epoch) for number in range(batches)]
        self.asked: list[tuple[int, int, int]] = []  # broker, offset, last fetched epoch
        self.session_id = 0

    @property
    def end(self) -> int:
        return 2 * len(self.batches)

    def row(self, offset: int, **fields: Any) -> PartitionData:
        records = b"".join(self.batches[offset // 2 : offset // 2 + 1])
        return PartitionData(
            partition_index=0, high_watermark=self.end, records=records or None, **fields
        )

    def answer(self, *rows: PartitionData, error_code: int = 0) -> FetchResponse:
        topic = FetchableTopicResponse(topic_id=self.cluster.topic_ids["t"], partitions=list(rows))
        return FetchResponse(
            error_code=error_code,
            session_id=self.session_id,
            responses=[topic] if rows else [],
        )

    def serve(self, node_id: int) -> Callable[[FetchRequest, int], FetchResponse]:
        def fetch(request: FetchRequest, version: int) -> FetchResponse:
            asked = [row for topic in request.topics for row in topic.partitions]
            for row in asked:
                self.asked.append((node_id, row.fetch_offset, row.last_fetched_epoch))
            return self.answer(*(self.row(row.fetch_offset) for row in asked))

        return fetch


def batch_at(offset: int, epoch: int = 0) -> bytes:
    return bytes(simple_batch(2, base_offset=offset, leader_epoch=epoch))


def offsets_answer(offset: int, code: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(
        partition_index=0, error_code=code, offset=offset, leader_epoch=0
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


def epoch_answer(epoch: int, end_offset: int) -> OffsetForLeaderEpochResponse:
    row = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_offset)
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic="t", partitions=[row])]
    )


@asynccontextmanager
async def reading(cluster: ScriptedCluster, **settings: object) -> AsyncIterator[AsyncConsumer]:
    config: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap,
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 10,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 20,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "request.timeout.ms": 5_000,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    async with AsyncConsumer(config) as consumer:
        yield consumer


async def read(consumer: AsyncConsumer, count: int) -> list[int]:
    offsets: list[int] = []
    async with asyncio.timeout(WITHIN_S):
        while len(offsets) < count:
            offsets += [record.offset for record in await consumer.poll(0.2)]
    return offsets


def scripted(brokers: int = 1, **options: Any) -> ScriptedCluster:
    return ScriptedCluster(brokers, topics={"t": 1}, **options)


def test_fetches_go_on_where_the_last_answer_ended() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 5, epoch=3)
            cluster.lead(TP, 0, 3)
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 1)
                assert await read(consumer, 9) == list(range(1, 10))
            assert log.asked[:3] == [(0, 1, -1), (0, 2, 3), (0, 4, 3)]

    asyncio.run(story())


async def records_polled(consumer: AsyncConsumer) -> list[int]:
    return [record.offset for record in await consumer.poll(0.2)]


async def batches_polled(consumer: AsyncConsumer) -> list[int]:
    return [batch.base_offset for batch in await consumer.poll_batches(0.2)]


async def columns_polled(consumer: AsyncConsumer) -> list[int]:
    found: list[int] = (await consumer.poll_arrow(0.2)).column("offset").to_pylist()
    return found


@pytest.mark.parametrize("polled", [records_polled, batches_polled, columns_polled])
def test_an_answer_of_markers_alone_moves_the_position(
    polled: Callable[[AsyncConsumer], Awaitable[list[int]]],
) -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 4)
            for number in (1, 3):
                markers = with_fields(bytearray(log.batches[number]), attributes=MARKER_BITS)
                log.batches[number] = bytes(markers)
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                seen: list[int] = []
                async with asyncio.timeout(WITHIN_S):
                    while await consumer.position(TP) != log.end:
                        seen += await polled(consumer)
            assert seen[0] == 0
            assert not {2, 3, 6, 7} & set(seen)

    asyncio.run(story())


def test_no_more_than_two_answers_of_a_partition_wait_to_be_read() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 50)
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert len(await consumer.poll(WITHIN_S, max_records=1)) == 1
                for _ in range(20):
                    await asyncio.sleep(0.005)
                assert max(offset for _, offset, _ in log.asked) <= 4
                assert await read(consumer, 99) == list(range(1, 100))

    asyncio.run(story())


def test_a_connection_lost_in_mid_answer_repeats_and_skips_nothing() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 4)
            serve = log.serve(0)

            def torn(request: FetchRequest, version: int) -> Torn:
                return Torn(serve(request, version), 40)

            def misnumbered(request: FetchRequest, version: int) -> Misnumbered:
                return Misnumbered(serve(request, version))

            cluster.broker().on(
                FetchRequest, serve, torn, serve, HangUp(), misnumbered, serve, serve
            )
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 8) == list(range(8))

    asyncio.run(story())


def test_a_new_leader_confirms_the_position_before_it_is_read_from() -> None:
    async def story() -> None:
        async with scripted(2) as cluster:
            log = Log(cluster, 4, epoch=1)
            cluster.lead(TP, 0, 1)
            cluster.broker(0).on(FetchRequest, log.serve(0))
            cluster.broker(1).on(FetchRequest, log.serve(1))
            cluster.broker(1).on(OffsetForLeaderEpochRequest, epoch_answer(1, 8))
            async with reading(cluster, metadata_max_age_ms=50) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert len(await consumer.poll(WITHIN_S, max_records=4)) > 0
                seen = await consumer.position(TP)
                cluster.lead(TP, 1, 2)
                cluster.broker(0).on(
                    FetchRequest,
                    lambda request, version: log.answer(
                        PartitionData(
                            partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                        )
                    ),
                )
                assert await read(consumer, 8 - seen) == list(range(seen, 8))
            (asked, *_) = cluster.broker(1).requests(OffsetForLeaderEpochRequest)
            row = asked.topics[0].partitions[0]
            assert (row.current_leader_epoch, row.leader_epoch) == (2, 1)

    asyncio.run(story())


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_log_that_was_truncated_is_read_from_where_it_parts_or_an_error(reset: str) -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 4, epoch=2)
            cluster.lead(TP, 0, 2)
            cluster.broker().on(FetchRequest, log.serve(0))
            cluster.broker().on(OffsetForLeaderEpochRequest, epoch_answer(1, 2))
            async with reading(cluster, auto_offset_reset=reset) as consumer:
                await consumer.partitions_for("t")
                consumer.assign([TP])
                consumer.seek(TP, OffsetAndMetadata(6, 1))
                if reset == "none":
                    with pytest.raises(LogTruncation, match="offset 2"):
                        await read(consumer, 1)
                else:
                    assert await read(consumer, 6) == list(range(2, 8))

    asyncio.run(story())


def test_an_answer_with_a_diverging_epoch_goes_back_to_where_the_log_parts() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 4, epoch=1)
            cluster.lead(TP, 0, 1)
            serve = log.serve(0)
            diverging = log.answer(
                PartitionData(
                    partition_index=0,
                    high_watermark=8,
                    diverging_epoch=DivergingEpoch(epoch=1, end_offset=2),
                )
            )
            cluster.broker().on(FetchRequest, serve, serve, diverging, serve)
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                first = await read(consumer, 4)
                assert first == [0, 1, 2, 3]
                assert await read(consumer, 6) == list(range(2, 8))

    asyncio.run(story())


def test_another_replica_is_read_while_the_leader_prefers_it() -> None:
    async def story() -> None:
        async with scripted(2) as cluster:
            log = Log(cluster, 3)
            cluster.lead(TP, 0, 0)
            cluster.broker(0).on(
                FetchRequest,
                lambda request, version: (
                    log.answer(
                        PartitionData(partition_index=0, high_watermark=6, preferred_read_replica=1)
                    )
                    if request.topics
                    else log.answer()
                ),
            )
            cluster.broker(1).on(FetchRequest, log.serve(1))
            async with reading(cluster, client_rack="here") as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 6) == list(range(6))
            assert cluster.broker(0).requests(FetchRequest)[0].rack_id == "here"
            assert {node for node, _, _ in log.asked} == {1}

    asyncio.run(story())


def test_a_follower_that_is_behind_sends_the_reader_back_to_the_leader() -> None:
    async def story() -> None:
        async with scripted(2) as cluster:
            log = Log(cluster, 2)
            cluster.lead(TP, 0, 0)
            prefer = log.answer(
                PartitionData(partition_index=0, high_watermark=4, preferred_read_replica=1)
            )
            behind = log.answer(
                PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            )
            cluster.broker(0).on(FetchRequest, prefer, log.serve(0))
            cluster.broker(1).on(
                FetchRequest,
                lambda request, version: behind if request.topics else log.answer(),
            )
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 4) == list(range(4))

    asyncio.run(story())


def test_a_reset_is_tried_again_until_the_leader_answers() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 2)
            cluster.broker().on(FetchRequest, log.serve(0))
            cluster.broker().on(
                ListOffsetsRequest,
                offsets_answer(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                HangUp(),
                offsets_answer(2),
            )
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                assert await read(consumer, 2) == [2, 3]

    asyncio.run(story())


def test_an_answer_to_a_fetch_before_a_seek_is_dropped() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 10)
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                await read(consumer, 2)
                consumer.seek(TP, 15)
                assert await read(consumer, 5) == list(range(15, 20))

    asyncio.run(story())


def broken_checksum(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.parametrize(
    "damaged",
    [
        broken_checksum(batch_at(2)),
        b"\xff" * 100,
        batch_at(2) + batch_at(2),
        batch_at(0),
    ],
    ids=["checksum", "no batch", "twice", "before the position"],
)
def test_damaged_records_are_an_error_once_everything_before_is_read(damaged: bytes) -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 3)
            log.batches[1] = damaged
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 2) == [0, 1]
                with pytest.raises(CorruptRecordsFetched, match="t-0"):
                    await consumer.poll(WITHIN_S)
                assert await consumer.position(TP) == 2
                consumer.seek(TP, 4)
                assert await read(consumer, 2) == [4, 5]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (ErrorCode.CORRUPT_MESSAGE, BrokerRefused),
        (ErrorCode.INVALID_REQUEST, BrokerRefused),
    ],
)
def test_a_refusal_is_raised_and_the_partition_can_be_read_again(
    code: ErrorCode, raised: type[ClientError]
) -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 2)
            refusal = log.answer(PartitionData(partition_index=0, error_code=code))
            cluster.broker().on(FetchRequest, refusal, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                with pytest.raises(raised):
                    await consumer.poll(WITHIN_S)
                assert await read(consumer, 4) == list(range(4))

    asyncio.run(story())


def test_a_partition_that_nobody_asked_for_is_not_taken() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 2)
            foreign = log.row(0)
            foreign.partition_index = 7
            cluster.broker().on(FetchRequest, log.answer(foreign), log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 4) == list(range(4))

    asyncio.run(story())


@pytest.mark.parametrize("version", [2, 4, 7, 11, 12, 13, 18])
def test_every_version_of_fetch_is_spoken(version: int) -> None:
    async def story() -> None:
        ranges = {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
        ranges[ApiKey.FETCH] = (0, version)
        async with scripted(versions=ranges) as cluster:
            log = Log(cluster, 3)

            def fetch(request: FetchRequest, spoken: int) -> FetchResponse:
                assert spoken == version
                asked = [row for topic in request.topics for row in topic.partitions]
                response = log.answer(*(log.row(row.fetch_offset) for row in asked))
                if spoken < 13:
                    for topic in response.responses:
                        topic.topic, topic.topic_id = "t", type(topic)().topic_id
                return response

            cluster.broker().on(FetchRequest, fetch)
            async with reading(cluster, isolation_level="read_committed") as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 6) == list(range(6))

    asyncio.run(story())


def test_a_poll_that_is_cancelled_loses_nothing() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 20)
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                offsets: list[int] = []
                async with asyncio.timeout(WITHIN_S):
                    while len(offsets) < 40:
                        poll = asyncio.ensure_future(consumer.poll(1.0, max_records=3))
                        await asyncio.sleep(0)
                        poll.cancel()
                        (outcome,) = await asyncio.gather(poll, return_exceptions=True)
                        if isinstance(outcome, list):
                            offsets += [record.offset for record in outcome]
                        offsets += [record.offset for record in await consumer.poll(0.1)]
                assert offsets == list(range(40))

    asyncio.run(story())


def test_a_broker_without_a_usable_fetch_is_told_of_by_every_poll() -> None:
    async def story() -> None:
        versions = {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
        versions[ApiKey.FETCH] = (90, 91)
        async with scripted(versions=versions) as cluster, reading(cluster) as consumer:
            consumer.assign([TP])
            for _ in range(3):
                consumer.seek(TP, 0)
                with pytest.raises(UnsupportedByBroker, match="FETCH"):
                    await consumer.poll(WITHIN_S)

    asyncio.run(story())


async def read_and_disconnected(
    cluster: ScriptedCluster, consumer: AsyncConsumer, log: Log
) -> asyncio.Event:
    """Two records are read, and the consumer connects anew to the leader, broker 0, which answers
    once the event is set. Broker 1 goes on telling metadata."""
    leader = cluster.broker(0)
    leader.on(FetchRequest, log.serve(0))
    consumer.assign([TP])
    consumer.seek(TP, 0)
    assert await read(consumer, 2) == [0, 1]
    is_back = asyncio.Event()
    leader.on(ApiVersionsRequest, lambda _, version: Late(is_back, leader.offered(version)))
    before = leader.connections
    leader.hang_up()
    async with asyncio.timeout(WITHIN_S):
        while leader.connections == before:
            await asyncio.sleep(0.005)
    return is_back


def test_nothing_is_skipped_if_the_epoch_moves_while_the_consumer_connects() -> None:
    async def story() -> None:
        async with scripted(2) as cluster, reading(cluster, metadata_max_age_ms=20) as consumer:
            log = Log(cluster, 1)
            is_back = await read_and_disconnected(cluster, consumer, log)
            cluster.lead(TP, 0, 1)
            is_confirmed = asyncio.Event()
            answer = Late(is_confirmed, epoch_answer(0, 2))
            cluster.broker(0).on(OffsetForLeaderEpochRequest, answer)
            log.batches += [batch_at(2, 1), batch_at(4, 1)]
            for _ in range(10):
                assert await consumer.poll(0.02) == []
            is_back.set()
            for _ in range(10):
                assert await consumer.poll(0.02) == []
            is_confirmed.set()
            assert await read(consumer, 4) == [2, 3, 4, 5]

    asyncio.run(story())


def test_fetching_survives_a_position_that_is_given_up_while_the_consumer_connects() -> None:
    async def story() -> None:
        async with scripted(2) as cluster, reading(cluster) as consumer:
            log = Log(cluster, 2)
            is_back = await read_and_disconnected(cluster, consumer, log)
            cluster.broker(0).on(ListOffsetsRequest, offsets_answer(0))
            consumer.seek_to_beginning([TP])
            is_back.set()
            assert await read(consumer, 4) == [0, 1, 2, 3]

    asyncio.run(story())


def test_a_decompression_bomb_is_an_error_and_not_a_gigabyte() -> None:
    """100 MB are the most that a batch may become."""
    zeros = zlib.compressobj(1, wbits=31)
    bomb = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(160)) + zeros.flush()
    header = with_fields(simple_batch(2, base_offset=2), attributes=int(Codec.GZIP))

    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 3)
            log.batches[1] = bytes(with_payload_bytes(header, bomb))
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                assert await read(consumer, 2) == [0, 1]
                with pytest.raises(CorruptRecordsFetched, match="offset 2"):
                    await consumer.poll(WITHIN_S)
                consumer.seek(TP, 4)
                assert await read(consumer, 2) == [4, 5]

    asyncio.run(story())


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_old_formats_are_read(magic: int, codec: Codec) -> None:
    def messages(first: int) -> bytes:
        rows = [
            encode_message(magic, first + index, 1_000 + index, b"k", b"v%d" % (first + index))
            for index in range(2)
        ]
        if codec is Codec.NONE:
            return b"".join(rows)
        inner = b"".join(
            encode_message(magic, index if magic else first + index, 1_000, b"k", b"v%d" % index)
            for index in range(2)
        )
        value = compress(codec, inner, magic=magic)
        return encode_message(magic, first + 1, 1_001, None, value, int(codec))

    async def story() -> None:
        async with scripted() as cluster:
            log = Log(cluster, 2)
            log.batches = [messages(0), messages(2)]
            cluster.broker().on(FetchRequest, log.serve(0))
            async with reading(cluster) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 1)
                assert await read(consumer, 3) == [1, 2, 3]

    asyncio.run(story())
