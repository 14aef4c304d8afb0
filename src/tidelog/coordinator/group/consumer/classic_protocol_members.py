"""Members of consumer groups that speak the classic protocol.

The broker assigns for them too. Nobody leads: JoinGroup is answered at once, with the member's
epoch as the generation; SyncGroup brings the partitions it holds, in the embedded ConsumerProtocol;
and Heartbeat says REBALANCE_IN_PROGRESS whenever rejoining would bring it further:

    the group has a newer epoch
    it has partitions to give up: it does so by rejoining without them
    all partitions that it waits for are free

A member that was told so must rejoin within its rebalance timeout, and sync within it after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.classic_group_membership import JoinAnswer, Joining, Leaving
from tidelog.coordinator.group.consumer.consumer_group_draft import ConsumerGroupDraft
from tidelog.coordinator.group.consumer.consumer_group_member import (
    NO_REGEX,
    ClassicSide,
    ConsumerGroupMember,
    Limit,
    MemberState,
)
from tidelog.coordinator.group.consumer.consumer_group_membership import ConsumerGroupMembership
from tidelog.coordinator.group.consumer.group_conversion import (
    downgrade_records,
    encode_assignment,
    owned_rows,
    read_subscription,
)
from tidelog.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, UNKNOWN_MEMBER_ID
from tidelog.coordinator.group.results import JoinGroupResult, SyncGroupResult, member_error
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.clock import Clock
    from tidelog.coordinator.group.classic.classic_group_membership import ClassicGroupMembership
    from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.pending import Pending
    from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


class ClassicProtocolMembers:
    """Those of all consumer groups; touched only on the broker loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        classic: ClassicGroupMembership,
        membership: ConsumerGroupMembership,
        clock: Clock,
        new_uuid: Callable[[], str],
    ) -> None:
        self._runtime = runtime
        self._classic = classic
        self._membership = membership
        self._clock = clock
        self._new_uuid = new_uuid

    def loaded(self, group: ConsumerGroup) -> None:
        for member in group.members.values():
            self._membership.begin_session(group, member)

    # Joining

    def join(self, shard: GroupShard, group: ConsumerGroup, joining: Joining) -> JoinAnswer:
        """The first member of an empty group makes a classic one of it."""
        self._classic.require_session_timeout(joining)
        if not group.members:
            if joining.member_id != UNKNOWN_MEMBER_ID:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._runtime.write(shard.index, group.tombstones())
            return self._classic.join(shard, shard.classic_or_new(group.group_id), joining)
        try:
            answer, flushed = self._join(shard, group, joining)
        except KafkaError as error:
            return JoinGroupResult.failed(member_error(error.code), UNKNOWN_MEMBER_ID)
        if flushed is None:
            return answer
        return flushed.map(
            lambda code: (
                JoinGroupResult.failed(member_error(code), UNKNOWN_MEMBER_ID) if code else answer
            )
        )

    def _join(
        self, shard: GroupShard, group: ConsumerGroup, joining: Joining
    ) -> tuple[JoinGroupResult, Pending[ErrorCode] | None]:
        """The answer, and what it has to wait for."""
        is_unknown = joining.member_id == UNKNOWN_MEMBER_ID
        member_id = self._new_uuid() if is_unknown else joining.member_id
        self._membership.require_room(group, member_id, joining.group_instance_id)
        if not self._membership.allows_both_protocols:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _require_supported(group, joining)
        if joining.is_for_an_id:
            return JoinGroupResult.failed(ErrorCode.MEMBER_ID_REQUIRED, member_id), None
        joining.require_distinct_protocols()
        draft = ConsumerGroupDraft(group)
        before = self._member(draft, member_id, joining, is_unknown)
        subscription = _subscription_of(joining)
        after = _told_by(before, joining, subscription)
        self._membership.update(draft, before, after)
        draft.retarget(self._membership.assignors)
        reached = draft.reconcile(member_id, owned_rows(subscription, self._membership.topics))
        if joining.group_instance_id is not None and self._membership.may_downgrade(draft.group):
            return self._join_downgraded(draft, reached)
        flushed = self._membership.write(shard, draft)
        timers = self._membership.timers(group, member_id)
        timers.stop(Limit.JOIN)
        timers.stop(Limit.REBALANCE)
        timers.heard_from(joining.session_timeout_ms)
        timers.start(Limit.SYNC, joining.rebalance_timeout_ms)
        return _joined(reached, reached.member_epoch), flushed

    def _member(
        self, draft: ConsumerGroupDraft, member_id: str, joining: Joining, is_unknown: bool
    ) -> ConsumerGroupMember:
        group, instance_id = draft.group, joining.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerGroupMember(member_id)
        if not is_unknown:
            return group.must_find_static(member_id, instance_id)
        holder = group.static_member(instance_id)
        return (
            ConsumerGroupMember(member_id) if holder is None else draft.replace(holder, member_id)
        )

    def _join_downgraded(
        self, draft: ConsumerGroupDraft, reached: ConsumerGroupMember
    ) -> tuple[JoinGroupResult, Pending[ErrorCode] | None]:
        """A static member came back with the classic protocol, and was the last to use the other.

        It need not rejoin: its former self's assignment is its own. The others find out by
        themselves that their generation is over.
        """
        group = draft.group
        now_ms = self._clock.time_ms()
        making = [
            *draft.records,
            *downgrade_records(group, (), self._membership.topics, now_ms),
        ]
        flushed = self._runtime.write(group.shard_index, making)
        made = self._membership.downgraded(group, (), rebalance=False)
        answer = made.join_result(reached.member_id, with_members=False)
        answer.leader = ""  # nobody assigns in this generation
        return answer, flushed

    # Syncing

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResult:
        member, classic = _require_classic(group, request.member_id, request.group_instance_id)
        _require_generation(member, request.generation_id)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
            request.protocol_name not in (None, classic.protocol_name)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        timers = self._membership.timers(group, member.member_id)
        if (
            group.group_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            timers.start_if_idle(Limit.JOIN, member.rebalance_timeout_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        timers.stop(Limit.SYNC)
        timers.heard_from(classic.session_timeout_ms)
        return SyncGroupResult(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=encode_assignment(
                member.assigned, classic.metadata, self._membership.topics
            ),
        )

    # Heartbeats

    def heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
    ) -> ErrorCode:
        member, classic = _require_classic(group, member_id, group_instance_id)
        _require_generation(member, generation_id)
        timers = self._membership.timers(group, member_id)
        timers.heard_from(classic.session_timeout_ms)
        if not _should_rejoin(group, member):
            return ErrorCode.NONE
        timers.start_if_idle(Limit.JOIN, member.rebalance_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    # Leaving

    def leave(self, group: ConsumerGroup, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        outcomes, gone = [], {}
        for member_id, instance_id, _ in leaving:
            code = ErrorCode.NONE
            try:
                member = _leaving_member(group, member_id, instance_id)
                gone[member.member_id] = member
            except KafkaError as error:
                code = error.code
            outcomes.append(code)
        if gone:
            try:
                self._membership.remove(group, list(gone.values()), leaving[0][2] or "it left")
            except KafkaError as error:
                raise KafkaError(member_error(error.code), error.message) from error
        return outcomes


def _require_supported(group: ConsumerGroup, joining: Joining) -> None:
    names = {name for name, _ in joining.protocols}
    if joining.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports_classic(names):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription_of(joining: Joining) -> ConsumerProtocolSubscription:
    """All protocols of a consumer have the same one. For a malformed one Kafka has no better code
    than this.
    """
    try:
        return read_subscription(joining.protocols[0][1])
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _told_by(
    member: ConsumerGroupMember, joining: Joining, subscription: ConsumerProtocolSubscription
) -> ConsumerGroupMember:
    return member._replace(
        instance_id=joining.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        server_assignor=None,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex=NO_REGEX,
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicSide(joining.session_timeout_ms, tuple(joining.protocols)),
    )


def _joined(member: ConsumerGroupMember, generation_id: int) -> JoinGroupResult:
    assert member.classic is not None, member
    return JoinGroupResult(
        generation_id=generation_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocol_name,
        member_id=member.member_id,
    )


def _require_classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicSide]:
    if instance_id is None:
        member = group.must_find(member_id)
    else:
        member = group.must_find_static(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member, member.classic


def _require_generation(member: ConsumerGroupMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _should_rejoin(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    return (
        member.member_epoch < group.group_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting(member))
    )


def _leaving_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerGroupMember:
    """Of either protocol: admins remove members so, static ones by their instance id alone."""
    if instance_id is None:
        return group.must_find(member_id)
    if member_id == UNKNOWN_MEMBER_ID:
        return group.must_find(group.static_members.get(instance_id, UNKNOWN_MEMBER_ID))
    return group.must_find_static(member_id, instance_id)
