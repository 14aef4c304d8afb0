"""The APIs of the controller at a lone broker; topics where the broker is not the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_broker import ConfigBroker
from tests.support.metadata import in_loop
from tidelog.broker.handlers import (
    alter_partition,
    alter_partition_reassignments,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    list_partition_reassignments,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)


@in_loop
async def test_a_lone_broker_needs_no_elections(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    named = [
        TopicPartitions(topic="t", partitions=[0, 7]),
        TopicPartitions(topic="none", partitions=[0]),
    ]
    for election_type in (0, 1):
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=named)
        response = await elect_leaders.handle(broker.context(2), request)
        codes = [
            r.error_code for t in response.replica_election_results for r in t.partition_result
        ]
        assert codes == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
    everything = ElectLeadersRequest(topic_partitions=None)
    response = await elect_leaders.handle(broker.context(2), everything)
    assert response.error_code == 0
    assert [(t.topic, t.partition_result) for t in response.replica_election_results] == [("t", [])]
    await broker.close()


@pytest.mark.parametrize("election_type", [2, -1])
@in_loop
async def test_an_unknown_election_type_is_refused_for_the_whole_and_each_partition(
    tmp_path: Path, election_type: int
) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    named = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=named)
    response = await elect_leaders.handle(broker.context(2), request)
    (row,) = response.replica_election_results[0].partition_result
    assert (response.error_code, row.error_code) == (ErrorCode.INVALID_REQUEST,) * 2
    await broker.close()


@in_loop
async def test_elections_are_answered_row_by_row_as_asked_for(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    named = [
        TopicPartitions(topic="t", partitions=[]),
        TopicPartitions(topic="t", partitions=[0, 0]),
    ]
    request = ElectLeadersRequest(topic_partitions=named)
    response = await elect_leaders.handle(broker.context(2), request)
    shown = [
        (topic.topic, [row.partition_id for row in topic.partition_result])
        for topic in response.replica_election_results
    ]
    assert shown == [("t", []), ("t", [0, 0])]
    await broker.close()


@in_loop
async def test_reassignments_are_answered_row_by_row_as_asked_for(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    row = ReassignablePartition(partition_index=0, replicas=[0])
    cancelled = ReassignablePartition(partition_index=0, replicas=None)
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(name="t", partitions=[row, cancelled]),
            ReassignableTopic(name="t", partitions=[]),
        ]
    )
    response = await alter_partition_reassignments.handle(broker.context(1), request)
    shown = [[row.error_code for row in topic.partitions] for topic in response.responses]
    assert shown == [[0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS], []]
    await broker.close()


@pytest.mark.parametrize(
    ("election_type", "code"),
    [
        (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
@in_loop
async def test_nobody_can_be_elected_where_a_lone_brokers_log_is_offline(
    tmp_path: Path, election_type: int, code: ErrorCode
) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("led")
    await broker.create_topic("lost")
    broker.metadata.offline = {("lost", 0)}
    for named in (None, [TopicPartitions(topic="lost", partitions=[0])]):
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=named)
        response = await elect_leaders.handle(broker.context(2), request)
        codes = [
            (topic.topic, row.error_code)
            for topic in response.replica_election_results
            for row in topic.partition_result
        ]
        assert codes == [("lost", code)]
    await broker.close()


@in_loop
async def test_a_lone_broker_has_no_reassignments(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    await broker.create_topic("t")
    shown = await list_partition_reassignments.handle(
        broker.context(0), ListPartitionReassignmentsRequest()
    )
    assert (shown.error_code, shown.topics) == (0, [])
    for replicas, partition, code in (
        (None, 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([0], 0, ErrorCode.NONE),
        ([1], 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0], 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        row = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[row])]
        )
        response = await alter_partition_reassignments.handle(broker.context(0), request)
        assert response.responses[0].partitions[0].error_code == code
    await broker.close()


@in_loop
async def test_a_lone_broker_is_no_controller_for_other_brokers(tmp_path: Path) -> None:
    broker = ConfigBroker(tmp_path)
    altered = await alter_partition.handle(broker.context(3), AlterPartitionRequest())
    assert altered.error_code == ErrorCode.NOT_CONTROLLER
    stopped = await controlled_shutdown.handle(broker.context(3), ControlledShutdownRequest())
    assert stopped.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    await broker.close()


@pytest.mark.parametrize("version", [0, 1, 5, 6])
@in_loop
async def test_topics_are_administered_by_the_controller_only(tmp_path: Path, version: int) -> None:
    broker = ConfigBroker(tmp_path)
    broker.may_administer_topics = False
    created = await create_topics.handle(
        broker.context(version), CreateTopicsRequest(topics=[CreatableTopic(name="t")])
    )
    assert [(row.name, row.error_code) for row in created.topics] == [("t", 41)]
    deleted = await delete_topics.handle(
        broker.context(version),
        DeleteTopicsRequest(topic_names=["t"], topics=[DeleteTopicState(name="t")]),
    )
    assert [(row.name, row.error_code) for row in deleted.responses] == [("t", 41)]
    grown = await create_partitions.handle(
        broker.context(min(version, 3)),
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
    )
    assert [(row.name, row.error_code) for row in grown.results] == [("t", 41)]
    await broker.close()
