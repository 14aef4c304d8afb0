"""From what a member holds to what it should hold, one heartbeat at a time. Pure.

Partitions move without ever having two owners: who must give one up does so first and says so, in
the next heartbeat; who is to get it waits until nobody holds it. In each step a member keeps what
it holds of its target and gets what is free of the rest:

    still owns partitions        others hold some     becomes                 epoch
    that it must give up         of its target
    yes                          -                    UNREVOKED_PARTITIONS    its own
    no                           yes                  UNRELEASED_PARTITIONS   the target's
    no                           no                   STABLE                  the target's

One that does not say what it owns is taken to own everything still. Topics that it is no longer
subscribed to are given up at once, even in an epoch whose target it has reached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from tidelog.coordinator.group.consumer.consumer_group_member import (
    NOTHING_HELD,
    ConsumerGroupMember,
    Held,
    MemberState,
    Partitions,
    TopicPartitionsRow,
)
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
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    subscribed: Collection[Uuid],
    is_held: IsHeld,
    owned: Owned,
) -> ConsumerGroupMember:
    """The member after this heartbeat; `is_held` says whether any member holds a partition."""
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch and member.assigned.keys() <= set(subscribed):
            return member
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return _give_up_more(member, subscribed)
    elif member.state is MemberState.UNKNOWN and (owned is None or any(True for _ in owned)):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this broker does not know. It must give up all its "
            "partitions and rejoin.",
        )
    wanted = {topic_id: target[topic_id] for topic_id in target if topic_id in subscribed}
    return _next(member, target_epoch, wanted, is_held, owned)


def _give_up_more(member: ConsumerGroupMember, subscribed: Collection[Uuid]) -> ConsumerGroupMember:
    """Topics that it is no longer subscribed to, on top of what it is giving up."""
    dropped = {each: held for each, held in member.assigned.items() if each not in subscribed}
    if not dropped:
        return member
    revoking = {topic_id: dict(held) for topic_id, held in member.revoking.items()}
    for topic_id, held in dropped.items():
        revoking.setdefault(topic_id, {}).update(held)
    kept = {each: held for each, held in member.assigned.items() if each in subscribed}
    return member._replace(assigned=kept, revoking=revoking)


def _next(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    is_held: IsHeld,
    owned: Owned,
) -> ConsumerGroupMember:
    kept, surplus = _split(member.assigned, target)
    free, are_held = _wanted(member, target, is_held)
    state = _NEXT_STATE[bool(surplus) and _owns_any(owned, surplus), are_held]
    if state is MemberState.UNREVOKED_PARTITIONS:
        return member._replace(
            state=state,
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
    member: ConsumerGroupMember, target: Partitions, is_held: IsHeld
) -> tuple[dict[Uuid, list[int]], bool]:
    """What it can have now, and whether somebody else holds more of its target."""
    free: dict[Uuid, list[int]] = {}
    are_held = False
    for topic_id, numbers in target.items():
        present = member.assigned.get(topic_id, ())
        given_up = member.revoking.get(topic_id, ())
        for number in sorted(numbers):
            if number in present:
                continue
            if number not in given_up and is_held(topic_id, number):
                are_held = True
            else:
                free.setdefault(topic_id, []).append(number)
    return free, are_held


def _owns_any(owned: Owned, held: Held) -> bool:
    if owned is None:
        return True
    return any(number in held.get(row.topic_id, ()) for row in owned for number in row.partitions)
