"""Requests of groups, transactions and admins that no sane client sends, answered as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tidelog.protocol.message import Message
from tidelog.protocol.messages import (
    add_partitions_to_txn,
    alter_partition_reassignments,
    api_versions,
    create_acls,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    elect_leaders,
    find_coordinator,
    init_producer_id,
    join_group,
    list_transactions,
    offset_commit,
    offset_delete,
    txn_offset_commit,
)
from tidelog.types import ZERO_UUID

UNKNOWN_TOPIC_OR_PARTITION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID = 3, 24, 25
TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, OPERATION_NOT_ATTEMPTED = 29, 42, 55
MEMBER_ID_REQUIRED, ELECTION_NOT_NEEDED, INVALID_REGULAR_EXPRESSION = 79, 84, 128
GROUP, TRANSACTION = 0, 1


def find(client: RawClient, key: str, kind: int) -> None:
    """Until the coordinator is there."""
    request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
    response = find_coordinator.FindCoordinatorResponse
    eventually(lambda: client.ask(request, 3, response).error_code == 0, 60)


def init(client: RawClient, transactional_id: str) -> tuple[int, int]:
    find(client, transactional_id, TRANSACTION)
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    answers: list[init_producer_id.InitProducerIdResponse] = []

    def is_there() -> bool:
        answers.append(client.ask(request, 4, init_producer_id.InitProducerIdResponse))
        return answers[-1].error_code == 0

    eventually(is_there, 60)
    return answers[-1].producer_id, answers[-1].producer_epoch


def require_version(client: RawClient, key: int, version: int) -> None:
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    offered = client.ask(request, 3, api_versions.ApiVersionsResponse).api_keys
    if not any(row.api_key == key and row.max_version >= version for row in offered):
        pytest.skip(f"this broker does not offer v{version} of API {key}")


def test_clients_add_no_partitions_of_internal_topics(client: RawClient, topic: str) -> None:
    find(client, "g", GROUP)
    producer_id, producer_epoch = init(client, f"id-{topic}")
    row = add_partitions_to_txn.AddPartitionsToTxnTopic
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=f"id-{topic}",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[
            row(name="__consumer_offsets", partitions=[0]),
            row(name=topic, partitions=[0, 99]),
        ],
    )
    answer = client.ask(request, 3, add_partitions_to_txn.AddPartitionsToTxnResponse)
    codes = {
        (each.name, row.partition_index): row.partition_error_code
        for each in answer.results_by_topic_v3_and_below
        for row in each.results_by_partition
    }
    assert codes == {
        ("__consumer_offsets", 0): TOPIC_AUTHORIZATION_FAILED,
        (topic, 0): OPERATION_NOT_ATTEMPTED,
        (topic, 99): UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", [0, 3, 4])
def test_transactional_offsets_need_a_group(client: RawClient, topic: str, version: int) -> None:
    find(client, "g", GROUP)
    producer_id, producer_epoch = init(client, f"id-{topic}")
    row = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)

    def commit(partitions: list[Any]) -> Any:
        topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=f"id-{topic}",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=topics,
        )
        return client.ask(request, version, txn_offset_commit.TxnOffsetCommitResponse).topics

    assert commit([row])[0].partitions[0].error_code == INVALID_GROUP_ID
    assert commit([]) == []


@pytest.mark.parametrize("version", [2, 9])
def test_topics_without_partitions_are_left_out(
    client: RawClient, topic: str, version: int
) -> None:
    find(client, "g", GROUP)

    def commit(name: str) -> list[tuple[str, int]]:
        rows = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=[])]
        request = offset_commit.OffsetCommitRequest(group_id=f"g-{topic}", topics=rows)
        answer = client.ask(request, version, offset_commit.OffsetCommitResponse)
        return [(row.name, len(row.partitions)) for row in answer.topics]

    assert commit(topic) == []
    assert commit("no-such-topic") == [("no-such-topic", 0)]


def test_deleting_no_offsets_of_a_topic_names_it_not(client: RawClient, topic: str) -> None:
    find(client, "g", GROUP)
    row = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    rows = [offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    request = offset_commit.OffsetCommitRequest(group_id=f"g-{topic}", topics=rows)
    client.ask(request, 8, offset_commit.OffsetCommitResponse)
    nothing = offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[])
    deletion = offset_delete.OffsetDeleteRequest(group_id=f"g-{topic}", topics=[nothing])
    answer = client.ask(deletion, 0, offset_delete.OffsetDeleteResponse)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize("version", [4, 5, 9])
def test_a_member_gets_its_id_before_its_protocols_are_looked_at(
    client: RawClient, topic: str, version: int
) -> None:
    find(client, "g", GROUP)

    def join(member_id: str) -> int:
        row = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = join_group.JoinGroupRequest(
            group_id=f"g-{topic}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[row, row],
        )
        return client.ask(request, version, join_group.JoinGroupResponse).error_code

    assert join("") == MEMBER_ID_REQUIRED
    assert join("stranger") == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("election_type", [2, -1])
def test_an_unknown_election_type_is_told_of_each_partition(
    client: RawClient, topic: str, election_type: int
) -> None:
    named = [elect_leaders.TopicPartitions(topic=topic, partitions=[0])]
    answer = elect(client, named, election_type)
    (row,) = answer.replica_election_results[0].partition_result
    assert (answer.error_code, row.error_code) == (INVALID_REQUEST, INVALID_REQUEST)


def test_elections_are_answered_as_they_are_asked_for(client: RawClient, topic: str) -> None:
    row = elect_leaders.TopicPartitions
    named = [row(topic=topic, partitions=[]), row(topic=topic, partitions=[0, 0])]
    shown = [
        (each.topic, [row.error_code for row in each.partition_result])
        for each in elect(client, named).replica_election_results
    ]
    assert shown == [(topic, []), (topic, [ELECTION_NOT_NEEDED] * 2)]
    everything = elect(client, None).replica_election_results
    assert [each.partition_result for each in everything if each.topic == topic] == [[]]


def elect(
    client: RawClient, named: list[elect_leaders.TopicPartitions] | None, election_type: int = 0
) -> elect_leaders.ElectLeadersResponse:
    request = elect_leaders.ElectLeadersRequest(
        election_type=election_type, topic_partitions=named, timeout_ms=10_000
    )
    return client.ask(request, 2, elect_leaders.ElectLeadersResponse)


def test_reassignments_are_answered_as_they_are_asked_for(client: RawClient, topic: str) -> None:
    cancelled = alter_partition_reassignments.ReassignablePartition(
        partition_index=0, replicas=None
    )
    row = alter_partition_reassignments.ReassignableTopic
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[row(name=topic, partitions=[]), row(name=topic, partitions=[cancelled] * 2)],
        timeout_ms=10_000,
    )
    answer = client.ask(
        request, 0, alter_partition_reassignments.AlterPartitionReassignmentsResponse
    )
    shown = [(each.name, len(each.partitions)) for each in answer.responses]
    assert shown == [(topic, 0), (topic, 2)]


def acl_requests() -> list[Message]:
    described: dict[str, Any] = {"operation": 2, "permission_type": 3, "resource_type_filter": 0}
    created: dict[str, Any] = {"operation": 2, "permission_type": 3, "resource_type": 0}
    return [
        describe_acls.DescribeAclsRequest(**described),
        create_acls.CreateAclsRequest(creations=[create_acls.AclCreation(**created)]),
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**described)]),
    ]


@pytest.mark.parametrize("request_index", range(3))
def test_acls_of_an_unknown_resource_type_close_the_connection(
    bootstrap: str, request_index: int
) -> None:
    request = acl_requests()[request_index]
    with RawClient(bootstrap) as client, pytest.raises(ConnectionError):
        client.ask(request, 2, describe_acls.DescribeAclsResponse)


def test_a_creation_that_is_only_checked_is_answered_with_an_id(
    client: RawClient, topic: str
) -> None:
    row = create_topics.CreatableTopic(
        name=f"{topic}-checked", num_partitions=1, replication_factor=1
    )
    request = create_topics.CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=True)
    (answer,) = client.ask(request, 7, create_topics.CreateTopicsResponse).topics
    assert answer.error_code == 0
    assert answer.topic_id != ZERO_UUID


def test_a_topic_to_be_deleted_by_name_and_id_stays(client: RawClient, topic: str) -> None:
    made = create_topics.CreatableTopic(
        name=f"{topic}-twice", num_partitions=1, replication_factor=1
    )
    creation = create_topics.CreateTopicsRequest(topics=[made], timeout_ms=10_000)
    (created,) = client.ask(creation, 7, create_topics.CreateTopicsResponse).topics
    by_name = delete_topics.DeleteTopicState(name=created.name, topic_id=ZERO_UUID)
    by_id = delete_topics.DeleteTopicState(name=None, topic_id=created.topic_id)

    def delete(*states: delete_topics.DeleteTopicState) -> list[tuple[str | None, bytes, int]]:
        request = delete_topics.DeleteTopicsRequest(topics=list(states), timeout_ms=10_000)
        rows = client.ask(request, 6, delete_topics.DeleteTopicsResponse).responses
        return sorted((row.name, row.topic_id, row.error_code) for row in rows)

    assert delete(by_name, by_id) == [(created.name, created.topic_id, INVALID_REQUEST)]
    answers = delete(by_name, by_name, by_id)
    assert [(name, code) for name, _, code in answers] == [
        (created.name, INVALID_REQUEST),
        (created.name, 0),
    ]


@pytest.mark.parametrize(
    ("pattern", "does_match"),
    [
        (None, True),
        ("", True),
        (".*", True),
        ("txn-[a-z]+ é.*", True),
        (r"txn-\pL+\s.+", True),
        ("(?i)TXN-.*", True),
        ("txn", False),
        (r"\Qtxn-.*\E", False),
    ],
)
def test_transactions_are_listed_by_a_pattern(
    client: RawClient, topic: str, pattern: str | None, does_match: bool
) -> None:
    require_version(client, 66, 2)
    transactional_id = f"txn-abc é-{topic}"
    init(client, transactional_id)
    request = list_transactions.ListTransactionsRequest(transactional_id_pattern=pattern)
    answer = client.ask(request, 2, list_transactions.ListTransactionsResponse)
    listed = {row.transactional_id for row in answer.transaction_states}
    assert (answer.error_code, transactional_id in listed) == (0, does_match)


@pytest.mark.parametrize(
    "pattern", ["(", "a**", "(?=x)", r"(a)\1", "x{2000}", r"\C", "[b-a]", r"\pQ"]
)
def test_a_pattern_that_is_none_is_refused(client: RawClient, pattern: str) -> None:
    require_version(client, 66, 2)
    init(client, "any")
    request = list_transactions.ListTransactionsRequest(transactional_id_pattern=pattern)
    answer = client.ask(request, 2, list_transactions.ListTransactionsResponse)
    assert answer.error_code == INVALID_REGULAR_EXPRESSION
