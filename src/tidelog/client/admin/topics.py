"""Topics: made, listed, described, grown, emptied, removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.acls import AclOperation
from tidelog.client.admin.acls import operations_of
from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError, refused
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidelog.types import TopicPartition, Uuid

LEFT_TO_BROKER: Final = -1
TO_END: Final = -1

_DEFAULTS_VERSION: Final = 4
_TOPIC_IDS_VERSION: Final = 6
_QUIET_METADATA_VERSION: Final = 4  # the first that need not create what it is asked about


class NewTopic(NamedTuple):
    """`assignments` gives the replicas of each partition and stands instead of both counts."""

    name: str
    num_partitions: int = LEFT_TO_BROKER
    replication_factor: int = LEFT_TO_BROKER
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """The counts are -1 and the id is zero where the broker does not say (before 2.4)."""

    name: str
    topic_id: Uuid
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


class NewPartitions(NamedTuple):
    """`total_count` counts those there are. `assignments` are the replicas of the new ones."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicListing(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool


class PartitionDescription(NamedTuple):
    """The eligible leader replicas are None where the broker does not say (before 4.0)."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None  # None unless asked for


class TopicCalls(Asking):
    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Result[CreatedTopic]]:
        """By name. A name alone is a topic with the broker's default counts."""
        wanted = {
            topic.name: topic
            for topic in (NewTopic(each) if isinstance(each, str) else each for each in topics)
        }

        async def step(names: list[str], left_ms: int) -> Found[str, CreatedTopic]:
            rows = [_creatable(wanted[name]) for name in names]
            request = CreateTopicsRequest(
                topics=rows, timeout_ms=left_ms, validate_only=validate_only
            )
            has_defaults = any(
                not row.assignments
                and LEFT_TO_BROKER in (row.num_partitions, row.replication_factor)
                for row in rows
            )
            response = await self.of_controller(
                request,
                CreateTopicsResponse,
                at_least=_DEFAULTS_VERSION if has_defaults else int(validate_only),
            )
            return {
                row.name: problem_of(f"topic {row.name}", row.error_code, row.error_message)
                or _created(row)
                for row in response.topics
            }

        final = _final(retry_on_quota_violation)
        return await self.each("creation of topics", wanted, step, timeout, final)

    async def delete_topics(
        self,
        topics: Iterable[str | Uuid],
        *,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str | Uuid, Result[None]]:
        """By name, or by id (brokers from 2.8)."""

        async def step(keys: list[str | Uuid], left_ms: int) -> Found[str | Uuid, None]:
            if all(isinstance(key, str) for key in keys):
                request = DeleteTopicsRequest(topic_names=list(map(str, keys)), timeout_ms=left_ms)
                bounds = {"at_most": _TOPIC_IDS_VERSION - 1, "at_least": 0}
            else:
                request = DeleteTopicsRequest(
                    topics=[_deletable(key) for key in keys], timeout_ms=left_ms
                )
                bounds = {"at_most": _TOPIC_IDS_VERSION, "at_least": _TOPIC_IDS_VERSION}
            response = await self.of_controller(request, DeleteTopicsResponse, **bounds)
            found: dict[str | Uuid, ClientError | None] = {}
            for row in response.responses:
                key = row.topic_id if row.topic_id in keys else row.name or row.topic_id
                found[key] = problem_of(f"topic {key}", row.error_code, row.error_message)
            return found

        final = _final(retry_on_quota_violation)
        return await self.each("deletion of topics", topics, step, timeout, final)

    async def list_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> list[TopicListing]:
        """By name. A topic's id is zero before 2.8."""

        async def ask(_: int) -> MetadataResponse:
            request = MetadataRequest(topics=None)
            return await self.of_any(request, MetadataResponse)

        response = await self.once("the list of topics", ask, timeout)
        return sorted(
            TopicListing(row.name, row.topic_id, row.is_internal)
            for row in response.topics
            if row.name is not None and (include_internal or not row.is_internal)
        )

    async def describe_all_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """By name, with one request for all of them. Topics that are in trouble are left out."""

        async def ask(_: int) -> MetadataResponse:
            return await self.of_any(MetadataRequest(topics=None), MetadataResponse)

        response = await self.once("the topics", ask, timeout)
        found = [
            _described(row)
            for row in response.topics
            if row.name is not None
            and not row.error_code
            and (include_internal or not row.is_internal)
        ]
        return {topic.name: topic for topic in sorted(found, key=lambda each: each.name)}

    async def describe_topics(
        self,
        topics: Iterable[str | Uuid],
        *,
        include_authorized_operations: bool = False,
        partition_limit: int = 2_000,
        timeout: float | None = None,
    ) -> dict[str | Uuid, Result[TopicDescription]]:
        """By name, or by id (brokers from 3.1). `partition_limit` bounds each answer, where a
        broker answers in pieces (from 3.8)."""

        async def step(keys: list[str | Uuid], _: int) -> Found[str | Uuid, TopicDescription]:
            node_id = await self.cluster.any_node()
            versions = await self.cluster.versions(node_id)
            can_page = versions.version_or_none(ApiKey.DESCRIBE_TOPIC_PARTITIONS) is not None
            names = [key for key in keys if isinstance(key, str) and not isinstance(key, Uuid)]
            if can_page and len(names) == len(keys):
                return await self._described_in_pieces(node_id, names, partition_limit)
            return await self._described_by_metadata(node_id, keys, include_authorized_operations)

        return await self.each("description of topics", topics, step, timeout)

    async def _described_in_pieces(
        self, node_id: int, names: list[str], partition_limit: int
    ) -> dict[str | Uuid, TopicDescription | ClientError]:
        """A large topic may come in several answers, one piece after the other."""
        found: dict[str | Uuid, TopicDescription | ClientError] = {}
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in sorted(names)],
                response_partition_limit=partition_limit,
                cursor=cursor,
            )
            response = await self.of_broker(node_id, request, DescribeTopicPartitionsResponse)
            for row in response.topics:
                name = row.name or ""
                known = found.get(name)
                earlier = known.partitions if isinstance(known, TopicDescription) else ()
                problem = problem_of(f"topic {name}", row.error_code)
                found[name] = problem or _described_piece(row, earlier)
            following = response.next_cursor
            if following is None or (cursor is not None and not _is_after(following, cursor)):
                return found
            cursor = following

    async def _described_by_metadata(
        self, node_id: int, keys: list[str | Uuid], include_operations: bool
    ) -> dict[str | Uuid, TopicDescription | ClientError]:
        by_id = any(isinstance(key, Uuid) for key in keys)
        versions = await self.cluster.versions(node_id)
        version = versions.version(ApiKey.METADATA, at_least=12 if by_id else 0)
        may_be_quiet = version >= _QUIET_METADATA_VERSION
        request = MetadataRequest(
            # Earlier versions create what is asked for by name.
            topics=[_metadata_row(key) for key in keys] if may_be_quiet else None,
            allow_auto_topic_creation=not may_be_quiet,
            include_topic_authorized_operations=include_operations and version >= 8,
        )
        response = await self.of_broker(node_id, request, MetadataResponse, at_most=version)
        found: dict[str | Uuid, TopicDescription | ClientError] = {}
        for row in response.topics:
            key = row.topic_id if row.topic_id in keys else row.name or ""
            found[key] = problem_of(f"topic {key}", row.error_code) or _described(row)
        missing = {
            key: refused(f"topic {key}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for key in keys
        }
        return missing | found

    async def create_partitions(
        self,
        totals: Mapping[str, NewPartitions | int],
        *,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout: float | None = None,
    ) -> dict[str, Result[None]]:
        """A number is the total count of partitions that the topic will have."""

        async def step(names: list[str], left_ms: int) -> Found[str, None]:
            request = CreatePartitionsRequest(
                topics=[_grown(name, totals[name]) for name in names],
                timeout_ms=left_ms,
                validate_only=validate_only,
            )
            response = await self.of_controller(request, CreatePartitionsResponse)
            return {
                row.name: problem_of(f"topic {row.name}", row.error_code, row.error_message)
                for row in response.results
            }

        final = _final(retry_on_quota_violation)
        return await self.each("creation of partitions", totals, step, timeout, final)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, Result[int]]:
        """Records below these offsets (TO_END: all) are deleted; gives the new low watermarks."""

        async def ask(
            node_id: int, partitions: list[TopicPartition], left_ms: int
        ) -> Found[TopicPartition, int]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for name, index in partitions:
                row = topics.setdefault(name, DeleteRecordsTopic(name=name))
                offset = before[TopicPartition(name, index)]
                row.partitions.append(DeleteRecordsPartition(partition_index=index, offset=offset))
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=left_ms)
            response = await self.of_broker(node_id, request, DeleteRecordsResponse)
            return {
                (partition := TopicPartition(topic.name, row.partition_index)): problem_of(
                    f"deletion of records of {partition}", row.error_code
                )
                or row.low_watermark
                for topic in response.topics
                for row in topic.partitions
            }

        async def step(
            partitions: list[TopicPartition], left_ms: int
        ) -> Found[TopicPartition, int]:
            return await self.of_leaders(
                partitions, lambda node_id, some: ask(node_id, some, left_ms)
            )

        return await self.each("deletion of records", before, step, timeout)


def _final(retry_on_quota_violation: bool) -> frozenset[ErrorCode]:
    """A quota that is exceeded is waited for, unless the caller does not want that."""
    if retry_on_quota_violation:
        return frozenset()
    return frozenset({ErrorCode.THROTTLING_QUOTA_EXCEEDED})


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=LEFT_TO_BROKER if assigned else topic.num_partitions,
        replication_factor=LEFT_TO_BROKER if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic:
    configs = {config.name: config.value for config in row.configs or ()}
    return CreatedTopic(row.name, row.topic_id, row.num_partitions, row.replication_factor, configs)


def _deletable(key: str | Uuid) -> DeleteTopicState:
    if isinstance(key, Uuid):
        return DeleteTopicState(name=None, topic_id=key)
    return DeleteTopicState(name=key)


def _grown(name: str, total: NewPartitions | int) -> CreatePartitionsTopic:
    wanted = NewPartitions(total) if isinstance(total, int) else total
    assignments = None
    if wanted.assignments is not None:
        assignments = [
            CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in wanted.assignments
        ]
    return CreatePartitionsTopic(name=name, count=wanted.total_count, assignments=assignments)


def _metadata_row(key: str | Uuid) -> MetadataRequestTopic:
    if isinstance(key, Uuid):
        return MetadataRequestTopic(topic_id=key, name=None)
    return MetadataRequestTopic(name=key)


def _described(row: MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(row.partitions, key=lambda each: each.partition_index)
    )
    operations = operations_of(row.topic_authorized_operations)
    return TopicDescription(row.name or "", row.topic_id, row.is_internal, partitions, operations)


def _described_piece(
    row: DescribeTopicPartitionsResponseTopic, earlier: tuple[PartitionDescription, ...]
) -> TopicDescription:
    partitions = {each.partition: each for each in earlier}
    for each in row.partitions:
        partitions[each.partition_index] = PartitionDescription(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            _tuple_or_none(each.eligible_leader_replicas),
            _tuple_or_none(each.last_known_elr),
        )
    return TopicDescription(
        row.name or "",
        row.topic_id,
        row.is_internal,
        tuple(partitions[index] for index in sorted(partitions)),
        operations_of(row.topic_authorized_operations),
    )


def _tuple_or_none(numbers: list[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(numbers)


def _is_after(cursor: Cursor, earlier: Cursor) -> bool:
    """Whether a cursor moves on. One that does not would be followed for ever."""
    return (cursor.topic_name, cursor.partition_index) > (
        earlier.topic_name,
        earlier.partition_index,
    )
