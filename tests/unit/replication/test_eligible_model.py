"""Random lives of a partition with eligible leader replicas (KIP-966).

Replicas and the decisions of the controller are the real ones. Nothing that was acknowledged with
acks=all and min.insync.replicas=2 may be lost, though leaders are also elected from outside the
in-sync set:
- while one broker loses its log whenever it crashes, and the others stop cleanly;
- while all of them crash, and what they have written stays.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.metadata import in_loop
from tests.support.replica_cluster import ReplicaCluster
from tests.unit.replication.test_replication_model import STEPS, Life
from tidelog.config.topic import LogConfig
from tidelog.controller.cluster.controller_context import ReplicaAssignment
from tidelog.controller.cluster.election import (
    Candidates,
    ElectionStrategy,
    Eligibility,
    after_unclean_restart,
    elect,
    eligible_after,
)
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.replication.partition import PartitionRegistration
from tidelog.types import NO_LEADER

MIN_INSYNC_REPLICAS = 2


class EligibleCluster(ReplicaCluster):
    """Its controller keeps eligible replicas."""

    def __init__(self, directory: Path, random: Random) -> None:
        config = LogConfig(min_insync_replicas=MIN_INSYNC_REPLICAS, segment_bytes=2_000)
        super().__init__(directory, config=config, random=random)
        self.replicas = tuple(self.nodes)
        self.led = LeaderAndIsr(1, 0, self.replicas)
        self.eligible_elections = 0

    def broker_gone(self, number: int) -> None:
        current = self.led
        if current.leader == number and self._elect():
            return
        if number in current.isr:
            leader = NO_LEADER if current.leader == number else current.leader
            isr = tuple(member for member in current.isr if member != number) or current.isr
            self._lead(current.next_epoch(leader, isr))

    def broker_come(self, number: int, *, clean_shutdown: bool) -> None:
        if not clean_shutdown:
            changed = after_unclean_restart(self.led, number, self.replicas)
            if changed is not None:
                self._set(changed)
        if self.led.leader == NO_LEADER:
            self._elect()

    def _elect(self) -> bool:
        online = [number for number, node in self.nodes.items() if node.is_up]
        candidates = Candidates(ReplicaAssignment(self.replicas), self.led, online)
        elected = elect(ElectionStrategy.OFFLINE, candidates)
        if elected is None:
            return False
        self.eligible_elections += elected.state.leader in self.led.elr
        self._lead(elected.state)
        return True

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        self._lead(self.led.next_epoch(leader, isr))

    def commit_isr(self, isr: tuple[int, ...]) -> None:
        self._lead(self.led._replace(isr=isr))

    def _lead(self, decided: LeaderAndIsr) -> None:
        eligibility = Eligibility(self.replicas, MIN_INSYNC_REPLICAS, True)
        elr, last_known = eligible_after(self.led, decided, eligibility)
        self._set(decided._replace(elr=elr, last_known_elr=last_known))

    def _set(self, decided: LeaderAndIsr) -> None:
        self.led = decided
        epoch = self.state.partition_epoch + 1
        self.state = PartitionRegistration(
            decided.leader, decided.leader_epoch, self.replicas, decided.isr, epoch
        )


class EligibleLife(Life):
    def __init__(self, directory: Path, seed: int, *, has_bad_disk: bool) -> None:
        super().__init__(directory, seed)
        self.eligible = EligibleCluster(directory, self.random)
        self.cluster = self.eligible
        self._bad = self.random.choice(self.eligible.replicas) if has_bad_disk else None
        self._clean: dict[int, bool] = {}

    def crash(self) -> None:
        """Or stop: then nothing is lost, and the next start says so."""
        up = [node for node in self.cluster.nodes.values() if node.is_up]
        if not up:
            return
        node = self.random.choice(up)
        node.crash()
        crashes = self._bad in (None, node.broker_id) and self.random.random() < 0.5
        self._clean[node.broker_id] = not crashes
        if crashes and self._bad is not None:
            node.lose_its_disk()
        self.eligible.broker_gone(node.broker_id)
        self.tell_all()

    def restart(self) -> None:
        down = [node for node in self.cluster.nodes.values() if not node.is_up]
        if down:
            self.start(self.random.choice(down).broker_id)
            self.tell_all()

    def start(self, number: int) -> None:
        self.cluster.nodes[number].start()
        self.eligible.broker_come(number, clean_shutdown=self._clean[number])

    async def heal(self) -> None:
        for number, node in self.cluster.nodes.items():
            if not node.is_up:
                self.start(number)
        await super().heal()


@pytest.mark.parametrize("has_bad_disk", [True, False])
@pytest.mark.parametrize("seed", range(15))
@in_loop
async def test_what_is_acked_outlives_crashes_and_a_bad_disk(
    tmp_path: Path, seed: int, has_bad_disk: bool
) -> None:
    life = EligibleLife(tmp_path, seed, has_bad_disk=has_bad_disk)
    await life.begin()
    for _ in range(STEPS):
        await life.step()
    await life.heal()
    life.check_equal()
