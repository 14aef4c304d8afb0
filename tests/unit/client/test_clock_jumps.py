"""The wall clock jumps by hours, forward or back: what has a time goes on as if it had not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.clock import FakeClock
from tests.support.scripted_broker import NoAnswer, ScriptedCluster, run
from tests.support.scripted_log import ScriptedLog
from tests.unit.client.consumer.test_consumer_membership import (
    empty_fetch,
    heartbeat,
    joined,
    synced,
)
from tidelog.client.consumer import consumer as consumer_module
from tidelog.client.consumer.consumer import AsyncConsumer
from tidelog.client.errors import RequestTimedOut
from tidelog.client.network.cluster import Cluster
from tidelog.client.producer import async_producer as producer_module
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.config.client import ConsumerConfig
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.leave_group import LeaveGroupRequest
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest

HOUR_MS = 3_600_000
TURN_S = 0.02  # of real time, in which everything happens that is due
either_way = pytest.mark.parametrize("jump_ms", [5 * HOUR_MS, -5 * HOUR_MS])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The only time that clients have: also what Python itself says of the wall clock."""
    clock = FakeClock()

    def cluster(config: object, **_: object) -> Cluster:
        return Cluster(config, clock=clock, timer=clock)  # type: ignore[arg-type]

    monkeypatch.setattr(producer_module, "Cluster", cluster)
    monkeypatch.setattr(consumer_module, "Cluster", cluster)
    monkeypatch.setattr(time, "time", lambda: clock.time_ms() / 1000)
    monkeypatch.setattr(time, "time_ns", lambda: clock.time_ms() * 1_000_000)
    return clock


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def ticking(clock: FakeClock) -> AsyncIterator[None]:
    """Time passes, fifty times as fast as it does."""

    async def tick() -> None:
        while True:
            clock.advance(ms=1_000)
            await asyncio.sleep(TURN_S)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()


# The producer


@asynccontextmanager
async def written(log: ScriptedLog) -> AsyncIterator[AsyncProducer]:
    async with ScriptedCluster(topics={"t": 1}) as cluster:
        log.serve(cluster.broker())
        async with AsyncProducer(
            bootstrap_servers=cluster.bootstrap,
            linger_ms=0,
            request_timeout_ms=5_000,
            delivery_timeout_ms=20_000,
        ) as producer:
            yield producer


@either_way
def test_no_record_expires_because_the_wall_clock_jumps(clock: FakeClock, jump_ms: int) -> None:
    async def story() -> None:
        log = ScriptedLog()
        log.steps.append(NoAnswer())
        async with written(log) as producer:
            delivery = await producer.send("t", b"v")
            while not log.requests:
                clock.advance(ms=1)
                await asyncio.sleep(0.001)
            clock.jump(ms=jump_ms)
            await asyncio.sleep(TURN_S)
            assert not delivery.done()
            async with ticking(clock):  # its request times out, and the next one is answered
                assert (await delivery).offset == 0
                await producer.close()
        assert len(log.requests) == 2

    run(story)


@either_way
def test_a_record_expires_in_time_after_the_wall_clock_jumped(
    clock: FakeClock, jump_ms: int
) -> None:
    async def story() -> None:
        log = ScriptedLog()
        log.steps += [NoAnswer()] * 20
        async with written(log) as producer:
            delivery = await producer.send("t", b"v")
            while not log.requests:
                clock.advance(ms=1)
                await asyncio.sleep(0.001)
            began_at = clock.monotonic()
            clock.jump(ms=jump_ms)
            async with ticking(clock):
                with pytest.raises(RequestTimedOut):
                    await delivery
                assert 20 <= clock.monotonic() - began_at <= 23
                log.steps.clear()
                await producer.close()

    run(story)


# Members of groups


CLASSIC = {"heartbeat.interval.ms": 3_000, "session.timeout.ms": 45_000}
CONSUMER = {"group.protocol": "consumer"}
BEATS = (HeartbeatRequest, ConsumerGroupHeartbeatRequest)


class Member:
    def __init__(self, cluster: ScriptedCluster, consumer: AsyncConsumer, clock: FakeClock) -> None:
        self._broker = cluster.broker()
        self.consumer = consumer
        self._clock = clock

    def count(self, *kinds: type) -> int:
        return sum(isinstance(each.request, kinds) for each in self._broker.received)

    async def has_polled_until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await self.consumer.poll(0)
            await asyncio.sleep(0.001)

    async def passes(self, seconds: int, *, polling: bool) -> None:
        for _ in range(seconds):
            self._clock.advance(ms=1_000)
            if polling:
                await self.consumer.poll(0)
            await asyncio.sleep(TURN_S)
            if polling:
                await self.consumer.poll(0)

    @property
    def has_left(self) -> bool:
        beats = self._broker.requests(ConsumerGroupHeartbeatRequest)
        return bool(self.count(LeaveGroupRequest)) or any(beat.member_epoch < 0 for beat in beats)


@asynccontextmanager
async def member(clock: FakeClock, settings: dict[str, object]) -> AsyncIterator[Member]:
    """One that has all partitions."""
    async with ScriptedCluster(topics={"t": 2}) as cluster:
        await empty_fetch(cluster)
        broker = cluster.broker()
        broker.on(JoinGroupRequest, joined(1))
        broker.on(SyncGroupRequest, synced(0, 1))
        answer = heartbeat(cluster, 1, 0, 1)
        answer.heartbeat_interval_ms = 3_000
        broker.on(ConsumerGroupHeartbeatRequest, answer)
        config: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 5_000,
            "max.poll.interval.ms": 60_000,
            **settings,
        }
        async with AsyncConsumer(config) as consumer:
            consumer.subscribe(["t"])
            found = Member(cluster, consumer, clock)
            await found.has_polled_until(lambda: len(consumer.assignment()) == 2)
            yield found


@either_way
@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_member_stays_and_commits_although_the_wall_clock_jumps(
    clock: FakeClock, settings: dict[str, object], jump_ms: int
) -> None:
    async def story() -> None:
        async with member(clock, settings) as found:
            await found.passes(6, polling=True)
            beats, commits = found.count(*BEATS), found.count(OffsetCommitRequest)
            clock.jump(ms=jump_ms)
            await found.passes(31, polling=True)
            assert 8 <= found.count(*BEATS) - beats <= 12
            assert 5 <= found.count(OffsetCommitRequest) - commits <= 7
            assert len(found.consumer.assignment()) == 2
            assert not found.has_left

    run(story)


@either_way
@pytest.mark.parametrize("settings", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_member_that_does_not_poll_leaves_in_time_after_the_wall_clock_jumped(
    clock: FakeClock, settings: dict[str, object], jump_ms: int
) -> None:
    async def story() -> None:
        async with member(clock, settings) as found:
            clock.jump(ms=jump_ms)
            await found.passes(58, polling=False)
            assert not found.has_left
            await found.passes(6, polling=False)
            await until(lambda: found.has_left)

    run(story)


# Metadata


@either_way
def test_metadata_is_asked_for_at_its_age_although_the_wall_clock_jumps(
    clock: FakeClock, jump_ms: int
) -> None:
    async def story() -> None:
        async with ScriptedCluster(topics={"t": 1}) as brokers:
            config = {"bootstrap.servers": brokers.bootstrap, "metadata.max.age.ms": 60_000}
            client = Cluster(ConsumerConfig(config), clock=clock, timer=clock)
            client.watch({"t"})
            await client.refresh()
            clock.advance(ms=1_000)
            await asyncio.sleep(TURN_S)
            asked = len(brokers.broker().requests(MetadataRequest))
            clock.jump(ms=jump_ms)
            for _ in range(61):  # five minutes
                clock.advance(ms=5_000)
                await asyncio.sleep(TURN_S)
            assert 4 <= len(brokers.broker().requests(MetadataRequest)) - asked <= 6
            await client.close()

    run(story)
