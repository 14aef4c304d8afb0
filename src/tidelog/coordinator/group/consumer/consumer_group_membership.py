"""What members ask of a consumer group: ConsumerGroupHeartbeat (KIP-848).

A heartbeat joins (epoch 0), goes on, or leaves (epoch -1; -2 for a static member that will be
back). It is decided on a draft; its records are written as one batch; timers and everything else
that is not in the log follow. A refusal is a KafkaError and has changed nothing.

A member is removed when it leaves, when it is silent too long, or when it does not give up
partitions within its rebalance timeout. The last member of the consumer protocol to go may leave a
classic group behind (`group_conversion`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer import records
from tidelog.coordinator.group.consumer.assignors import Assignor, assignors_of
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup, ResolvedPattern
from tidelog.coordinator.group.consumer.consumer_group_draft import ConsumerGroupDraft
from tidelog.coordinator.group.consumer.consumer_group_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_REGEX,
    NOTHING_HELD,
    ConsumerGroupMember,
    Held,
    Limit,
    MemberState,
    MemberTimers,
    TopicPartitionsRow,
    is_within,
)
from tidelog.coordinator.group.consumer.group_conversion import downgrade_records, upgraded
from tidelog.coordinator.group.group import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinator.group.results import ConsumerGroupHeartbeatResult
from tidelog.coordinator.group.settings import MigrationPolicy
from tidelog.coordinator.re2 import InvalidPattern, Pattern, PatternResolution, Resolved
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.coordinator.group.classic.rebalance import Rebalances
    from tidelog.coordinator.group.group import Topics
    from tidelog.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
    from tidelog.coordinator.group.shard import GroupShard
    from tidelog.coordinator.runtime import CoordinatorRuntime
    from tidelog.pending import Pending

logger = logging.getLogger(__name__)

RETRY_MS: Final = 500  # to remove a member, when that could not be written
PATTERNS_MIN_INTERVAL_MS: Final = 10_000  # between two looks at new topics


def sees_all_topics(name: str) -> bool:
    return True


class Sender(NamedTuple):
    makes_member_id: bool  # KIP-1082; for others the coordinator makes it
    client_id: str
    client_host: str
    may_describe: Callable[[str], bool] = sees_all_topics  # a pattern stands for no other topics


class ConsumerGroupMembership:
    """That of all consumer groups; touched only on the broker loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        rebalances: Rebalances,
        topics: Topics,
        clock: Clock,
        timer: Timer,
        settings: Callable[[], GroupSettings],
        settings_of: Callable[[str], ConsumerGroupSettings],
        topics_version: Callable[[], int],
        new_uuid: Callable[[], str],
    ) -> None:
        self._runtime = runtime
        self._rebalances = rebalances
        self.topics = topics
        self._clock = clock
        self._timer = timer
        self._settings = settings
        self._settings_of = settings_of  # of a group, which may have some of its own
        self._new_uuid = new_uuid
        self._resolution = PatternResolution(timer)
        self._topics_version = topics_version  # counts created topics

    @property
    def assignors(self) -> dict[str, Assignor]:
        return assignors_of(self._settings().consumer.assignors)

    # Heartbeats

    def heartbeat(
        self, shard: GroupShard, request: ConsumerGroupHeartbeatRequest, sender: Sender
    ) -> tuple[ConsumerGroupHeartbeatResult, Pending[ErrorCode] | None]:
        """The answer, and what it has to wait for."""
        _require_valid(request, sender, self.assignors)
        if _is_leaving(request):
            return self._leave(shard, request)
        draft = self._draft(shard, request.group_id, request.member_epoch == JOIN_EPOCH)
        member_id = request.member_id or self._new_uuid()
        self.require_room(draft.group, member_id, request.instance_id)
        before = self._member(draft, member_id, request)
        after = _told_by(before, request, sender)
        self.update(draft, before, after)
        draft.retarget(self.assignors)
        reached = draft.reconcile(member_id, request.topic_partitions)
        flushed = self.write(shard, draft)
        group = self.live(shard, request.group_id)
        self._follow_up(group, before, reached)
        self.maybe_resolve(group, sender.may_describe)
        answer = ConsumerGroupHeartbeatResult(
            member_id=member_id,
            member_epoch=reached.member_epoch,
            heartbeat_interval_ms=self._settings_of(request.group_id).heartbeat_interval_ms,
        )
        if _is_full(request) or not _are_same(before.assigned, reached.assigned):
            answer.assignment = reached.assigned
        return answer, flushed

    def _member(
        self, draft: ConsumerGroupDraft, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupMember:
        """Who sends it, known or new."""
        group, joins = draft.group, request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            return self._static_member(draft, member_id, request.instance_id, request)
        if joins and member_id not in group.members:
            return ConsumerGroupMember(member_id)
        member = group.must_find(member_id)
        _require_epoch(member, request.member_epoch, request.topic_partitions)
        return member

    def _static_member(
        self,
        draft: ConsumerGroupDraft,
        member_id: str,
        instance_id: str,
        request: ConsumerGroupHeartbeatRequest,
    ) -> ConsumerGroupMember:
        holder = draft.group.static_member(instance_id)
        if holder is not None and holder.member_id == member_id and not holder.has_left_for_now:
            _require_epoch(holder, request.member_epoch, request.topic_partitions)
            return holder
        if request.member_epoch != JOIN_EPOCH:
            holder = draft.group.must_find_static(member_id, instance_id)
            _require_epoch(holder, request.member_epoch, request.topic_partitions)
            return holder
        if holder is None:
            return ConsumerGroupMember(member_id)
        if holder.classic is None and not holder.has_left_for_now:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {holder.member_id} member.",
            )
        return draft.replace(holder, member_id)

    def require_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """For one more; a static member that comes back is none."""
        max_size = self._settings().consumer.max_size
        is_known = member_id in group.members or instance_id in group.static_members
        if len(group.members) >= max_size and not is_known:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {max_size} members.",
            )

    def update(
        self, draft: ConsumerGroupDraft, before: ConsumerGroupMember, after: ConsumerGroupMember
    ) -> None:
        """What the member now says of itself, and the epoch if that calls for another."""
        group, regex = draft.group, after.subscribed_topic_regex
        is_known = before.member_id in group.members
        if regex not in (NO_REGEX, before.subscribed_topic_regex):
            _require_pattern(regex)
        topics_before = group.topics_of(before)
        draft.update(before, after)
        awaits_pattern = regex != NO_REGEX and regex not in draft.group.patterns
        has_changed = before.subscribed_topic_names != after.subscribed_topic_names or (
            not awaits_pattern and draft.group.topics_of(after) != topics_before
        )
        if has_changed or group.subscription_is_stale:
            does = "changes its subscription" if is_known else "joins"
            draft.refresh(self.topics, f"{after.member_id} {does}", raise_epoch=has_changed)

    def _follow_up(
        self, group: ConsumerGroup, before: ConsumerGroupMember, reached: ConsumerGroupMember
    ) -> None:
        timers = self.timers(group, reached.member_id)
        timers.heard_from(self._settings_of(group.group_id).session_timeout_ms)
        timers.stop(Limit.JOIN)
        timers.stop(Limit.SYNC)
        if reached.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.stop(Limit.REBALANCE)
        elif reached.revoking != before.revoking or reached.member_epoch != before.member_epoch:
            timers.start(Limit.REBALANCE, reached.rebalance_timeout_ms)

    # Groups

    def _draft(self, shard: GroupShard, group_id: str, may_create: bool) -> ConsumerGroupDraft:
        known = shard.of_kind(ConsumerGroup, group_id)
        if known is not None:
            return ConsumerGroupDraft(known)
        group = shard.groups.get(group_id)
        if group is None:
            if may_create:
                return ConsumerGroupDraft.of_new_group(group_id, shard.index)
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if may_create and group.is_empty:
            return ConsumerGroupDraft.of_new_group(group_id, shard.index, group.tombstones())
        classic = shard.of_kind(ClassicGroup, group_id)
        if may_create and classic is not None and self._may_upgrade(classic):
            try:
                return upgraded(classic, self.topics)
            except DecodeError as error:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    f"Cannot upgrade classic group {group_id} to consumer group because the "
                    "embedded consumer protocol is malformed.",
                ) from error
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _may_upgrade(self, group: ClassicGroup) -> bool:
        settings = self._settings().consumer
        return (
            settings.migration_policy.allows_upgrade
            and group.protocol_type == CONSUMER_PROTOCOL_TYPE
            and len(group.members) <= settings.max_size
        )

    def write(self, shard: GroupShard, draft: ConsumerGroupDraft) -> Pending[ErrorCode] | None:
        """Makes the draft the group."""
        replaced = shard.of_kind(ClassicGroup, draft.group.group_id)
        flushed = self._runtime.write(shard.index, draft.records)
        if replaced is not None:
            self._upgraded(self.live(shard, draft.group.group_id))
        self.live(shard, draft.group.group_id).subscription_is_stale = False
        _tell_epoch(draft)
        return flushed

    def _upgraded(self, group: ConsumerGroup) -> None:
        """Classic members that wait in a rebalance begin again, with the new group."""
        logger.info("group uses the consumer protocol", extra={"group": group.group_id})
        for each in group.classic_members():
            self.begin_session(group, each)

    def live(self, shard: GroupShard, group_id: str) -> ConsumerGroup:
        group = shard.of_kind(ConsumerGroup, group_id)
        assert group is not None, group_id
        return group

    # Leaving

    def _leave(
        self, shard: GroupShard, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupHeartbeatResult, Pending[ErrorCode] | None]:
        group = shard.of_kind(ConsumerGroup, request.group_id)
        if group is None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        if request.instance_id is None:
            member = group.must_find(request.member_id)
        else:
            member = group.must_find_static(request.member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResult(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            return answer, self._leave_for_now(group, member)
        return answer, self.remove(group, [member], "it left")

    def _leave_for_now(
        self, group: ConsumerGroup, member: ConsumerGroupMember
    ) -> Pending[ErrorCode] | None:
        """Its partitions stay its own, until its session times out."""
        away = member._replace(member_epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING_HELD)
        record = records.current_assignment(group.group_id, away)
        flushed = self._runtime.write(group.shard_index, [record])
        self.timers(group, member.member_id).stop(Limit.REBALANCE)
        return flushed

    def remove(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerGroupMember], reason: str
    ) -> Pending[ErrorCode] | None:
        members = ",".join(member.member_id for member in leaving)
        logger.info(
            "members leave their group",
            extra={
                "event": "members-left",
                "group": group.group_id,
                "members": members,
                "reason": reason,
            },
        )
        gone = {member.member_id for member in leaving}
        if self._becomes_classic(group, gone):
            before = group.copy()  # its own members go with its records
            making = downgrade_records(group, gone, self.topics, self._clock.time_ms())
            flushed = self._runtime.write(group.shard_index, making)
            self.downgraded(before, gone)
            return flushed
        draft = ConsumerGroupDraft(group)
        draft.remove(leaving)
        draft.refresh(self.topics, f"{members} left: {reason}", raise_epoch=True)
        flushed = self._runtime.write(group.shard_index, draft.records)
        _tell_epoch(draft)
        return flushed

    # Downgrade

    @property
    def allows_both_protocols(self) -> bool:
        """Whether a group may have members of either protocol at a time."""
        policy = self._settings().consumer.migration_policy
        return policy is not MigrationPolicy.DISABLED

    def _becomes_classic(self, group: ConsumerGroup, gone: Collection[str]) -> bool:
        """Whether the last member of the consumer protocol goes, and others stay."""
        went = [member for id, member in group.members.items() if id in gone]
        return any(member.classic is None for member in went) and self.may_downgrade(group, gone)

    def may_downgrade(self, group: ConsumerGroup, gone: Collection[str] = ()) -> bool:
        settings = self._settings()
        staying = [member for id, member in group.members.items() if id not in gone]
        return (
            bool(staying)
            and all(member.classic is not None for member in staying)
            and settings.consumer.migration_policy.allows_downgrade
            and len(staying) <= settings.max_size
        )

    def downgraded(
        self, group: ConsumerGroup, gone: Collection[str], *, rebalance: bool = True
    ) -> ClassicGroup:
        """The classic group that its records have made; `group` is what it was before."""
        logger.info("group uses the classic protocol", extra={"group": group.group_id})
        made = self._runtime.shard_for(group.group_id).of_kind(ClassicGroup, group.group_id)
        assert made is not None, group.group_id
        made.committed_generation = made.generation_id
        for member_id, before in group.members.items():
            if member_id in gone:
                continue
            assert before.classic is not None, member_id
            member = made.members[member_id]
            made.update(
                member,
                list(before.classic.protocols),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
            )
            self._rebalances.heard_from(made, member)
        if rebalance:
            self._rebalances.prepare(made, "it was a consumer group")
        return made

    # Time

    def begin_session(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        classic = member.classic
        if classic is None:
            timeout_ms = self._settings_of(group.group_id).session_timeout_ms
        else:
            timeout_ms = classic.session_timeout_ms
        timers = self.timers(group, member.member_id)
        timers.heard_from(timeout_ms)
        if classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
            timers.start(Limit.REBALANCE, member.rebalance_timeout_ms)

    def timers(self, group: ConsumerGroup, member_id: str) -> MemberTimers:
        timers = group.timers.get(member_id)
        if timers is None:
            expired = partial(self._expired, group, member_id)
            group.timers[member_id] = timers = MemberTimers(self._clock, self._timer, expired)
        return timers

    def _expired(self, group: ConsumerGroup, member_id: str, reason: str) -> None:
        member = group.members.get(member_id)
        if group.is_dead or member is None:
            return
        is_removed = False
        try:
            self.remove(group, [member], reason)
            is_removed = True
        except KafkaError as error:
            logger.error(
                "cannot remove a member; it is tried again",
                extra={"group": group.group_id, "member": member_id, "error": error.message},
            )
        finally:  # what was not expected passes on to the loop, which logs it
            if not is_removed and not group.is_dead:
                self.timers(group, member_id).heard_from(RETRY_MS)

    # Patterns

    def maybe_resolve(self, group: ConsumerGroup, may_describe: Callable[[str], bool]) -> None:
        """New patterns at once; known ones when there are new topics, or after a while.

        As in Kafka, members share what a pattern stands for, and it is resolved with the rights of
        the one whose heartbeat comes when it is due.
        """
        regexes = group.regexes
        if not regexes or group.is_resolving:
            return
        since_ms = self._clock.time_ms() - group.patterns_resolved_ms
        if (
            regexes <= group.patterns.keys()
            and since_ms <= self._settings().consumer.regex_refresh_interval_ms
            and (
                group.patterns_version == self._topics_version()
                or since_ms <= PATTERNS_MIN_INTERVAL_MS
            )
        ):
            return
        group.is_resolving = True
        version = self._topics_version()
        self._resolution.resolve(
            regexes, self.topics.topics, partial(self._resolved, group, version, may_describe)
        )

    def _resolved(
        self,
        group: ConsumerGroup,
        version: int,
        may_describe: Callable[[str], bool],
        resolved: Resolved,
    ) -> None:
        group.is_resolving = False
        if group.is_dead:
            return
        now_ms = self._clock.time_ms()
        wanted = group.regexes
        draft = ConsumerGroupDraft(group)
        for regex, matching in resolved.items():
            topics = frozenset(filter(may_describe, matching))
            known = group.patterns.get(regex)
            if regex in wanted and (known is None or known.topics != topics):
                found = ResolvedPattern(topics, version, now_ms)
                draft.add(records.resolved_pattern(group.group_id, regex, found))
        if draft.records:
            draft.refresh(self.topics, "a pattern stands for other topics", raise_epoch=True)
        try:
            self._runtime.write(group.shard_index, draft.records)
        except KafkaError as error:
            logger.error(
                "cannot write the topics of a pattern; it is tried again",
                extra={"group": group.group_id, "error": error.message},
            )
            return
        _tell_epoch(draft)
        group.patterns_version = version
        group.patterns_resolved_ms = now_ms


def _tell_epoch(draft: ConsumerGroupDraft) -> None:
    """Of a group whose records are written."""
    if draft.epoch_reason is not None:
        logger.info(
            "group has a new epoch",
            extra={
                "event": "group-epoch-raised",
                "group": draft.group.group_id,
                "epoch": draft.group.group_epoch,
                "members": len(draft.group.members),
                "reason": draft.epoch_reason,
            },
        )


def _told_by(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, sender: Sender
) -> ConsumerGroupMember:
    """The member with all that the request says of it; null fields say nothing."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
        client_id=sender.client_id,
        client_host=sender.client_host,
        classic=None,
    )


def _require_pattern(regex: str) -> None:
    try:
        Pattern(regex)
    except InvalidPattern as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error


def _are_same(before: Held, after: Held) -> bool:
    return before.keys() == after.keys() and all(
        before[topic_id].keys() == after[topic_id].keys() for topic_id in after
    )


# What a heartbeat must look like, whoever sends it


def _require_valid(
    request: ConsumerGroupHeartbeatRequest, sender: Sender, assignors: Iterable[str]
) -> None:
    epoch = request.member_epoch
    if sender.makes_member_id or epoch != JOIN_EPOCH:
        _require_text(request.member_id, "MemberId")
    _require_text(request.group_id, "GroupId")
    _require_text(request.instance_id, "InstanceId")
    _require_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _require_full(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _require_full(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _require_text(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything of itself, and so wants to hear its whole assignment."""
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and has_subscription
        and request.topic_partitions is not None
    )


def _require_epoch(
    member: ConsumerGroupMember, epoch: int, owned: Iterable[TopicPartitionsRow] | None
) -> None:
    """The member's own; its previous one too, if the answer that raised it may have been lost; and
    0, with which it starts afresh.
    """
    if epoch in (member.member_epoch, JOIN_EPOCH):
        return
    is_previous = epoch == member.previous_member_epoch and epoch < member.member_epoch
    if is_previous and is_within(owned, member.assigned):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )
