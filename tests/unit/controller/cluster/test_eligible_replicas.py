"""Eligible leader replicas (KIP-966), as tables."""

from __future__ import annotations

import pytest

from tidelog.controller.cluster.eligible_replicas import (
    NOBODY,
    Eligibility,
    after_unclean_restart,
    eligible_after,
)
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.types import NO_LEADER

REPLICAS = (1, 2, 3)


@pytest.mark.parametrize(
    ("isr_before", "elr_before", "isr", "min_isr", "expected"),
    [
        ((1, 2), (), (1,), 2, (2,)),
        ((1, 2, 3), (), (1, 2), 2, ()),  # enough are left: what is committed from now on 3 lacks
        ((1, 2, 3), (), (3,), 2, (1, 2)),
        ((1,), (2,), (1, 3), 2, ()),  # large enough again
        ((1,), (2,), (3,), 2, (1, 2)),
        ((1,), (2,), (2,), 2, (1,)),
        ((1, 2), (), (1,), 1, ()),
        ((1, 2, 3), (), (1, 2), 5, (3,)),  # more than there are replicas counts as all of them
    ],
)
def test_who_leaves_an_in_sync_set_that_is_too_small_stays_eligible(
    isr_before: tuple[int, ...],
    elr_before: tuple[int, ...],
    isr: tuple[int, ...],
    min_isr: int,
    expected: tuple[int, ...],
) -> None:
    before = LeaderAndIsr(1, 0, isr_before, elr=elr_before)
    eligibility = Eligibility(REPLICAS, min_isr, leader_keeps_strict_min_isr=True)
    decided = before._replace(isr=isr)
    assert eligible_after(before, decided, eligibility).elr == expected


@pytest.mark.parametrize(
    ("leader", "isr", "expected"),
    [
        (NO_LEADER, (2,), (1,)),
        (NO_LEADER, (1,), ()),
        (2, (2,), ()),  # leads now, and so has last led
        (NO_LEADER, (2, 3), ()),  # enough
    ],
)
def test_who_led_last_is_remembered_until_somebody_leads(
    leader: int, isr: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    before = LeaderAndIsr(NO_LEADER, 0, (2,), last_known_elr=(1,))
    decided = before._replace(leader=leader, isr=isr)
    assert eligible_after(before, decided, Eligibility(REPLICAS, 2, True)).last_known == expected


def test_nobody_is_eligible_where_the_leader_commits_with_a_small_set() -> None:
    before = LeaderAndIsr(1, 0, (1, 2), elr=(3,))
    eligibility = Eligibility(REPLICAS, 2, leader_keeps_strict_min_isr=False)
    assert eligible_after(before, before._replace(isr=(1,)), eligibility) == NOBODY


def test_a_removed_replica_is_not_eligible() -> None:
    before = LeaderAndIsr(1, 0, (1, 4), elr=(5,))
    decided = before._replace(isr=(1,))
    assert eligible_after(before, decided, Eligibility(REPLICAS, 2, True)) == NOBODY


@pytest.mark.parametrize(
    ("isr", "elr", "known", "broker", "expected"),
    [
        # The last one in sync may have lost records; it is remembered.
        ((1,), (2, 3), (), 1, ((2, 3), (), (1,))),
        # So may those in its place: they are only known to have led before.
        ((2, 3), (), (1,), 2, ((3,), (), (1,))),
        # When nobody turns out to be better, it has its place again.
        ((3,), (), (1,), 3, ((1,), (), ())),
        ((1,), (), (), 1, None),
        # Outside the set eligibility is lost, and nothing else.
        ((1,), (2, 3), (), 2, ((1,), (3,), ())),
        ((3,), (2,), (1,), 2, ((3,), (), (1,))),
        ((1,), (2,), (), 3, None),
    ],
)
def test_an_unclean_restart_costs_eligibility(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    known: tuple[int, ...],
    broker: int,
    expected: tuple[tuple[int, ...], ...] | None,
) -> None:
    before = LeaderAndIsr(NO_LEADER, 7, isr, elr=elr, last_known_elr=known)
    after = after_unclean_restart(before, broker, REPLICAS)
    assert (None if after is None else (after.isr, after.elr, after.last_known_elr)) == expected
    if after is not None:
        assert after.leader_epoch == 8
