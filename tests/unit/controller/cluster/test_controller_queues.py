"""What the controller has under way survives errors that nobody expected."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.controller.cluster.controller_broker_request_batch import ControlRequest
from tidelog.controller.cluster.controller_channel_manager import ControllerChannelManager
from tidelog.controller.cluster.controller_event_manager import ControllerEventManager, Event
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def nothing() -> None:
    pass


def fail(*_: object) -> Any:
    raise KeyError("a bug")


@in_loop
async def test_an_event_that_fails_in_any_way_does_not_stop_those_behind_it() -> None:
    queue = ControllerEventManager(nothing, nothing, FakeClock())
    queue.start()
    done: list[str] = []

    async def work() -> None:
        done.append("worked")

    async def fail_later() -> None:
        fail()

    queue.put(Event("fails at once", fail))
    queue.put(Event("fails later", fail_later))
    queue.put(Event("fails, and so does telling of it", fail_later, fail))
    queue.put(Event("works", work))
    await asyncio.wait_for(queue.idle(), 10)
    assert done == ["worked"]
    queue.put(Event("works", work))
    await asyncio.wait_for(queue.idle(), 10)
    assert done == ["worked", "worked"]
    await queue.stop()


@in_loop
async def test_an_event_that_is_to_be_tried_again_is_until_it_works() -> None:
    clock = FakeClock()
    queue = ControllerEventManager(nothing, nothing, clock)
    queue.start()
    outcomes: list[str] = []

    async def work_the_fourth_time() -> None:
        outcomes.append("tried")
        if len(outcomes) < 4:
            fail()

    async def passing(ms: int) -> int:
        clock.advance(ms=ms)
        await asyncio.wait_for(queue.idle(), 10)
        return len(outcomes)

    def news() -> Event:
        return Event("news", work_the_fourth_time, retry_key="news")

    queue.put(news())
    queue.put(news())  # as the first one: both fail, and one of them is tried again
    assert [await passing(ms) for ms in (0, 99, 1, 199, 1, 10_000)] == [2, 2, 3, 3, 4, 4]
    queue.put(Event("a request", fail))
    assert await passing(10_000) == 4
    await queue.stop()


class FakePeers:
    def __init__(self, *outcomes: Exception | UpdateMetadataResponse) -> None:
        self.outcomes = list(outcomes)
        self.asked = 0

    def update(self, endpoints: object) -> None:
        pass

    async def call(self, *_: object, **__: object) -> UpdateMetadataResponse:
        self.asked += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class FakeRegistration:
    epoch = 1

    def endpoint(self, listener_name: str) -> None:
        pass


async def channel_story(peers: FakePeers, answered: Any, requests: int) -> None:
    clock = FakeClock()
    channels = ControllerChannelManager(
        cast(Any, peers), listener_name="L", timeout_s=1.0, timer=clock, answered=answered
    )
    channels.reconcile(cast(Any, {1: FakeRegistration()}))
    request = ControlRequest(UpdateMetadataRequest(), 8)
    channels.send(1, [request] * requests)
    for _ in range(50):
        await asyncio.sleep(0)
        clock.advance(ms=1_000)
    channels.close()


@in_loop
async def test_a_request_is_sent_again_whatever_came_of_it() -> None:
    ok = UpdateMetadataResponse()
    peers = FakePeers(OSError("no connection"), ValueError("not an answer"), ok, ok)
    answers: list[object] = []
    await channel_story(peers, lambda *answer: answers.append(answer), 2)
    assert (peers.asked, len(answers)) == (4, 2)


@in_loop
async def test_an_answer_that_cannot_be_taken_does_not_stop_the_channel() -> None:
    peers = FakePeers(UpdateMetadataResponse(), UpdateMetadataResponse())
    await channel_story(peers, fail, 2)
    assert peers.asked == 2
