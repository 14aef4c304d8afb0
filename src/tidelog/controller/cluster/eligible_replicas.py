"""Eligible leader replicas (KIP-966): who may lead without loss when nobody in sync is left; pure.

While the in-sync set has fewer than min.insync.replicas members, a leader that keeps strict min
ISR does not move the high watermark. So a replica that leaves the set then still holds all that is
committed, and stays eligible until the set is large enough again. Kafka has this only in KRaft.
Here the eligible replicas are the field `elr` of the state node. They are kept only for partitions
whose leader announces strict min ISR.

A broker whose life before did not end cleanly may have lost what was not flushed. It stops being
eligible; and if it was the last one in sync while others are eligible, those take its place in the
set, for they are sure to hold what is committed and it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr


class Eligibility(NamedTuple):
    """What decides on one partition's eligible replicas."""

    replicas: tuple[int, ...]
    min_insync_replicas: int
    leader_keeps_strict_min_isr: bool


def eligible_after(
    before: LeaderAndIsr, isr: Sequence[int], eligibility: Eligibility
) -> tuple[int, ...]:
    """The eligible replicas once the in-sync set is `isr`."""
    enough = min(eligibility.min_insync_replicas, len(eligibility.replicas))
    if len(isr) >= enough or not eligibility.leader_keeps_strict_min_isr:
        return ()
    candidates = {*before.elr, *before.isr} - set(isr)
    return tuple(replica for replica in eligibility.replicas if replica in candidates)


def after_unclean_restart(
    before: LeaderAndIsr, broker_id: int, replicas: Collection[int]
) -> LeaderAndIsr | None:
    """The state once this broker is known to have restarted uncleanly; None if nothing changes."""
    others = tuple(replica for replica in before.elr if replica != broker_id)
    if before.isr == (broker_id,) and others:
        in_order = tuple(replica for replica in replicas if replica in others)
        return before.next_epoch(isr=in_order)._replace(elr=())
    if broker_id in before.elr:
        return before.next_epoch()._replace(elr=others)
    return None
