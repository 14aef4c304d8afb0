"""A broker that ZooKeeper tells nothing asks the others whether it is still one of them."""

from __future__ import annotations

import asyncio

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.broker.membership_check import MembershipCheck
from tidelog.errors import ErrorCode
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)


class Stage:
    def __init__(self, answers: dict[int, ErrorCode | Exception]) -> None:
        self.clock = FakeClock()
        self.answers = answers
        self.epoch = 40
        self.asked: list[tuple[int, int]] = []  # whom, and in which epoch
        self.disowned = 0
        self.check = MembershipCheck(
            1, lambda: self.epoch, lambda: self.answers.keys(), self._ask, self._disown, self.clock
        )

    async def _ask(self, broker_id: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
        assert not request.topics
        self.asked.append((broker_id, request.broker_epoch))
        answer = self.answers[broker_id]
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return AlterPartitionResponse(error_code=answer)

    def _disown(self) -> None:
        self.disowned += 1

    async def pass_time(self, ms: int = 0) -> None:
        self.clock.advance(ms=ms)
        for _ in range(10):
            await asyncio.sleep(0)


@in_loop
async def test_the_controller_says_that_others_lead() -> None:
    stage = Stage({2: ErrorCode.NOT_CONTROLLER, 3: ErrorCode.STALE_BROKER_EPOCH})
    stage.check.start()
    await stage.pass_time()
    assert stage.asked == [(2, 40), (3, 40)]
    assert stage.disowned == 1
    await stage.pass_time(ms=5_000)
    assert (stage.disowned, len(stage.asked)) == (1, 2)


@in_loop
async def test_nobody_says_so_where_the_session_lives_or_nobody_knows() -> None:
    stage = Stage({2: ErrorCode.NONE, 3: ConnectionRefusedError()})
    stage.check.start()
    for _ in range(3):
        await stage.pass_time(ms=500)
    assert stage.disowned == 0
    stage.answers[2] = ErrorCode.STALE_BROKER_EPOCH
    await stage.pass_time(ms=500)
    assert stage.disowned == 1


@in_loop
async def test_an_answer_about_a_former_life_is_none_about_this_one() -> None:
    stage = Stage({2: ErrorCode.STALE_BROKER_EPOCH})
    stage.check.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stage.epoch = 50
    stage.answers[2] = ErrorCode.NONE
    await stage.pass_time()
    assert stage.asked == [(2, 40)]
    assert stage.disowned == 0
    stage.check.stop()


@in_loop
async def test_nobody_is_asked_once_it_is_part_of_the_cluster_again() -> None:
    stage = Stage({2: ErrorCode.NONE})
    stage.check.start()
    await stage.pass_time()
    stage.check.stop()
    await stage.pass_time(ms=5_000)
    assert len(stage.asked) == 1


@in_loop
async def test_an_answer_that_cannot_be_read_does_not_end_the_asking() -> None:
    stage = Stage({2: DecodeError("not an answer")})
    stage.check.start()
    await stage.pass_time()
    stage.answers = {2: ErrorCode.STALE_BROKER_EPOCH}
    await stage.pass_time(ms=1_000)
    assert stage.disowned == 1
