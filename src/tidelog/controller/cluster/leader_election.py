"""Who leads next: the four ways in which Kafka elects a leader; pure.

    offline               the next live replica in sync, in the order of the assignment; else the
                          next live one that is eligible (KIP-966); else, only where unclean
                          elections are allowed, the one that led last, else any live one, at the
                          price of lost records
    reassigned            the next live replica in sync of those wanted
    preferred             the first of the assignment, if it is live and in sync
    controlled shutdown   the next in sync whose broker is not shutting down

The result says who leads with which in-sync set, and which replicas are told. None means that
there is nobody to elect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final, NamedTuple

from tidelog.controller.cluster.leader_and_isr import RECOVERING, LeaderAndIsr
from tidelog.controller.cluster.replica_assignment import ReplicaAssignment


class ElectionStrategy(Enum):
    OFFLINE = auto()
    OFFLINE_UNCLEAN_ALLOWED = auto()  # whatever the topic's configuration says
    REASSIGNED = auto()
    PREFERRED = auto()
    CONTROLLED_SHUTDOWN = auto()


class Candidates(NamedTuple):
    """One partition and its replicas as an election sees them."""

    assignment: ReplicaAssignment
    current: LeaderAndIsr
    online: Collection[int]
    shutting_down: Collection[int] = ()  # of the replicas: online no more, but still there
    unclean_allowed: bool = False


class Elected(NamedTuple):
    state: LeaderAndIsr
    recipients: tuple[int, ...]
    unclean: bool = False


def elect(strategy: ElectionStrategy, candidates: Candidates) -> Elected | None:
    return _STRATEGIES[strategy](candidates)


def _offline(candidates: Candidates) -> Elected | None:
    replicas, current = candidates.assignment.replicas, candidates.current
    live = tuple(replica for replica in replicas if replica in candidates.online)
    leader = next((replica for replica in live if replica in current.isr), None)
    if leader is not None:
        isr = [replica for replica in current.isr if replica in candidates.online]
        return Elected(current.next_epoch(leader, isr), live)
    leader = next((replica for replica in live if replica in current.elr), None)
    if leader is not None:
        return Elected(current.next_epoch(leader, [leader]), live)
    if candidates.unclean_allowed and live:
        leader = next((replica for replica in live if replica in current.last_known_elr), live[0])
        state = current.next_epoch(leader, [leader])._replace(recovery=RECOVERING)
        return Elected(state, live, unclean=True)
    return None


def _offline_unclean_allowed(candidates: Candidates) -> Elected | None:
    return _offline(candidates._replace(unclean_allowed=True))


def _reassigned(candidates: Candidates) -> Elected | None:
    target = candidates.assignment.target
    return _keeping_isr(candidates, target, target)


def _preferred(candidates: Candidates) -> Elected | None:
    replicas = candidates.assignment.replicas
    return _keeping_isr(candidates, replicas[:1], replicas)


def _keeping_isr(
    candidates: Candidates, eligible: Collection[int], recipients: tuple[int, ...]
) -> Elected | None:
    current = candidates.current
    for replica in eligible:
        if replica in candidates.online and replica in current.isr:
            return Elected(current.next_epoch(replica), recipients)
    return None


def _controlled_shutdown(candidates: Candidates) -> Elected | None:
    current, leaving = candidates.current, candidates.shutting_down
    there = {*candidates.online, *leaving}
    isr = [replica for replica in current.isr if replica not in leaving]
    for replica in candidates.assignment.replicas:
        if replica in candidates.online and replica in isr:
            recipients = tuple(r for r in candidates.assignment.replicas if r in there)
            return Elected(current.next_epoch(replica, isr), recipients)
    return None


_STRATEGIES: Final[dict[ElectionStrategy, Callable[[Candidates], Elected | None]]] = {
    ElectionStrategy.OFFLINE: _offline,
    ElectionStrategy.OFFLINE_UNCLEAN_ALLOWED: _offline_unclean_allowed,
    ElectionStrategy.REASSIGNED: _reassigned,
    ElectionStrategy.PREFERRED: _preferred,
    ElectionStrategy.CONTROLLED_SHUTDOWN: _controlled_shutdown,
}
