"""The handlers of ACLs, what is left out of answers, and the audit log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tests.unit.broker.security.test_every_api_is_guarded import (
    ALICE,
    SETTINGS,
    ask,
    cluster,
    commit_an_offset,
    grant,
    group,
    topic,
    txn,
)
from tidelog.acls import AclBinding, AclOperation, PatternType, ResourceType
from tidelog.broker.authorized_operations import NOT_REQUESTED
from tidelog.broker.context import CloseConnection
from tidelog.broker.security.request_authorizer import LINES_PER_S, REPEAT_S
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tidelog.types import ZERO_UUID

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def creation(**fields: Any) -> AclCreation:
    given = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": 3,
    }
    return AclCreation(**{**given, **fields})


def acl_filter(**fields: Any) -> DeleteAclsFilter:
    given = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**{**given, **fields})


def describe_acls(**fields: Any) -> DescribeAclsRequest:
    given = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DescribeAclsRequest(**{**given, **fields})


async def create(stage: HandlerStage, *creations: AclCreation) -> list[Any]:
    request = CreateAclsRequest(creations=list(creations))
    return list((await ask(stage, ApiKey.CREATE_ACLS, 3, request)).results)


async def described(stage: HandlerStage, version: int = 3, **fields: Any) -> list[tuple[Any, ...]]:
    answer = await ask(stage, ApiKey.DESCRIBE_ACLS, version, describe_acls(**fields))
    assert answer.error_code == ErrorCode.NONE
    return [
        (each.resource_name, row.principal, row.operation)
        for each in answer.resources
        for row in each.acls
    ]


ADMIN = (cluster("ALTER"), cluster("DESCRIBE"))


class TestAcls:
    @in_loop
    async def test_they_are_created_described_and_deleted(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            grant(stage, *ADMIN)
            both = (creation(), creation(resource_name="o", resource_pattern_type=PREFIXED))
            assert [row.error_code for row in await create(stage, *both, both[0])] == [0, 0, 0]
            found = await described(stage, resource_type_filter=2)
            assert found == [("orders", "User:bob", 3), ("o", "User:bob", 3)]
            matching: dict[str, Any] = {"resource_name_filter": "oranges", "pattern_type_filter": 2}
            assert await described(stage, **matching) == [("o", "User:bob", 3)]
            assert await described(stage, principal_filter="User:eve") == []
            assert await described(stage, 0, pattern_type_filter=3, resource_type_filter=2) == [
                ("orders", "User:bob", 3)
            ]
            request = DeleteAclsRequest(filters=[acl_filter(principal_filter="User:bob")])
            answer = await ask(stage, ApiKey.DELETE_ACLS, 3, request)
            deleted = answer.filter_results[0].matching_acls
            assert sorted(row.resource_name for row in deleted) == ["o", "orders"]
            assert await described(stage, resource_type_filter=2) == []

    @in_loop
    async def test_they_outlive_the_broker(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            grant(stage, *ADMIN)
            await create(stage, creation(principal=str(ALICE), resource_name="é*?"))
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            stage.connection.session.principal = ALICE
            assert stage.context(1).may(AclOperation.READ, ResourceType.TOPIC, "é*?")

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"resource_type": 4, "resource_name": "my-cluster"}, 42),
            ({"resource_name": ""}, 42),
            ({"resource_name": "a/b"}, 42),
            ({"principal": "bob"}, 42),
            ({"resource_type": 99}, 42),
            ({"operation": 99}, 42),
            ({"permission_type": 99}, 42),
            ({"resource_pattern_type": 99}, 42),
            ({"resource_type": 1}, -1),
            ({"resource_pattern_type": 1}, -1),
            ({"resource_pattern_type": 2}, -1),
            ({"operation": 1}, -1),
            ({"permission_type": 1}, -1),
        ],
    )
    def test_what_cannot_be_one_is_refused(
        self, tmp_path: Path, fields: dict[str, Any], code: int
    ) -> None:
        @in_loop
        async def story() -> None:
            async with handler_stage(tmp_path, **SETTINGS) as stage:
                grant(stage, *ADMIN)
                found = [
                    row.error_code for row in await create(stage, creation(), creation(**fields))
                ]
                assert found == ([0, code] if code != -1 else [-1, -1])
                assert len(await described(stage, resource_type_filter=2)) == (code != -1)

        story()

    @pytest.mark.parametrize(
        "fields", [{"resource_type_filter": 99}, {"operation": 99}, {"permission_type": 99}]
    )
    def test_codes_that_nobody_knows_match_nothing(
        self, tmp_path: Path, fields: dict[str, int]
    ) -> None:
        @in_loop
        async def story() -> None:
            async with handler_stage(tmp_path, **SETTINGS) as stage:
                grant(stage, *ADMIN)
                assert await described(stage, **fields) == []
                request = DeleteAclsRequest(filters=[acl_filter(**fields)])
                answer = await ask(stage, ApiKey.DELETE_ACLS, 3, request)
                assert answer.filter_results[0].matching_acls == []

        story()

    @pytest.mark.parametrize("settings", [{}, SETTINGS], ids=["no authorizer", "authorizer"])
    def test_unknown_elements_close_the_connection(
        self, tmp_path: Path, settings: dict[str, str]
    ) -> None:
        @in_loop
        async def story() -> None:
            async with handler_stage(tmp_path, **settings) as stage:
                for field in ("resource_type_filter", "operation", "permission_type"):
                    asked = describe_acls(**{field: 0})
                    closed = await ask(stage, ApiKey.DESCRIBE_ACLS, 3, asked)
                    assert isinstance(closed, CloseConnection)
                    filters = [acl_filter(), acl_filter(**{field: 0})]
                    deletion = DeleteAclsRequest(filters=filters)
                    closed = await ask(stage, ApiKey.DELETE_ACLS, 3, deletion)
                    assert isinstance(closed, CloseConnection)
                for field in ("resource_type", "operation", "resource_pattern_type"):
                    unknown = CreateAclsRequest(creations=[creation(), creation(**{field: 0})])
                    closed = await ask(stage, ApiKey.CREATE_ACLS, 3, unknown)
                    assert isinstance(closed, CloseConnection)

        story()

    @in_loop
    async def test_there_are_none_without_an_authorizer(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path) as stage:
            code = ErrorCode.SECURITY_DISABLED
            assert (await ask(stage, ApiKey.DESCRIBE_ACLS, 3, describe_acls())).error_code == code
            assert [row.error_code for row in await create(stage, creation(), creation())] == [
                code,
                code,
            ]
            request = DeleteAclsRequest(filters=[acl_filter()])
            answer = await ask(stage, ApiKey.DELETE_ACLS, 3, request)
            assert [row.error_code for row in answer.filter_results] == [code]


class TestWhatIsLeftOut:
    @in_loop
    async def test_all_topics_are_those_that_may_be_described(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("seen")
            await stage.topic("hidden")
            grant(stage, topic("READ", "seen"))
            answer = await ask(stage, ApiKey.METADATA, 12, MetadataRequest(topics=None))
            assert [row.name for row in answer.topics] == ["seen"]
            asked = DescribeTopicPartitionsRequest(response_partition_limit=100)
            answer = await ask(stage, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
            assert [row.name for row in answer.topics] == ["seen"]
            grant(stage, topic("ALL", "*"))
            answer = await ask(stage, ApiKey.METADATA, 12, MetadataRequest(topics=None))
            assert sorted(row.name for row in answer.topics) == ["hidden", "seen"]

    @in_loop
    async def test_a_topic_that_is_hidden_looks_like_one_that_is_not_there(
        self, tmp_path: Path
    ) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("hidden")
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name="hidden"), MetadataRequestTopic(name="missing")],
                include_topic_authorized_operations=True,
            )
            grant(stage, cluster("CREATE"))
            there, missing = (await ask(stage, ApiKey.METADATA, 10, asked)).topics
            there.name = missing.name
            assert there == missing
            assert (there.error_code, there.topic_id) == (DENIED, ZERO_UUID)
            assert "missing" not in stage.broker.topics.topics
            topic_id = stage.broker.topics.topics["hidden"].topic_id
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
            (row,) = (await ask(stage, ApiKey.METADATA, 12, asked)).topics
            assert (row.error_code, row.name, row.partitions) == (DENIED, None, [])

    @in_loop
    async def test_a_name_is_not_told_to_who_deletes_by_id(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            topic_id = stage.broker.topics.topics["t"].topic_id
            asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
            for rights, name in (((), None), ((topic("DESCRIBE"),), "t")):
                grant(stage, *rights)
                (row,) = (await ask(stage, ApiKey.DELETE_TOPICS, 6, asked)).responses
                assert (row.error_code, row.name, row.topic_id) == (DENIED, name, topic_id)

    @in_loop
    async def test_groups_are_listed_that_may_be_described(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            await stage.broker.topics.auto_create("__consumer_offsets")
            await commit_an_offset(stage)
            for rights, seen in (
                ((), []),
                ((group("DESCRIBE"),), ["g"]),
                ((cluster("DESCRIBE"),), ["g"]),
            ):
                grant(stage, *rights)
                answer = await ask(stage, ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
                assert [row.group_id for row in answer.groups] == seen
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            for more, topics in (((), []), ((topic("DESCRIBE"),), ["t"])):
                grant(stage, group("DESCRIBE"), *more)
                (row,) = (await ask(stage, ApiKey.OFFSET_FETCH, 8, asked)).groups
                assert [each.name for each in row.topics] == topics

    @in_loop
    async def test_transactions_are_listed_that_may_be_described(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.broker.topics.auto_create("__transaction_state")
            grant(stage, txn("WRITE"))
            asked = InitProducerIdRequest(
                transactional_id="x", transaction_timeout_ms=900, producer_id=-1, producer_epoch=-1
            )
            assert (await ask(stage, ApiKey.INIT_PRODUCER_ID, 4, asked)).error_code == 0
            for rights, seen in (((txn("WRITE"),), ["x"]), ((), [])):
                grant(stage, *rights)
                answer = await ask(stage, ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest())
                assert [row.transactional_id for row in answer.transaction_states] == seen

    @in_loop
    async def test_a_pattern_stands_for_topics_that_may_be_described(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            for name in ("seen", "secret"):
                await stage.topic(name)
            await stage.broker.topics.auto_create("__consumer_offsets")
            grant(stage, group("READ"), topic("READ", "seen"))
            asked = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=1000,
                subscribed_topic_regex="se.*",
                topic_partitions=[],
            )
            answer = await ask(stage, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
            for _ in range(20):
                stage.clock.advance(ms=1000)
                asked.member_epoch = answer.member_epoch
                asked.subscribed_topic_regex = None
                asked.rebalance_timeout_ms = -1
                answer = await ask(stage, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    break
            assert [row.topic_id for row in answer.assignment.topic_partitions] == [
                stage.broker.topics.topics["seen"].topic_id
            ]


class TestAuthorizedOperations:
    @in_loop
    async def test_they_are_those_that_are_allowed(self, tmp_path: Path) -> None:
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            await stage.broker.topics.auto_create("__consumer_offsets")
            await commit_an_offset(stage)
            grant(stage, topic("WRITE"), topic("ALTER_CONFIGS"), cluster("ALTER"), group("READ"))
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name="t")],
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
            answer = await ask(stage, ApiKey.METADATA, 8, asked)
            allowed = answer.topics[0].topic_authorized_operations
            assert allowed == 1 << 4 | 1 << 8 | 1 << 10 | 1 << 11
            assert answer.cluster_authorized_operations == 1 << 7 | 1 << 8
            wanted = DescribeClusterRequest(include_cluster_authorized_operations=True)
            answer = await ask(stage, ApiKey.DESCRIBE_CLUSTER, 1, wanted)
            assert answer.cluster_authorized_operations == 1 << 7 | 1 << 8
            described = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
            answer = await ask(stage, ApiKey.DESCRIBE_GROUPS, 5, described)
            assert answer.groups[0].authorized_operations == 1 << 3 | 1 << 8
            grant(stage, topic("DESCRIBE"))
            answer = await ask(stage, ApiKey.METADATA, 8, asked)
            assert answer.cluster_authorized_operations == 0
            answer = await ask(stage, ApiKey.DESCRIBE_CLUSTER, 1, wanted)
            assert answer.cluster_authorized_operations == 0
            answer = await ask(stage, ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
            assert answer.cluster_authorized_operations == NOT_REQUESTED


class TestAudit:
    @in_loop
    async def test_a_denial_is_one_line_until_it_has_been_a_while(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tidelog.authorizer")
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            for _ in range(5):
                await ask(stage, ApiKey.METADATA, 9, asked)
            (line,) = caplog.records
            assert (line.name, line.message, line.levelname) == (
                "tidelog.authorizer",
                "denied",
                "INFO",
            )
            shown = {key: line.__dict__[key] for key in ("principal", "operation", "resource")}
            assert shown == {
                "principal": "User:alice",
                "operation": "DESCRIBE",
                "resource": "TOPIC:t",
            }
            assert (line.__dict__["host"], line.__dict__["api"]) == ("127.0.0.1", "METADATA")
            stage.clock.advance(ms=round(1000 * REPEAT_S))
            await ask(stage, ApiKey.METADATA, 9, asked)
            assert caplog.records[1].__dict__["repeated"] == 4

    @in_loop
    async def test_a_client_that_invents_names_does_not_fill_the_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tidelog.authorizer")
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            names = [MetadataRequestTopic(name=f"t{number}") for number in range(500)]
            await ask(stage, ApiKey.METADATA, 9, MetadataRequest(topics=names))
            told = len(caplog.records)
            assert told <= LINES_PER_S + 1
            stage.clock.advance(ms=1000)
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="another")])
            await ask(stage, ApiKey.METADATA, 9, asked)
            assert caplog.records[-1].__dict__["unlogged"] == 500 - told

    @in_loop
    async def test_what_is_left_out_of_a_list_is_no_denial(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tidelog.authorizer")
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            await stage.topic("t")
            await ask(stage, ApiKey.METADATA, 9, MetadataRequest(topics=None))
            assert caplog.records == []

    @in_loop
    async def test_what_is_allowed_is_logged_at_debug_level(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "tidelog.authorizer")
        async with handler_stage(tmp_path, **SETTINGS) as stage:
            grant(stage, cluster("DESCRIBE"))
            await ask(stage, ApiKey.DESCRIBE_ACLS, 3, describe_acls())
            assert [(line.levelname, line.message) for line in caplog.records] == [
                ("DEBUG", "allowed")
            ]


def test_a_binding_says_who_may_do_what() -> None:
    binding = AclBinding(ResourceType.TOPIC, "orders", "User:bob", AclOperation.READ)
    assert str(binding) == "ALLOW User:bob from * to READ LITERAL TOPIC orders"
