from __future__ import annotations

import pytest

from tidelog.client.consumer.classic_member import (
    NO_GENERATION,
    ClassicMember,
    Generation,
    MemberState,
    Next,
)
from tidelog.client.errors import (
    BrokerRefused,
    CommitFailed,
    FencedInstance,
    NotAuthorized,
    RebalanceInProgress,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse


def joined(generation_id: int = 1, member_id: str = "m") -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation_id, member_id=member_id, protocol_name="range", leader="x"
    )


def stable(instance_id: str | None = None) -> ClassicMember:
    member = ClassicMember("g", instance_id)
    assert member.join_answered(member.joining(), joined()) is Next.GO_ON
    assert member.sync_answered(member.generation, SyncGroupResponse()) is Next.GO_ON
    return member


def test_a_join_and_a_sync_make_a_stable_member() -> None:
    member = stable()
    assert member.state is MemberState.STABLE
    assert not member.rejoin_needed
    assert member.generation == Generation(1, "m", "range")


def test_a_member_id_that_is_required_is_joined_with() -> None:
    member = ClassicMember("g")
    needed = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="given")
    assert member.join_answered(member.joining(), needed) is Next.JOIN_AGAIN
    assert member.joining() == Generation(-1, "given")


def test_an_unknown_member_joins_without_its_id() -> None:
    member = stable()
    refused = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.join_answered(member.joining(), refused) is Next.JOIN_AGAIN
    assert member.generation == NO_GENERATION
    assert member.needs_prepare


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.RETRY),
        (ErrorCode.NOT_COORDINATOR, Next.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Next.FIND_COORDINATOR),
        (ErrorCode.REBALANCE_IN_PROGRESS, Next.JOIN_AGAIN),
    ],
)
def test_a_join_that_may_succeed_later_is_tried_again(code: ErrorCode, outcome: Next) -> None:
    member = ClassicMember("g")
    answer = JoinGroupResponse(error_code=code)
    assert member.join_answered(member.joining(), answer) is outcome
    assert member.rejoin_needed


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, NotAuthorized),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, BrokerRefused),
        (ErrorCode.INVALID_SESSION_TIMEOUT, BrokerRefused),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, BrokerRefused),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstance),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerRefused),
    ],
)
def test_a_join_that_is_refused_for_good_raises(
    code: ErrorCode, raised: type[BrokerRefused]
) -> None:
    member = ClassicMember("g", "instance")
    with pytest.raises(raised):
        member.join_answered(member.joining(), JoinGroupResponse(error_code=code))


def test_a_group_of_another_kind_is_refused() -> None:
    member = ClassicMember("g")
    answer = joined()
    answer.protocol_type = "connect"
    with pytest.raises(BrokerRefused, match="INCONSISTENT_GROUP_PROTOCOL"):
        member.join_answered(member.joining(), answer)


def test_a_sync_of_a_generation_that_has_ended_keeps_the_member_id() -> None:
    member = ClassicMember("g")
    member.join_answered(member.joining(), joined())
    answer = SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    assert member.sync_answered(member.generation, answer) is Next.JOIN_AGAIN
    assert member.generation == Generation(-1, "m")


def test_an_assignment_that_arrives_after_a_reset_is_not_taken() -> None:
    member = ClassicMember("g")
    member.join_answered(member.joining(), joined())
    sent = member.generation
    member.heartbeat_answered(sent, ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.sync_answered(sent, SyncGroupResponse()) is Next.JOIN_AGAIN
    assert member.state is MemberState.UNJOINED


def test_a_join_answer_after_leaving_is_not_taken() -> None:
    member = ClassicMember("g")
    sent = member.joining()
    member.leaving()
    assert member.join_answered(sent, joined()) is Next.JOIN_AGAIN
    assert member.generation == NO_GENERATION


def test_a_heartbeat_tells_of_a_rebalance() -> None:
    member = stable()
    assert member.heartbeat_answered(member.generation, ErrorCode.REBALANCE_IN_PROGRESS) is (
        Next.GO_ON
    )
    assert member.rejoin_needed
    assert member.state is MemberState.STABLE


def test_a_heartbeat_during_a_rebalance_tells_nothing_new() -> None:
    member = stable()
    member.rejoin_needed = False
    member.join_answered(member.joining(), joined(2))
    member.rejoin_needed = False
    member.heartbeat_answered(member.generation, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not member.rejoin_needed


def test_a_heartbeat_of_an_older_generation_is_ignored() -> None:
    member = stable()
    old = member.generation
    member.join_answered(member.joining(), joined(2))
    member.sync_answered(member.generation, SyncGroupResponse())
    member.heartbeat_answered(old, ErrorCode.ILLEGAL_GENERATION)
    assert member.state is MemberState.STABLE


def test_a_heartbeat_of_a_fenced_instance_raises() -> None:
    member = stable("instance")
    with pytest.raises(FencedInstance, match="instance"):
        member.heartbeat_answered(member.generation, ErrorCode.FENCED_INSTANCE_ID)
    assert member.generation == NO_GENERATION


def test_a_member_that_is_unknown_has_lost_its_partitions() -> None:
    member = stable()
    assert not member.has_lost_partitions
    member.heartbeat_answered(member.generation, ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.has_lost_partitions
    assert member.rejoin_needed


def test_nothing_is_committed_while_the_group_rebalances() -> None:
    member = stable()
    member.joining()
    with pytest.raises(RebalanceInProgress):
        member.commit_generation()


def test_nothing_is_committed_by_who_is_no_member() -> None:
    member = stable()
    member.heartbeat_answered(member.generation, ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms"):
        member.commit_generation()


def test_a_commit_of_an_ended_generation_fails_and_resets() -> None:
    member = stable()
    problem = member.commit_refused(member.generation, ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(problem, CommitFailed)
    assert member.generation == Generation(-1, "m")


def test_a_commit_of_the_generation_before_does_not_disturb_a_join() -> None:
    member = stable()
    sent = Generation(0, "m", "range")
    member.joining()
    problem = member.commit_refused(sent, ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(problem, RebalanceInProgress)
    assert member.state is MemberState.PREPARING_REBALANCE


def test_a_commit_refused_for_a_rebalance_makes_the_member_join() -> None:
    member = stable()
    problem = member.commit_refused(member.generation, ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(problem, RebalanceInProgress)
    assert member.rejoin_needed


def test_a_dynamic_member_says_goodbye_and_a_static_one_does_not() -> None:
    assert stable().leaving() == Generation(1, "m", "range")
    static = stable("instance")
    assert static.leaving() is None
    assert static.generation == NO_GENERATION
    assert ClassicMember("g").leaving() is None
