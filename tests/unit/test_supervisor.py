from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from traceback import extract_tb

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.supervisor import LONGEST_PAUSE_S, attempt, attempted, keep_going, report


def fail() -> None:
    raise OSError(28, "No space left on device")


def test_what_an_attempt_failed_with_is_told_and_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = attempt("sweeping", fail)
    assert isinstance(error, OSError)
    assert "sweeping failed: OSError(28" in caplog.text
    (record,) = caplog.records  # their text is what the last formatter made of them
    assert record.exc_info is not None
    assert extract_tb(record.exc_info[2])[-1].name == "fail", "the place"
    assert attempt("sweeping", lambda: None) is None


@in_loop
async def test_a_loop_that_fails_begins_anew_after_pauses_that_grow() -> None:
    clock = FakeClock()
    begun_ms: list[int] = []

    async def work() -> None:
        begun_ms.append(clock.time_ms())
        if len(begun_ms) < 12:
            fail()

    task = asyncio.get_running_loop().create_task(keep_going("sweeping", work, clock))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(ms=100)
    pauses = [after - before for before, after in pairwise(begun_ms)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1000 < pauses[-1] <= LONGEST_PAUSE_S * 1000 + 100


@in_loop
async def test_a_cancelled_loop_is_not_begun_anew() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(keep_going("sweeping", work, FakeClock()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), begun) == (True, 1)


@in_loop
async def test_work_that_is_done_once_is_reported_on(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        fail()

    assert isinstance(await attempted("sweeping", work), OSError)
    caplog.clear()
    task = asyncio.get_running_loop().create_task(work())
    report("dusting", task)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "dusting failed" in caplog.text
