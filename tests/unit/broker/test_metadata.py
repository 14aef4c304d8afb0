from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop, refused
from tidelog.broker.authorized_operations import NOT_REQUESTED, TOPIC_OPERATIONS
from tidelog.broker.handlers import describe_cluster, describe_topic_partitions, metadata
from tidelog.broker.metadata_cache import Node
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.types import Uuid


async def ask(
    stage: HandlerStage, topics: list[str] | None, *, version: int = 12, create: bool = False
) -> MetadataResponse:
    request = MetadataRequest(
        topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=create,
    )
    answer = metadata.handle(stage.context(version), request)
    assert not isinstance(answer, Pending)
    return answer if isinstance(answer, MetadataResponse) else await answer


async def described_leader(stage: HandlerStage, name: str) -> tuple[int, int]:
    """The leader of partition 0 by DescribeTopicPartitions, and the error."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    (topic,) = (await describe_topic_partitions.handle(stage.context(0), request)).topics
    return topic.partitions[0].leader_id, topic.partitions[0].error_code


@in_loop
async def test_null_means_all_topics_and_empty_means_none(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        await stage.topic("b", partitions=3)
        everything = await ask(stage, None)
        assert {t.name: len(t.partitions) for t in everything.topics} == {"a": 1, "b": 3}
        assert (await ask(stage, [])).topics == []
        assert len((await ask(stage, [], version=0)).topics) == 2


@in_loop
async def test_partitions_name_leader_replicas_and_epoch(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, broker_id="4") as stage:
        await stage.topic("a")
        (topic,) = (await ask(stage, ["a"])).topics
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch) == (4, 0)
        assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([4], [4])
        assert topic.topic_id == stage.broker.topics.topics["a"].topic_id
        assert topic.topic_authorized_operations == NOT_REQUESTED


@in_loop
async def test_a_broker_that_others_have_replaced_sends_clients_to_them(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, broker_id="4") as stage:
        await stage.topic("a")
        listener = stage.context(12).session.listener_name
        others = [Node(5, "h", 9092, None), Node(6, "h", 9093, None)]
        cache = stage.broker.metadata
        cache.replace_nodes({listener: [Node(4, "h", 9091, None), *others]})
        cache.hidden_id = 4
        answer = await ask(stage, ["a"])
        assert [broker.node_id for broker in answer.brokers] == [5, 6]
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.leader_epoch) == (-1, 0)
        assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


@in_loop
async def test_a_leader_that_does_not_live_is_not_named(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, broker_id="4") as stage:
        await stage.topic("a")
        stage.broker.metadata.replace_nodes({"PLAINTEXT": [Node(5, "h", 9092, None)]})
        for topics in (["a"], None):
            (partition,) = (await ask(stage, topics)).topics[0].partitions
            assert (partition.leader_id, list(partition.replica_nodes)) == (-1, [4])
            assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert await described_leader(stage, "a") == (-1, 0)


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
@in_loop
async def test_a_leader_without_the_clients_listener_is_not_named(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with handler_stage(tmp_path, broker_id="4") as stage:
        await stage.topic("a")
        within = [Node(4, "h", 9091, None), Node(5, "h", 9091, None)]
        nodes = {"INTERNAL": within, "PLAINTEXT": [Node(5, "h", 9092, None)]}
        stage.broker.metadata.replace_nodes(nodes)
        (partition,) = (await ask(stage, ["a"], version=version)).topics[0].partitions
        assert (partition.leader_id, partition.error_code) == (-1, code)
        assert await described_leader(stage, "a") == (-1, 0)
        stage.connection.session.listener_name = "INTERNAL"
        (partition,) = (await ask(stage, ["a"], version=version)).topics[0].partitions
        assert (partition.leader_id, partition.error_code) == (4, 0)
        assert await described_leader(stage, "a") == (4, 0)


@in_loop
async def test_missing_topic_is_created_where_the_request_allows_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, num_partitions="2") as stage:
        unknown = await ask(stage, ["new"], create=False)
        assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        made = await ask(stage, ["new"], create=True)
        assert (made.topics[0].error_code, len(made.topics[0].partitions)) == (0, 2)


@in_loop
async def test_missing_topic_is_not_created_where_the_broker_forbids_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, auto_create_topics_enable="false") as stage:
        answer = await ask(stage, ["new"], create=True)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_the_name_of_krafts_own_log_is_never_a_topic(tmp_path: Path) -> None:
    """Its folder would be passed over at the next start."""
    async with handler_stage(tmp_path) as stage:
        answer = await ask(stage, ["__cluster_metadata"], create=True)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with refused(ErrorCode.INVALID_REQUEST):
            await stage.broker.topics.auto_create("__cluster_metadata")


@in_loop
async def test_bad_name_is_an_invalid_topic(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        for create in (True, False):
            answer = await ask(stage, ["no good"], create=create)
            assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@in_loop
async def test_topics_can_be_asked_for_by_id(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        known, unknown = stage.broker.topics.topics["a"].topic_id, Uuid.random()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=each) for each in (known, unknown)]
        )
        answer = metadata.handle(stage.context(12), request)
        assert isinstance(answer, MetadataResponse)
        first, second = answer.topics
        assert (first.name, first.error_code) == ("a", 0)
        assert second.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@in_loop
async def test_topic_named_twice_is_answered_once(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        assert len((await ask(stage, ["a", "a", "a"])).topics) == 1


@in_loop
async def test_names_do_not_count_beside_ids(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        await stage.topic("b")
        by_id = MetadataRequestTopic(name=None, topic_id=stage.broker.topics.topics["a"].topic_id)
        for other in ("a", "b", None):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=other), by_id])
            answer = metadata.handle(stage.context(12), request)
            assert isinstance(answer, MetadataResponse)
            assert [row.name for row in answer.topics] == ["a"]


@in_loop
async def test_internal_topic_is_internal_before_it_exists(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        (row,) = (await ask(stage, ["__transaction_state"])).topics
        assert (row.error_code, row.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


@pytest.mark.parametrize("version", [12, 13])
@in_loop
async def test_neither_name_nor_id_is_an_unknown_error(tmp_path: Path, version: int) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        wanted = [MetadataRequestTopic(name=None), MetadataRequestTopic(name="a")]
        answer = metadata.handle(stage.context(version), MetadataRequest(topics=wanted))
        assert isinstance(answer, MetadataResponse)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        assert [(row.name, row.error_code) for row in answer.topics] == [("", code), ("a", code)]
        assert (answer.brokers, answer.error_code) == ([], code)


@in_loop
async def test_unknown_topics_carry_authorised_operations_when_asked_for(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="gone")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = metadata.handle(stage.context(12), request)
        assert isinstance(answer, MetadataResponse)
        assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


@in_loop
async def test_id_or_missing_name_before_v12_is_an_invalid_request(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        identity = stage.broker.topics.topics["a"].topic_id
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=identity)])
        answer = metadata.handle(stage.context(10), wanted)
        assert isinstance(answer, MetadataResponse)
        assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_describe_cluster_serves_brokers_only(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        answer = describe_cluster.handle(stage.context(1), DescribeClusterRequest())
        assert answer.cluster_id == stage.broker.metadata.cluster_id
        assert len(answer.cluster_id) == 22
        controllers = DescribeClusterRequest(endpoint_type=2)
        refused = describe_cluster.handle(stage.context(1), controllers)
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
