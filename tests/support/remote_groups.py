"""The group coordinator of a broker somewhere else, asked over a socket.

It has those methods of `GroupCoordinator` that stories of consumer groups call, so that the same
story can be told to Apache Kafka. Requests are written by tidelog's codec, which other tests hold
against strangers'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from tests.support.raw_client import RawClient
from tidelog.coordinator.group.classic.classic_group_membership import Joining
from tidelog.coordinator.group.consumer.consumer_group_membership import Sender
from tidelog.coordinator.group.offsets import CommittedOffset, GroupOffsets, NewOffset
from tidelog.coordinator.group.results import (
    ConsumerGroupHeartbeatResult,
    JoinedMember,
    JoinGroupResult,
    SyncGroupResult,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.types import Uuid

SETTLE_S = 2.0  # until the coordinator has heard of a change to the topics
LOADING = (14, 15, 16)
TRIES = 100

Answer = TypeVar("Answer", bound=Message)


class RemoteBroker:
    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap)
        self._calls = 0

    def ask(self, request: Message, answer: type[Answer], version: int) -> Answer:
        self._calls += 1
        header = encode_request_header(request.API_KEY, version, self._calls, "story")
        self._client.send_frame(bytes(header) + bytes(request.encode(version)))
        frame = self._client.read_frame()
        start = 4 + response_header_version(request.API_KEY, version)
        return answer.decode(memoryview(frame), start, version)

    def ask_until_loaded(
        self, request: Message, answer: type[Answer], version: int, code: Callable[[Answer], int]
    ) -> Answer:
        for _ in range(TRIES):
            found = self.ask(request, answer, version)
            if code(found) not in LOADING:
                return found
            time.sleep(0.1)
        raise AssertionError("the coordinator does not load")


class RemoteTopics:
    """As `FakeTopics`, but they are really there."""

    def __init__(self, broker: RemoteBroker) -> None:
        self._broker = broker
        self.topics: dict[str, Any] = {}
        self.by_id: dict[Uuid, Any] = {}

    def make(self, name: str, partition_count: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = self._broker.ask(request, CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 0, answer
        time.sleep(SETTLE_S)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (row,) = self._broker.ask(wanted, MetadataResponse, 12).topics
        self.topics[name] = self.by_id[row.topic_id] = SimpleNamespace(
            name=name, topic_id=row.topic_id
        )

    def grow(self, name: str, partition_count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=partition_count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        answer = self._broker.ask(request, CreatePartitionsResponse, 3)
        assert answer.results[0].error_code == 0, answer
        time.sleep(SETTLE_S)

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        self._broker.ask(request, DeleteTopicsResponse, 5)
        del self.by_id[self.topics.pop(name).topic_id]
        time.sleep(SETTLE_S)


class RemoteGroups:
    def __init__(self, broker: RemoteBroker) -> None:
        self._broker = broker

    def find(self, group_id: str) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
        self._broker.ask_until_loaded(
            request, FindCoordinatorResponse, 4, lambda answer: answer.coordinators[0].error_code
        )

    def topic_changed(self, name: str) -> None:
        """It knows."""

    topic_created = topic_deleted = topic_changed

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, sender: Sender
    ) -> ConsumerGroupHeartbeatResult:
        response = self._broker.ask_until_loaded(
            request,
            ConsumerGroupHeartbeatResponse,
            1 if sender.makes_member_id else 0,
            lambda answer: answer.error_code,
        )
        assignment = response.assignment
        return ConsumerGroupHeartbeatResult(
            ErrorCode.of(response.error_code),
            response.error_message,
            response.member_id,
            response.member_epoch,
            response.heartbeat_interval_ms,
            None
            if assignment is None
            else {row.topic_id: row.partitions for row in assignment.topic_partitions},
        )

    def join_group(self, group_id: str, joining: Joining) -> JoinGroupResult:
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=joining.member_id,
            group_instance_id=joining.group_instance_id,
            session_timeout_ms=joining.session_timeout_ms,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            protocol_type=joining.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in joining.protocols
            ],
        )
        version = 3
        if joining.requires_known_member_id:
            version = 9 if joining.supports_skipping_assignment else 8
        response = self._broker.ask(request, JoinGroupResponse, version)
        return JoinGroupResult(
            ErrorCode.of(response.error_code),
            response.generation_id,
            response.protocol_type,
            response.protocol_name,
            response.leader,
            response.skip_assignment,
            response.member_id,
            [
                JoinedMember(row.member_id, row.group_instance_id, row.metadata)
                for row in response.members
            ],
        )

    def sync_group(self, request: SyncGroupRequest) -> SyncGroupResult:
        response = self._broker.ask(request, SyncGroupResponse, 5)
        return SyncGroupResult(
            ErrorCode.of(response.error_code),
            response.protocol_type,
            response.protocol_name,
            response.assignment,
        )

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        return ErrorCode.of(self._broker.ask(request, HeartbeatResponse, 4).error_code)

    def leave_group(
        self, group_id: str, leaving: Sequence[tuple[str, str | None, str | None]]
    ) -> list[ErrorCode]:
        members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id, _ in leaving
        ]
        request = LeaveGroupRequest(group_id=group_id, members=members)
        answer = self._broker.ask(request, LeaveGroupResponse, 5)
        return [ErrorCode.of(row.error_code) for row in answer.members]

    def commit_offsets(
        self,
        group_id: str,
        offsets: Sequence[NewOffset],
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        knows_member_epochs: bool,
    ) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                ],
            )
            for topic, partition, offset, *_ in offsets
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            topics=topics,
        )
        answer = self._broker.ask(request, OffsetCommitResponse, 9 if knows_member_epochs else 8)
        code = ErrorCode.of(answer.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def offsets_of(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> GroupOffsets:
        group = OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=None
        )
        answer = self._broker.ask(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, 9)
        (row,) = answer.groups
        if row.error_code:
            raise KafkaError(ErrorCode.of(row.error_code))
        found = GroupOffsets()
        for topic in row.topics:
            for place in topic.partitions:
                committed = CommittedOffset(place.committed_offset, -1, "", 0, -1, -1)
                found.put(topic.name, place.partition_index, committed)
        return found

    def delete_group(self, group_id: str) -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=[group_id])
        (row,) = self._broker.ask(request, DeleteGroupsResponse, 2).results
        return ErrorCode.of(row.error_code)
