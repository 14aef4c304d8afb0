from __future__ import annotations

import asyncio

from tests.support.metadata import in_loop, refused
from tidelog.controller.deadline import within
from tidelog.errors import ErrorCode, KafkaError


@in_loop
async def test_a_change_in_time_gives_its_result() -> None:
    async def change() -> str:
        await asyncio.sleep(0)
        return "done"

    assert await within(10_000, change()) == "done"


@in_loop
async def test_a_timeout_of_0_starts_the_change_and_answers_at_once() -> None:
    gate, finished = asyncio.Event(), asyncio.Event()

    async def change() -> None:
        await gate.wait()
        finished.set()

    with refused(ErrorCode.REQUEST_TIMED_OUT):
        await within(0, change())
    gate.set()
    await finished.wait()


@in_loop
async def test_a_change_refused_at_once_says_so_even_with_a_timeout_of_0() -> None:
    async def change() -> None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        await within(0, change())
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        await within(-1, change())
