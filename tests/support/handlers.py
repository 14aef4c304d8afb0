"""A whole broker without sockets: handlers are called as the dispatcher would call them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.support.clock import FakeClock
from tidelog.broker.broker import Broker
from tidelog.broker.context import RequestContext
from tidelog.broker.metadata_cache import Node
from tidelog.broker.server import Server
from tidelog.config.broker import BrokerConfig
from tidelog.network.session import Session
from tidelog.pending import Pending
from tidelog.protocol.header import RequestHeader
from tidelog.replication.partition import Partition

Answer = TypeVar("Answer")


def at_once(answer: Answer | Pending[Any]) -> Answer:
    """Of a handler that may answer later, and has not."""
    assert not isinstance(answer, Pending)
    return answer


class FakeConnection:
    """What handlers see of a connection."""

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", "127.0.0.1", 40000)


class HandlerStage:
    """The broker, its clock, and requests of any version to it."""

    def __init__(self, broker: Broker, clock: FakeClock) -> None:
        self.broker = broker
        self.clock = clock
        self.connection = FakeConnection()

    def context(self, version: int, client_id: str | None = "test") -> RequestContext:
        header = RequestHeader(-1, version, 1, client_id, 0)
        return RequestContext(self.broker, cast(Any, self.connection), header)

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        await self.broker.topics.create(name, self.broker.topics.place(partitions, 1), overrides)

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.broker.replicas.get(topic, index)
        assert partition is not None
        return partition


async def settled(answer: Any) -> Any:
    """What a handler answers once a thread, a flush or a timer has done its part."""
    assert isinstance(answer, Pending)
    return await asyncio.wait_for(answer, 60)


@asynccontextmanager
async def handler_stage(
    directory: Path, clock: FakeClock | None = None, /, **overrides: str
) -> AsyncIterator[HandlerStage]:
    clock = clock or FakeClock()
    properties = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    properties |= {key.replace("_", "."): value for key, value in overrides.items()}
    server = Server(BrokerConfig(properties), asyncio.get_running_loop(), clock=clock, timer=clock)
    try:
        server.open()
    except BaseException:
        server._close_logs()  # as `start` does
        raise
    broker = server.broker
    broker.metadata.advertise("PLAINTEXT", [Node(broker.broker_id, "127.0.0.1", 9092, None)])
    try:
        yield HandlerStage(broker, clock)
    finally:
        await server.close()
