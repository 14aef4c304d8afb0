"""Readings in threads of their own, each with an event loop, so that the console's loop is free.

    page = await readings.run(lambda: read(...))           # a coroutine function, run elsewhere
    async for piece in readings.stream(lambda: pieces()):  # an async generator, pulled from here

Decompression, filters and decoders may take as long as they like there. What is run stays in its
thread from beginning to end. A stream makes its next piece only when the one before was taken.
READINGS_MAX run at once, and STREAMS_MAX streams; the others wait, at most WAIT_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, TypeVar

from tidelog.client.blocking.loop_thread import LoopThread

T = TypeVar("T")

READINGS_MAX: Final = 4
STREAMS_MAX: Final = 32
WAIT_S: Final = 10.0


class Busy(Exception):
    """So many read already that nobody else can be served soon."""


class Readings:
    """Of one console; touched on its loop only."""

    def __init__(self) -> None:
        self._pages = asyncio.Semaphore(READINGS_MAX)
        self._streams = asyncio.Semaphore(STREAMS_MAX)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await _enter(self._pages)
        try:
            return await asyncio.to_thread(lambda: asyncio.run(work()))
        finally:
            self._pages.release()

    async def stream(
        self, pieces: Callable[[], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        await _enter(self._streams)
        thread = LoopThread()
        generator = pieces()
        try:
            while True:
                following = asyncio.run_coroutine_threadsafe(_next(generator), thread.loop)
                try:
                    piece = await asyncio.wrap_future(following)
                except _End:
                    return
                yield piece
        finally:
            closing = asyncio.run_coroutine_threadsafe(generator.aclose(), thread.loop)
            try:
                await asyncio.shield(asyncio.wrap_future(closing))
            finally:
                await asyncio.shield(asyncio.to_thread(thread.stop))
                self._streams.release()


class _End(Exception):
    pass


async def _next(generator: AsyncGenerator[T, None]) -> T:
    """StopAsyncIteration cannot leave a coroutine that a future watches."""
    try:
        return await anext(generator)
    except StopAsyncIteration:
        raise _End from None


async def _enter(places: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await places.acquire()
    except TimeoutError:
        raise Busy("too many searches run already; try again in a moment") from None
