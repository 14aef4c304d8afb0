"""From what a member holds to what it should hold, one heartbeat at a time. Pure.

Partitions move without ever having two owners: who must give one up does so first and says so, in
the next heartbeat; who is to get it waits until nobody holds it. In each step a member keeps what
it holds of its target and gets what is free of the rest:

    still owns partitions        others hold some     becomes                 epoch
    that it must give up         of its target
    yes                          -                    UNREVOKED_PARTITIONS    its own
    no                           yes                  UNRELEASED_PARTITIONS   the target's
    no                           no                   STABLE                  the target's

A member that has given up everything asked for is one epoch further, even if the next target asks
for more. One that does not say what it owns is taken to own everything still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tidelog.coordinator.group.consumer.assignment import (
    NOTHING_HELD,
    Held,
    Partitions,
    TopicPartitionsRow,
)
from tidelog.coordinator.group.consumer.member import ConsumerMember
from tidelog.coordinator.group.consumer.states import MemberState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import Uuid

IsHeld = Callable[[Uuid, int], bool]
Owned = Iterable[TopicPartitionsRow] | None  # None: the member does not say

# (still owns what it must give up, others hold some of its target)
_NEXT_STATE: Final[Mapping[tuple[bool, bool], MemberState]] = {
    (True, True): MemberState.UNREVOKED_PARTITIONS,
    (True, False): MemberState.UNREVOKED_PARTITIONS,
    (False, True): MemberState.UNRELEASED_PARTITIONS,
    (False, False): MemberState.STABLE,
}


def reconcile(
    member: ConsumerMember, target_epoch: int, target: Partitions, is_held: IsHeld, owned: Owned
) -> ConsumerMember:
    """The member after this heartbeat; `is_held` says whether any member holds a partition."""
    own_epoch = member.member_epoch
    if member.state is MemberState.STABLE:
        if own_epoch == target_epoch:
            return member
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return member
        own_epoch += 1
    elif member.state is MemberState.UNKNOWN and (owned is None or any(True for _ in owned)):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this broker does not know. It must give up all its "
            "partitions and rejoin.",
        )
    return _next(member, own_epoch, target_epoch, target, is_held, owned)


def _next(
    member: ConsumerMember,
    own_epoch: int,
    target_epoch: int,
    target: Partitions,
    is_held: IsHeld,
    owned: Owned,
) -> ConsumerMember:
    kept, surplus = _split(member.assigned, target)
    free, are_held = _wanted(member.assigned, target, is_held)
    state = _NEXT_STATE[bool(surplus) and _owns_any(owned, surplus), are_held]
    if state is MemberState.UNREVOKED_PARTITIONS:
        return member._replace(
            state=state,
            member_epoch=own_epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            revoking=surplus,
        )
    for topic_id, numbers in free.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(numbers, target_epoch))
    return member._replace(
        state=state,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=kept,
        revoking=NOTHING_HELD,
    )


def _split(
    assigned: Held, target: Partitions
) -> tuple[dict[Uuid, dict[int, int]], dict[Uuid, dict[int, int]]]:
    """What it keeps, and what it must give up."""
    kept: dict[Uuid, dict[int, int]] = {}
    surplus: dict[Uuid, dict[int, int]] = {}
    for topic_id, held in assigned.items():
        wanted = target.get(topic_id, frozenset())
        for number, epoch in held.items():
            part = kept if number in wanted else surplus
            part.setdefault(topic_id, {})[number] = epoch
    return kept, surplus


def _wanted(
    assigned: Held, target: Partitions, is_held: IsHeld
) -> tuple[dict[Uuid, list[int]], bool]:
    """What it can have now, and whether somebody holds more of its target."""
    free: dict[Uuid, list[int]] = {}
    are_held = False
    for topic_id, numbers in target.items():
        present = assigned.get(topic_id, ())
        for number in sorted(numbers):
            if number in present:
                continue
            if is_held(topic_id, number):
                are_held = True
            else:
                free.setdefault(topic_id, []).append(number)
    return free, are_held


def _owns_any(owned: Owned, held: Held) -> bool:
    if owned is None:
        return True
    return any(number in held.get(row.topic_id, ()) for row in owned for number in row.partitions)
