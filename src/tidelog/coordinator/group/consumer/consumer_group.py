"""A consumer group (KIP-848): its members, their target assignment, and the epochs of both.

    group_epoch   raised with every change that calls for a new assignment: members, subscriptions,
                  the subscribed topics
    target_epoch  the group epoch for which the target assignment was computed
    member_epoch  the target epoch that a member has reached

All of it is in the log and changed by `replay` alone, so that heartbeats are decided on a copy
(`consumer_group_draft`), by the same code that replays what was decided. In memory only: timers,
and whether the group has to look at its topics or patterns again.

The state of a group is not stored; it is what its epochs and members say:

    EMPTY        no members
    ASSIGNING    the group epoch is ahead of the target assignment: the next heartbeat computes it
    RECONCILING  some member has not reached the target assignment
    STABLE       every member has
    DEAD         deleted, converted, or looked after elsewhere

Invariants: target_epoch <= group_epoch; no partition has two owners; an instance id belongs to one
member. Touched only on the broker loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.coordinator.group.consumer.consumer_group_member import (
    LEAVE_EPOCH,
    NO_REGEX,
    NOTHING,
    NOTHING_HELD,
    ConsumerGroupMember,
    MemberTimers,
    Partitions,
    partitions_of,
)
from tidelog.coordinator.group.group import (
    CONSUMER_PROTOCOL_TYPE,
    Group,
    GroupType,
    OffsetExpiry,
    Topics,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.coordinator.group.offsets import NewOffset, OffsetCommitter
    from tidelog.coordinator.stored_record import CoordinatorRecord
    from tidelog.protocol.message import Message
    from tidelog.protocol.messages import consumer_group_records as stored

NO_TARGET_EPOCH: Final = 0


class ConsumerGroupState(Enum):
    """The values are the names that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class SubscribedTopic(NamedTuple):
    topic_id: Uuid
    partition_count: int


class ResolvedPattern(NamedTuple):
    """The topics that a pattern stood for when it was last looked at."""

    topics: frozenset[str]
    version: int  # of the topics, counted by the broker
    timestamp_ms: int


def subscription_of(topics: Topics, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    """What a group's record says of its topics: those that exist."""
    found = {}
    for name in names:
        topic = topics.topics.get(name)
        if topic is not None:
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
    return found


class ConsumerGroup(Group):
    __slots__ = (
        "_owners",
        "_regexes",
        "_subscribed_topics",
        "group_epoch",
        "is_dead",
        "is_resolving",
        "members",
        "patterns",
        "patterns_resolved_ms",
        "patterns_version",
        "static_members",
        "subscription_is_stale",
        "subscription_metadata",
        "target",
        "target_epoch",
        "timers",
    )

    type = GroupType.CONSUMER
    last_record_type = 3  # the group epoch
    goes_with_deleted_offsets = False

    def __init__(self, group_id: str, shard_index: int) -> None:
        super().__init__(group_id, shard_index)
        self.group_epoch = 0
        self.target_epoch = NO_TARGET_EPOCH
        self.members: dict[str, ConsumerGroupMember] = {}  # in the order they joined
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.target: dict[str, Partitions] = {}  # by member id
        self.subscription_metadata: dict[str, SubscribedTopic] = {}  # by topic name
        self.patterns: dict[str, ResolvedPattern] = {}  # by regex; those not looked at are absent
        self._owners: dict[Uuid, dict[int, str]] = {}  # of what is assigned or being revoked
        self._subscribed_topics: frozenset[str] | None = None  # None: to be computed
        self._regexes: frozenset[str] | None = None  # likewise
        # In memory only:
        self.timers: dict[str, MemberTimers] = {}  # by member id
        self.subscription_is_stale = True  # the topics may have changed: look at the next heartbeat
        self.is_resolving = False  # patterns are being looked at
        self.patterns_version = -1  # of the topics that the patterns were last resolved against
        self.patterns_resolved_ms = 0  # when that was
        self.is_dead = False

    @classmethod
    def new(cls, group_id: str, shard_index: int, now_ms: int) -> ConsumerGroup:
        return cls(group_id, shard_index)

    @staticmethod
    def id_in(key: Message) -> str:
        group_id: str = key.group_id  # type: ignore[attr-defined]  # all of them have it
        return group_id

    def copy(self) -> ConsumerGroup:
        """What the log holds of it; a draft is made of it."""
        made = ConsumerGroup(self.group_id, self.shard_index)
        made.group_epoch = self.group_epoch
        made.target_epoch = self.target_epoch
        made.members = dict(self.members)
        made.static_members = dict(self.static_members)
        made.target = dict(self.target)
        made.subscription_metadata = self.subscription_metadata
        made.patterns = dict(self.patterns)
        made._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}
        made._subscribed_topics = self._subscribed_topics
        made._regexes = self._regexes
        return made

    def die(self, now_ms: int, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """None of its members waits for an answer."""
        self.is_dead = True
        for timers in self.timers.values():
            timers.cancel()
        self.timers.clear()

    # What it looks like

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def must_find(self, member_id: str) -> ConsumerGroupMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def must_find_static(self, member_id: str, instance_id: str) -> ConsumerGroupMember:
        """Who holds the instance id, which must be this member."""
        holder = self.static_member(instance_id)
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{holder.member_id}.",
            )
        return holder

    def is_held(self, topic_id: Uuid, partition: int) -> bool:
        return partition in self._owners.get(topic_id, ())

    def is_waiting(self, member: ConsumerGroupMember) -> bool:
        """Whether others hold some of its target."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and self.is_held(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def classic_members(self) -> Iterator[ConsumerGroupMember]:
        return (member for member in self.members.values() if member.classic is not None)

    def supports_classic(self, names: set[str]) -> bool:
        """Whether a classic member with these protocols has one in common with all others."""
        candidates = set(names)
        for member in self.classic_members():
            assert member.classic is not None
            candidates &= {name for name, _ in member.classic.protocols}
        return bool(candidates)

    # Subscriptions

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The names it gave, and those that its pattern stands for."""
        resolved = self.patterns.get(member.subscribed_topic_regex)
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def topic_ids_of(self, member: ConsumerGroupMember) -> frozenset[Uuid]:
        """Of those of its topics that exist."""
        known = self.subscription_metadata
        return frozenset(known[name].topic_id for name in self.topics_of(member) if name in known)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed_topics is None:
            self._subscribed_topics = frozenset().union(*map(self.topics_of, self.members.values()))
        return self._subscribed_topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    @property
    def regexes(self) -> frozenset[str]:
        """All patterns that members gave, looked at or not."""
        if self._regexes is None:
            given = (member.subscribed_topic_regex for member in self.members.values())
            self._regexes = frozenset(given) - {NO_REGEX}
        return self._regexes

    def topics_changed(self, topics: Collection[str]) -> int:
        """It looks at them with its next heartbeat, if it has to do with any."""
        self.subscription_is_stale = self.subscription_is_stale or any(
            topic in self.subscribed_topics or topic in self.subscription_metadata
            for topic in topics
        )
        return len(topics)

    # Offsets

    def require_commit(
        self, committer: OffsetCommitter, offsets: Sequence[NewOffset], topics: Topics
    ) -> None:
        """A group without members takes commits from anybody (epoch -1). A member must name its
        epoch; for a partition that it has held since, an older one will do (KIP-1251): its commit
        was on the way when a heartbeat raised the epoch, and nobody else can have committed in
        between.
        """
        epoch = committer.generation_id
        if epoch < 0 and not self.members:
            return
        member = self.must_find(committer.member_id)
        if member.classic is None and not committer.knows_member_epochs:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the modern group "
                "protocol",
            )
        if epoch == member.member_epoch:
            return
        if not 0 <= epoch < member.member_epoch or not all(
            _has_held_since(member, epoch, topics, topic, partition)
            for topic, partition, *_ in offsets
        ):
            raise _stale(member, epoch, in_transaction=committer.in_transaction)

    def require_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whoever names no member may read."""
        if member_id is None and member_epoch < 0:
            return
        member = self.must_find(member_id or "")
        if member_epoch != member.member_epoch:
            raise _stale(member, member_epoch)

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(self.subscribed_topics, None)

    def tombstones(self) -> list[CoordinatorRecord]:
        from tidelog.coordinator.group.consumer.records import group_tombstones  # no need to start

        return group_tombstones(self)

    # Replaying

    def replay(self, record: CoordinatorRecord) -> None:
        _REPLAYED_BY[record.key.RECORD_TYPE](self, record.key, record.value)

    def _replay_epoch(
        self, key: stored.ConsumerGroupMetadataKey, value: stored.ConsumerGroupMetadataValue
    ) -> None:
        self.group_epoch = value.epoch

    def _replay_subscription(
        self,
        key: stored.ConsumerGroupPartitionMetadataKey,
        value: stored.ConsumerGroupPartitionMetadataValue | None,
    ) -> None:
        rows = () if value is None else value.topics
        self.subscription_metadata = {
            row.topic_name: SubscribedTopic(row.topic_id, row.num_partitions) for row in rows
        }

    def _replay_member(
        self,
        key: stored.ConsumerGroupMemberMetadataKey,
        value: stored.ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        self._subscribed_topics = self._regexes = None
        member_id = key.member_id
        if value is None:
            self._forget(member_id)
            return
        member = self.members.get(member_id) or ConsumerGroupMember(member_id)
        self.members[member_id] = member = member.with_metadata(value)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _forget(self, member_id: str) -> None:
        removed = self.members.pop(member_id, None)
        if removed is None:
            return
        self._disown(removed)
        instance_id = removed.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        timers = self.timers.pop(member_id, None)
        if timers is not None:
            timers.cancel()

    def _replay_target_epoch(
        self,
        key: stored.ConsumerGroupTargetAssignmentMetadataKey,
        value: stored.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.target_epoch = NO_TARGET_EPOCH if value is None else value.assignment_epoch

    def _replay_target(
        self,
        key: stored.ConsumerGroupTargetAssignmentMemberKey,
        value: stored.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = partitions_of(value.topic_partitions)

    def _replay_assignment(
        self,
        key: stored.ConsumerGroupCurrentMemberAssignmentKey,
        value: stored.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        member_id = key.member_id
        before = self.members.get(member_id)
        if before is None:
            if value is None:
                return
            before = ConsumerGroupMember(member_id)
            self._subscribed_topics = self._regexes = None
        self._disown(before)
        if value is None:
            self.members[member_id] = before._replace(
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned=NOTHING_HELD,
                revoking=NOTHING_HELD,
            )
            return
        self.members[member_id] = after = before.with_assignment(value)
        for held in (after.assigned, after.revoking):
            for topic_id, partitions in held.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _disown(self, member: ConsumerGroupMember) -> None:
        """Only what is its own: records of a cleaned log may come in another order."""
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _replay_pattern(
        self,
        key: stored.ConsumerGroupRegularExpressionKey,
        value: stored.ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        self._subscribed_topics = None
        if value is None:
            self.patterns.pop(key.regular_expression, None)
        else:
            self.patterns[key.regular_expression] = ResolvedPattern(
                frozenset(value.topics), value.version, value.timestamp
            )


_REPLAYED_BY: Final[Mapping[int, Callable[[ConsumerGroup, Any, Any], None]]] = {
    3: ConsumerGroup._replay_epoch,
    4: ConsumerGroup._replay_subscription,
    5: ConsumerGroup._replay_member,
    6: ConsumerGroup._replay_target_epoch,
    7: ConsumerGroup._replay_target,
    8: ConsumerGroup._replay_assignment,
    16: ConsumerGroup._replay_pattern,
}


def _has_held_since(
    member: ConsumerGroupMember, epoch: int, topics: Topics, topic: str, partition: int
) -> bool:
    image = topics.topics.get(topic)
    if image is None:
        return False
    for held in (member.assigned, member.revoking):
        given = held.get(image.topic_id, {}).get(partition)
        if given is not None:
            return given <= epoch
    return False


def _stale(member: ConsumerGroupMember, epoch: int, *, in_transaction: bool = False) -> KafkaError:
    """Members that use the classic protocol, and producers, know of generations only."""
    is_modern = member.classic is None and not in_transaction
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH if is_modern else ErrorCode.ILLEGAL_GENERATION,
        f"The received member epoch {epoch} does not match the expected member epoch "
        f"{member.member_epoch}.",
    )


def preferred_assignor(members: Mapping[str, ConsumerGroupMember], default: str) -> str:
    """What most members ask for; ties go to the one asked for first."""
    counts: dict[str, int] = {}
    for member in members.values():
        if member.server_assignor is not None:
            counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
    return max(counts, key=counts.__getitem__) if counts else default
