"""Readings in threads of their own, each with an event loop, so that the console's loop is free.

    page = await readings.run(lambda: read(...))           # a coroutine function, run elsewhere
    async for piece in readings.stream(lambda: pieces()):  # an async generator, pulled from here

Decompression, filters and decoders may take as long as they like there. What is run stays in its
thread from beginning to end. A stream makes its next piece only when the one before was taken.
READINGS_MAX run at once, and STREAMS_MAX streams; the others wait, at most WAIT_S.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

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
        thread = _Thread()
        pulled = _Pulled(pieces())
        try:
            while True:
                following = asyncio.run_coroutine_threadsafe(pulled.next(), thread.loop)
                try:
                    piece = await asyncio.wrap_future(following)
                except _End:
                    return
                yield piece
        finally:
            await asyncio.shield(asyncio.to_thread(thread.stop, pulled.close))
            self._streams.release()


class _Pulled(Generic[T]):
    """An async generator, in its thread. It is closed only after whoever pulls it has let go."""

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator
        self._pulling: asyncio.Task[Any] | None = None

    async def next(self) -> T:
        self._pulling = asyncio.current_task()
        try:
            return await anext(self._generator)
        except StopAsyncIteration:
            # It cannot leave a coroutine that a future watches.
            raise _End from None

    async def close(self) -> None:
        if self._pulling is not None and not self._pulling.done():
            if not self._pulling.cancelling():  # a second time would cut its cleaning up short
                self._pulling.cancel()
            await asyncio.wait([self._pulling])
        await self._generator.aclose()


class _Thread:
    """An event loop in a thread, until `stop`."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="console-stream", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self._runner.close()  # gives sockets that were closed last their turn

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """After `last`. Called in another thread, which waits."""
        try:
            asyncio.run_coroutine_threadsafe(last(), self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


class _End(Exception):
    pass


async def _enter(places: asyncio.Semaphore) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await places.acquire()
    except TimeoutError:
        raise Busy("too many searches run already; try again in a moment") from None
