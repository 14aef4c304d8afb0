"""A classic group: its members, their common protocol, its generation and its state.

    EMPTY                 no members; offsets may be there. JoinGroup begins a rebalance, simple
                          commits (generation -1) succeed, SyncGroup and Heartbeat: unknown member.
    PREPARING_REBALANCE   waits for members to (re)join. JoinGroup waits, Heartbeat and SyncGroup:
                          rebalance in progress, commits of members succeed.
    COMPLETING_REBALANCE  a new generation waits for its leader's assignment. SyncGroup waits,
                          Heartbeat succeeds, commits: rebalance in progress.
    STABLE                every member has its assignment.
    DEAD                  deleted, or looked after elsewhere: nothing may happen to it any more.

The log has a record of type 2: GroupMetadataKey (group) -> GroupMetadataValue, which is written as
version 3, as Kafka 3.9 does.

`rebalance` and `classic_group_membership` answer members and set timers. The group itself answers
only those that it removes, or leaves behind when it dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group.group import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    Group,
    GroupType,
    OffsetExpiry,
    Topics,
)
from tidelog.coordinator.group.results import JoinedMember, JoinGroupResult, SyncGroupResult
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tidelog.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from tidelog.clock import TimerHandle
    from tidelog.coordinator.deadline import Deadline
    from tidelog.coordinator.group.offsets import NewOffset, OffsetCommitter
    from tidelog.pending import Pending
    from tidelog.protocol.message import Message


_RECORD_VERSION: Final = 3


class ClassicGroupState(Enum):
    """The values are the names that clients are told."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# STABLE and EMPTY are in the log, and reached by replaying a record alone.
_ALLOWED_FROM: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}


Protocols = list[tuple[str, bytes]]  # name and metadata, the favourite first


class ClassicGroupMember:
    """Lives from its first JoinGroup (or from loading) until it leaves or is silent too long; a
    static member that restarts goes on under a new member id.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # None for a dynamic member
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False  # until its first generation has begun
        self.join_waiter: Pending[JoinGroupResult] | None = None
        self.sync_waiter: Pending[SyncGroupResult] | None = None
        self.session: Deadline | None = None  # runs while the member lives

    @property
    def is_waiting(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def await_join(self, pending: Pending[JoinGroupResult]) -> None:
        """A JoinGroup sent again, by another connection, takes the place of the first."""
        self.fail_join(ErrorCode.REBALANCE_IN_PROGRESS)
        self.join_waiter = pending

    def await_sync(self, pending: Pending[SyncGroupResult]) -> None:
        self.fail_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        self.sync_waiter = pending

    def answer_join(self, result: JoinGroupResult) -> None:
        pending, self.join_waiter = self.join_waiter, None
        if pending is not None:
            pending.complete(result)

    def fail_join(self, code: ErrorCode, member_id: str | None = None) -> None:
        whose = self.member_id if member_id is None else member_id
        self.answer_join(JoinGroupResult.failed(code, whose))

    def answer_sync(self, result: SyncGroupResult) -> None:
        pending, self.sync_waiter = self.sync_waiter, None
        if pending is not None:
            pending.complete(result)

    def fail_sync(self, code: ErrorCode) -> None:
        if self.sync_waiter is not None:
            self.answer_sync(SyncGroupResult(code))

    def end_session(self) -> None:
        if self.session is not None:
            self.session.cancel()


class ClassicGroup(Group):
    """The log holds its last GroupMetadata record: generation, protocol, leader, members and their
    assignments. `replay` brings the group to what a record says, live and on load alike, and is
    the only way into STABLE and EMPTY.

    What happens between two records lives in memory only, and a restart ends it: a rebalance under
    way, with the generation it prepares; who has rejoined and who has synced; members that have
    joined or left since; members that were told their id but have not come back; the protocols of a
    member other than the selected one; sessions and timers. A restarted group is in the state of
    its last record.

    Invariants: leader_id is a member or None without members; every static member's id is in
    static_members; protocol_counts counts the members that support a protocol; all members of a
    generation support protocol_name.
    """

    __slots__ = (
        "committed_generation",
        "generation_id",
        "in_initial_delay",
        "join_timer",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync_members",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "sync_timer",
    )

    type = GroupType.CLASSIC
    last_record_type = GroupMetadataKey.RECORD_TYPE
    goes_with_deleted_offsets = True

    def __init__(self, group_id: str, shard_index: int, now_ms: int) -> None:
        super().__init__(group_id, shard_index)
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms  # since when; None in very old records
        self.protocol_type: str | None = None  # None as long as nobody has ever joined
        self.protocol_name: str | None = None  # None while EMPTY
        self.generation_id = 0  # never decreases while the group lives
        self.committed_generation = 0  # the last one whose assignment is committed
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}  # in the order they joined
        self.static_members: dict[str, str] = {}  # group.instance.id -> member id
        self.pending_members: dict[str, Deadline] = {}  # told their id, not yet back with it
        self.pending_sync_members: set[str] = set()  # of this generation
        self.protocol_counts: Counter[str] = Counter()
        self.subscribed_topics: frozenset[str] | None = None  # None if it cannot be known
        self.new_member_added = False  # during the initial delay
        self.in_initial_delay = False
        self.join_timer: TimerHandle | None = None  # runs while PREPARING_REBALANCE
        self.sync_timer: TimerHandle | None = None  # runs until all of a generation have synced

    @classmethod
    def new(cls, group_id: str, shard_index: int, now_ms: int) -> ClassicGroup:
        return cls(group_id, shard_index, now_ms)

    @staticmethod
    def id_in(key: Message) -> str:
        assert isinstance(key, GroupMetadataKey), key
        return key.group

    # State

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def expects_members(self) -> bool:
        return bool(self.pending_members)

    @property
    def has_record(self) -> bool:
        return self.generation_id > 0

    def transition_to(self, target: ClassicGroupState, now_ms: int) -> None:
        assert self.state in _ALLOWED_FROM[target], (self.group_id, self.state, target)
        self.state = target
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in _ALLOWED_FROM[ClassicGroupState.PREPARING_REBALANCE]

    def stop_timers(self) -> None:
        for timer in (self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.join_timer = self.sync_timer = None

    def die(self, now_ms: int, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """Nothing will happen to it any more; members that wait are told `code`."""
        self.transition_to(ClassicGroupState.DEAD, now_ms)
        self.stop_timers()
        for expiration in self.pending_members.values():
            expiration.cancel()
        for member in self.members.values():
            member.end_session()
            member.fail_join(code)
            member.fail_sync(code)

    # Members

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.protocol_counts.update(name for name, _ in member.protocols)
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """A member that waits is told that it is not known any more."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.end_session()
            member.fail_join(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID)
            member.fail_sync(ErrorCode.UNKNOWN_MEMBER_ID)
            self.protocol_counts.subtract(name for name, _ in member.protocols)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.pending_sync_members.discard(member_id)

    def must_find(self, member_id: str, group_instance_id: str | None) -> ClassicGroupMember:
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if holder != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def require_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def stop_expecting(self) -> None:
        for member_id in tuple(self.pending_members):
            self.forget_pending(member_id)

    def forget_pending(self, member_id: str) -> None:
        expiration = self.pending_members.pop(member_id, None)
        if expiration is not None:
            expiration.cancel()

    def update(
        self,
        member: ClassicGroupMember,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self.protocol_counts.subtract(name for name, _ in member.protocols)
        self.protocol_counts.update(name for name, _ in protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static_member(self, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """The member goes on under a new id, in its old place; its leadership goes with it."""
        member = self.members[old_member_id]
        assert member.group_instance_id is not None
        member.member_id = new_member_id
        self.members = {each.member_id: each for each in self.members.values()}
        self.static_members[member.group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_sync_members:
            self.pending_sync_members.discard(old_member_id)
            self.pending_sync_members.add(new_member_id)
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.join_waiter is not None for member in self.members.values())

    @property
    def has_all_members_joined(self) -> bool:
        return not self.pending_members and all(
            member.join_waiter is not None for member in self.members.values()
        )

    def elect_joined_leader(self) -> bool:
        """A leader that has not rejoined hands over to the first who has; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_waiter is None:
            joined = (each for each in self.members.values() if each.join_waiter is not None)
            successor = next(joined, None)
            if successor is None:
                return False
            self.leader_id = successor.member_id
        return True

    # Protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could be in the group."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if self.protocol_type != protocol_type:
            return False
        return any(self.protocol_counts[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """Every member votes for its favourite of those that all support; ties go to the one that
        was voted for first.
        """
        return _vote(self.members.values())

    def protocol_if(self, member: ClassicGroupMember, protocols: Protocols) -> str | None:
        """What would be selected if the member had other protocols; None if nothing could be."""
        changed = ClassicGroupMember(
            member.member_id,
            None,
            "",
            "",
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols=protocols,
        )
        return _vote_or_none(
            [changed if each is member else each for each in self.members.values()]
        )

    # Generations

    def begin_generation(self, now_ms: int) -> None:
        """Of the members that have joined; the record of its assignment is still to come."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol()
        self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        self.subscribed_topics = self._subscribed_topics()

    def empty_generation(self, now_ms: int) -> CoordinatorRecord:
        """The next generation, without members: replaying it makes the group EMPTY."""
        return group_metadata(
            self.group_id,
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation_id + 1,
                protocol=None,
                leader=None,
                current_state_timestamp=now_ms,
                members=[],
            ),
        )

    def join_result(
        self, member_id: str, *, with_members: bool, skip_assignment: bool = False
    ) -> JoinGroupResult:
        assert self.protocol_name is not None, self.group_id
        return JoinGroupResult(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=self._member_list(self.protocol_name) if with_members else [],
        )

    def _member_list(self, protocol_name: str) -> list[JoinedMember]:
        return [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol_name))
            for member in self.members.values()
        ]

    # Records

    def metadata_value(
        self, members: Iterable[MemberMetadata], now_ms: int, *, leader_id: str | None
    ) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=leader_id,
            current_state_timestamp=now_ms,
            members=list(members),
        )

    def member_value(self, member: ClassicGroupMember, assignment: bytes) -> MemberMetadata:
        assert self.protocol_name is not None, self.group_id
        return MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(self.protocol_name),
            assignment=assignment,
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)] if self.has_record else []

    def replay(self, record: CoordinatorRecord) -> None:
        """On a live group, the record that it has just written."""
        value = record.value
        assert isinstance(value, GroupMetadataValue), record
        self.protocol_type = value.protocol_type or None
        self.generation_id = value.generation
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        timestamp_ms = value.current_state_timestamp
        self.state_timestamp_ms = None if timestamp_ms == -1 else timestamp_ms
        self.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        for row in value.members:
            self._replay_member(row)
        present = [row.member_id for row in value.members]
        for member_id in self.members.keys() - set(present):
            self.remove(member_id)
        self.members = {member_id: self.members[member_id] for member_id in present}
        self.leader_id = value.leader
        self.subscribed_topics = self._subscribed_topics()

    def _replay_member(self, row: MemberMetadata) -> None:
        protocol_name = self.protocol_name or ""
        rebalance_timeout_ms = row.rebalance_timeout
        if rebalance_timeout_ms == -1:  # records before Kafka 0.10.1
            rebalance_timeout_ms = row.session_timeout
        known_as = self.static_members.get(row.group_instance_id or "", row.member_id)
        member = self.members.get(known_as)
        if member is None:
            member = ClassicGroupMember(
                row.member_id,
                row.group_instance_id,
                row.client_id,
                row.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=row.session_timeout,
                protocols=[(protocol_name, row.subscription)],
                assignment=row.assignment,
            )
            self.add(member, self.protocol_type or "")
            return
        if known_as != row.member_id:
            self.replace_static_member(known_as, row.member_id)
        member.assignment = row.assignment
        self.update(
            member,
            _with_metadata(member.protocols, protocol_name, row.subscription),
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=row.session_timeout,
        )

    # Offsets

    def require_commit(
        self, committer: OffsetCommitter, offsets: Sequence[NewOffset], topics: Topics
    ) -> None:
        """Members may; anybody may in an empty group."""
        generation_id = committer.generation_id
        if generation_id < 0 and self.state is ClassicGroupState.EMPTY:
            return
        member_id, group_instance_id = committer.member_id, committer.group_instance_id
        if generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.must_find(member_id, group_instance_id)
        self.require_generation(generation_id)
        if not committer.in_transaction and self.state is ClassicGroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def note_commit(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None and member.session is not None:
            member.session.push_back(member.session_timeout_ms)

    def require_offset_deletion(self) -> None:
        """Of a group with members, only consumers say which topics they are subscribed to."""
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def offset_expiry(self) -> OffsetExpiry | None:
        """From when it lost its last member; from the commit if it never had any. While it is
        STABLE, only offsets of topics that its consumers are not subscribed to.
        """
        if self.protocol_type is None:
            return OffsetExpiry(frozenset(), None)
        if self.is_empty:
            return OffsetExpiry(frozenset(), self.state_timestamp_ms)
        if (
            self.protocol_type == CONSUMER_PROTOCOL_TYPE
            and self.state is ClassicGroupState.STABLE
            and self.subscribed_topics is not None
        ):
            return OffsetExpiry(self.subscribed_topics, None)
        return None

    # Subscriptions

    def is_subscribed_to(self, topic: str) -> bool:
        if self.is_empty:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscription = _subscription_or_none(member.metadata(self.protocol_name))
            if subscription is None:
                return None
            topics.update(subscription.topics)
        return frozenset(topics)


def _vote(members: Iterable[ClassicGroupMember]) -> str:
    protocol = _vote_or_none(list(members))
    assert protocol is not None, "members without a common protocol were let in"
    return protocol


def _vote_or_none(members: list[ClassicGroupMember]) -> str | None:
    counts = Counter(name for member in members for name, _ in member.protocols)
    candidates = {name for name, count in counts.items() if count == len(members)}
    if not candidates:
        return None
    votes = Counter(member.vote(candidates) for member in members)
    return votes.most_common(1)[0][0]


def _with_metadata(protocols: Protocols, protocol_name: str, metadata: bytes) -> Protocols:
    """A record holds the selected protocol only; the others, if the member is live, stay."""
    if not any(name == protocol_name for name, _ in protocols):
        return [(protocol_name, metadata)]
    return [(name, metadata if name == protocol_name else other) for name, other in protocols]


def _subscription_or_none(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Later versions only add fields at the end, so that version 0 can be read of all."""
    try:
        return ConsumerProtocolSubscription.decode(memoryview(metadata), 2, 0)
    except DecodeError:
        return None


# Records


def group_metadata(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value, _RECORD_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)
