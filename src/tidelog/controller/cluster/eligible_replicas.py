"""Eligible leader replicas (KIP-966): who may lead without loss when nobody in sync is left; pure.

While the in-sync set has fewer than min.insync.replicas members, a leader that keeps strict min
ISR does not move the high watermark. So a replica that leaves the set then still holds all that is
committed, and stays eligible until the set is large enough again. Kafka has this only in KRaft.
Here the eligible replicas are the field `elr` of the state node. They are kept only for partitions
whose leader announces strict min ISR, and by the min.insync.replicas that this leader goes by: one
with less than others think commits alone.

A broker whose life before did not end cleanly may have lost what was not flushed. It stops being
eligible; and if it was the last one in sync while others are eligible, those take its place in the
set, for they hold what is committed as long as they, too, ended cleanly. That is known of a broker
that is gone only when it comes back. So the one that lost its place is remembered while nobody
leads (`last_known_elr`): when no other turns out to be better it has its place again, for it was
the last to lead. It also is who an unclean election takes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.types import NO_LEADER


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
