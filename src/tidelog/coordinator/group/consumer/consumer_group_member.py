"""A member of a consumer group: what it said of itself, its epochs, the partitions it holds.

Members are values: a heartbeat makes a changed copy, a record of the change is written, and
replaying the record puts the copy in the old one's place.

Epochs. A member is in the epoch of the target assignment it has reached; partitions that it must
give up first keep it in its old epoch. previous_member_epoch is the one before: a member whose
last answer was lost may still name it. Partitions carry the epoch in which they were given, so
that offsets of a partition can be committed with any epoch since (KIP-1251).

States, as the log has them. Every heartbeat may move a member to any of them but the last;
`reconciliation` has the table.

    STABLE                 it has all of its target assignment
    UNREVOKED_PARTITIONS   it must give up partitions, and keeps its epoch until it says it has
    UNRELEASED_PARTITIONS  it is in the target's epoch, but others still hold some of its partitions
    UNKNOWN                a state that only a newer Kafka knows: the member must start afresh

Time limits. Whoever lets one pass is removed. They are in memory only: a restart begins them anew.

    session    silence, for everybody
    rebalance  to give up partitions, for members of the consumer protocol
    join       to rejoin after it was told to, for classic members
    sync       from JoinGroup to SyncGroup, for classic members
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tidelog.coordinator.deadline import Deadline
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.protocol.messages.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataValue,
        TopicPartitions,
    )

Partitions = Mapping[Uuid, frozenset[int]]  # topic id -> partitions; no topic without partitions
Held = Mapping[Uuid, Mapping[int, int]]  # topic id -> partition -> epoch in which it was given

NOTHING: Final[Partitions] = {}
NOTHING_HELD: Final[Held] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2  # a static member that means to come back

NO_REGEX: Final = ""


class TopicPartitionsRow(Protocol):
    """As requests and records list them."""

    topic_id: Uuid
    partitions: list[int]


def partitions_of(rows: Iterable[TopicPartitionsRow]) -> dict[Uuid, frozenset[int]]:
    found: dict[Uuid, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            found[row.topic_id] = found.get(row.topic_id, frozenset()).union(row.partitions)
    return found


def held_in_epoch(partitions: Partitions, epoch: int) -> dict[Uuid, dict[int, int]]:
    return {
        topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()
    }


def is_within(rows: Iterable[TopicPartitionsRow] | None, held: Held) -> bool:
    """Whether these partitions are among those held; False if they are not known."""
    if rows is None:
        return False
    return all(number in held.get(row.topic_id, ()) for row in rows for number in row.partitions)


class MemberState(IntEnum):
    """The numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class ClassicSide(NamedTuple):
    """What JoinGroup says of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # the favourite first

    @property
    def protocol_name(self) -> str:
        """Told to the member as the group's: the broker assigns, so it means nothing."""
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        return self.protocols[0][1]


class ConsumerGroupMember(NamedTuple):
    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD  # until the member says that it has let go of them
    instance_id: str | None = None  # None for a dynamic member
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None  # None: as the group likes
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = NO_REGEX
    classic: ClassicSide | None = None  # None for a member that uses the consumer protocol

    @property
    def has_left_for_now(self) -> bool:
        return self.member_epoch == LEAVE_STATIC_EPOCH

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerGroupMember:
        """Replays a record of what it said of itself."""
        classic = value.classic_member_metadata
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or NO_REGEX,
            classic=None
            if classic is None
            else ClassicSide(
                classic.session_timeout_ms,
                tuple((row.name, bytes(row.metadata)) for row in classic.supported_protocols),
            ),
        )

    def with_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> ConsumerGroupMember:
        """Replays a record of its epochs and partitions."""
        epoch = value.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_held(value.assigned_partitions, epoch),
            revoking=_held(value.partitions_pending_revocation, epoch),
        )


def _held(rows: Iterable[TopicPartitions], member_epoch: int) -> dict[Uuid, dict[int, int]]:
    """Where no epochs are given (Kafka before 4.3), the member's own counts."""
    held: dict[Uuid, dict[int, int]] = {}
    for row in rows:
        numbers, epochs = row.partitions, row.assignment_epochs
        if epochs is None or len(epochs) != len(numbers):
            epochs = [member_epoch] * len(numbers)
        if numbers:
            held[row.topic_id] = dict(zip(numbers, epochs, strict=True))
    return held


class Limit(Enum):
    """The values are the reasons given in the log."""

    REBALANCE = "it did not give up its partitions in time"
    JOIN = "it did not rejoin in time"
    SYNC = "it did not sync in time"


class MemberTimers:
    """Cancelled when the member goes."""

    __slots__ = ("_clock", "_expired", "_running", "_session", "_timer")

    def __init__(self, clock: Clock, timer: Timer, expired: Callable[[str], object]) -> None:
        self._clock = clock
        self._timer = timer
        self._expired = expired  # called with the reason
        self._session: Deadline | None = None
        self._running: dict[Limit, TimerHandle] = {}

    def heard_from(self, session_timeout_ms: int) -> None:
        if self._session is None:
            self._session = Deadline(
                self._clock, self._timer, partial(self._expired, "its session timed out")
            )
        self._session.push_back(session_timeout_ms)

    def start(self, limit: Limit, timeout_ms: int) -> None:
        """Anew if it runs."""
        self.stop(limit)
        self._running[limit] = self._timer.call_later(timeout_ms / 1000, partial(self._over, limit))

    def start_if_idle(self, limit: Limit, timeout_ms: int) -> None:
        if limit not in self._running:
            self.start(limit, timeout_ms)

    def stop(self, limit: Limit) -> None:
        handle = self._running.pop(limit, None)
        if handle is not None:
            handle.cancel()

    def cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()

    def _over(self, limit: Limit) -> None:
        del self._running[limit]
        self._expired(limit.value)
