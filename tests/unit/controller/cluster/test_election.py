"""Who is elected, and who is eligible (KIP-966)."""

from __future__ import annotations

import pytest

from tidelog.controller.cluster.controller_context import ReplicaAssignment
from tidelog.controller.cluster.election import (
    NOBODY,
    Candidates,
    Elected,
    ElectionStrategy,
    Eligibility,
    after_unclean_restart,
    elect,
    eligible_after,
)
from tidelog.controller.cluster.leader_and_isr import RECOVERED, RECOVERING, LeaderAndIsr
from tidelog.types import NO_LEADER

S = ElectionStrategy
REPLICAS = (1, 2, 3)


def candidates(
    *,
    leader: int = 1,
    isr: tuple[int, ...] = REPLICAS,
    online: tuple[int, ...] = REPLICAS,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    unclean: bool = False,
    shutting_down: tuple[int, ...] = (),
    assignment: ReplicaAssignment | None = None,
) -> Candidates:
    return Candidates(
        assignment or ReplicaAssignment(REPLICAS),
        LeaderAndIsr(leader, 5, isr, elr=elr, last_known_elr=last_known),
        online,
        shutting_down,
        unclean,
    )


def outcome(elected: Elected | None) -> tuple[int, tuple[int, ...]] | None:
    return None if elected is None else (elected.state.leader, elected.state.isr)


@pytest.mark.parametrize(
    ("strategy", "given", "expected"),
    [
        # The next live one in sync, in the order of the assignment, not of the in-sync set.
        (S.OFFLINE, candidates(isr=(3, 2, 1), online=(2, 3)), (2, (3, 2))),
        (S.OFFLINE, candidates(isr=(1, 3), online=(2, 3)), (3, (3,))),
        (S.OFFLINE, candidates(isr=(1,), online=(2, 3)), None),
        (S.OFFLINE, candidates(isr=(1,), online=()), None),
        # Unclean only where it is allowed, and only when nobody in sync is left.
        (S.OFFLINE, candidates(isr=(1,), online=(3, 2), unclean=True), (2, (2,))),
        (S.OFFLINE, candidates(isr=(1, 3), online=(2, 3), unclean=True), (3, (3,))),
        (S.OFFLINE, candidates(isr=(1,), online=(), unclean=True), None),
        (S.OFFLINE_UNCLEAN_ALLOWED, candidates(isr=(1,), online=(3,)), (3, (3,))),
        # Eligible ones come before unclean ones, and after those in sync.
        (S.OFFLINE, candidates(isr=(1,), online=(2, 3), elr=(3,)), (3, (3,))),
        (S.OFFLINE, candidates(isr=(1,), online=(2, 3), elr=(3,), unclean=True), (3, (3,))),
        (S.OFFLINE, candidates(isr=(1,), online=(1, 3), elr=(3,)), (1, (1,))),
        (S.OFFLINE, candidates(isr=(1,), online=(2,), elr=(3,)), None),
        # Who was eligible is no clean choice, but the best of the unclean ones.
        (S.OFFLINE, candidates(isr=(1,), online=(2, 3), last_known=(3,)), None),
        (S.OFFLINE, candidates(isr=(1,), online=(2, 3), last_known=(3,), unclean=True), (3, (3,))),
        (S.OFFLINE, candidates(isr=(1,), online=(2,), last_known=(3,), unclean=True), (2, (2,))),
        # The preferred one, or nobody.
        (S.PREFERRED, candidates(leader=2), (1, REPLICAS)),
        (S.PREFERRED, candidates(leader=2, isr=(2, 3)), None),
        (S.PREFERRED, candidates(leader=2, online=(2, 3)), None),
        # Of those wanted, in their order.
        (
            S.REASSIGNED,
            candidates(
                isr=(1, 2, 3, 4, 5),
                online=(1, 2, 3, 5),
                assignment=ReplicaAssignment((4, 5, 1, 2, 3), (4, 5), (1, 2, 3)),
            ),
            (5, (1, 2, 3, 4, 5)),
        ),
        (S.REASSIGNED, candidates(isr=(1,), online=(2, 3)), None),
        # Who shuts down neither leads nor stays in sync.
        (S.CONTROLLED_SHUTDOWN, candidates(online=(2, 3), shutting_down=(1,)), (2, (2, 3))),
        (S.CONTROLLED_SHUTDOWN, candidates(online=(3,), shutting_down=(1, 2)), (3, (3,))),
        (S.CONTROLLED_SHUTDOWN, candidates(isr=(1,), online=(2, 3), shutting_down=(1,)), None),
    ],
)
def test_election(
    strategy: ElectionStrategy, given: Candidates, expected: tuple[int, tuple[int, ...]] | None
) -> None:
    elected = elect(strategy, given)
    assert outcome(elected) == expected
    if elected is not None:
        assert elected.state.leader_epoch == given.current.leader_epoch + 1


def test_only_an_unclean_leader_has_to_recover() -> None:
    unclean = elect(S.OFFLINE, candidates(isr=(1,), online=(2,), unclean=True))
    assert unclean is not None
    assert unclean.unclean
    assert unclean.state.recovery == RECOVERING
    eligible = elect(S.OFFLINE, candidates(isr=(1,), online=(2,), elr=(2,)))
    assert eligible is not None
    assert eligible.state.recovery == RECOVERED


def test_a_leader_that_goes_is_told_together_with_those_that_stay() -> None:
    elected = elect(S.CONTROLLED_SHUTDOWN, candidates(online=(2,), shutting_down=(1,)))
    assert elected is not None
    assert elected.recipients == (1, 2)


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
