"""Throttled replicas: whom the rates hold for, and who is held back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tests.support.replica_cluster import LAG_MAX_MS, ReplicaCluster
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import LONG_MAX
from tidelog.config.topic import LogConfig
from tidelog.replication.replication_throttle import ReplicationThrottles

RATE = 20_000  # bytes a second
FETCH_BYTES = 10_000
BACKLOG_BYTES = 200_000


def test_rates_and_windows_are_kafkas_keys() -> None:
    clock = FakeClock()
    throttles = ReplicationThrottles(
        BrokerConfig({"replication.quota.window.num": "2"}), broker_id=1, clock=clock
    )
    assert throttles.leader.quota.rate == LONG_MAX
    throttles.configure(
        BrokerConfig(
            {
                "leader.replication.throttled.rate": "10",
                "follower.replication.throttled.rate": "20",
            }
        )
    )
    assert throttles.leader.quota.rate == 10
    assert throttles.follower.quota.rate == 20
    throttles.leader.quota.spend(10**6)
    clock.advance(ms=2_000)
    assert not throttles.leader.quota.is_exceeded


# Replicas


class Story:
    """Broker 3 comes back to a leader that has BACKLOG_BYTES for it."""

    def __init__(self, directory: Path, **config: tuple[str, ...]) -> None:
        self.cluster = ReplicaCluster(
            directory,
            config=LogConfig(min_insync_replicas=2, **config),  # type: ignore[arg-type]
            fetch_bytes=FETCH_BYTES,
        )

    async def begin(self) -> None:
        cluster = self.cluster
        cluster.start()
        await cluster.settle()
        await cluster.run()
        cluster.nodes[3].crash()
        cluster.elect(1, (1, 2))
        cluster.tell()
        await cluster.run()
        for _ in range(BACKLOG_BYTES // 5_000):
            cluster.produce([b"x" * 4_900])
            await cluster.run(rounds=5)
        assert self.end_offset(2) == self.end_offset(1)
        await cluster.run(rounds=120, advance_ms=100)  # what 2 was sent counts, for 11 s

    def return_of_3(self) -> None:
        node = self.cluster.nodes[3]
        node.start()
        node.obey(self.cluster.state)
        self.cluster.leader.host.set_alive({1, 2, 3})

    async def seconds_until_3_has_all(self, limit_s: int = 60) -> float:
        started = self.cluster.clock.monotonic()
        for _ in range(limit_s * 20):
            await self.cluster.run(rounds=10, advance_ms=5)
            if self.end_offset(3) == self.end_offset(1):
                return self.cluster.clock.monotonic() - started
        raise AssertionError(f"3 is at {self.end_offset(3)} after {limit_s} s")

    def end_offset(self, number: int) -> int:
        return self.cluster.nodes[number].partition.log.log_end_offset


@in_loop
async def test_without_a_throttle_a_replica_catches_up_at_once(tmp_path: Path) -> None:
    story = Story(tmp_path)
    await story.begin()
    story.cluster.leader.throttles.leader.quota.rate = RATE
    story.return_of_3()
    story.cluster.nodes[3].throttles.follower.quota.rate = RATE
    assert await story.seconds_until_3_has_all() < 2, "its topic names no replicas"


@in_loop
@pytest.mark.parametrize("replicas", ["*", "0:1"])
async def test_a_leader_withholds_what_is_over_its_rate(tmp_path: Path, replicas: str) -> None:
    story = Story(tmp_path, leader_replication_throttled_replicas=(replicas,))
    await story.begin()
    story.cluster.leader.throttles.leader.quota.rate = RATE
    story.return_of_3()
    taken_s = await story.seconds_until_3_has_all()
    assert 0.7 < taken_s / (BACKLOG_BYTES / RATE) < 1.3


@in_loop
async def test_a_follower_asks_for_no_more_than_its_rate(tmp_path: Path) -> None:
    story = Story(tmp_path, follower_replication_throttled_replicas=("0:3",))
    await story.begin()
    story.return_of_3()
    story.cluster.nodes[3].throttles.follower.quota.rate = RATE
    taken_s = await story.seconds_until_3_has_all()
    assert 0.7 < taken_s / (BACKLOG_BYTES / RATE) < 1.3


@in_loop
@pytest.mark.parametrize(
    "config",
    [
        {"leader_replication_throttled_replicas": ("0:2", "1:1")},
        {"follower_replication_throttled_replicas": ("0:1", "1:3")},
    ],
)
async def test_replicas_that_are_not_named_are_not_held_back(
    tmp_path: Path, config: dict[str, tuple[str, ...]]
) -> None:
    story = Story(tmp_path, **config)
    await story.begin()
    story.cluster.leader.throttles.leader.quota.rate = RATE
    story.return_of_3()
    story.cluster.nodes[3].throttles.follower.quota.rate = RATE
    assert await story.seconds_until_3_has_all() < 2


@in_loop
async def test_a_replica_in_sync_is_never_held_back(tmp_path: Path) -> None:
    """It would fall out of the in-sync set, and acks=all would wait for it meanwhile."""
    story = Story(
        tmp_path,
        leader_replication_throttled_replicas=("*",),
        follower_replication_throttled_replicas=("*",),
    )
    await story.begin()
    cluster = story.cluster
    for node in (cluster.nodes[1], cluster.nodes[2]):
        node.throttles.leader.quota.rate = 1
        node.throttles.follower.quota.rate = 1
        node.throttles.leader.quota.spend(1_000_000)
        node.throttles.follower.quota.spend(1_000_000)
    cluster.produce([b"y" * 4_900])
    await cluster.run(rounds=5)
    assert cluster.leader.partition.log.high_watermark == story.end_offset(1)


@in_loop
async def test_a_throttle_that_is_lifted_lets_a_replica_join_the_in_sync_set(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, leader_replication_throttled_replicas=("*",))
    await story.begin()
    cluster = story.cluster
    cluster.leader.throttles.leader.quota.rate = 1
    story.return_of_3()
    await cluster.run(rounds=100, advance_ms=100)
    assert set(cluster.state.isr) == {1, 2}
    assert LAG_MAX_MS < 10_000, "so long that 2 would have left, had it been held back"
    cluster.leader.throttles.leader.quota.rate = LONG_MAX
    await cluster.run(rounds=100, advance_ms=100)
    assert set(cluster.state.isr) == {1, 2, 3}
