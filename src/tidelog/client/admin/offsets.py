"""Offsets of partitions: the first, the last, that of the largest timestamp, or by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError
from tidelog.config.client import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.listed_timestamps import FIRST_VERSION_OF
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.types import TopicPartition

NO_OFFSET: Final = -1
_TIME_VERSION: Final = 1
_ISOLATION_VERSION: Final = 2


class ListedOffset(NamedTuple):
    offset: int  # NO_OFFSET when no record is as late as the timestamp asked for
    timestamp: int = -1  # of that record; -1 for earliest and latest
    leader_epoch: int | None = None  # None where the broker does not say


class OffsetCalls(Asking):
    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[ListedOffset]]:
        """LATEST, EARLIEST or another of `protocol/listed_timestamps.py`, or a timestamp: the first
        offset that is as late. With read_committed LATEST is the last stable offset."""
        level = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}[
            isolation_level
        ]

        async def ask(
            node_id: int, partitions: list[TopicPartition]
        ) -> Found[TopicPartition, ListedOffset]:
            asked = {partition: wanted[partition] for partition in partitions}
            versions = await self.cluster.versions(node_id)
            at_least = max(FIRST_VERSION_OF.get(each, 0) for each in asked.values())
            if level == READ_COMMITTED:
                at_least = max(at_least, _ISOLATION_VERSION)
            version = versions.version(ApiKey.LIST_OFFSETS, at_least=at_least)
            request = _request(asked, level if version >= _ISOLATION_VERSION else 0)
            response = await self.of_broker(
                node_id, request, ListOffsetsResponse, at_most=version, at_least=at_least
            )
            found: dict[TopicPartition, ListedOffset | ClientError] = {}
            for topic in response.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    problem = problem_of(f"offset of partition {key}", row.error_code)
                    found[key] = problem or _listed(row, version)
            return found

        async def step(
            partitions: list[TopicPartition], _: int
        ) -> Found[TopicPartition, ListedOffset]:
            return await self.of_leaders(partitions, ask)

        return await self.each("offsets", wanted, step, timeout)


def _request(asked: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in asked.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=list(topics.values())
    )


def _listed(row: ListOffsetsPartitionResponse, version: int) -> ListedOffset:
    if version < _TIME_VERSION:  # Kafka 0.10.0: offsets of segments, the latest first
        offset = row.old_style_offsets[0] if row.old_style_offsets else NO_OFFSET
        return ListedOffset(offset)
    epoch = None if row.leader_epoch < 0 else row.leader_epoch
    return ListedOffset(row.offset, row.timestamp, epoch)
