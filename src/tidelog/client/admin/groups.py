"""Consumer groups, seen from outside: which there are, who is in them, how far they are.

A group of the consumer protocol (KIP-848) is described by ConsumerGroupDescribe, any other by
DescribeGroups; the first is tried where the broker offers it, as by Kafka's own admin client.

Offsets are committed from outside with no generation and no member id. The coordinator takes that
as long as the group has no members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.acls import AclOperation
from tidelog.client.admin.acls import operations_of
from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.consumer.offset_and_metadata import (
    OffsetAndMetadata,
    known_epoch,
    require_committable,
    wire_epoch,
)
from tidelog.client.errors import ClientError, CommitRefused, refused
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.client.network.metadata import Node
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages import consumer_group_describe as consumer_groups
from tidelog.protocol.messages import describe_groups as classic_groups
from tidelog.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.types import TopicPartition

GROUP: Final = CoordinatorKind.GROUP
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"

_STATES_VERSION: Final = 4
_TYPES_VERSION: Final = 5
_ALL_OFFSETS_VERSION: Final = 2
_STABLE_VERSION: Final = 7
_SEVERAL_GROUPS_VERSION: Final = 8
_SEVERAL_MEMBERS_VERSION: Final = 3
_CONSUMER_MEMBER: Final = 1
_ADMIN_REASON: Final = "member was removed by an admin"


class GroupListing(NamedTuple):
    """State and type are empty where the broker does not say (before 2.6 and 3.8)."""

    group_id: str
    protocol_type: str
    state: str
    type: str

    @property
    def is_simple(self) -> bool:
        """Whether the group only holds offsets and never had members."""
        return not self.protocol_type


class GroupMember(NamedTuple):
    """The fields from `target_assignment` on are of the consumer protocol alone."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    subscribed_topics: tuple[str, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscribed_pattern: str | None = None
    member_epoch: int | None = None
    rack: str | None = None
    uses_classic_protocol: bool = True


class GroupDescription(NamedTuple):
    """`assignor` is what the members agreed on, or the broker's own assignor."""

    group_id: str
    type: str  # classic or consumer
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None


class GroupCalls(Asking):
    async def list_groups(
        self,
        *,
        states: Collection[str] = (),
        types: Collection[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """Of all brokers, by name; the brokers filter. Raises if one of them cannot tell."""
        needed = _TYPES_VERSION if types else _STATES_VERSION if states else 0

        async def ask(node_id: int, _: list[int]) -> Found[int, list[GroupListing]]:
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
            response = await self.of_broker(node_id, request, ListGroupsResponse, at_least=needed)
            problem = problem_of(f"groups of broker {node_id}", response.error_code)
            rows = [
                GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
                for row in response.groups
            ]
            return {node_id: problem or rows}

        async def step(nodes: list[int], _: int) -> Found[int, list[GroupListing]]:
            return await self.of_brokers({node_id: [node_id] for node_id in nodes}, ask)

        brokers = await self.broker_ids(timeout)
        found = await self.each("the list of groups", brokers, step, timeout)
        return sorted({row for result in found.values() for row in result.get()})

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, Result[GroupDescription]]:
        """Of either protocol. One that does not exist is refused with GROUP_ID_NOT_FOUND."""

        async def ask(node_id: int, some: list[str]) -> Found[str, GroupDescription]:
            found: dict[str, GroupDescription | ClientError] = {}
            versions = await self.cluster.versions(node_id)
            if versions.version_or_none(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None:
                found = await self._consumer_groups(node_id, some, include_authorized_operations)
            others = [group_id for group_id in some if _is_other(found.get(group_id))]
            if others:
                found |= await self._classic_groups(node_id, others, include_authorized_operations)
            return found

        async def step(some: list[str], _: int) -> Found[str, GroupDescription]:
            return await self.of_coordinators(GROUP, some, ask)

        return await self.each("description of groups", group_ids, step, timeout)

    async def _consumer_groups(
        self, node_id: int, group_ids: list[str], include_operations: bool
    ) -> dict[str, GroupDescription | ClientError]:
        request = consumer_groups.ConsumerGroupDescribeRequest(
            group_ids=group_ids, include_authorized_operations=include_operations
        )
        kind = consumer_groups.ConsumerGroupDescribeResponse
        response = await self.of_coordinator(node_id, request, kind)
        return {
            row.group_id: problem_of(f"group {row.group_id}", row.error_code, row.error_message)
            or GroupDescription(
                row.group_id,
                CONSUMER,
                row.group_state,
                CONSUMER,
                row.assignor_name,
                self.cluster.node(node_id),
                tuple(map(_consumer_member, row.members)),
                row.group_epoch,
                row.assignment_epoch,
                operations_of(row.authorized_operations),
            )
            for row in response.groups
        }

    async def _classic_groups(
        self, node_id: int, group_ids: list[str], include_operations: bool
    ) -> dict[str, GroupDescription | ClientError]:
        request = classic_groups.DescribeGroupsRequest(
            groups=group_ids, include_authorized_operations=include_operations
        )
        at_least = 3 if include_operations else 0
        kind = classic_groups.DescribeGroupsResponse
        response = await self.of_coordinator(node_id, request, kind, at_least=at_least)
        found: dict[str, GroupDescription | ClientError] = {}
        for row in response.groups:
            code = row.error_code
            if code == ErrorCode.NONE and row.group_state == DEAD and not row.members:
                code = ErrorCode.GROUP_ID_NOT_FOUND  # as brokers before 4.0 say it
            found[row.group_id] = problem_of(
                f"group {row.group_id}", code, row.error_message
            ) or GroupDescription(
                row.group_id,
                CLASSIC,
                row.group_state,
                row.protocol_type,
                row.protocol_data,
                self.cluster.node(node_id),
                tuple(_classic_member(member) for member in row.members),
                authorized_operations=operations_of(row.authorized_operations),
            )
        return found

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, in all partitions or in these (None where nothing is).

        `require_stable` waits for offsets that a transaction is about to commit.
        """
        wanted = None if partitions is None else list(partitions)
        what = f"offsets of group {group_id}"

        async def ask(_: int) -> OffsetFetchResponse:
            node_id = await self.coordinator_of(GROUP, group_id)
            at_most = LAST_BY_NAME[ApiKey.OFFSET_FETCH]
            at_least = _ALL_OFFSETS_VERSION if wanted is None else 0
            at_least = _STABLE_VERSION if require_stable else at_least
            versions = await self.cluster.versions(node_id)
            version = versions.version(ApiKey.OFFSET_FETCH, at_most, at_least)
            request = _offset_fetch(group_id, wanted, version, require_stable)
            answer = await self.of_coordinator(
                node_id, request, OffsetFetchResponse, at_most=version, at_least=at_least
            )
            problem = problem_of(what, _group_code(answer))
            if problem is not None:
                raise problem
            return answer

        response = await self.once(what, ask, timeout)
        topics = response.groups[0].topics if response.groups else response.topics
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted or ())
        for topic in topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                problem = problem_of(f"offset of group {group_id} in {key}", row.error_code)
                if problem is not None:
                    raise problem
                if row.committed_offset >= 0:
                    epoch = known_epoch(row.committed_leader_epoch)
                    found[key] = OffsetAndMetadata(row.committed_offset, epoch, row.metadata or "")
        return found

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[None]]:
        """Commits the offsets to read next, for a group without members."""

        wanted = {
            partition: OffsetAndMetadata(given) if isinstance(given, int) else given
            for partition, given in offsets.items()
        }
        require_committable(wanted)

        async def step(some: list[TopicPartition], _: int) -> Found[TopicPartition, None]:
            node_id = await self.coordinator_of(GROUP, group_id)
            topics: dict[str, OffsetCommitRequestTopic] = {}
            for partition in some:
                row = wanted[partition]
                topic = topics.setdefault(
                    partition.topic, OffsetCommitRequestTopic(name=partition.topic)
                )
                topic.partitions.append(
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=row.offset,
                        committed_leader_epoch=wire_epoch(row.leader_epoch),
                        committed_metadata=row.metadata,
                    )
                )
            request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
            response = await self.of_coordinator(
                node_id,
                request,
                OffsetCommitResponse,
                at_most=LAST_BY_NAME[ApiKey.OFFSET_COMMIT],
            )
            return {
                (key := TopicPartition(topic.name, row.partition_index)): _commit_problem(
                    group_id, key, row.error_code
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self.each(f"offset commit of group {group_id}", wanted, step, timeout)

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, Result[None]]:
        """Forgets what the group has committed there (brokers from 2.4)."""
        what = f"deletion of offsets of group {group_id}"

        async def step(some: list[TopicPartition], _: int) -> Found[TopicPartition, None]:
            node_id = await self.coordinator_of(GROUP, group_id)
            topics: dict[str, OffsetDeleteRequestTopic] = {}
            for name, index in some:
                topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
                topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
            request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
            response = await self.of_coordinator(node_id, request, OffsetDeleteResponse)
            problem = problem_of(what, response.error_code)
            if problem is not None:
                raise problem
            return {
                (key := TopicPartition(topic.name, row.partition_index)): problem_of(
                    f"offset of group {group_id} in {key}", row.error_code
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self.each(what, partitions, step, timeout)

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, Result[None]]:
        """Groups without members, and all their offsets (brokers from 1.1)."""

        async def ask(node_id: int, some: list[str]) -> Found[str, None]:
            request = DeleteGroupsRequest(groups_names=some)
            response = await self.of_coordinator(node_id, request, DeleteGroupsResponse)
            return {
                row.group_id: problem_of(f"deletion of group {row.group_id}", row.error_code)
                for row in response.results
            }

        async def step(some: list[str], _: int) -> Found[str, None]:
            return await self.of_coordinators(GROUP, some, ask)

        return await self.each("deletion of groups", group_ids, step, timeout)

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Result[None]]:
        """Static members by their group.instance.id, or all members (None). The result has the
        member id of a member without an instance id (brokers from 2.4)."""
        why = _ADMIN_REASON if reason is None else f"{_ADMIN_REASON}: {reason}"
        members: dict[str, MemberIdentity] = {}
        if instance_ids is None:
            described = await self.describe_groups([group_id], timeout=timeout)
            for member in described[group_id].get().members:
                key = member.group_instance_id or member.member_id
                is_static = member.group_instance_id is not None
                members[key] = MemberIdentity(
                    member_id="" if is_static else member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason=why,
                )
        else:
            for instance_id in instance_ids:
                members[instance_id] = MemberIdentity(
                    member_id="", group_instance_id=instance_id, reason=why
                )

        async def step(some: list[str], _: int) -> Found[str, None]:
            node_id = await self.coordinator_of(GROUP, group_id)
            request = LeaveGroupRequest(group_id=group_id, members=[members[key] for key in some])
            response = await self.of_coordinator(
                node_id, request, LeaveGroupResponse, at_least=_SEVERAL_MEMBERS_VERSION
            )
            problem = problem_of(f"group {group_id}", response.error_code)
            if problem is not None:
                raise problem
            return {
                (key := row.group_instance_id or row.member_id): problem_of(
                    f"member {key} of group {group_id}", row.error_code
                )
                for row in response.members
            }

        return await self.each(f"removal from group {group_id}", members, step, timeout)


def _is_other(found: GroupDescription | ClientError | None) -> bool:
    """Whether the group may use the classic protocol."""
    if found is None:
        return True
    return isinstance(found, ClientError) and found.code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
    )


def _consumer_member(row: consumer_groups.Member) -> GroupMember:
    return GroupMember(
        row.member_id,
        row.instance_id,
        row.client_id,
        row.client_host,
        _partitions(row.assignment),
        tuple(row.subscribed_topic_names),
        _partitions(row.target_assignment),
        row.subscribed_topic_regex or None,
        row.member_epoch,
        row.rack_id,
        uses_classic_protocol=0 <= row.member_type < _CONSUMER_MEMBER,
    )


def _partitions(assignment: consumer_groups.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _classic_member(row: classic_groups.DescribedGroupMember) -> GroupMember:
    return GroupMember(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        _assigned(row.member_assignment),
        _subscribed(row.member_metadata),
    )


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


def _subscribed(data: bytes) -> tuple[str, ...]:
    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolSubscription.MAX_VERSION)
    try:
        subscription = ConsumerProtocolSubscription.decode(memoryview(data), 2, version)
    except (DecodeError, IndexError):
        return ()
    return tuple(subscription.topics)


def _offset_fetch(
    group_id: str,
    partitions: list[TopicPartition] | None,
    version: int,
    require_stable: bool,
) -> OffsetFetchRequest:
    indexes: dict[str, list[int]] = {}
    for name, index in partitions or ():
        indexes.setdefault(name, []).append(index)
    if version >= _SEVERAL_GROUPS_VERSION:
        rows = [
            OffsetFetchRequestTopics(name=name, partition_indexes=some)
            for name, some in indexes.items()
        ]
        group = OffsetFetchRequestGroup(
            group_id=group_id, topics=None if partitions is None else rows
        )
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)
    old_rows = [
        OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in indexes.items()
    ]
    return OffsetFetchRequest(
        group_id=group_id,
        topics=None if partitions is None else old_rows,
        require_stable=require_stable,
    )


def _group_code(response: OffsetFetchResponse) -> int:
    return response.groups[0].error_code if response.groups else response.error_code


def _commit_problem(group_id: str, partition: TopicPartition, code: int) -> ClientError | None:
    if code == ErrorCode.NONE:
        return None
    problem = refused(f"offset commit of group {group_id} for partition {partition}", code)
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        return CommitRefused(f"{problem} (the group has members of its own)", code)
    return problem
