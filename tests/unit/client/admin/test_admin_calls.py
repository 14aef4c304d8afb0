"""Admin calls: whom they ask, when they ask again, and what they say of old or odd brokers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.scripted_broker import HangUp, NoAnswer, ScriptedCluster, run
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.configs import AlterConfig, ConfigResource, ConfigResourceType
from tidelog.client.admin.credentials import ScramUpsertion
from tidelog.client.admin.partitions import ElectionType
from tidelog.client.admin.topics import NewTopic
from tidelog.client.errors import (
    BrokerRefused,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    UnreadableAnswer,
    UnsupportedByBroker,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.listed_timestamps import LATEST, MAX_TIMESTAMP
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.sasl.scram_credential import ScramMechanism
from tidelog.types import TopicPartition, Uuid

KAFKA_0_10 = {
    ApiKey.FETCH: (0, 2),
    ApiKey.LIST_OFFSETS: (0, 0),
    ApiKey.METADATA: (0, 1),
    ApiKey.FIND_COORDINATOR: (0, 0),
    ApiKey.LIST_GROUPS: (0, 0),
    ApiKey.DESCRIBE_GROUPS: (0, 0),
    ApiKey.CREATE_TOPICS: (0, 1),
    ApiKey.DELETE_TOPICS: (0, 1),
    ApiKey.API_VERSIONS: (0, 0),
}
KAFKA_3_0 = {
    **{key: (row.min_version, row.max_version) for key, row in VERSIONS.items()},
    ApiKey.LIST_TRANSACTIONS: (0, 0),
}
HURRIED = {
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
}

Story = Callable[[ScriptedCluster, AsyncAdmin], Coroutine[Any, Any, None]]


def tell(story: Story, brokers: ScriptedCluster, **options: object) -> None:
    async def told() -> None:
        async with (
            brokers,
            AsyncAdmin({**HURRIED, "bootstrap.servers": brokers.bootstrap}, **options) as admin,
        ):
            await story(brokers, admin)

    run(told)


def created(*codes: tuple[str, int]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code) for name, code in codes]
    )


# The controller


def test_a_controller_that_moved_is_found_again() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        def moved(_: CreateTopicsRequest, __: int) -> CreateTopicsResponse:
            brokers.controller_id = 1
            return created(("t", ErrorCode.NOT_CONTROLLER))

        brokers.broker(0).on(CreateTopicsRequest, moved)
        brokers.broker(1).on(CreateTopicsRequest, created(("t", 0)))
        assert (await admin.create_topics(["t"]))["t"].is_ok

    tell(story, ScriptedCluster(2))


def test_a_controller_that_vanished_is_found_again() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        def vanish(_: CreateTopicsRequest, __: int) -> HangUp:
            brokers.controller_id = 1
            return HangUp()

        brokers.broker(0).on(CreateTopicsRequest, vanish)
        brokers.broker(1).on(CreateTopicsRequest, created(("t", 0)))
        assert (await admin.create_topics(["t"]))["t"].is_ok

    tell(story, ScriptedCluster(2))


def test_only_what_failed_for_now_is_asked_again() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(
            CreateTopicsRequest,
            created(
                ("made", 0),
                ("exists", ErrorCode.TOPIC_ALREADY_EXISTS),
                ("later", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
            ),
            created(("later", 0)),
        )
        found = await admin.create_topics(["made", "exists", "later"])
        assert list(found) == ["made", "exists", "later"]
        assert [result.is_ok for result in found.values()] == [True, False, True]
        first, second = brokers.broker().requests(CreateTopicsRequest)
        assert [topic.name for topic in second.topics] == ["later"]
        assert len(first.topics) == 3

    tell(story, ScriptedCluster())


def test_a_quota_need_not_be_waited_for() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(
            CreateTopicsRequest, created(("t", ErrorCode.THROTTLING_QUOTA_EXCEEDED))
        )
        found = await admin.create_topics(["t"], retry_on_quota_violation=False)
        assert found["t"].error is not None
        assert found["t"].error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert len(brokers.broker().requests(CreateTopicsRequest)) == 1

    tell(story, ScriptedCluster())


def test_retries_are_bounded_by_their_number() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(CreateTopicsRequest, created(("t", ErrorCode.NOT_CONTROLLER)))
        found = await admin.create_topics(["t"])
        assert isinstance(found["t"].error, BrokerRefused)
        assert len(brokers.broker().requests(CreateTopicsRequest)) == 3

    tell(story, ScriptedCluster(), retries=2)


def test_a_call_ends_with_its_time() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(CreateTopicsRequest, NoAnswer())
        found = await admin.create_topics(["t"], timeout=0.1)
        assert isinstance(found["t"].error, RequestTimedOut)
        assert "creation of topics: gave up after 100 ms" in str(found["t"].error)

    tell(story, ScriptedCluster())


def test_a_call_that_keeps_failing_says_why_when_its_time_is_up() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(CreateTopicsRequest, created(("t", ErrorCode.NOT_CONTROLLER)))
        found = await admin.create_topics(["t"], timeout=3.0)
        assert isinstance(found["t"].error, RequestTimedOut)
        assert "NOT_CONTROLLER" in str(found["t"].error)

    tell(story, ScriptedCluster())


def test_what_an_answer_leaves_out_is_an_error_of_its_own() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(CreateTopicsRequest, created(("a", 0), ("stranger", 0)))
        found = await admin.create_topics(["a", "b"])
        assert set(found) == {"a", "b"}
        assert found["a"].is_ok
        assert isinstance(found["b"].error, UnreadableAnswer)

    tell(story, ScriptedCluster())


# Leaders


def offsets(topic: str, rows: dict[int, tuple[int, int]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=index, error_code=code, offset=offset
                    )
                    for index, (code, offset) in rows.items()
                ],
            )
        ]
    )


def test_each_leader_is_asked_about_its_own_partitions() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker(0).on(ListOffsetsRequest, offsets("t", {0: (0, 10)}))
        brokers.broker(1).on(ListOffsetsRequest, offsets("t", {1: (0, 11)}))
        wanted = {TopicPartition("t", index): LATEST for index in (0, 1, 7)}
        wanted[TopicPartition("none", 0)] = LATEST
        found = await admin.list_offsets(wanted)
        assert found[TopicPartition("t", 0)].get().offset == 10
        assert found[TopicPartition("t", 1)].get().offset == 11
        assert isinstance(found[TopicPartition("t", 7)].error, UnknownTopic)
        assert "has 2 partitions" in str(found[TopicPartition("t", 7)].error)
        assert isinstance(found[TopicPartition("none", 0)].error, UnknownTopic)

    tell(story, ScriptedCluster(2, {"t": 2}))


def test_a_leader_that_moved_is_looked_up_again() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        partition = TopicPartition("t", 0)

        def moved(_: ListOffsetsRequest, __: int) -> ListOffsetsResponse:
            brokers.lead(partition, 1, 5)
            return offsets("t", {0: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)})

        brokers.broker(0).on(ListOffsetsRequest, moved)
        brokers.broker(1).on(ListOffsetsRequest, offsets("t", {0: (0, 42)}))
        found = await admin.list_offsets({partition: LATEST})
        assert found[partition].get().offset == 42

    tell(story, ScriptedCluster(2, {"t": 1}))


def test_a_leader_that_cannot_be_reached_fails_its_own_partitions_alone() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        await brokers.broker(1).stop()
        brokers.broker(0).on(ListOffsetsRequest, offsets("t", {0: (0, 10)}))
        first, second = TopicPartition("t", 0), TopicPartition("t", 1)
        found = await admin.list_offsets({first: LATEST, second: LATEST})
        assert found[first].get().offset == 10
        assert isinstance(found[second].error, ConnectionFailed)
        assert "broker 1" in str(found[second].error)

    tell(story, ScriptedCluster(2, {"t": 2}), retries=2)


def test_topics_described_in_pieces_are_put_together() -> None:
    def piece(index: int, following: int | None) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    name="t",
                    partitions=[DescribeTopicPartitionsResponsePartition(partition_index=index)],
                )
            ],
            next_cursor=None
            if following is None
            else Cursor(topic_name="t", partition_index=following),
        )

    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker().on(
            DescribeTopicPartitionsRequest, piece(0, 1), piece(1, 2), piece(2, None)
        )
        found = await admin.describe_topics(["t"])
        assert [row.partition for row in found["t"].get().partitions] == [0, 1, 2]
        # A cursor that does not move on would never end.
        brokers.broker().on(DescribeTopicPartitionsRequest, piece(0, 1), piece(1, 1))
        found = await admin.describe_topics(["t"])
        assert [row.partition for row in found["t"].get().partitions] == [0, 1]

    tell(story, ScriptedCluster(topics={"t": 3}))


# Coordinators


def described(group: str, state: str, *members: DescribedGroupMember) -> DescribedGroup:
    return DescribedGroup(group_id=group, group_state=state, members=list(members))


def test_a_group_is_looked_for_among_those_of_both_protocols() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        brokers.broker().on(
            ConsumerGroupDescribeRequest,
            ConsumerGroupDescribeResponse(
                groups=[
                    DescribedConsumerGroup(group_id="new", group_state="Stable", group_epoch=3),
                    DescribedConsumerGroup(group_id="old", error_code=not_found),
                    DescribedConsumerGroup(group_id="none", error_code=not_found),
                ]
            ),
        )
        odd = DescribedGroupMember(member_id="m", member_assignment=b"\x00\x00\xff\xff\xff")
        brokers.broker().on(
            DescribeGroupsRequest,
            DescribeGroupsResponse(
                groups=[described("old", "Stable", odd), described("none", "Dead")]
            ),
        )
        found = await admin.describe_groups(["new", "old", "none"])
        assert (found["new"].get().type, found["new"].get().group_epoch) == ("consumer", 3)
        assert found["old"].get().type == "classic"
        assert found["old"].get().members[0].assignment == ()
        assert found["none"].error is not None
        assert found["none"].error.code == not_found

    tell(story, ScriptedCluster())


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        def moved(_: DeleteGroupsRequest, __: int) -> DeleteGroupsResponse:
            brokers.coordinator_id = 1
            row = DeletableGroupResult(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
            return DeleteGroupsResponse(results=[row])

        done = DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")])
        brokers.broker(0).on(DeleteGroupsRequest, moved)
        brokers.broker(1).on(DeleteGroupsRequest, done)
        assert (await admin.delete_groups(["g"]))["g"].is_ok

    tell(story, ScriptedCluster(2))


# Brokers by id


def test_the_list_of_groups_needs_every_broker() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        for broker in brokers.brokers.values():
            broker.on(ListGroupsRequest, ListGroupsResponse())
        assert await admin.list_groups() == []
        await brokers.broker(1).stop()
        with pytest.raises(ConnectionFailed, match="broker 1"):
            await admin.list_groups()

    tell(story, ScriptedCluster(2), retries=2)


def test_a_broker_that_is_gone_fails_its_own_log_directories_alone() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        brokers.broker(0).on(DescribeLogDirsRequest, DescribeLogDirsResponse())
        found = await admin.describe_log_dirs([0, 99])
        assert found[0].get() == {}
        assert isinstance(found[99].error, ConnectionFailed)
        assert "broker 99 is not among those the cluster names" in str(found[99].error)

    tell(story, ScriptedCluster(), retries=2)


def test_a_brokers_configuration_is_asked_of_that_broker() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        resource = ConfigResource(ConfigResourceType.BROKER, "1")
        row = DescribeConfigsResult(resource_type=4, resource_name="1")
        brokers.broker(1).on(DescribeConfigsRequest, DescribeConfigsResponse(results=[row]))
        assert (await admin.describe_configs([resource]))[resource].get() == {}

    tell(story, ScriptedCluster(3))


# Old brokers


def test_what_an_old_broker_cannot_do_is_said_clearly() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, "t")
        changed = await admin.incremental_alter_configs({resource: [AlterConfig("a", "1")]})
        assert isinstance(changed[resource].error, UnsupportedByBroker)
        assert "alter_configs replaces whole configurations" in str(changed[resource].error)
        made = await admin.create_topics([NewTopic("x")])
        assert "this needs one of 4 to 7" in str(made["x"].error)
        by_id = Uuid.random()
        removed = await admin.delete_topics([by_id])
        assert isinstance(removed[by_id].error, UnsupportedByBroker)
        elected = await admin.elect_leaders([TopicPartition("t", 0)], ElectionType.UNCLEAN)
        assert not elected[TopicPartition("t", 0)].is_ok
        for call in (
            admin.list_groups(states=["Empty"]),
            admin.list_groups(types=["classic"]),
            admin.list_transactions(),
            admin.describe_quorum(),
        ):
            with pytest.raises(UnsupportedByBroker):
                await call
        newest = await admin.list_offsets({TopicPartition("t", 0): MAX_TIMESTAMP})
        assert isinstance(newest[TopicPartition("t", 0)].error, UnsupportedByBroker)

    tell(story, ScriptedCluster(topics={"t": 1}, versions=KAFKA_0_10))


def test_an_old_broker_is_asked_in_its_own_way() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        cluster = await admin.describe_cluster()
        assert [node.id for node in cluster.nodes] == [0]
        found = await admin.describe_topics(["t", "none"])
        assert len(found["t"].get().partitions) == 1
        assert isinstance(found["none"].error, UnknownTopic)
        # A broker of that age would create what is asked for by name.
        asked = brokers.broker().requests(MetadataRequest)
        assert all(not request.topics for request in asked)
        brokers.broker().on(
            ListOffsetsRequest,
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=0, old_style_offsets=[30, 20, 10]
                            )
                        ],
                    )
                ]
            ),
        )
        latest = await admin.list_offsets({TopicPartition("t", 0): LATEST})
        assert latest[TopicPartition("t", 0)].get().offset == 30
        brokers.broker().on(
            DescribeGroupsRequest, DescribeGroupsResponse(groups=[described("g", "Stable")])
        )
        assert (await admin.describe_groups(["g"]))["g"].get().state == "Stable"

    tell(story, ScriptedCluster(topics={"t": 1}, versions=KAFKA_0_10))


@pytest.mark.parametrize("filters", [{"duration_ms": 1}, {"pattern": "a"}])
def test_a_filter_of_transactions_that_a_broker_does_not_know_is_an_error(
    filters: dict[str, Any],
) -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        with pytest.raises(UnsupportedByBroker, match="LIST_TRANSACTIONS in versions 0 to 0"):
            await admin.list_transactions(**filters)

    tell(story, ScriptedCluster(versions=KAFKA_3_0))


# Secrets


def test_a_password_is_salted_here_and_never_shown() -> None:
    async def story(brokers: ScriptedCluster, admin: AsyncAdmin) -> None:
        answer = AlterUserScramCredentialsResponse(
            results=[AlterUserScramCredentialsResult(user="user")]
        )
        brokers.broker().on(AlterUserScramCredentialsRequest, answer)
        # The example of RFC 7677.
        salt = bytes.fromhex("5b6d99689d123594d0a9b4c8a5b8e5c4")
        change = ScramUpsertion("user", ScramMechanism.SCRAM_SHA_256, "pencil", 4096, salt)
        assert "pencil" not in repr(change)
        assert (await admin.alter_user_scram_credentials([change]))["user"].is_ok
        (asked,) = brokers.broker().requests(AlterUserScramCredentialsRequest)
        (row,) = asked.upsertions
        assert len(row.salted_password) == 32
        assert b"pencil" not in bytes(row.salted_password)
        assert bytes(row.salt) == salt
        fresh = ScramUpsertion("user", ScramMechanism.SCRAM_SHA_512, "pencil")
        await admin.alter_user_scram_credentials([fresh])
        last = brokers.broker().requests(AlterUserScramCredentialsRequest)[-1].upsertions[0]
        assert (len(last.salted_password), len(last.salt)) == (64, 24)

    tell(story, ScriptedCluster())
