"""Offsets of many partitions at once by ListOffsets: one request a leader, all of them in flight.

EARLIEST        the first offset that can be read
LATEST          the offset after the last one: the high watermark, or with
                isolation.level=read_committed the last stable offset
MAX_TIMESTAMP   the offset of the record with the largest timestamp (brokers from 3.0)
a timestamp     the first offset whose timestamp is at least that; -1 when there is none
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import ClientError, refused
from tidelog.client.network.backoff import may_pass
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NO_OFFSET: Final = -1

_MAX_TIMESTAMP_VERSION = 7


class FoundOffset(NamedTuple):
    offset: int  # NO_OFFSET when no record is as late as the timestamp asked for
    timestamp: int  # of that record; -1 for earliest and latest
    leader_epoch: int  # -1 where the broker does not say


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FoundOffset]:
    """One of the above for each partition; raises UnknownTopic when one is not there."""
    found: dict[TopicPartition, FoundOffset] = {}
    left = dict(wanted)
    patience = cluster.patience(f"offsets of {_names(left)}")
    while left:
        problems: list[ClientError] = []
        found_now = _ask_leaders(cluster, left, problems)
        found.update(found_now)
        for partition in found_now:
            del left[partition]
        if found_now:
            patience.progressed()
        if left:
            cluster.refresh({partition.topic for partition in left})
            patience.wait_after(problems[0])
    return found


def earliest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: row.offset for partition, row in found.items()}


def latest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {partition: row.offset for partition, row in found.items()}


def _ask_leaders(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], problems: list[ClientError]
) -> dict[TopicPartition, FoundOffset]:
    """What could be found by one request to each leader; errors that may pass go to `problems`."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, timestamp in wanted.items():
        try:
            leader_id = cluster.leader_of(partition).leader_id
        except ClientError as problem:
            _keep_if_it_may_pass(problem, problems)
        else:
            by_leader.setdefault(leader_id, {})[partition] = timestamp
    sent: list[Connection] = []
    found: dict[TopicPartition, FoundOffset] = {}
    try:
        for leader_id, asked in by_leader.items():
            try:
                connection = cluster.take(leader_id)
                sent.append(connection)
                _send(connection, asked, cluster.config.isolation_level)
            except ClientError as problem:
                _keep_if_it_may_pass(problem, problems)
        for connection in sent:
            if connection.in_flight:
                _receive(connection, found, problems)
    finally:
        for connection in sent:
            cluster.give_back(connection)
    return found


def _keep_if_it_may_pass(problem: ClientError, problems: list[ClientError]) -> None:
    # A topic that fresh metadata does not show is not waited for: the caller knows better how long.
    if problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not may_pass(problem):
        raise problem
    problems.append(problem)


def _send(
    connection: Connection, asked: Mapping[TopicPartition, int], isolation_level: int
) -> None:
    version = connection.versions.version(ApiKey.LIST_OFFSETS, at_least=1)
    if version < _MAX_TIMESTAMP_VERSION and MAX_TIMESTAMP in asked.values():
        raise refused(
            f"offset of the largest timestamp from broker {connection.broker}",
            ErrorCode.UNSUPPORTED_VERSION,
            f"it offers ListOffsets up to version {version}, needed is {_MAX_TIMESTAMP_VERSION}.",
        )
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in asked.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    rows = [ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level if version >= 2 else 0, topics=rows
    )
    connection.send(request, version)


def _receive(
    connection: Connection,
    found: dict[TopicPartition, FoundOffset],
    problems: list[ClientError],
) -> None:
    try:
        response = connection.receive().response
    except ClientError as problem:
        _keep_if_it_may_pass(problem, problems)
        return
    assert isinstance(response, ListOffsetsResponse), response
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code == ErrorCode.NONE:
                found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
                continue
            refusal = refused(f"offset of partition {partition}", row.error_code)
            if not may_pass(refusal):
                raise refusal
            problems.append(refusal)


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = sorted(map(str, partitions))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
