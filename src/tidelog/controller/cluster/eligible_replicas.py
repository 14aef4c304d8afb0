"""Eligible leader replicas (KIP-966): who may lead without loss when nobody in sync is left; pure.

While the in-sync set has fewer than min.insync.replicas members, a leader that keeps strict min
ISR does not move the high watermark. So a replica that leaves the set then still holds all that is
committed, and stays eligible until the set is large enough again. Kafka has this only in KRaft.
Here the eligible replicas are the field `elr` of the state node. They are kept only for partitions
whose leader announces strict min ISR.

A broker whose life before did not end cleanly may have lost what was not flushed. It stops being
eligible; and if it was the last one in sync while others are eligible, those take its place in the
set, for they are sure to hold what is committed and it is not. Who loses its place like that is
remembered (`last_known_elr`) until the set is large enough: should an unclean election be the only
way out, it has the most to offer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr


class Eligibility(NamedTuple):
    """What decides on one partition's eligible replicas."""

    replicas: tuple[int, ...]
    min_insync_replicas: int
    leader_keeps_strict_min_isr: bool


class Eligible(NamedTuple):
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


NOBODY: Final = Eligible()


def eligible_after(before: LeaderAndIsr, isr: Sequence[int], eligibility: Eligibility) -> Eligible:
    """The eligible replicas once the in-sync set is `isr`."""
    enough = min(eligibility.min_insync_replicas, len(eligibility.replicas))
    if len(isr) >= enough or not eligibility.leader_keeps_strict_min_isr:
        return NOBODY
    eligible = {*before.elr, *before.isr} - set(isr)
    known = set(before.last_known_elr) - eligible - set(isr)
    replicas = eligibility.replicas
    return Eligible(_in_order(replicas, eligible), _in_order(replicas, known))


def after_unclean_restart(
    before: LeaderAndIsr, broker_id: int, replicas: Collection[int]
) -> LeaderAndIsr | None:
    """The state once this broker is known to have restarted uncleanly; None if nothing changes."""
    others = tuple(replica for replica in before.elr if replica != broker_id)
    known = _in_order(replicas, {*before.last_known_elr, broker_id})
    if before.isr == (broker_id,) and others:
        isr = _in_order(replicas, others)
        return before.next_epoch(isr=isr)._replace(elr=(), last_known_elr=known)
    if broker_id in before.elr:
        return before.next_epoch()._replace(elr=others, last_known_elr=known)
    return None


def _in_order(replicas: Iterable[int], chosen: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica in chosen)
