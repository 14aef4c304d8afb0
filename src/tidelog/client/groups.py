"""Consumer groups, seen from outside: which there are, who is in them, how far they are; committing
offsets without being a member, and deleting groups or some of their offsets.

A simple consumer commits with generation -1 and no member id. The coordinator takes that as long as
the group has no members; so the progress of a reader that assigns partitions to itself shows up in
every tool that lists groups and their lag.

A group of the consumer protocol (KIP-848) is described by ConsumerGroupDescribe, any other by
DescribeGroups; the first is tried where the broker offers it, as by Kafka's own admin client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.client.coordinators import CoordinatorKind, ask_coordinator
from tidelog.client.errors import (
    BrokerRefused,
    CommitRefused,
    NotAuthorized,
    UnsupportedByBroker,
    error_code,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
from tidelog.client.coordinators import Coordinator

Answered = TypeVar("Answered")

DEAD: Final = "Dead"
EMPTY: Final = "Empty"
_STATES_VERSION: Final = 4
_TYPES_VERSION: Final = 5
_SEVERAL_GROUPS_VERSION: Final = 8


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str  # empty before 2.6
    type: str  # empty before 3.8


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    group_id: str
    coordinator: Coordinator
    state: str
    assignor: str
    members: tuple[GroupMember, ...]


def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """Of all brokers, by name; the filters are the brokers' own."""
    needed = _TYPES_VERSION if types else _STATES_VERSION if states else 0
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

    def ask(connection: Connection) -> list[GroupListing]:
        version = connection.versions.version(ApiKey.LIST_GROUPS)
        if version < needed:
            raise UnsupportedByBroker(
                f"broker {connection.broker} offers LIST_GROUPS up to version {version}, this "
                f"filter needs {needed}"
            )
        response = connection.call(request, version)
        assert isinstance(response, ListGroupsResponse), response
        if response.error_code:
            raise refused(f"groups of broker {connection.broker}", response.error_code)
        return [
            GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
            for row in response.groups
        ]

    return sorted(
        listing
        for node_id in cluster.brokers()
        for listing in cluster.ask_broker(node_id, f"groups of broker {node_id}", ask)
    )


def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """One that does not exist is in state Dead, as brokers before 4.0 say it."""

    def ask(connection: Connection, coordinator: Coordinator) -> GroupDescription:
        if connection.versions.version_or_none(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None:
            try:
                return _described_by_consumer_protocol(connection, coordinator, group_id)
            except BrokerRefused as refusal:
                if refusal.code not in (
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    ErrorCode.UNSUPPORTED_VERSION,
                ):
                    raise
        return _described(connection, coordinator, group_id)

    return _ask(cluster, group_id, "description", ask)


def _described(connection: Connection, coordinator: Coordinator, group_id: str) -> GroupDescription:
    version = connection.versions.version(ApiKey.DESCRIBE_GROUPS)
    response = connection.call(DescribeGroupsRequest(groups=[group_id]), version)
    assert isinstance(response, DescribeGroupsResponse), response
    (row,) = response.groups
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, coordinator, DEAD, "", ())
    if row.error_code:
        raise refused(f"group {group_id}", row.error_code, row.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.member_assignment),
        )
        for member in row.members
    )
    return GroupDescription(group_id, coordinator, row.group_state, row.protocol_data, members)


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Of a consumer's assignment; other programs that use groups have forms of their own."""
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        assignment = ConsumerProtocolAssignment.decode(memoryview(data), 2, version)
    except (DecodeError, IndexError):
        return ()
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in assignment.assigned_partitions
        for index in topic.partitions
    )


def _described_by_consumer_protocol(
    connection: Connection, coordinator: Coordinator, group_id: str
) -> GroupDescription:
    version = connection.versions.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
    response = connection.call(ConsumerGroupDescribeRequest(group_ids=[group_id]), version)
    assert isinstance(response, ConsumerGroupDescribeResponse), response
    (row,) = response.groups
    if row.error_code:
        raise refused(f"group {group_id}", row.error_code, row.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in row.members
    )
    return GroupDescription(group_id, coordinator, row.group_state, row.assignor_name, members)


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, int]:
    """All that the group has committed."""

    def ask(connection: Connection, _: Coordinator) -> dict[TopicPartition, int]:
        version = connection.versions.version(ApiKey.OFFSET_FETCH, at_most=9, at_least=2)
        if version >= _SEVERAL_GROUPS_VERSION:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
            )
        else:
            request = OffsetFetchRequest(group_id=group_id, topics=None)
        response = connection.call(request, version)
        assert isinstance(response, OffsetFetchResponse), response
        found = response.groups[0] if response.groups else response
        if found.error_code:
            raise refused(f"offsets of group {group_id}", found.error_code)
        offsets: dict[TopicPartition, int] = {}
        for topic in found.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    raise refused(f"offset of group {group_id} in {partition}", row.error_code)
                offsets[partition] = row.committed_offset
        return offsets

    return _ask(cluster, group_id, "offsets", ask)


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commits the offset to read next of each partition; retries while the coordinator moves.

    Raises UnsupportedByBroker when the broker has no group coordinator, CommitRefused when the
    group does not take it (it has members, say).
    """
    ask_coordinator(
        cluster,
        CoordinatorKind.GROUP,
        group_id,
        f"offset commit of group {group_id}",
        lambda connection, _: _commit(connection, group_id, offsets),
    )


def _commit(connection: Connection, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[]))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
    version = connection.versions.version(ApiKey.OFFSET_COMMIT, at_most=9)
    response = connection.call(request, version)
    assert isinstance(response, OffsetCommitResponse), response
    for row in response.topics:
        for partition_row in row.partitions:
            if partition_row.error_code:
                where = f"{row.name}-{partition_row.partition_index}"
                raise _commit_refused(group_id, where, partition_row.error_code)


def _commit_refused(group_id: str, partition: str, code: int) -> BrokerRefused:
    problem = refused(f"offset commit of group {group_id} for partition {partition}", code)
    if isinstance(problem, NotAuthorized) or may_pass(problem):
        return problem
    why = ""
    if error_code(code) in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        why = " (the group has members of its own)"
    return CommitRefused(problem.message + why, code)


def delete_group(cluster: Cluster, group_id: str) -> None:
    def ask(connection: Connection, _: Coordinator) -> None:
        version = connection.versions.version(ApiKey.DELETE_GROUPS)
        response = connection.call(DeleteGroupsRequest(groups_names=[group_id]), version)
        assert isinstance(response, DeleteGroupsResponse), response
        (row,) = response.results
        if row.error_code:
            raise refused(f"deletion of group {group_id}", row.error_code)

    _ask(cluster, group_id, "deletion", ask)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """What came of each partition."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name, partitions=[]))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

    def ask(connection: Connection, _: Coordinator) -> dict[TopicPartition, ErrorCode]:
        response = connection.call(request, connection.versions.version(ApiKey.OFFSET_DELETE))
        assert isinstance(response, OffsetDeleteResponse), response
        if response.error_code:
            raise refused(f"deletion of offsets of group {group_id}", response.error_code)
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.error_code)
            for topic in response.topics
            for row in topic.partitions
        }

    return _ask(cluster, group_id, "deletion of offsets", ask)


def _ask(
    cluster: Cluster,
    group_id: str,
    what: str,
    ask: Callable[[Connection, Coordinator], Answered],
) -> Answered:
    what = f"{what} of group {group_id}"
    return ask_coordinator(cluster, CoordinatorKind.GROUP, group_id, what, ask)
