"""A member of a group of the consumer protocol (KIP-848): epochs and reconciliation. No I/O.

    state           meaning                                                     heartbeat
    UNSUBSCRIBED    in no group                                                 none
    JOINING         the next heartbeat has epoch 0 and every field              at once
    RECONCILING     the broker wants another assignment than the member has     by interval
    ACKNOWLEDGING   the member has done what the broker wanted                  at once
    STABLE          member and broker agree                                     by interval
    FENCED          the broker does not know the epoch; partitions are lost     none until released
    STALE           left because polls were too far apart                       none until polled
    LEAVING         the next heartbeat has epoch -1 (-2 for a static member)    at once
    FATAL           the broker refused for good                                 none

The broker names a target; `reconciliation_or_none` says what to revoke and what to add. The caller
revokes first (commit, listener), takes the partitions away, adds the new ones, and says
`reconciled`. Topics come as ids; ones that metadata cannot name yet stay out until it can, and the
rest is acknowledged.

Heartbeats carry only fields that changed, unless the member is joining or an answer was lost.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.errors import (
    BrokerRefused,
    FencedInstance,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.coordinators import COORDINATOR_MOVED
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tidelog.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class ConsumerMemberState(Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    LEAVING = "leaving"
    FATAL = "fatal"


_SILENT = frozenset(
    (
        ConsumerMemberState.UNSUBSCRIBED,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.FATAL,
    )
)
_URGENT = frozenset(
    (
        ConsumerMemberState.JOINING,
        ConsumerMemberState.ACKNOWLEDGING,
        ConsumerMemberState.LEAVING,
    )
)


class Subscribed(NamedTuple):
    """What the member asks the group for."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


class Reconciliation(NamedTuple):
    """The way to the target: `assigned` is what the member has afterwards."""

    assigned: dict[TopicPartition, Uuid]
    revoked: list[TopicPartition]
    added: list[TopicPartition]
    unresolved: frozenset[Uuid]  # topics that metadata has no name for
    membership: int  # that this belongs to
    target_number: int


class ConsumerMember:
    def __init__(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None = None,
        rack_id: str | None = None,
        server_assignor: str | None = None,
        rebalance_timeout_ms: int = 300_000,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.rack_id = rack_id
        self.server_assignor = server_assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.state = ConsumerMemberState.UNSUBSCRIBED
        self.member_epoch = JOIN_EPOCH
        self.subscribed = Subscribed()
        self.heartbeat_interval_ms = 0  # until the broker has said
        # Ids of what the broker wants and of what the member has.
        self.target: dict[Uuid, frozenset[int]] | None = None
        self.current: dict[Uuid, frozenset[int]] = {}
        self._owned: dict[TopicPartition, Uuid] = {}
        # Every new target has a number, so that one that comes back is acknowledged again.
        self._target_number = 0
        self._current_number = -1
        self._memberships = 0
        # As last sent; None where the next heartbeat has to say it.
        self._sent_subscribed: Subscribed | None = None
        self._sent_current: tuple[int, dict[Uuid, frozenset[int]]] | None = None

    @property
    def is_silent(self) -> bool:
        return self.state in _SILENT

    @property
    def is_urgent(self) -> bool:
        """Whether to send a heartbeat without waiting for the interval."""
        return self.state in _URGENT or (
            self.state is ConsumerMemberState.STABLE and self._sent_subscribed != self.subscribed
        )

    @property
    def is_member(self) -> bool:
        return self.state in (
            ConsumerMemberState.RECONCILING,
            ConsumerMemberState.ACKNOWLEDGING,
            ConsumerMemberState.STABLE,
        )

    @property
    def is_reconciled(self) -> bool:
        return self._current_number == self._target_number and self.target == self.current

    # Joining and leaving

    def join(self) -> None:
        if self.state is ConsumerMemberState.FATAL:
            return
        self.state = ConsumerMemberState.JOINING
        self.member_epoch = JOIN_EPOCH
        self.target = None
        self._memberships += 1

    def leave(self) -> bool:
        """Ends the membership. Returns whether a last `heartbeat` must tell the broker."""
        was_in = self.state not in _SILENT and self.state is not ConsumerMemberState.LEAVING
        self.released()
        if not was_in:
            if self.state is not ConsumerMemberState.FATAL:
                self.state = ConsumerMemberState.UNSUBSCRIBED
            return False
        self._memberships += 1
        self.member_epoch = LEAVE_EPOCH if self.group_instance_id is None else LEAVE_STATIC_EPOCH
        self.state = ConsumerMemberState.LEAVING
        return True

    def left(self, *, is_stale: bool) -> None:
        """The leave was sent; a stale member joins again at the next poll."""
        self.state = ConsumerMemberState.STALE if is_stale else ConsumerMemberState.UNSUBSCRIBED

    def released(self) -> None:
        """The member has no partitions any more."""
        self.current = {}
        self._owned = {}
        self.target = None
        self._current_number = -1

    # Heartbeats

    def heartbeat(self, version: int) -> ConsumerGroupHeartbeatRequest:
        """The next one; what it carries counts as told until `forget_sent`."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            instance_id=self.group_instance_id,
        )
        if self.state is ConsumerMemberState.LEAVING:
            return request
        is_joining = self.state is ConsumerMemberState.JOINING
        if is_joining or self._sent_subscribed is None:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.rack_id = self.rack_id
            request.server_assignor = self.server_assignor
        if is_joining or self._sent_subscribed != self.subscribed:
            request.subscribed_topic_names = sorted(self.subscribed.topics)
            if version >= 1:
                request.subscribed_topic_regex = self._regex_to_send()
            self._sent_subscribed = self.subscribed
        owned = self._current_number, self.current
        if is_joining or self._sent_current != owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in self.current.items()
            ]
            self._sent_current = owned
        if self.state is ConsumerMemberState.ACKNOWLEDGING:
            self.state = (
                ConsumerMemberState.STABLE
                if self.is_reconciled
                else ConsumerMemberState.RECONCILING
            )
        return request

    def _regex_to_send(self) -> str | None:
        """An empty pattern withdraws an earlier one; null tells the broker that nothing has
        changed."""
        if self.subscribed.regex is not None:
            return self.subscribed.regex
        before = self._sent_subscribed
        return "" if before is not None and before.regex is not None else None

    def forget_sent(self) -> None:
        """The answer was lost or was an error, so the next heartbeat repeats everything."""
        self._sent_subscribed = None
        self._sent_current = None

    def heartbeat_answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """An answer without an error to a heartbeat of a member that is not leaving."""
        if self.is_silent or self.state is ConsumerMemberState.LEAVING:
            return
        if response.member_id:
            self.member_id = response.member_id
        self.member_epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            target = {
                row.topic_id: frozenset(row.partitions)
                for row in response.assignment.topic_partitions
                if row.partitions
            }
            if target != self.target:
                self.target = target
                self._target_number += 1
            if self.is_reconciled:
                self.state = ConsumerMemberState.STABLE
            else:
                self.state = ConsumerMemberState.RECONCILING
        elif self.state is ConsumerMemberState.JOINING:
            self.state = ConsumerMemberState.STABLE

    def heartbeat_refused(self, code: int, detail: str | None) -> bool:
        """Returns True if the broker fenced the member, which has lost its partitions, and False if
        the same heartbeat may be sent again later. Raises what ends the membership."""
        self.forget_sent()
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            if self.state is ConsumerMemberState.LEAVING:
                self.state = ConsumerMemberState.UNSUBSCRIBED
                return False
            if self.is_silent:
                return False
            self.state = ConsumerMemberState.FENCED
            self.member_epoch = JOIN_EPOCH
            self._memberships += 1
            return True
        if code in COORDINATOR_MOVED or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return False
        if code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # The member that had the instance id before is still there.
            self.fail()
            raise refused(
                f"joining group {self.group_id} as {self.group_instance_id}", code, detail
            )
        self.fail()
        raise self._fatal(code, detail)

    def fail(self) -> None:
        self.state = ConsumerMemberState.FATAL
        self._memberships += 1

    def _fatal(self, code: int, detail: str | None) -> BrokerRefused | UnsupportedByBroker:
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return UnsupportedByBroker(
                f"group {self.group_id}: the cluster does not offer the consumer protocol; set "
                "group.protocol=classic",
                code,
            )
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstance(
                f"group {self.group_id}: another consumer with group.instance.id "
                f"{self.group_instance_id} has taken this one's place",
                code,
            )
        return refused(f"group {self.group_id}", code, detail)

    # Reconciliation

    def reconciliation_or_none(self, names: Mapping[Uuid, str]) -> Reconciliation | None:
        """The next step to the target; `names` are the topics that metadata knows by id."""
        if self.state is not ConsumerMemberState.RECONCILING or self.target is None:
            return None
        known = {topic_id: partition.topic for partition, topic_id in self._owned.items()}
        assigned: dict[TopicPartition, Uuid] = {}
        unresolved: set[Uuid] = set()
        for topic_id, indexes in self.target.items():
            name = names.get(topic_id) or known.get(topic_id)
            if name is None:
                unresolved.add(topic_id)
                continue
            for index in sorted(indexes):
                assigned[TopicPartition(name, index)] = topic_id
        # A topic made anew under its name is another topic.
        stays = {
            partition
            for partition, topic_id in self._owned.items()
            if assigned.get(partition) == topic_id
        }
        revoked = [partition for partition in self._owned if partition not in stays]
        added = [partition for partition in assigned if partition not in stays]
        if unresolved and not revoked and not added and self._current_number >= 0:
            return None
        return Reconciliation(
            assigned,
            revoked,
            added,
            frozenset(unresolved),
            self._memberships,
            self._target_number,
        )

    def is_current(self, step: Reconciliation) -> bool:
        """Whether the membership that `step` belongs to goes on."""
        return (
            step.membership == self._memberships and self.state is ConsumerMemberState.RECONCILING
        )

    def reconciled(self, step: Reconciliation) -> None:
        """`step` has been taken; the next heartbeat says so."""
        assert self.is_current(step)
        self._owned = dict(step.assigned)
        current: dict[Uuid, set[int]] = {}
        for partition, topic_id in step.assigned.items():
            current.setdefault(topic_id, set()).add(partition.partition)
        self.current = {topic_id: frozenset(indexes) for topic_id, indexes in current.items()}
        if step.unresolved:
            self._current_number = max(self._current_number, 0)
        else:
            self._current_number = step.target_number
        self.state = ConsumerMemberState.ACKNOWLEDGING
