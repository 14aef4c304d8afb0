"""Who leads next, as a table."""

from __future__ import annotations

import pytest

from tidelog.controller.cluster.leader_and_isr import RECOVERED, RECOVERING, LeaderAndIsr
from tidelog.controller.cluster.leader_election import (
    Candidates,
    Elected,
    ElectionStrategy,
    elect,
)
from tidelog.controller.cluster.replica_assignment import ReplicaAssignment

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
