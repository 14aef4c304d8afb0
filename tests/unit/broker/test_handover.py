"""A broker that stops has its leaderships moved, as far as there is somebody to take them."""

from __future__ import annotations

import asyncio

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.broker.handover import UNREACHABLE_TRIES_MAX, Handover
from tidelog.config.broker import BrokerConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownResponse,
    RemainingPartition,
)

DONE = ControlledShutdownResponse()
LEFT = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)
MOVED = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
Answer = ControlledShutdownResponse | OSError


class Stage:
    def __init__(self, *answers: Answer) -> None:
        self.clock = FakeClock()
        self.answers = list(answers)
        self.asked = 0
        self.has_others = True
        self._handover = Handover(
            self._ask,
            lambda: self.has_others,
            BrokerConfig(),
            clock=self.clock,
            timer=self.clock,
        )

    async def _ask(self) -> ControlledShutdownResponse:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def run(self, leave_after_ms: int = 1 << 30) -> float:
        """The seconds that it took."""
        running = asyncio.ensure_future(self._handover.run())
        while not running.done():
            self.clock.advance(ms=100)
            self.has_others = self.clock.monotonic() * 1000 < leave_after_ms
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await running
        return self.clock.monotonic()


@in_loop
async def test_a_handover_that_works_is_asked_for_once() -> None:
    stage = Stage(DONE)
    await stage.run()
    assert stage.asked == 1


@in_loop
async def test_what_is_left_is_asked_for_again_after_the_back_off() -> None:
    stage = Stage(LEFT, LEFT, DONE)
    took_s = await stage.run()
    assert stage.asked == 3
    assert 10 <= took_s < 11


@in_loop
async def test_it_gives_up_after_the_retries() -> None:
    stage = Stage(LEFT)
    await stage.run()
    assert stage.asked == 4


@in_loop
async def test_a_controller_that_moved_or_is_gone_is_looked_for_soon() -> None:
    stage = Stage(MOVED, ConnectionError("gone"), DONE)
    took_s = await stage.run()
    assert stage.asked == 3
    assert took_s < 1


@in_loop
async def test_it_does_not_look_for_a_controller_for_ever() -> None:
    stage = Stage(ConnectionError("gone"))
    await stage.run()
    assert stage.asked == UNREACHABLE_TRIES_MAX


@in_loop
async def test_the_last_broker_hands_over_to_nobody() -> None:
    stage = Stage(LEFT)
    stage.has_others = False
    await stage.run(leave_after_ms=0)
    assert stage.asked == 0


@in_loop
async def test_it_stops_waiting_when_everybody_else_has_left() -> None:
    stage = Stage(LEFT)
    took_s = await stage.run(leave_after_ms=1_000)
    assert stage.asked == 1
    assert took_s < 2
