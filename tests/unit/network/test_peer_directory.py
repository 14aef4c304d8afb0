"""The directory of peers: one shared connection each, made anew with a back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from tests.support.peer import PeerStage
from tidelog.clock import SystemClock
from tidelog.network.peer_directory import PeerDirectory
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

Story = Callable[[PeerStage, PeerDirectory], Awaitable[None]]


class Where(NamedTuple):
    host: str
    port: int


def play(story: Story) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = await PeerStage().start()
        peers = PeerDirectory("broker-1", loop=loop, clock=SystemClock(), timer=loop)
        peers.update({2: Where(stage.host, stage.port)})
        try:
            await story(stage, peers)
        finally:
            peers.close()
            await stage.stop()

    asyncio.run(run())


async def answered_call(stage: PeerStage, peers: PeerDirectory) -> ControlledShutdownResponse:
    call = asyncio.ensure_future(peers.call(2, ControlledShutdownRequest(), timeout_s=60))
    header, _ = await stage.take()
    assert header.api_version == 3
    stage.answer(header, ControlledShutdownResponse())
    response = await call
    assert isinstance(response, ControlledShutdownResponse)
    return response


def test_calls_share_one_connection() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        await answered_call(stage, peers)
        await answered_call(stage, peers)
        assert stage.accepted == 1

    play(story)


def test_a_lost_connection_is_made_anew_by_the_next_call() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        call = asyncio.ensure_future(peers.call(2, ControlledShutdownRequest(), timeout_s=60))
        await stage.take()
        stage.hang_up()
        with pytest.raises(ConnectionError):
            await call
        await answered_call(stage, peers)
        assert stage.accepted == 2

    play(story)


def test_an_unknown_broker_cannot_be_called() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        with pytest.raises(ConnectionError):
            await peers.call(9, ControlledShutdownRequest(), timeout_s=60)

    play(story)


def test_a_broker_that_left_is_called_no_more() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        await answered_call(stage, peers)
        peers.update({})
        with pytest.raises(ConnectionError):
            await peers.call(2, ControlledShutdownRequest(), timeout_s=60)

    play(story)


def test_a_broker_that_moved_is_called_at_its_new_address() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        await answered_call(stage, peers)
        other = await PeerStage().start()
        peers.update({2: Where(other.host, other.port)})
        await answered_call(other, peers)
        assert (stage.accepted, other.accepted) == (1, 1)
        await other.stop()

    play(story)


def test_a_refused_connection_fails_the_call_and_is_tried_again_later() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        port = stage.port
        await stage.stop()
        with pytest.raises(ConnectionError):
            await peers.call(2, ControlledShutdownRequest(), timeout_s=60)
        again = PeerStage()
        again.port = port
        await again.start()
        await answered_call(again, peers)
        await again.stop()

    play(story)


def test_a_call_that_waits_for_the_next_attempt_gives_up_at_its_timeout() -> None:
    async def story(stage: PeerStage, peers: PeerDirectory) -> None:
        await stage.stop()
        with pytest.raises(ConnectionError):
            await peers.call(2, ControlledShutdownRequest(), timeout_s=60)
        with pytest.raises(TimeoutError):
            await peers.call(2, ControlledShutdownRequest(), timeout_s=0.001)

    play(story)


def test_a_connection_has_more_time_to_open_after_each_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []

    async def nobody_answers(host: str, port: int, *, timeout_s: float, **rest: object) -> None:
        given.append(timeout_s)
        raise TimeoutError

    async def story() -> None:
        loop = asyncio.get_running_loop()
        peers = PeerDirectory(
            "broker-1",
            loop=loop,
            clock=SystemClock(),
            timer=loop,
            setup_timeout_s=2,
            setup_timeout_max_s=7,
        )
        peers.update({2: Where("127.0.0.1", 1)})
        for timeout_s in (60.0, 60.0, 60.0, 5.0):
            with pytest.raises(TimeoutError):
                await peers.open_connection(2, timeout_s)

    monkeypatch.setattr("tidelog.network.peer_directory.connect", nobody_answers)
    asyncio.run(story())
    assert given == [2, 4, 7, 5]
