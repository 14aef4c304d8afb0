"""How long work on asyncio waits between tries, and when it gives up."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.clock import FakeClock
from tests.support.scripted_broker import run
from tidelog.client.errors import (
    ConnectionFailed,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
    refused,
)
from tidelog.client.network.backoff import JITTER, Backoff, Patience
from tidelog.client.network.cluster import Cluster
from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.errors import ErrorCode

BOOTSTRAP = {"bootstrap.servers": "127.0.0.1:1"}
LOST = ConnectionFailed("broker h:1: gone")


def patience(clock: FakeClock, limit_s: float = 10.0) -> Patience:
    backoff = Backoff(100, 1_000)
    return Patience("work", "a.key.ms", limit_s, backoff=backoff, clock=clock, timer=clock)


async def wait_ms(clock: FakeClock, waiting: Patience) -> int:
    """How long it waits."""
    task = asyncio.ensure_future(waiting.wait_after(LOST))
    await asyncio.sleep(0)
    waited = 0
    while not task.done():
        clock.advance(ms=1)
        waited += 1
        await asyncio.sleep(0)
    task.result()
    return waited


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    async def story() -> None:
        clock = FakeClock()
        waiting = patience(clock)
        waits = [await wait_ms(clock, waiting) for _ in range(6)]
        for wait, middle in zip(waits, (100, 200, 400, 800, 1_000, 1_000), strict=True):
            assert middle * (1 - JITTER) - 1 <= wait <= middle * (1 + JITTER) + 1

    run(story)


def test_the_last_error_is_told_when_the_time_is_up() -> None:
    async def story() -> None:
        clock = FakeClock()
        waiting = patience(clock, 0.05)
        with pytest.raises(RequestTimedOut) as given_up:
            await wait_ms(clock, waiting)
        assert str(given_up.value) == ("work: gave up after 50 ms (a.key.ms): broker h:1: gone")
        assert waiting.is_exhausted
        with pytest.raises(UnknownTopic):
            await waiting.wait_after(refused("topic t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        with pytest.raises(OffsetOutOfRange):
            await waiting.wait_after(refused("fetch of t-0", ErrorCode.OFFSET_OUT_OF_RANGE))

    run(story)


def test_progress_begins_the_time_anew() -> None:
    async def story() -> None:
        clock = FakeClock()
        waiting = patience(clock, 1.0)
        clock.advance(ms=900)
        waiting.progressed()
        assert waiting.left_s == pytest.approx(1.0)
        for _ in range(20):
            clock.advance(ms=700)
            waiting.progressed()
            assert await wait_ms(clock, waiting) <= 100 * (1 + JITTER) + 1

    run(story)


def test_the_limit_is_that_of_the_kind_of_client() -> None:
    async def story() -> None:
        for config, limit in (
            (AdminConfig(BOOTSTRAP), "default.api.timeout.ms"),
            (ConsumerConfig(BOOTSTRAP), "default.api.timeout.ms"),
            (ProducerConfig(BOOTSTRAP), "max.block.ms"),
        ):
            cluster = Cluster(config)
            given_up = cluster.patience("work").given_up(LOST)
            assert f"60000 ms ({limit})" in str(given_up)
            assert cluster.patience("work", timeout_s=2).left_s <= 2
            await cluster.close()

    run(story)
