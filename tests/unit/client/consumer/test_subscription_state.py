from __future__ import annotations

import re

import pytest

from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.consumer.offset_reset import EARLIEST, LATEST, NONE, reset_timestamp
from tidelog.client.consumer.subscription_state import (
    FetchState,
    PartitionState,
    Position,
    SubscriptionState,
)
from tidelog.client.errors import IllegalState, NoOffsetForPartition
from tidelog.client.network.metadata import LeaderAndEpoch
from tidelog.config.client import OffsetResetPolicy
from tidelog.types import TopicPartition

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


def assigned(*partitions: TopicPartition, reset: OffsetResetPolicy = LATEST) -> SubscriptionState:
    state = SubscriptionState(reset)
    state.assign(partitions)
    return state


def at(offset: int, epoch: int = -1) -> PartitionState:
    state = PartitionState(P0)
    state.seek(Position(offset, epoch))
    return state


def test_subscribing_and_assigning_exclude_each_other() -> None:
    state = SubscriptionState(LATEST)
    state.subscribe(["t"], None)
    with pytest.raises(IllegalState, match="unsubscribe first"):
        state.assign([P0])
    with pytest.raises(IllegalState):
        state.subscribe_pattern(re.compile("t.*"), None)
    state.unsubscribe()
    state.assign([P0])
    assert state.assignment == {P0}


def test_a_subscription_says_whether_its_topics_changed() -> None:
    state = SubscriptionState(LATEST)
    assert state.subscribe(["a", "b"], None)
    assert not state.subscribe(["b", "a"], None)
    assert state.subscribe(["a"], None)


def test_a_pattern_selects_topics_by_name() -> None:
    state = SubscriptionState(LATEST)
    state.subscribe_pattern(re.compile("^orders-"), None)
    assert state.topics_match(["orders-1", "other", "orders-2"])
    assert state.topics == {"orders-1", "orders-2"}
    assert not state.topics_match(["orders-2", "orders-1"])
    assert state.matches([TopicPartition("orders-9", 0)])
    assert not state.matches([TopicPartition("other", 0)])


def test_partitions_that_stay_keep_their_position() -> None:
    state = assigned(P0)
    state.state(P0).seek(Position(7))
    state.assign([P0, P1])
    assert state.state(P0).position == Position(7)
    assert state.state(P1).state is FetchState.INITIALIZING
    state.assign([P1])
    state.assign([P0, P1])
    assert state.state(P0).position is None


def test_a_partition_that_is_not_assigned_has_no_state() -> None:
    with pytest.raises(IllegalState, match="t-1 is not assigned"):
        assigned(P0).state(P1)


def test_without_a_committed_offset_the_default_reset_decides() -> None:
    state = assigned(P0, P1, reset=EARLIEST)
    state.state(P1).seek(Position(3))
    assert [each.partition for each in state.reset_missing()] == [P0]
    assert state.state(P0).reset == EARLIEST
    assert state.state(P0).state is FetchState.AWAIT_RESET


def test_without_a_reset_policy_a_missing_offset_is_an_error() -> None:
    with pytest.raises(NoOffsetForPartition, match="t-0, t-1"):
        assigned(P1, P0, reset=NONE).reset_missing()


def test_consumed_offsets_carry_the_epoch_of_the_last_record() -> None:
    state = assigned(P0, P1)
    state.state(P0).seek(Position(0))
    state.state(P0).consumed_to(Position(5, 2))
    assert state.consumed() == {P0: OffsetAndMetadata(5, 2)}


def test_a_seek_begins_a_new_stretch() -> None:
    state = at(5)
    state.fetched_to(Position(100))
    state.fetched_count = 1
    before = state.stretch
    state.seek(Position(2))
    assert state.fetch_position == Position(2)
    assert state.stretch > before
    assert state.buffered == 0


def test_a_new_leader_has_to_confirm_a_position_with_an_epoch() -> None:
    state = at(5, epoch=1)
    state.leader = LeaderAndEpoch(1, 1)
    state.fetched_to(Position(9, 1))
    state.leader_changed(LeaderAndEpoch(2, 2), may_validate=True)
    assert state.state is FetchState.AWAIT_VALIDATION
    assert not state.is_fetchable
    assert state.fetch_position == Position(5, 1)
    state.validated()
    assert state.is_fetchable


@pytest.mark.parametrize(
    ("position_epoch", "leader_epoch", "may_validate"),
    [(-1, 2, True), (1, -1, True), (1, 2, False)],
)
def test_a_position_is_not_validated_without_epochs_or_a_broker_that_can(
    position_epoch: int, leader_epoch: int, may_validate: bool
) -> None:
    state = at(5, epoch=position_epoch)
    state.leader = LeaderAndEpoch(1, 1)
    state.leader_changed(LeaderAndEpoch(2, leader_epoch), may_validate=may_validate)
    assert state.state is FetchState.FETCHING


def test_the_same_leader_again_changes_nothing() -> None:
    state = at(5, epoch=1)
    state.leader = LeaderAndEpoch(1, 1)
    before = state.stretch
    state.leader_changed(LeaderAndEpoch(1, 1), may_validate=True)
    assert (state.state, state.stretch) == (FetchState.FETCHING, before)


def test_a_new_leader_ends_the_preference_for_a_follower() -> None:
    state = at(5)
    state.leader = LeaderAndEpoch(1, 1)
    state.prefer_replica(3, until=10.0)
    state.leader_changed(LeaderAndEpoch(2, 2), may_validate=True)
    assert state.preferred_replica_or_none(0.0) is None


def test_a_preferred_replica_expires() -> None:
    state = at(5)
    state.prefer_replica(3, until=10.0)
    assert state.preferred_replica_or_none(10.0) == 3
    assert state.preferred_replica_or_none(10.1) is None
    assert state.preferred_replica_or_none(0.0) is None


@pytest.mark.parametrize(
    "held_back", ["is_paused", "is_pending_revocation", "is_awaiting_callback"]
)
def test_a_partition_that_is_held_back_is_not_fetched(held_back: str) -> None:
    state = at(5)
    assert state.is_fetchable
    setattr(state, held_back, True)
    assert not state.is_fetchable


def test_partitions_assigned_anew_are_not_pending_revocation() -> None:
    state = SubscriptionState(LATEST)
    state.subscribe(["t"], None)
    state.assign_from_subscribed([P0])
    state.mark_pending_revocation([P0, P1])
    assert state.state(P0).is_pending_revocation
    state.assign_from_subscribed([P0])
    assert not state.state(P0).is_pending_revocation


def test_a_reset_by_duration_asks_for_the_time_that_long_ago() -> None:
    assert reset_timestamp(OffsetResetPolicy("by_duration", 1_000), 5_000) == 4_000
    assert reset_timestamp(OffsetResetPolicy("by_duration", 9_000), 5_000) == 0
    assert reset_timestamp(EARLIEST, 5_000) == -2
    assert reset_timestamp(LATEST, 5_000) == -1
