from __future__ import annotations

import pytest

from tidelog.client.consumer.consumer_member import (
    ConsumerMember,
    ConsumerMemberState,
    Reconciliation,
    Subscribed,
)
from tidelog.client.errors import BrokerRefused, FencedInstance, UnsupportedByBroker
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.types import TopicPartition, Uuid

A = Uuid(bytes([1]) * 16)
B = Uuid(bytes([2]) * 16)
NAMES = {A: "a", B: "b"}


def answer(
    epoch: int, assignment: dict[Uuid, list[int]] | None = None
) -> ConsumerGroupHeartbeatResponse:
    rows = None
    if assignment is not None:
        rows = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=3_000, assignment=rows
    )


def joining(instance_id: str | None = None) -> ConsumerMember:
    member = ConsumerMember(
        "g", member_id="m", group_instance_id=instance_id, rack_id="r", server_assignor="uniform"
    )
    member.subscribed = Subscribed(frozenset(["a", "b"]))
    member.join()
    return member


def state_of(member: ConsumerMember) -> ConsumerMemberState:
    return member.state


def step(member: ConsumerMember) -> Reconciliation:
    found = member.reconciliation_or_none(NAMES)
    assert found is not None
    return found


def stable(assignment: dict[Uuid, list[int]]) -> ConsumerMember:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, assignment))
    member.reconciled(step(member))
    member.heartbeat(1)
    return member


def test_joining_sends_everything_with_epoch_zero() -> None:
    request = joining().heartbeat(1)
    assert request.member_epoch == 0
    assert request.member_id == "m"
    assert request.subscribed_topic_names == ["a", "b"]
    assert request.server_assignor == "uniform"
    assert request.rack_id == "r"
    assert request.rebalance_timeout_ms == 300_000
    assert request.topic_partitions == []


def test_later_heartbeats_carry_nothing_that_did_not_change() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1))
    assert state_of(member) is ConsumerMemberState.STABLE
    request = member.heartbeat(1)
    assert request.member_epoch == 1
    assert request.subscribed_topic_names is None
    assert request.topic_partitions is None
    assert request.server_assignor is None
    assert request.rebalance_timeout_ms == -1


def test_a_lost_answer_makes_the_next_heartbeat_say_everything() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1))
    member.heartbeat(1)
    member.forget_sent()
    request = member.heartbeat(1)
    assert request.subscribed_topic_names == ["a", "b"]
    assert request.topic_partitions == []
    assert request.rebalance_timeout_ms == 300_000


def test_a_target_is_reconciled_and_acknowledged() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, {A: [0, 1]}))
    assert state_of(member) is ConsumerMemberState.RECONCILING
    found = step(member)
    assert found.added == [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert found.revoked == []
    member.reconciled(found)
    assert member.is_urgent
    request = member.heartbeat(1)
    assert request.topic_partitions == [TopicPartitions(topic_id=A, partitions=[0, 1])]
    assert state_of(member) is ConsumerMemberState.STABLE


def test_partitions_are_revoked_before_others_are_added() -> None:
    member = stable({A: [0, 1]})
    member.heartbeat_answered(answer(2, {A: [1], B: [0]}))
    found = step(member)
    assert found.revoked == [TopicPartition("a", 0)]
    assert found.added == [TopicPartition("b", 0)]


def test_a_topic_made_anew_is_revoked_and_added() -> None:
    member = stable({A: [0]})
    member.heartbeat_answered(answer(2, {B: [0]}))
    found = member.reconciliation_or_none({B: "a"})
    assert found is not None
    assert found.revoked == found.added == [TopicPartition("a", 0)]


def test_topics_that_metadata_cannot_name_wait() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, {A: [0], B: [0]}))
    first = member.reconciliation_or_none({A: "a"})
    assert first is not None
    assert first.unresolved == {B}
    member.reconciled(first)
    member.heartbeat(1)
    assert state_of(member) is ConsumerMemberState.RECONCILING
    assert member.reconciliation_or_none({A: "a"}) is None
    second = step(member)
    assert second.added == [TopicPartition("b", 0)]
    member.reconciled(second)
    member.heartbeat(1)
    assert state_of(member) is ConsumerMemberState.STABLE


def test_a_target_that_changes_during_a_reconciliation_is_next() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, {A: [0]}))
    first = step(member)
    member.heartbeat_answered(answer(2, {A: [0, 1]}))
    assert member.is_current(first)
    member.reconciled(first)
    member.heartbeat(1)
    assert state_of(member) is ConsumerMemberState.RECONCILING
    assert step(member).added == [TopicPartition("a", 1)]


def test_the_same_target_again_is_acknowledged_again() -> None:
    member = stable({A: [0]})
    member.heartbeat_answered(answer(2, {}))
    member.heartbeat_answered(answer(3, {A: [0]}))
    assert state_of(member) is ConsumerMemberState.RECONCILING
    found = step(member)
    assert (found.revoked, found.added) == ([], [])


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_again_after_its_release(code: ErrorCode) -> None:
    member = stable({A: [0]})
    assert member.heartbeat_refused(code, None)
    assert state_of(member) is ConsumerMemberState.FENCED
    assert member.is_silent
    member.released()
    member.join()
    request = member.heartbeat(1)
    assert request.member_epoch == 0
    assert request.topic_partitions == []


def test_a_reconciliation_ends_with_the_membership_it_belongs_to() -> None:
    member = joining()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, {A: [0]}))
    found = step(member)
    member.heartbeat_refused(ErrorCode.FENCED_MEMBER_EPOCH, None)
    member.join()
    member.heartbeat(1)
    member.heartbeat_answered(answer(1, {A: [0]}))
    assert not member.is_current(found)


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.UNSUPPORTED_ASSIGNOR, BrokerRefused),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, BrokerRefused),
        (ErrorCode.INVALID_REQUEST, BrokerRefused),
        (ErrorCode.UNRELEASED_INSTANCE_ID, BrokerRefused),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedByBroker),
    ],
)
def test_a_refusal_for_good_is_fatal(code: ErrorCode, raised: type[Exception]) -> None:
    member = joining("instance")
    with pytest.raises(raised):
        member.heartbeat_refused(code, "why")
    assert state_of(member) is ConsumerMemberState.FATAL
    member.join()
    assert state_of(member) is ConsumerMemberState.FATAL


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("instance", -2)])
def test_leaving_is_an_epoch(instance_id: str | None, epoch: int) -> None:
    member = joining(instance_id)
    member.heartbeat(1)
    member.heartbeat_answered(answer(1))
    assert member.leave()
    request = member.heartbeat(1)
    assert request.member_epoch == epoch
    assert request.subscribed_topic_names is None
    member.left(is_stale=False)
    assert not member.leave()


def test_a_changed_subscription_is_told_at_once() -> None:
    member = stable({A: [0]})
    assert not member.is_urgent
    member.subscribed = Subscribed(frozenset(["a"]))
    assert member.is_urgent
    assert member.heartbeat(1).subscribed_topic_names == ["a"]
    assert not member.is_urgent


def test_a_regex_is_sent_and_taken_back() -> None:
    member = joining()
    member.subscribed = Subscribed(regex="a.*")
    request = member.heartbeat(1)
    assert request.subscribed_topic_regex == "a.*"
    assert request.subscribed_topic_names == []
    member.heartbeat_answered(answer(1))
    member.subscribed = Subscribed(frozenset(["a"]))
    assert member.heartbeat(1).subscribed_topic_regex == ""
