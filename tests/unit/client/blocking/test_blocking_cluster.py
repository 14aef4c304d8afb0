"""A cluster whose event loop runs only while its thread waits."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.errors import Closed
from tidelog.config.definition import ConfigError

BOOTSTRAP = {"bootstrap.servers": "127.0.0.1:1"}


def test_an_interrupt_cancels_what_runs_and_leaves_the_cluster_usable() -> None:
    ended = []

    async def interrupted() -> None:
        asyncio.get_running_loop().call_soon(_interrupt)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cleaned up")

    async def works() -> int:
        return 7

    with BlockingCluster(BOOTSTRAP) as cluster:
        with pytest.raises(KeyboardInterrupt):
            cluster.run(interrupted())
        assert ended == ["cleaned up"]
        assert cluster.run(works()) == 7


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_it_may_be_closed_twice_and_is_of_no_use_then() -> None:
    cluster = BlockingCluster(BOOTSTRAP)
    cluster.close()
    cluster.close()
    assert cluster.network.is_closed
    with pytest.raises(Closed):
        cluster.topics(None)


def test_a_key_that_no_consumer_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch\.size"):
        BlockingCluster({**BOOTSTRAP, "batch.size": 1})
