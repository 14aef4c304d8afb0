"""Committing offsets without being a member, for the columnar client.

A simple consumer commits with generation -1 and no member id. The coordinator takes that as long as
the group has no members; so the progress of a reader that assigns partitions to itself shows up in
every tool that lists groups and their lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.client.coordinators import CoordinatorKind, ask_coordinator
from tidelog.client.errors import (
    BrokerRefused,
    CommitRefused,
    NotAuthorized,
    error_code,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection


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
