"""What the monitor of the event loop tells, and what it leaves untold."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.clock import FakeClock
from tidelog import loop_monitor
from tidelog.loop_monitor import MESSAGE, LoopMonitor, Reading, Stack, common_part, stack_of

WARN_MS = 40


@pytest.fixture
def warnings() -> Iterator[list[logging.LogRecord]]:
    taken: list[logging.LogRecord] = []

    def take(record: logging.LogRecord) -> bool:
        taken.append(record)
        return False

    loop_monitor.logger.addFilter(take)
    yield taken
    loop_monitor.logger.removeFilter(take)


def burn_cpu(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def told(warnings: list[logging.LogRecord]) -> None:
    while not warnings:
        await asyncio.sleep(0.005)


def test_a_function_that_holds_the_loop_is_named(warnings: list[logging.LogRecord]) -> None:
    async def scenario() -> None:
        monitor = LoopMonitor(asyncio.get_running_loop(), WARN_MS)
        monitor.start()
        await asyncio.sleep(0)
        burn_cpu(0.5)
        await asyncio.wait_for(told(warnings), 30)
        monitor.stop()

    asyncio.run(scenario())

    assert warnings[0].getMessage() == MESSAGE
    fields = vars(warnings[0])
    assert fields["held_ms"] >= 400
    assert fields["cpu_ms"] >= 400
    assert "burn_cpu" in fields["where"]


def test_a_loop_that_blocks_without_cpu_is_told_as_well(
    warnings: list[logging.LogRecord],
) -> None:
    async def scenario() -> None:
        monitor = LoopMonitor(asyncio.get_running_loop(), WARN_MS)
        monitor.start()
        await asyncio.sleep(0)
        time.sleep(0.5)  # what a slow disk does
        await asyncio.wait_for(told(warnings), 30)
        monitor.stop()

    asyncio.run(scenario())

    fields = vars(warnings[0])
    assert fields["held_ms"] >= 400
    assert fields["cpu_ms"] < fields["held_ms"]


class FakeThread:
    """A loop's thread whose times move when a test says so."""

    def __init__(self) -> None:
        self.reading = Reading(0.0, 0.0, 0.0)

    def read(self) -> Reading:
        return self.reading

    def spend(self, *, on_cpu: float = 0.0, runnable: float = 0.0, idle: float = 0.0) -> None:
        before = self.reading
        self.reading = Reading(
            before.elapsed + on_cpu + runnable + idle,
            before.on_cpu + on_cpu,
            before.runnable + runnable,
        )


@pytest.fixture
def thread() -> FakeThread:
    return FakeThread()


@pytest.fixture
def clock(thread: FakeThread) -> Iterator[FakeClock]:
    """The monitor's timer; each test advances it by one tick."""
    clock = FakeClock()
    monitor = LoopMonitor(clock, WARN_MS, read=thread.read)
    monitor.start()
    yield clock
    monitor.stop()


def test_a_late_tick_is_told_with_its_times(
    clock: FakeClock, thread: FakeThread, warnings: list[logging.LogRecord]
) -> None:
    thread.spend(on_cpu=0.150)
    clock.advance(ms=WARN_MS // 4)

    assert [(vars(each)["held_ms"], vars(each)["cpu_ms"]) for each in warnings] == [(140, 150)]


def test_a_loop_that_waits_for_a_processor_is_not_held(
    clock: FakeClock, thread: FakeThread, warnings: list[logging.LogRecord]
) -> None:
    thread.spend(on_cpu=0.020, runnable=0.500)
    clock.advance(ms=WARN_MS // 4)

    assert not warnings


def test_a_loop_that_ticks_in_time_is_not_held(
    clock: FakeClock, thread: FakeThread, warnings: list[logging.LogRecord]
) -> None:
    for _ in range(5):
        thread.spend(on_cpu=0.005, idle=0.005)
        clock.advance(ms=WARN_MS // 4)

    assert not warnings


def holding(inner: str) -> Stack:
    def one() -> Stack:
        return stack_of(sys._getframe())

    def other() -> Stack:
        return stack_of(sys._getframe())

    return one() if inner == "one" else other()


def test_the_part_common_to_the_samples_ends_with_the_function_that_held_the_loop() -> None:
    samples = [holding("one"), holding("other")]
    assert common_part(samples)[-1][0] is holding.__code__


def test_a_few_samples_beside_the_others_do_not_hide_what_held_the_loop() -> None:
    samples = [stack_of(sys._getframe()), holding("one"), holding("other"), holding("one")]
    assert common_part(samples)[-1][0] is holding.__code__


def test_without_a_sample_nothing_is_named() -> None:
    assert common_part([]) == ()
