"""Eligible leader replicas (KIP-966), as tables."""

from __future__ import annotations

import pytest

from tidelog.controller.cluster.eligible_replicas import (
    NOBODY,
    Eligibility,
    after_unclean_restart,
    eligible_after,
)
from tidelog.controller.cluster.leader_and_isr import NO_LEADER, LeaderAndIsr

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
    assert eligible_after(before, isr, eligibility).elr == expected


@pytest.mark.parametrize(
    ("isr", "elr", "last_known", "isr_after", "expected"),
    [
        ((1,), (2,), (3,), (1,), ((2,), (3,))),
        ((1,), (), (3,), (3,), ((1,), ())),  # leads again, so it is in sync
        ((1,), (2,), (3,), (1, 2), ((), ())),  # large enough: nobody needs to be remembered
    ],
)
def test_who_was_eligible_is_remembered_while_the_in_sync_set_is_too_small(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last_known: tuple[int, ...],
    isr_after: tuple[int, ...],
    expected: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    before = LeaderAndIsr(1, 0, isr, elr=elr, last_known_elr=last_known)
    assert eligible_after(before, isr_after, Eligibility(REPLICAS, 2, True)) == expected


def test_nobody_is_eligible_where_the_leader_commits_with_a_small_set() -> None:
    before = LeaderAndIsr(1, 0, (1, 2), elr=(3,))
    eligibility = Eligibility(REPLICAS, 2, leader_keeps_strict_min_isr=False)
    assert eligible_after(before, (1,), eligibility) == NOBODY


def test_a_removed_replica_is_not_eligible() -> None:
    before = LeaderAndIsr(1, 0, (1, 4), elr=(5,))
    assert eligible_after(before, (1,), Eligibility(REPLICAS, 2, True)) == NOBODY


@pytest.mark.parametrize(
    ("isr", "elr", "broker", "expected"),
    [
        ((1,), (2, 3), 1, ((2, 3), ())),  # the last one in sync may have lost records
        ((1,), (), 1, None),  # there is nobody better
        ((1,), (2, 3), 2, ((1,), (3,))),
        ((1, 2), (3,), 1, None),
        ((1,), (2,), 3, None),
    ],
)
def test_an_unclean_restart_costs_eligibility(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    broker: int,
    expected: tuple[tuple[int, ...], tuple[int, ...]] | None,
) -> None:
    before = LeaderAndIsr(NO_LEADER, 7, isr, elr=elr)
    after = after_unclean_restart(before, broker, REPLICAS)
    assert (None if after is None else (after.isr, after.elr)) == expected
    if after is not None:
        assert after.leader_epoch == 8
        assert after.last_known_elr == (broker,)
