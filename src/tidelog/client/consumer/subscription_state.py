"""What a consumer reads and how far it has come: topics, assigned partitions, positions. No I/O.

Partitions are assigned by the user (`assign`), or by the group from a subscription to names
(`subscribe`) or to a pattern (`subscribe_pattern`); the three exclude each other until
`unsubscribe`.

A partition's fetch state
    INITIALIZING      no position yet: the group's committed offset is to be asked for
    AWAIT_RESET       no position: it is to be found by `reset`
    AWAIT_VALIDATION  the leader changed: whether it knows the position is to be asked (KIP-320)
    FETCHING          the position holds

A partition has two positions. `position` is what the application has been given; it is committed.
`fetch_position` is what to fetch next; it is ahead by what lies in the buffer. Whatever moves the
position otherwise than by reading (seek, reset, truncation) begins a new `stretch`. What was
fetched in an older stretch is dropped, so nothing is given twice and nothing skipped.

Touched by the consumer's own calls and, between them, by its tasks on the event loop; these only
move `fetch_position` and the offsets that brokers report.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata, known_epoch
from tidelog.client.consumer.offset_reset import NONE
from tidelog.client.errors import IllegalState, NoOffsetForPartition
from tidelog.types import NO_LEADER, NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.consumer.rebalance_listener import RebalanceListener
    from tidelog.client.network.metadata import LeaderAndEpoch
    from tidelog.config.client import OffsetResetPolicy


class FetchState(Enum):
    INITIALIZING = "initializing"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"
    FETCHING = "fetching"


class SubscriptionType(Enum):
    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    USER_ASSIGNED = "assigned by the user"


class Position(NamedTuple):
    """The next offset, and the epoch of the record before it (-1 where unknown)."""

    offset: int
    offset_epoch: int = NO_LEADER_EPOCH


class PartitionState:
    """One assigned partition; made anew with each assignment."""

    __slots__ = (
        "fetch_position",
        "fetched_count",
        "high_watermark",
        "is_awaiting_callback",
        "is_halted",
        "is_paused",
        "is_pending_revocation",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "partition",
        "position",
        "preferred_read_replica",
        "preferred_until",
        "reset",
        "retry_at",
        "size_min",
        "state",
        "stretch",
        "taken_count",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.state = FetchState.INITIALIZING
        # Set in AWAIT_VALIDATION and FETCHING only.
        self.position: Position | None = None
        # Same stretch and at or after `position`.
        self.fetch_position: Position | None = None
        self.leader: LeaderAndEpoch | None = None
        self.stretch = 0
        # Answers of this stretch: counted up by the fetcher, and by whoever gives them out.
        self.fetched_count = 0
        self.taken_count = 0
        self.is_halted = False  # an answer awaits a decision: nothing is fetched before
        self.size_min = 0  # bytes that the next batch takes, where one was cut off
        self.reset: OffsetResetPolicy = NONE  # set in AWAIT_RESET only
        self.retry_at = 0.0
        self.is_paused = False
        self.is_pending_revocation = False
        self.is_awaiting_callback = False
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.preferred_read_replica = NO_LEADER
        self.preferred_until = 0.0

    @property
    def is_fetchable(self) -> bool:
        return self.has_valid_position and not (
            self.is_paused or self.is_pending_revocation or self.is_awaiting_callback
        )

    @property
    def buffered(self) -> int:
        """Fetched answers of this stretch that are not given out yet."""
        return self.fetched_count - self.taken_count

    @property
    def has_valid_position(self) -> bool:
        return self.state is FetchState.FETCHING

    def seek(self, position: Position) -> None:
        """Reads go on at `position`, without asking the leader to confirm it."""
        self._begin_stretch(FetchState.FETCHING, position)

    def seek_validated(self, position: Position, leader: LeaderAndEpoch | None) -> None:
        """Reads go on there once the leader has confirmed the epoch, if there is one."""
        self.leader = leader
        self.seek(position)
        self._maybe_await_validation()

    def request_reset(self, reset: OffsetResetPolicy) -> None:
        assert reset != NONE
        self._begin_stretch(FetchState.AWAIT_RESET, None)
        self.reset = reset

    def leader_changed(self, leader: LeaderAndEpoch, *, may_validate: bool) -> None:
        """Metadata names a leader; a position of another epoch is validated against it."""
        if self.leader == leader or self.position is None:
            self.leader = leader
            return
        self.leader = leader
        self.forget_preferred_replica()
        if may_validate:
            self._maybe_await_validation()

    def _maybe_await_validation(self) -> None:
        position, leader = self.position, self.leader
        if position is None or leader is None:
            return
        if NO_LEADER_EPOCH in (position.offset_epoch, leader.leader_epoch):
            return
        self._begin_stretch(FetchState.AWAIT_VALIDATION, position)

    def validated(self) -> None:
        assert self.state is FetchState.AWAIT_VALIDATION, self.state
        self.state = FetchState.FETCHING

    def consumed_to(self, position: Position) -> None:
        """The application has been given everything before it."""
        self.position = position

    def fetched_to(self, position: Position) -> None:
        self.fetch_position = position
        self.size_min = 0

    def give_back(self, position: Position) -> None:
        """Records from `position` on were taken and not used: they will come again."""
        self._begin_stretch(FetchState.FETCHING, position)

    def _begin_stretch(self, state: FetchState, position: Position | None) -> None:
        self.state = state
        self.position = self.fetch_position = position
        self.stretch += 1
        self.fetched_count = self.taken_count = 0
        self.is_halted = False
        self.size_min = 0
        self.reset = NONE
        self.retry_at = 0.0

    # Follower fetching (KIP-392)

    def prefer_replica(self, node_id: int, until: float) -> None:
        self.preferred_read_replica = node_id
        self.preferred_until = until

    def forget_preferred_replica(self) -> int:
        """Returns the preferred read replica that was set, or NO_LEADER."""
        forgotten, self.preferred_read_replica = self.preferred_read_replica, NO_LEADER
        return forgotten

    def preferred_replica_or_none(self, now: float) -> int | None:
        if self.preferred_read_replica == NO_LEADER:
            return None
        if now > self.preferred_until:
            self.forget_preferred_replica()
            return None
        return self.preferred_read_replica

    def readable_end(self, *, read_committed: bool) -> int:
        """As last reported; -1 before the first report."""
        return self.last_stable_offset if read_committed else self.high_watermark


class SubscriptionState:
    def __init__(self, default_reset: OffsetResetPolicy) -> None:
        self.default_reset = default_reset
        self.type = SubscriptionType.NONE
        self.pattern: re.Pattern[str] | None = None
        self.listener: RebalanceListener | None = None
        # Topics of this member; the group's leader also follows those of all others.
        self.topics: frozenset[str] = frozenset()
        self.group_topics: frozenset[str] = frozenset()
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.assignment_version = 0

    # What is read

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> bool:
        """Whether the topics differ from those before."""
        self._become(SubscriptionType.TOPICS)
        self.listener = listener
        return self._change_topics(frozenset(topics))

    def subscribe_pattern(
        self, pattern: re.Pattern[str] | None, listener: RebalanceListener | None
    ) -> None:
        """None if the broker evaluates the pattern."""
        self._become(SubscriptionType.PATTERN)
        self.listener = listener
        self.pattern = pattern

    def topics_match(self, names: Iterable[str]) -> bool:
        """The topics that the pattern selects now; whether they differ from those before."""
        assert self.pattern is not None
        matches = self.pattern.fullmatch
        return self._change_topics(frozenset(name for name in names if matches(name)))

    def topics_came_assigned(self, names: Iterable[str]) -> None:
        """The broker evaluates the pattern and selected these topics for this member."""
        self._change_topics(frozenset(names))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """States of partitions that stay assigned are kept."""
        self._become(SubscriptionType.USER_ASSIGNED)
        self._replace(partitions)

    def assign_from_subscribed(self, partitions: Iterable[TopicPartition]) -> None:
        """What the group gave; new partitions are not fetched before `callback_done`."""
        if not self.is_auto_assigned:
            raise IllegalState("partitions came from the group without a subscription")
        self._replace(partitions)

    def await_callback(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetches none of these until the listener has been told of them, because it may seek."""
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                state.is_awaiting_callback = True

    def callback_done(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                state.is_awaiting_callback = False

    def unsubscribe(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics = self.group_topics = frozenset()
        self.pattern = None
        self.listener = None
        self._replace(())

    def matches(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the group's assignment fits the subscription."""
        if self.pattern is not None:
            return all(self.pattern.fullmatch(partition.topic) for partition in partitions)
        return all(partition.topic in self.topics for partition in partitions)

    @property
    def is_auto_assigned(self) -> bool:
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions)

    @property
    def watched_topics(self) -> frozenset[str]:
        """Topics whose metadata is needed."""
        assigned = frozenset(partition.topic for partition in self.partitions)
        return self.topics | self.group_topics | assigned

    def _become(self, type: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, type):
            raise IllegalState(
                "subscriptions to topics, to a pattern and assignments by the user exclude each "
                "other; call unsubscribe first"
            )
        self.type = type

    def _change_topics(self, topics: frozenset[str]) -> bool:
        changed = topics != self.topics
        self.topics = topics
        return changed

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        before = self.partitions
        self.partitions = {
            partition: before.get(partition) or PartitionState(partition)
            for partition in dict.fromkeys(partitions)
        }
        for state in self.partitions.values():
            state.is_pending_revocation = False
        self.assignment_version += 1

    # Partitions

    def state(self, partition: TopicPartition) -> PartitionState:
        found = self.partitions.get(partition)
        if found is None:
            raise IllegalState(f"partition {partition} is not assigned to this consumer")
        return found

    def in_state(self, wanted: FetchState) -> list[PartitionState]:
        return [state for state in self.partitions.values() if state.state is wanted]

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not fetched any more, and what was fetched of them is not given out."""
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                state.is_pending_revocation = True

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit without arguments commits."""
        return {
            state.partition: OffsetAndMetadata(
                state.position.offset, known_epoch(state.position.offset_epoch)
            )
            for state in self.partitions.values()
            if state.position is not None
        }

    def reset_missing(self) -> list[PartitionState]:
        """Requests the default reset of partitions without a committed offset."""
        missing = self.in_state(FetchState.INITIALIZING)
        if missing and self.default_reset == NONE:
            names = ", ".join(sorted(str(state.partition) for state in missing))
            raise NoOffsetForPartition(
                f"no committed offset for {names}, and auto.offset.reset=none"
            )
        for state in missing:
            state.request_reset(self.default_reset)
        return missing

    def move_to_end(self, partition: TopicPartition) -> None:
        """Other partitions come first in the next fetch."""
        state = self.partitions.pop(partition, None)
        if state is not None:
            self.partitions[partition] = state
