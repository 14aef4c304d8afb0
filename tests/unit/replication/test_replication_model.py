"""Random lives of a replicated partition: appends, fetches, lost links, crashes, elections.

What was acknowledged with acks=all must be there, at its offset, as long as leaders are elected
from the in-sync set; and below the high watermark all replicas must be equal byte for byte.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.support.metadata import in_loop
from tests.support.replica_cluster import LAG_MAX_MS, ReplicaCluster, values_in
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode

STEPS = 400


class Life:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = ReplicaCluster(
            directory,
            config=LogConfig(min_insync_replicas=2, segment_bytes=2_000),
            random=self.random,
        )
        self.acked: dict[int, bytes] = {}
        self._number = 0

    async def begin(self) -> None:
        self.cluster.start()
        await self.cluster.settle()

    async def step(self) -> None:
        action = self.random.choices(
            [
                self.produce,
                self.deliver,
                self.wait,
                self.break_a_link,
                self.crash,
                self.restart,
                self.move_leadership,
                self.tell_late,
                self.shrink,
            ],
            [30, 45, 12, 2, 2, 4, 2, 6, 2],
        )[0]
        action()
        await self.cluster.settle()
        self.check_acked()

    # What may happen

    def produce(self) -> None:
        cluster = self.cluster
        if cluster.state.leader < 0 or not cluster.leader.is_up:
            return
        if not cluster.leader.partition.is_leader:
            return
        values = []
        for _ in range(self.random.randint(1, 4)):
            values.append(b"%06d" % self._number + b"x" * self.random.randrange(200))
            self._number += 1
        outcomes = _Outcomes(self)
        leadership = cluster.leader.partition.leadership
        assert leadership is not None
        if not leadership.is_under_min_isr:
            outcomes.begin(cluster.produce(values, outcomes), values)

    def deliver(self) -> None:
        """Some mail, in any order between different links."""
        mail = self.cluster.mail
        for _ in range(min(len(mail), self.random.randint(1, 4))):
            mail.pop(0 if self.random.random() < 0.8 else self.random.randrange(len(mail)))()

    def wait(self) -> None:
        self.cluster.clock.advance(ms=self.random.choice([1, 5, 20, 200, 600]))

    def break_a_link(self) -> None:
        if self.cluster.links:
            self.random.choice(sorted(self.cluster.links, key=id)).break_off()

    def crash(self) -> None:
        up = [node for node in self.cluster.nodes.values() if node.is_up]
        if len(up) > 1:
            self.random.choice(up).crash()
            self.cluster.fail_over()
            self.tell_all()

    def restart(self) -> None:
        down = [node for node in self.cluster.nodes.values() if not node.is_up]
        if down:
            node = self.random.choice(down)
            node.start()
            if self.cluster.state.leader < 0:
                self.cluster.fail_over()
            self.tell_all()

    def move_leadership(self) -> None:
        isr = [n for n in self.cluster.state.isr if self.cluster.nodes[n].is_up]
        if self.cluster.state.leader >= 0 and isr:
            self.cluster.elect(self.random.choice(isr))
            if self.random.random() < 0.5:
                self.tell_all()

    def tell_late(self) -> None:
        node = self.random.choice(list(self.cluster.nodes.values()))
        node.obey(self.cluster.state)

    def tell_all(self) -> None:
        for node in self.cluster.nodes.values():
            if self.random.random() < 0.7:
                node.obey(self.cluster.state)

    def shrink(self) -> None:
        self.cluster.clock.advance(ms=self.random.choice([0, LAG_MAX_MS + 1]))
        for node in self.cluster.nodes.values():
            leadership = node.partition.leadership if node.is_up else None
            if leadership is not None and leadership.maybe_shrink_isr():
                node.alter_partition_manager.submit(node.partition)

    # What must be so

    def check_acked(self) -> None:
        state = self.cluster.state
        if state.leader < 0 or not self.cluster.leader.is_up:
            return
        leader = self.cluster.leader.partition
        if not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        end_offset = leader.log.log_end_offset
        assert all(offset < end_offset for offset in self.acked), "an acked record is gone"

    async def heal(self) -> None:
        cluster = self.cluster
        for node in cluster.nodes.values():
            if not node.is_up:
                node.start()
        if cluster.state.leader < 0:
            cluster.fail_over()
        for _ in range(20):
            cluster.tell()
            for node in cluster.nodes.values():
                node.host.set_alive(set(cluster.nodes))
            await cluster.run(rounds=30, advance_ms=50)
            if set(cluster.state.isr) == set(cluster.nodes):
                break
        await cluster.run(rounds=60, advance_ms=50)

    def check_equal(self) -> None:
        cluster = self.cluster
        assert set(cluster.state.isr) == set(cluster.nodes)
        leader = cluster.leader
        high_watermark = leader.partition.log.high_watermark
        assert high_watermark == leader.partition.log.log_end_offset
        expected = leader.bytes_up_to(high_watermark)
        stored = dict(values_in(expected))
        for offset, value in self.acked.items():
            assert stored.get(offset) == value, (offset, value, stored.get(offset))
        for node in cluster.nodes.values():
            assert node.bytes_up_to(high_watermark) == expected, node.broker_id


class _Outcomes(list[ErrorCode]):
    """What became of one append; the acked values are noted."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life
        self._base_offset = -1
        self._values: list[bytes] = []

    def begin(self, base_offset: int, values: list[bytes]) -> None:
        self._base_offset, self._values = base_offset, values
        for code in self:
            self._note(code)

    def append(self, code: ErrorCode) -> None:
        super().append(code)
        if self._base_offset >= 0:
            self._note(code)

    def _note(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._life.acked.update(enumerate(self._values, self._base_offset))


@pytest.mark.parametrize("seed", range(20))
@in_loop
async def test_what_is_acked_stays_and_replicas_are_equal(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    await life.begin()
    for _ in range(STEPS):
        await life.step()
    await life.heal()
    life.check_equal()
