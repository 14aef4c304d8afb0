"""A consumer in groups whose coordinator answers as a test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.scripted_broker import HangUp, NoAnswer, ScriptedCluster
from tidelog.client.consumer.assignors.assignor import Assignment, Subscription
from tidelog.client.consumer.assignors.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.consumer.consumer import AsyncConsumer
from tidelog.client.consumer.rebalance_listener import RebalanceListener
from tidelog.client.errors import NotAuthorized, RequestTimedOut, UnsupportedByBroker
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment as HeartbeatAssignment,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.types import TopicPartition

WITHIN_S = 30.0


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.entries: list[str] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("assigned " + ", ".join(map(str, partitions)))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("revoked " + ", ".join(map(str, partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.entries.append("lost " + ", ".join(map(str, partitions)))


def joined(generation_id: int, member_id: str = "m") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id,
        member_id=member_id,
        leader="somebody",
        protocol_type="consumer",
        protocol_name="range",
    )


def synced(*partitions: int) -> SyncGroupResponse:
    assignment = Assignment([TopicPartition("t", index) for index in partitions])
    return SyncGroupResponse(
        protocol_type="consumer", protocol_name="range", assignment=encode_assignment(assignment)
    )


def committed(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=row.partition_index)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def begins(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=0)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def empty_fetch(cluster: ScriptedCluster) -> None:
    for broker in cluster.brokers.values():
        broker.on(FetchRequest, FetchResponse())
        broker.on(ListOffsetsRequest, begins)
        broker.on(
            OffsetFetchRequest, OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")])
        )
        broker.on(HeartbeatRequest, HeartbeatResponse())
        broker.on(LeaveGroupRequest, LeaveGroupResponse())
        broker.on(OffsetCommitRequest, committed)


@asynccontextmanager
async def member(cluster: ScriptedCluster, **settings: object) -> AsyncIterator[AsyncConsumer]:
    await empty_fetch(cluster)
    config: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 20,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "fetch.max.wait.ms": 50,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    if settings.get("group_protocol") != "consumer":
        config = {"heartbeat.interval.ms": 30, "session.timeout.ms": 3_000, **config}
    async with AsyncConsumer(config) as consumer:
        yield consumer


async def until(consumer: AsyncConsumer, holds: Any) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await consumer.poll(0.02)


def scripted(brokers: int = 1, **options: Any) -> ScriptedCluster:
    return ScriptedCluster(brokers, topics={"t": 2}, **options)


def test_a_member_joins_with_the_id_it_is_given() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            async with member(cluster) as consumer:
                broker.on(
                    JoinGroupRequest,
                    JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given"),
                    joined(1, "given"),
                )
                broker.on(SyncGroupRequest, synced(0))
                consumer.subscribe(["t"])
                await until(consumer, consumer.assignment)
                assert consumer.assignment() == {TopicPartition("t", 0)}
                assert consumer.group_metadata()[:3] == ("g", 1, "given")
            first, second = broker.requests(JoinGroupRequest)
            assert (first.member_id, second.member_id) == ("", "given")
            assert [row.name for row in first.protocols] == ["range", "cooperative-sticky"]
            (leave,) = broker.requests(LeaveGroupRequest)
            assert leave.members[0].member_id == "given"

    asyncio.run(story())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_may_close_without_leaving_its_group(protocol: str) -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            diary = Diary()
            broker.on(ConsumerGroupHeartbeatRequest, heartbeat(cluster, 5, 0))
            settings = {"group_protocol": protocol, "internal_leave_group_on_close": False}
            async with member(cluster, **settings) as consumer:
                broker.on(JoinGroupRequest, joined(1))
                broker.on(SyncGroupRequest, synced(0))
                consumer.subscribe(["t"], listener=diary)
                await until(consumer, consumer.assignment)
            assert diary.entries == ["assigned t-0"]
            assert not broker.requests(LeaveGroupRequest)
            heartbeats = broker.requests(ConsumerGroupHeartbeatRequest)
            assert all(row.member_epoch >= 0 for row in heartbeats)

    asyncio.run(story())


def test_a_member_that_stays_on_close_leaves_when_it_unsubscribes() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            async with member(cluster, internal_leave_group_on_close=False) as consumer:
                broker.on(JoinGroupRequest, joined(1))
                broker.on(SyncGroupRequest, synced(0))
                consumer.subscribe(["t"])
                await until(consumer, consumer.assignment)
                await consumer.unsubscribe()
            assert len(broker.requests(LeaveGroupRequest)) == 1

    asyncio.run(story())


@pytest.mark.parametrize("must_be_stable", [False, True])
def test_a_broker_that_gives_offsets_of_open_transactions_may_be_an_error(
    must_be_stable: bool,
) -> None:
    async def story() -> None:
        ranges = {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
        ranges[ApiKey.OFFSET_FETCH] = (1, 6)
        settings = {"internal_throw_on_fetch_stable_offset_unsupported": must_be_stable}
        async with (
            scripted(versions=ranges) as cluster,
            member(cluster, **settings) as consumer,
        ):
            cluster.broker().on(OffsetFetchRequest, OffsetFetchResponse())
            committed = consumer.committed([TopicPartition("t", 0)])
            if must_be_stable:
                with pytest.raises(UnsupportedByBroker, match="OFFSET_FETCH in versions 1 to 6"):
                    await committed
            else:
                assert await committed == {TopicPartition("t", 0): None}

    asyncio.run(story())


def test_the_leader_assigns_for_everybody() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            others = encode_subscription(Subscription(["t"]))

            def lead(request: JoinGroupRequest, version: int) -> JoinGroupResponse:
                response = joined(1, "a")
                response.leader = "a"
                response.members = [
                    JoinGroupResponseMember(
                        member_id="a", metadata=bytes(request.protocols[0].metadata)
                    ),
                    JoinGroupResponseMember(member_id="b", metadata=others),
                ]
                return response

            async with member(cluster) as consumer:
                broker.on(JoinGroupRequest, lead)
                broker.on(SyncGroupRequest, synced(0))
                consumer.subscribe(["t"])
                await until(consumer, consumer.assignment)
            (sync,) = broker.requests(SyncGroupRequest)
            shares = {
                row.member_id: list(decode_assignment(bytes(row.assignment)).partitions)
                for row in sync.assignments
            }
            assert shares == {"a": [TopicPartition("t", 0)], "b": [TopicPartition("t", 1)]}
            sent = broker.requests(JoinGroupRequest)[0].protocols[0].metadata
            assert list(decode_subscription(bytes(sent)).topics) == ["t"]

    asyncio.run(story())


def test_a_leader_joins_again_when_topics_get_partitions() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()

            def lead(request: JoinGroupRequest, version: int) -> JoinGroupResponse:
                response = joined(len(broker.requests(JoinGroupRequest)), "a")
                response.leader = "a"
                metadata = bytes(request.protocols[0].metadata)
                response.members = [JoinGroupResponseMember(member_id="a", metadata=metadata)]
                return response

            def sync(request: SyncGroupRequest, version: int) -> SyncGroupResponse:
                response = synced()
                response.assignment = request.assignments[0].assignment
                return response

            async with member(cluster, metadata_max_age_ms=30) as consumer:
                broker.on(JoinGroupRequest, lead)
                broker.on(SyncGroupRequest, sync)
                consumer.subscribe(["t"])
                await until(consumer, lambda: len(consumer.assignment()) == 2)
                cluster.topics["t"] = 3
                await until(consumer, lambda: len(consumer.assignment()) == 3)

    asyncio.run(story())


def test_an_unknown_member_loses_its_partitions_and_joins_anew() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            diary = Diary()
            async with member(cluster) as consumer:
                broker.on(JoinGroupRequest, joined(1, "old"), joined(2, "new"))
                broker.on(SyncGroupRequest, synced(0), synced(1))
                consumer.subscribe(["t"], listener=diary)
                await until(consumer, consumer.assignment)
                broker.on(
                    HeartbeatRequest,
                    HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
                    HeartbeatResponse(),
                )
                await until(consumer, lambda: len(diary.entries) == 3)
            assert diary.entries == ["assigned t-0", "lost t-0", "assigned t-1", "revoked t-1"]
            assert [row.member_id for row in broker.requests(JoinGroupRequest)] == ["", ""]

    asyncio.run(story())


def test_a_coordinator_that_moves_is_found_and_the_generation_goes_on() -> None:
    async def story() -> None:
        async with scripted(2) as cluster:
            diary = Diary()
            async with member(cluster) as consumer:
                cluster.broker(0).on(JoinGroupRequest, joined(1))
                cluster.broker(0).on(SyncGroupRequest, synced(0))
                consumer.subscribe(["t"], listener=diary)
                await until(consumer, consumer.assignment)
                cluster.coordinator_id = 1
                moved = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
                cluster.broker(0).on(HeartbeatRequest, moved)
                cluster.broker(0).on(OffsetCommitRequest, HangUp())
                await until(consumer, lambda: cluster.broker(1).requests(HeartbeatRequest))
                await consumer.commit({TopicPartition("t", 0): 1})
                assert cluster.broker(1).requests(OffsetCommitRequest)[0].member_id == "m"
            assert diary.entries == ["assigned t-0", "revoked t-0"]
            assert not cluster.broker(1).requests(JoinGroupRequest)

    asyncio.run(story())


def test_a_coordinator_that_hangs_up_while_joining_is_asked_again() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            async with member(cluster) as consumer:
                broker.on(
                    JoinGroupRequest,
                    HangUp(),
                    JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
                    joined(1),
                )
                broker.on(
                    SyncGroupRequest,
                    HangUp(),
                    SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS),
                    synced(1),
                )
                consumer.subscribe(["t"])
                await until(consumer, consumer.assignment)
                assert consumer.assignment() == {TopicPartition("t", 1)}

    asyncio.run(story())


def test_a_coordinator_that_never_answers_holds_no_poll_longer_than_its_timeout() -> None:
    async def story() -> None:
        async with (
            scripted() as cluster,
            member(cluster, default_api_timeout_ms=300) as consumer,
        ):
            cluster.broker().on(JoinGroupRequest, NoAnswer())
            consumer.subscribe(["t"])
            for _ in range(3):
                began = time.monotonic()
                assert await consumer.poll(0.2) == []
                assert time.monotonic() - began < 30
            began = time.monotonic()
            with pytest.raises(RequestTimedOut):
                await consumer.committed([TopicPartition("t", 0)])
            await consumer.close(timeout=0.5)
            assert time.monotonic() - began < 30

    asyncio.run(story())


def test_a_group_that_may_not_be_joined_is_an_error_of_poll() -> None:
    async def story() -> None:
        async with scripted() as cluster, member(cluster) as consumer:
            refusal = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            cluster.broker().on(JoinGroupRequest, refusal)
            consumer.subscribe(["t"])
            with pytest.raises(NotAuthorized, match="group g"):
                await consumer.poll(WITHIN_S)

    asyncio.run(story())


# The consumer protocol


def heartbeat(cluster: ScriptedCluster, epoch: int, *partitions: int) -> Any:
    return ConsumerGroupHeartbeatResponse(
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=20,
        assignment=HeartbeatAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=cluster.topic_ids["t"], partitions=list(partitions))
            ]
        ),
    )


def test_the_broker_takes_partitions_only_after_they_are_given_back() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            diary = Diary()

            def told() -> list[list[list[int]]]:
                return [
                    [row.partitions for row in request.topic_partitions]
                    for request in broker.requests(ConsumerGroupHeartbeatRequest)
                    if request.topic_partitions is not None
                ]

            settings = {"group_protocol": "consumer"}
            async with member(cluster, **settings) as consumer:
                broker.on(ConsumerGroupHeartbeatRequest, heartbeat(cluster, 1, 0, 1))
                consumer.subscribe(["t"], listener=diary)
                await until(consumer, lambda: len(consumer.assignment()) == 2)
                broker.on(ConsumerGroupHeartbeatRequest, heartbeat(cluster, 2, 1))
                await until(consumer, lambda: len(consumer.assignment()) == 1)
                await until(consumer, lambda: len(told()) >= 3)
            assert diary.entries == ["assigned t-0, t-1", "revoked t-0", "assigned ", "revoked t-1"]
            assert told()[:3] == [[], [[0, 1]], [[1]]]
            assert broker.requests(ConsumerGroupHeartbeatRequest)[-1].member_epoch == -1

    asyncio.run(story())


def test_a_fenced_member_of_the_consumer_protocol_joins_with_epoch_zero() -> None:
    async def story() -> None:
        async with scripted() as cluster:
            broker = cluster.broker()
            diary = Diary()
            async with member(cluster, group_protocol="consumer") as consumer:
                broker.on(ConsumerGroupHeartbeatRequest, heartbeat(cluster, 5, 0))
                consumer.subscribe(["t"], listener=diary)
                await until(consumer, consumer.assignment)
                broker.on(
                    ConsumerGroupHeartbeatRequest,
                    ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH),
                    heartbeat(cluster, 7, 1),
                )
                await until(consumer, lambda: len(diary.entries) >= 3)
            assert diary.entries[:3] == ["assigned t-0", "lost t-0", "assigned t-1"]

    asyncio.run(story())


def test_a_cluster_without_the_consumer_protocol_says_so() -> None:
    async def story() -> None:
        ranges = {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
        del ranges[ApiKey.CONSUMER_GROUP_HEARTBEAT]
        async with (
            scripted(versions=ranges) as cluster,
            member(cluster, group_protocol="consumer") as consumer,
        ):
            consumer.subscribe(["t"])
            with pytest.raises(UnsupportedByBroker, match=r"group\.protocol=classic"):
                await consumer.poll(WITHIN_S)

    asyncio.run(story())
