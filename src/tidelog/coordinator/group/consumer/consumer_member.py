"""A member of a consumer group: what it said of itself, its epochs, the partitions it holds.

Members are values: a heartbeat makes a changed copy, a record of the change is written, and
replaying the record puts the copy in the old one's place.

Epochs. A member is in the epoch of the target assignment it has reached; partitions that it must
give up first keep it in its old epoch. previous_member_epoch is the one before: a member whose
last answer was lost may still name it. Partitions carry the epoch in which they were given, so
that offsets of a partition can be committed with any epoch since (KIP-1251).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.coordinator.group.consumer.assignment import NOTHING_HELD, Held
from tidelog.coordinator.group.consumer.states import MemberState
from tidelog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.messages.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataValue,
        TopicPartitions,
    )

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2  # a static member that means to come back

NO_REGEX: Final = ""


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
