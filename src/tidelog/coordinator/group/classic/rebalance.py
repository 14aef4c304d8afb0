"""From one generation of a group to the next: waiting for joins, then for the assignment.

Members come and go here too, because each that comes, falls silent or leaves makes its group
rebalance. `classic_group_membership` has what members ask, and the rules by which it is refused.

    prepare         members are told (by heartbeats) to rejoin; the wait for them begins
    complete_join   all have rejoined, or time is up: a new generation, its leader gets the members
    store_assignment  the leader's assignment is written; then every member gets its own

A first rebalance waits group.initial.rebalance.delay.ms for more members, and again as long as more
come, at most the rebalance timeout. Later ones end when all members have rejoined or after the
largest rebalance timeout; dynamic members that have not rejoined are dropped then, static ones
stay. Members that do not send SyncGroup within the rebalance timeout are dropped too.

Sessions: a member that is silent for its session timeout is removed. While it waits for an answer
it need not send heartbeats; a new member's first wait may take 5 minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.deadline import Deadline
from tidelog.coordinator.group.classic.classic_group import (
    ClassicGroupMember,
    ClassicGroupState,
    group_metadata,
)
from tidelog.coordinator.group.results import SyncGroupResult, member_error
from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.coordinator.group.classic.classic_group import ClassicGroup
    from tidelog.coordinator.group.settings import GroupSettings
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime

logger = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000


class Rebalances:
    """Those of all groups; touched only on the broker loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        clock: Clock,
        timer: Timer,
        settings: Callable[[], GroupSettings],
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._timer = timer
        self._settings = settings

    # Sessions

    def heard_from(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """The member lives: its session begins anew."""
        if member.session is None:
            self._start_session(group, member, member.session_timeout_ms)
        else:
            member.session.push_back(member.session_timeout_ms)

    def add(self, group: ClassicGroup, member: ClassicGroupMember, protocol_type: str) -> None:
        """A member that has just joined."""
        member.is_new = True
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member, protocol_type)
        self._start_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.maybe_prepare(group, f"{member.member_id} joins")

    def expect(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """A member that was given its id must come back with it within its session timeout."""
        deadline = Deadline(
            self._clock, self._timer, partial(self.forget_expected, group, member_id)
        )
        group.pending_members[member_id] = deadline
        deadline.push_back(session_timeout_ms)

    def forget_expected(self, group: ClassicGroup, member_id: str) -> None:
        if group.state is not ClassicGroupState.DEAD:
            group.forget_pending(member_id)
            self.maybe_complete_join(group)

    def remove(self, group: ClassicGroup, member: ClassicGroupMember, reason: str) -> None:
        logger.info(
            "member leaves its group",
            extra={
                "event": "member-left",
                "group": group.group_id,
                "member": member.member_id,
                "reason": reason,
            },
        )
        group.remove(member.member_id)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(group)
        elif group.state is not ClassicGroupState.EMPTY:
            self.maybe_prepare(group, f"{member.member_id} left: {reason}")

    def _start_session(
        self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int
    ) -> None:
        member.session = Deadline(
            self._clock, self._timer, partial(self._session_expired, group, member)
        )
        member.session.push_back(timeout_ms)

    def _session_expired(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        if (
            group.state is ClassicGroupState.DEAD
            or group.members.get(member.member_id) is not member
        ):
            return
        if member.is_waiting and not member.is_new:
            return  # its session begins anew with the answer
        self.remove(group, member, "its session timed out")

    # Waiting for joins

    def maybe_prepare(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self.prepare(group, reason)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        if group.committed_generation != group.generation_id:
            # Some may wait for an assignment, or for its being committed: it is out of date.
            self._fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.clear()
        group.stop_timers()
        is_first = group.state is ClassicGroupState.EMPTY
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, self._clock.time_ms())
        logger.info(
            "group prepares to rebalance",
            extra={
                "event": "rebalance-began",
                "group": group.group_id,
                "generation": group.generation_id,
                "reason": reason,
            },
        )
        if is_first:
            delay_ms = self._settings().initial_rebalance_delay_ms
            self._delay_initial_rebalance(
                group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0)
            )
        else:
            self._await_joins(group)

    def _delay_initial_rebalance(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int
    ) -> None:
        group.in_initial_delay = True
        group.join_timer = self._timer.call_later(
            delay_ms / 1000, partial(self._initial_delay_over, group, delay_ms, remaining_ms)
        )

    def _initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self._settings().initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial_rebalance(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group)

    def _await_joins(self, group: ClassicGroup) -> None:
        group.join_timer = self._timer.call_later(
            group.rebalance_timeout_ms / 1000, partial(self._complete_join, group)
        )
        self.maybe_complete_join(group)

    def maybe_complete_join(self, group: ClassicGroup) -> None:
        if (
            group.state is ClassicGroupState.PREPARING_REBALANCE
            and not group.in_initial_delay
            and group.has_all_members_joined
        ):
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        group.stop_timers()
        group.in_initial_delay = group.new_member_added = False
        for member in tuple(group.members.values()):
            if member.join_waiter is None and member.group_instance_id is None:
                group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            self._await_joins(group)  # only static members are left, and none is back yet
            return
        if group.members:
            group.begin_generation(self._clock.time_ms())
            self._announce_generation(group)
        else:
            self._become_empty(group)

    def _announce_generation(self, group: ClassicGroup) -> None:
        logger.info(
            "group has a new generation",
            extra={
                "event": "rebalance-ended",
                "group": group.group_id,
                "generation": group.generation_id,
                "members": len(group.members),
                "protocol": group.protocol_name,
            },
        )
        group.pending_sync_members.update(group.members)
        group.sync_timer = self._timer.call_later(
            group.rebalance_timeout_ms / 1000,
            partial(self._syncs_overdue, group, group.generation_id),
        )
        for member in tuple(group.members.values()):
            member.is_new = False
            self.heard_from(group, member)
            is_leader = member.member_id == group.leader_id
            member.answer_join(group.join_result(member.member_id, with_members=is_leader))

    def _become_empty(self, group: ClassicGroup) -> None:
        record = group.empty_generation(self._clock.time_ms())
        try:
            self._runtime.write(group.shard_index, [record])
        except KafkaError as error:
            group.replay(record)  # nobody is left to try again for; a restart expires the members
            logger.warning(
                "cannot write that a group is empty",
                extra={"group": group.group_id, "error": error.message},
            )

    # Waiting for syncs

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_sync_members.discard(member_id)
        if not group.pending_sync_members and group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _syncs_overdue(self, group: ClassicGroup, generation_id: int) -> None:
        assert group.generation_id == generation_id, "a new generation stops the timer"
        group.sync_timer = None
        overdue = sorted(group.pending_sync_members)
        for member_id in overdue:
            group.remove(member_id)
        self.prepare(group, f"no SyncGroup from {', '.join(overdue)}")

    def store_assignment(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Members that the leader forgot get an empty assignment."""
        members = [
            group.member_value(member, assignments.get(member.member_id, b""))
            for member in group.members.values()
        ]
        value = group.metadata_value(members, self._clock.time_ms(), leader_id=group.leader_id)
        try:
            flushed = self._runtime.write(
                group.shard_index, [group_metadata(group.group_id, value)]
            )
        except KafkaError as error:
            self._assignment_failed(group, error.code)
            return
        generation_id = group.generation_id
        if flushed is None:
            self._assignment_stored(group, generation_id, ErrorCode.NONE)
        else:
            flushed.then(
                partial(self._assignment_stored, group, generation_id),
                partial(self._assignment_broken, group),
            )

    def _assignment_stored(self, group: ClassicGroup, generation_id: int, code: ErrorCode) -> None:
        if group.state is ClassicGroupState.DEAD or group.generation_id != generation_id:
            return
        if code is not ErrorCode.NONE:
            self._assignment_failed(group, code)
            return
        group.committed_generation = generation_id
        for member in tuple(group.members.values()):
            if member.sync_waiter is not None:
                self.heard_from(group, member)
                member.answer_sync(sync_result(group, member))

    def _assignment_broken(self, group: ClassicGroup, cause: BaseException) -> None:
        logger.error("a bug kept a group's assignment from its members", exc_info=cause)
        self._assignment_failed(group, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _assignment_failed(self, group: ClassicGroup, code: ErrorCode) -> None:
        logger.error(
            "cannot write a group's assignment",
            extra={"group": group.group_id, "error": code.name},
        )
        self._fail_syncs(group, member_error(code))
        self.maybe_prepare(group, f"its assignment could not be written: {code.name}")

    def _fail_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in tuple(group.members.values()):
            member.assignment = b""
            if member.sync_waiter is not None:
                self.heard_from(group, member)
                member.fail_sync(code)


def sync_result(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResult:
    return SyncGroupResult(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
