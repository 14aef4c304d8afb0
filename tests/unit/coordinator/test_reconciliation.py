"""How a member gets from what it holds to what it should hold: the table, row by row."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tidelog.coordinator.group.consumer.consumer_group_member import (
    ConsumerGroupMember,
    MemberState,
)
from tidelog.coordinator.group.consumer.reconciliation import reconcile
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tidelog.types import Uuid

TOPIC = Uuid(bytes(16))
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS


class Row(NamedTuple):
    why: str
    state: MemberState
    assigned: set[int]
    revoking: set[int]
    owns: set[int] | None  # as the heartbeat says
    target: set[int]
    others: set[int]  # what other members hold
    becomes: MemberState
    epoch: int  # it was in 5, the target is of 8
    then_assigned: set[int]
    then_revoking: set[int]


N: set[int] = set()
ROWS = [
    Row("gets what is free", STABLE, N, N, N, {1, 2}, N, STABLE, 8, {1, 2}, N),
    Row("keeps what it has", STABLE, {1}, N, {1}, {1}, N, STABLE, 8, {1}, N),
    Row("waits for others", STABLE, {1}, N, {1}, {1, 2}, {2}, UNRELEASED, 8, {1}, N),
    Row("gets part, waits", STABLE, N, N, N, {1, 2}, {2}, UNRELEASED, 8, {1}, N),
    Row("must give up", STABLE, {1, 2}, N, {1, 2}, {1}, N, UNREVOKED, 5, {1}, {2}),
    Row("gives up first", STABLE, {1}, N, {1}, {2, 3}, N, UNREVOKED, 5, N, {1}),
    Row("has no longer what it must give up", STABLE, {1, 2}, N, {1}, {1}, N, STABLE, 8, {1}, N),
    Row("does not say what it owns", STABLE, {1, 2}, N, None, {1}, N, UNREVOKED, 5, {1}, {2}),
    Row("still gives up", UNREVOKED, {1}, {2}, {1, 2}, {1}, N, UNREVOKED, 5, {1}, {2}),
    Row("does not say it has", UNREVOKED, {1}, {2}, None, {1}, N, UNREVOKED, 5, {1}, {2}),
    Row("has given up", UNREVOKED, {1}, {2}, {1}, {1}, N, STABLE, 8, {1}, N),
    Row("has, and gets more", UNREVOKED, {1}, {2}, {1}, {1, 3}, N, STABLE, 8, {1, 3}, N),
    Row("has, and waits", UNREVOKED, {1}, {2}, {1}, {1, 3}, {3}, UNRELEASED, 8, {1}, N),
    Row("is asked for more", UNREVOKED, {1, 3}, {2}, {1, 3}, {1}, N, UNREVOKED, 5, {1}, {3}),
    Row("goes on waiting", UNRELEASED, {1}, N, {1}, {1, 2}, {2}, UNRELEASED, 8, {1}, N),
    Row("need not wait", UNRELEASED, {1}, N, {1}, {1, 2}, N, STABLE, 8, {1, 2}, N),
    Row("target was changed", UNRELEASED, {1}, N, {1}, {3}, {2}, UNREVOKED, 5, N, {1}),
    Row("unknown, empty-handed", MemberState.UNKNOWN, N, N, N, {1}, N, STABLE, 8, {1}, N),
]


def held(numbers: set[int], epoch: int = 5) -> dict[Uuid, dict[int, int]]:
    return {TOPIC: dict.fromkeys(sorted(numbers), epoch)} if numbers else {}


def owned(numbers: set[int] | None) -> list[TopicPartitions] | None:
    return None if numbers is None else [TopicPartitions(topic_id=TOPIC, partitions=list(numbers))]


def numbers(partitions: object) -> set[int]:
    assert isinstance(partitions, dict)
    return set(partitions.get(TOPIC, ()))


def step(row: Row, target_epoch: int = 8) -> ConsumerGroupMember:
    member = ConsumerGroupMember("m", 5, 4, row.state, held(row.assigned), held(row.revoking))
    mine = row.assigned | row.revoking
    target = {TOPIC: frozenset(row.target)}
    rows = [] if row.state is MemberState.UNKNOWN else owned(row.owns)
    return reconcile(
        member, target_epoch, target, {TOPIC}, lambda _, number: number in row.others | mine, rows
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_a_heartbeat_moves_a_member(row: Row) -> None:
    after = step(row)
    assert (after.state, after.member_epoch) == (row.becomes, row.epoch)
    assert (numbers(after.assigned), numbers(after.revoking)) == (
        row.then_assigned,
        row.then_revoking,
    )


def test_a_member_that_has_reached_its_target_stays_as_it_is() -> None:
    member = ConsumerGroupMember("m", 8, 7, STABLE, held({1}))
    target = {TOPIC: frozenset({1, 2})}
    assert reconcile(member, 8, target, {TOPIC}, lambda *_: False, None) is member


def test_partitions_keep_the_epoch_in_which_they_were_given() -> None:
    row = Row("", STABLE, {1, 2}, N, {1}, {1, 3}, N, STABLE, 8, N, N)
    assert step(row).assigned == {TOPIC: {1: 5, 3: 8}}


def test_the_previous_epoch_is_remembered() -> None:
    after = step(Row("", STABLE, N, N, N, {1}, N, STABLE, 8, N, N))
    assert (after.previous_member_epoch, after.member_epoch) == (5, 8)


def test_a_partition_that_it_has_given_up_may_be_given_back_at_once() -> None:
    after = step(Row("", UNREVOKED, {1}, {2}, {1}, {1, 2}, N, STABLE, 8, N, N))
    assert after.state is STABLE
    assert numbers(after.assigned) == {1, 2}


OTHER = Uuid(bytes(15) + b"x")


def test_a_topic_it_is_no_longer_subscribed_to_is_given_up_at_once() -> None:
    member = ConsumerGroupMember("m", 8, 7, STABLE, {TOPIC: {1: 5}, OTHER: {2: 5}})
    target = {TOPIC: frozenset({1}), OTHER: frozenset({2})}
    after = reconcile(member, 8, target, {TOPIC}, lambda *_: True, None)
    assert (after.state, after.member_epoch) == (UNREVOKED, 8)
    assert (after.assigned, after.revoking) == ({TOPIC: {1: 5}}, {OTHER: {2: 5}})
    done = reconcile(after, 8, target, {TOPIC}, lambda *_: True, owned({1}))
    assert (done.state, done.assigned, done.revoking) == (STABLE, {TOPIC: {1: 5}}, {})


def test_it_is_given_up_on_top_of_what_is_being_given_up() -> None:
    member = ConsumerGroupMember("m", 5, 4, UNREVOKED, {OTHER: {2: 5}}, {TOPIC: {1: 5}})
    after = reconcile(member, 8, {}, {TOPIC}, lambda *_: True, owned({1}))
    assert (after.state, after.member_epoch, after.assigned) == (UNREVOKED, 5, {})
    assert after.revoking == {TOPIC: {1: 5}, OTHER: {2: 5}}


def test_a_member_in_an_unknown_state_that_owns_something_is_fenced() -> None:
    member = ConsumerGroupMember("m", 5, 4, MemberState.UNKNOWN)
    with pytest.raises(KafkaError) as refused:
        reconcile(member, 8, {}, (), lambda *_: False, owned({1}))
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    with pytest.raises(KafkaError):
        reconcile(member, 8, {}, (), lambda *_: False, None)


def test_a_state_that_only_newer_kafkas_have_is_unknown() -> None:
    assert MemberState.of(2) is UNRELEASED
    assert MemberState.of(77) is MemberState.UNKNOWN
