"""Offsets of many partitions at once by ListOffsets: one request to each leader, all in flight.

A timestamp asks for the first record that is at least as late; -1 for the end of the log (with
read_committed the last stable offset), -2 for its beginning. Brokers before 0.10.1 know the last
two only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import ClientError, UnsupportedByBroker, refused
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
    from collections.abc import Mapping

    from tidelog.client.network.cluster import Cluster

NO_OFFSET: Final = -1


class FoundOffset(NamedTuple):
    offset: int  # NO_OFFSET when no record is as late as the timestamp asked for
    timestamp: int  # of that record; -1 for the beginning and the end
    leader_epoch: int  # -1 where the broker does not say


class Answers(NamedTuple):
    """What one round of requests brought; every partition is in one of the two."""

    found: dict[TopicPartition, FoundOffset]
    failed: dict[TopicPartition, ClientError]


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FoundOffset]:
    """One timestamp for each partition; retries for default.api.timeout.ms."""
    found: dict[TopicPartition, FoundOffset] = {}
    left = dict(wanted)
    what = f"offsets of {names_of(left)}"
    patience = cluster.patience(what)
    while left:
        try:
            async with asyncio.timeout(patience.left_s):
                for topic in {partition.topic for partition in left}:
                    if cluster.metadata.topic_or_none(topic) is None:
                        await cluster.topic(topic, limit_key="default.api.timeout.ms")
                answers = await ask_leaders(cluster, left)
        except TimeoutError:
            raise patience.given_up(refused(what, ErrorCode.REQUEST_TIMED_OUT)) from None
        found.update(answers.found)
        for partition in answers.found:
            del left[partition]
        if left:
            problem = next(iter(answers.failed.values()))
            for failed in answers.failed.values():
                if not may_pass(failed):
                    raise failed
            await patience.wait_after(problem)
            cluster.metadata.forget({partition.topic for partition in left})
    return found


async def ask_leaders(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> Answers:
    """One try."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    answers = Answers({}, {})
    for partition, timestamp in wanted.items():
        leader = cluster.metadata.leader_or_none(partition)
        if leader is None:
            answers.failed[partition] = no_leader(cluster, partition)
        else:
            by_leader.setdefault(leader.leader_id, {})[partition] = timestamp
    await asyncio.gather(
        *(_ask_leader(cluster, node_id, asked, answers) for node_id, asked in by_leader.items())
    )
    return answers


def no_leader(cluster: Cluster, partition: TopicPartition) -> ClientError:
    """The error for a partition without a leader in the metadata; a retry may succeed."""
    code = ErrorCode.LEADER_NOT_AVAILABLE
    if cluster.metadata.partition_or_none(partition) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused(f"partition {partition}", code)


async def _ask_leader(
    cluster: Cluster, node_id: int, asked: dict[TopicPartition, int], answers: Answers
) -> None:
    try:
        version = (await cluster.versions(node_id)).version(ApiKey.LIST_OFFSETS)
        response = await cluster.call(node_id, _request(cluster, version, asked), at_most=version)
    except ClientError as problem:
        answers.failed.update(dict.fromkeys(asked, problem))
        return
    assert isinstance(response, ListOffsetsResponse), response
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if partition not in asked:
                continue
            if row.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                answers.found[partition] = FoundOffset(NO_OFFSET, -1, -1)
            elif row.error_code:
                answers.failed[partition] = refused(f"offset of {partition}", row.error_code)
            elif version == 0:
                offsets = row.old_style_offsets
                answers.found[partition] = FoundOffset(offsets[0] if offsets else -1, -1, -1)
            else:
                answers.found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
    for partition in asked.keys() - answers.found.keys() - answers.failed.keys():
        answers.failed[partition] = refused(
            f"offset of {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The answer lacks it."
        )


def _request(
    cluster: Cluster, version: int, asked: Mapping[TopicPartition, int]
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in asked.items():
        if version == 0 and timestamp >= 0:
            raise UnsupportedByBroker(
                f"offset of {partition} at a time: the broker is older than 0.10.1"
            )
        row = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        leader = cluster.metadata.leader_or_none(partition)
        if version >= 4 and leader is not None:
            row.current_leader_epoch = leader.leader_epoch
        topics.setdefault(partition.topic, []).append(row)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    if version >= 2:
        request.isolation_level = cluster.config.isolation_level
    return request


def names_of(partitions: Mapping[TopicPartition, object]) -> str:
    names = sorted(map(str, partitions))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
