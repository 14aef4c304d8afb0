"""Who leads next, and who may lead without loss when nobody in sync is left; pure.

Kafka elects a leader in four ways:

    offline               the next live replica in sync, in the order of the assignment; else the
                          next live one that is eligible (KIP-966); else, only where unclean
                          elections are allowed, the one that led last, else any live one, at the
                          price of lost records
    reassigned            the next live replica in sync of those wanted
    preferred             the first of the assignment, if it is live and in sync
    controlled shutdown   the next in sync whose broker is not shutting down

The result says who leads with which in-sync set, and which replicas are told. None means that
there is nobody to elect.

Eligible leader replicas (KIP-966). While the in-sync set has fewer than min.insync.replicas
members, a leader that keeps strict min ISR does not move the high watermark. So a replica that
leaves the set then still holds all that is committed, and stays eligible until the set is large
enough again. Kafka has this only in KRaft. Here the eligible replicas are the field `elr` of the
state node. They are kept only for partitions whose leader announces strict min ISR, and by the
min.insync.replicas that this leader goes by: one with less than others think commits alone.

A broker that crashed may have lost what was not flushed. It stops being eligible. If it was the
last one in sync while others are eligible, those take its place in the set, because they hold what
is committed as long as they, too, ended cleanly. Whether a dead broker did is known only when it
comes back. So the controller remembers the one that lost its place while nobody leads
(`last_known_elr`). It gets its place back if no other turns out to be better, because it was the
last to lead, and an unclean election takes it first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.controller.cluster.leader_and_isr import RECOVERING, LeaderAndIsr
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.controller.cluster.controller_context import ReplicaAssignment
    from tidelog.types import TopicPartition


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


class Election(NamedTuple):
    """One that was held, for the log."""

    partition: TopicPartition
    before: LeaderAndIsr
    reason: str
    elected: LeaderAndIsr | None  # None: nobody may lead


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


class Eligibility(NamedTuple):
    """What decides on one partition's eligible replicas."""

    replicas: tuple[int, ...]
    min_insync_replicas: int | None  # the leader's; None if it is not known
    leader_keeps_strict_min_isr: bool


class Eligible(NamedTuple):
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


NOBODY: Final = Eligible()


def eligible_after(
    before: LeaderAndIsr, decided: LeaderAndIsr, eligibility: Eligibility
) -> Eligible:
    """Who is eligible once this leader and in-sync set are decided."""
    if eligibility.min_insync_replicas is None or not eligibility.leader_keeps_strict_min_isr:
        return NOBODY
    if len(decided.isr) >= min(eligibility.min_insync_replicas, len(eligibility.replicas)):
        return NOBODY
    eligible = {*before.elr, *before.isr} - set(decided.isr)
    known = before.last_known_elr if decided.leader == NO_LEADER else ()
    return Eligible(
        _in_order(eligibility.replicas, eligible),
        tuple(replica for replica in known if replica not in decided.isr),
    )


def after_unclean_restart(
    before: LeaderAndIsr, broker_id: int, replicas: Collection[int]
) -> LeaderAndIsr | None:
    """The state once this broker is known to have restarted uncleanly; None if nothing changes."""
    elr = tuple(replica for replica in before.elr if replica != broker_id)
    if broker_id not in before.isr:
        return before.next_epoch()._replace(elr=elr) if elr != before.elr else None
    known = before.last_known_elr
    isr = tuple(member for member in before.isr if member != broker_id)
    if not isr:
        isr, elr = _in_order(replicas, elr), ()
    if isr:
        known = known or (broker_id,)
    else:
        isr, known = known, ()
    if not isr:
        return None  # nobody is better
    return before.next_epoch(isr=isr)._replace(elr=elr, last_known_elr=known)


def _in_order(replicas: Iterable[int], chosen: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica in chosen)
