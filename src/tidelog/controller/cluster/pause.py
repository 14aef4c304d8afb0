"""Waiting on a timer that is passed in."""

from __future__ import annotations

import asyncio

from tidelog.clock import Timer


async def pause(timer: Timer, seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    handle = timer.call_later(seconds, wake)
    try:
        await over
    finally:
        handle.cancel()
