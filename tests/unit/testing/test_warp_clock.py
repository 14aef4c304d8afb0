"""A clock that jumps, and its timers."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.metadata import in_loop
from tidelog.testing.warp_clock import WarpClock

DAY_S = 86_400


def new_clock() -> WarpClock:
    return WarpClock(asyncio.get_running_loop())


@in_loop
async def test_a_jump_moves_both_kinds_of_time() -> None:
    clock = new_clock()
    wall, monotonic = clock.time_ms(), clock.monotonic()
    clock.jump(DAY_S)
    assert clock.time_ms() - wall >= DAY_S * 1000
    assert clock.monotonic() - monotonic >= DAY_S


@in_loop
async def test_timers_that_are_due_run_in_their_order_before_the_jump_is_over() -> None:
    clock = new_clock()
    ran: list[str] = []
    clock.call_later(7200, lambda: ran.append("two hours"))
    clock.call_later(60, lambda: ran.append("a minute"))
    clock.call_later(2 * DAY_S, lambda: ran.append("two days"))
    clock.jump(DAY_S)
    assert ran == ["a minute", "two hours"]


@in_loop
async def test_a_timer_that_sets_itself_again_runs_once_a_jump() -> None:
    clock = new_clock()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        clock.call_later(1, turn)

    clock.call_later(1, turn)
    clock.jump(DAY_S)
    assert turns == 1
    clock.jump(2)
    assert turns == 2


@in_loop
async def test_a_cancelled_timer_does_not_run() -> None:
    clock = new_clock()
    ran: list[str] = []
    clock.call_later(1, lambda: ran.append("no")).cancel()
    later = clock.call_later(1, lambda: ran.append("nor this"))
    clock.call_later(0.5, later.cancel)
    clock.jump(60)
    assert ran == []


@in_loop
async def test_timers_go_by_the_real_time_as_well() -> None:
    clock = new_clock()
    late, soon, now = asyncio.Event(), asyncio.Event(), asyncio.Event()
    clock.call_later(60, late.set)
    clock.call_later(0.01, soon.set)
    clock.call_later(0, now.set)
    await asyncio.wait_for(now.wait(), 10)
    await asyncio.wait_for(soon.wait(), 10)
    assert not late.is_set()


@in_loop
async def test_time_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        new_clock().jump(-1)
