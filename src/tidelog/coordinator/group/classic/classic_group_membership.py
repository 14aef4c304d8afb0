"""What members of classic groups ask: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

The rules are those of Kafka's classic protocol, with KIP-345 (static members: an instance id keeps
its place over restarts; whoever used the instance id last holds it, the others are fenced),
KIP-394 (a dynamic member is given its id first and must come back with it) and KIP-814 (a static
leader that restarts gets the members but is told not to assign).

A refusal is a KafkaError; the caller makes the answer of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from tidelog.coordinator.group.classic.classic_group import (
    ClassicGroupMember,
    ClassicGroupState,
    Protocols,
    group_metadata,
)
from tidelog.coordinator.group.classic.rebalance import Rebalances, sync_result
from tidelog.coordinator.group.group import UNKNOWN_MEMBER_ID
from tidelog.coordinator.group.results import JoinGroupResult, SyncGroupResult, member_error
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.group.classic.classic_group import ClassicGroup
    from tidelog.coordinator.group.settings import GroupSettings
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.protocol.messages.classic_group_records import GroupMetadataValue
    from tidelog.protocol.messages.sync_group import SyncGroupRequest

JoinAnswer = JoinGroupResult | Pending[JoinGroupResult]
SyncAnswer = SyncGroupResult | Pending[SyncGroupResult]


Leaving = tuple[str, str | None, str | None]  # member id, instance id, reason

GroupKind = TypeVar("GroupKind", contravariant=True)


class MemberRequests(Protocol[GroupKind]):
    """What members of the classic protocol ask of a group of some kind. Refusals are KafkaErrors,
    but for those that an answer has a place for.
    """

    def loaded(self, group: GroupKind) -> None:
        """The group was read from the log: the sessions of its members begin anew."""

    def join(self, shard: GroupShard, group: GroupKind, joining: Joining) -> JoinAnswer: ...

    def sync(self, group: GroupKind, request: SyncGroupRequest) -> SyncAnswer: ...

    def heartbeat(
        self, group: GroupKind, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode: ...

    def leave(self, group: GroupKind, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """An outcome for each."""


class Joining(NamedTuple):
    """A JoinGroup, and who sent it."""

    requires_known_member_id: bool  # the member can come back with an id that it is given (KIP-394)
    supports_skipping_assignment: bool  # a leader can be told not to assign (KIP-814)
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols

    @property
    def is_for_an_id(self) -> bool:
        """The member has none yet, and is given one to come back with."""
        return (
            self.member_id == UNKNOWN_MEMBER_ID
            and self.group_instance_id is None
            and self.requires_known_member_id
        )

    def require_distinct_protocols(self) -> None:
        names = [name for name, _ in self.protocols]
        if len(set(names)) < len(names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def random_uuid() -> str:
    """Version 4, as text."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class ClassicGroupMembership:
    """That of all classic groups; touched only on the broker loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        rebalances: Rebalances,
        clock: Clock,
        settings: Callable[[], GroupSettings],
        new_uuid: Callable[[], str] = random_uuid,
    ) -> None:
        self._runtime = runtime
        self._rebalances = rebalances
        self._clock = clock
        self._settings = settings
        self._new_uuid = new_uuid

    def loaded(self, group: ClassicGroup) -> None:
        group.committed_generation = group.generation_id
        for member in group.members.values():
            self._rebalances.heard_from(group, member)
        if len(group.members) > self._settings().max_size:
            self._rebalances.prepare(group, "it has more members than group.max.size")

    # Joining

    def require_session_timeout(self, joining: Joining) -> None:
        settings = self._settings()
        if not (
            settings.min_session_timeout_ms
            <= joining.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def join(self, shard: GroupShard, group: ClassicGroup, joining: Joining) -> JoinAnswer:
        self.require_session_timeout(joining)
        is_unknown = joining.member_id == UNKNOWN_MEMBER_ID
        if not is_unknown and group.group_id not in shard.groups:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not self._has_room_for(group, joining.member_id):
            group.remove(joining.member_id)
            return JoinGroupResult.failed(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
        if not group.supports(joining.protocol_type, [name for name, _ in joining.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if is_unknown:
            if not joining.is_for_an_id:
                joining.require_distinct_protocols()
            shard.keep(group)
            answer = self._join_new_member(group, joining)
        else:
            answer = self._join_existing_member(group, joining)
        self._rebalances.maybe_complete_join(group)
        return answer

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        max_size = self._settings().max_size
        member = group.members.get(member_id)
        if group.state is ClassicGroupState.EMPTY:
            return True
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            has_joined = member is not None and member.join_waiter is not None
            return has_joined or group.awaiting_join_count < max_size
        return member is not None or len(group.members) < max_size

    def _join_new_member(self, group: ClassicGroup, joining: Joining) -> JoinAnswer:
        instance_id = joining.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._new_uuid()}"
            holder = group.static_members.get(instance_id)
            if holder is not None:
                return self._replace_static_member(group, group.members[holder], member_id, joining)
            return self._admit(group, member_id, joining)
        member_id = f"{joining.client_id}-{self._new_uuid()}"
        if joining.is_for_an_id:
            self._rebalances.expect(group, member_id, joining.session_timeout_ms)
            return JoinGroupResult.failed(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._admit(group, member_id, joining)

    def _admit(self, group: ClassicGroup, member_id: str, joining: Joining) -> JoinAnswer:
        member = ClassicGroupMember(
            member_id,
            joining.group_instance_id,
            joining.client_id,
            joining.client_host,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.session_timeout_ms,
            protocols=joining.protocols,
        )
        pending = _wait_for_join(member)
        self._rebalances.add(group, member, joining.protocol_type)
        return pending

    def _join_existing_member(self, group: ClassicGroup, joining: Joining) -> JoinAnswer:
        member_id = joining.member_id
        if member_id in group.pending_members and joining.group_instance_id is None:
            joining.require_distinct_protocols()
            return self._admit(group, member_id, joining)
        member = group.must_find(member_id, joining.group_instance_id)
        joining.require_distinct_protocols()
        is_leader = member_id == group.leader_id
        is_unchanged = member.protocols == joining.protocols
        if group.state is ClassicGroupState.COMPLETING_REBALANCE and is_unchanged:
            # The answer to its JoinGroup was lost on the way.
            return group.join_result(member_id, with_members=is_leader)
        if group.state is ClassicGroupState.STABLE and is_unchanged and not is_leader:
            return group.join_result(member_id, with_members=False)
        self._update(group, member, joining)
        pending = _wait_for_join(member)
        self._rebalances.maybe_prepare(group, f"{member_id} rejoins")
        return pending

    def _update(self, group: ClassicGroup, member: ClassicGroupMember, joining: Joining) -> None:
        group.update(
            member,
            joining.protocols,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.session_timeout_ms,
        )

    # Static members that restart

    def _replace_static_member(
        self, group: ClassicGroup, member: ClassicGroupMember, new_member_id: str, joining: Joining
    ) -> JoinAnswer:
        """The instance id goes on under a new member id; who had it before is fenced."""
        if (
            group.state is ClassicGroupState.STABLE
            and group.protocol_if(member, joining.protocols) == group.protocol_name
        ):
            return self._replace_without_rebalance(group, member, new_member_id, joining)
        was_stable = group.state is ClassicGroupState.STABLE
        self._fence(member)
        group.replace_static_member(member.member_id, new_member_id)
        self._update(group, member, joining)
        self._rebalances.heard_from(group, member)
        pending = _wait_for_join(member)
        if was_stable or group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._rebalances.prepare(group, f"{joining.group_instance_id} restarted")
        return pending

    def _replace_without_rebalance(
        self, group: ClassicGroup, member: ClassicGroupMember, new_member_id: str, joining: Joining
    ) -> JoinAnswer:
        """No rebalance: the assignment stays, and a record says who holds the instance id."""
        old_leader_id = group.leader_id
        record = group_metadata(
            group.group_id, self._metadata_with_replaced(group, member, new_member_id, joining)
        )
        try:
            flushed = self._runtime.write(group.shard_index, [record])
        except KafkaError as error:
            return JoinGroupResult.failed(member_error(error.code), UNKNOWN_MEMBER_ID)
        self._fence(member)
        self._update(group, member, joining)
        self._rebalances.heard_from(group, member)
        is_leader = new_member_id == group.leader_id
        if joining.supports_skipping_assignment:
            answer = group.join_result(
                new_member_id, with_members=is_leader, skip_assignment=is_leader
            )
        else:
            # A client that cannot skip the assignment must not learn that it leads.
            answer = group.join_result(new_member_id, with_members=False)
            answer.leader = old_leader_id or ""
        if flushed is None:
            return answer
        return flushed.map(
            lambda code: (
                answer
                if code is ErrorCode.NONE
                else JoinGroupResult.failed(member_error(code), UNKNOWN_MEMBER_ID)
            )
        )

    def _metadata_with_replaced(
        self, group: ClassicGroup, member: ClassicGroupMember, new_member_id: str, joining: Joining
    ) -> GroupMetadataValue:
        rows = []
        for each in group.members.values():
            row = group.member_value(each, each.assignment)
            if each is member:
                row.member_id = new_member_id
                row.rebalance_timeout = joining.rebalance_timeout_ms
                row.session_timeout = joining.session_timeout_ms
                row.subscription = dict(joining.protocols)[group.protocol_name or ""]
            rows.append(row)
        leads = group.leader_id == member.member_id
        return group.metadata_value(
            rows,
            group.state_timestamp_ms or self._clock.time_ms(),
            leader_id=new_member_id if leads else group.leader_id,
        )

    def _fence(self, member: ClassicGroupMember) -> None:
        member.fail_join(ErrorCode.FENCED_INSTANCE_ID)
        member.fail_sync(ErrorCode.FENCED_INSTANCE_ID)

    # Syncing

    def sync(self, group: ClassicGroup, request: SyncGroupRequest) -> SyncAnswer:
        member = group.must_find(request.member_id, request.group_instance_id)
        group.require_generation(request.generation_id)
        if (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
            request.protocol_name is not None and request.protocol_name != group.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.synced(group, member.member_id)
        if (
            group.state is ClassicGroupState.STABLE
            and group.committed_generation == group.generation_id
        ):
            self._rebalances.heard_from(group, member)
            return sync_result(group, member)
        pending: Pending[SyncGroupResult] = Pending()
        member.await_sync(pending)
        if (
            group.state is ClassicGroupState.COMPLETING_REBALANCE
            and member.member_id == group.leader_id
        ):
            assignments = {row.member_id: row.assignment for row in request.assignments}
            self._rebalances.store_assignment(group, assignments)
        return pending

    # Heartbeats

    def heartbeat(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        member = group.must_find(member_id, group_instance_id)
        group.require_generation(generation_id)
        self._rebalances.heard_from(group, member)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Leaving

    def leave(self, group: ClassicGroup, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        outcomes = []
        for each in leaving:
            code = ErrorCode.NONE
            try:
                self._leave(group, *each)
            except KafkaError as error:
                code = error.code
            outcomes.append(code)
        return outcomes

    def _leave(
        self, group: ClassicGroup, member_id: str, group_instance_id: str | None, reason: str | None
    ) -> None:
        """An admin may name a static member by its instance id alone."""
        if member_id == UNKNOWN_MEMBER_ID and group_instance_id is not None:
            member_id = group.static_members.get(group_instance_id, UNKNOWN_MEMBER_ID)
        if member_id in group.pending_members:
            self._rebalances.forget_expected(group, member_id)
            return
        member = group.must_find(member_id, group_instance_id)
        self._rebalances.remove(group, member, reason or "it left")


def _wait_for_join(member: ClassicGroupMember) -> Pending[JoinGroupResult]:
    pending: Pending[JoinGroupResult] = Pending()
    member.await_join(pending)
    return pending
