"""Long work in slices, between which the event loop serves everybody else.

Whoever works through many items awaits `breathe` before each of them:

    for item in items:
        await slices.breathe()
        work_on(item)

All who share one `Slices` share one slice a turn of the loop, first come, first served: a hundred
long works take longer than one, and hold the loop no longer. An item that takes longer than a slice
by itself belongs in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, TypeVar

from tidelog.clock import Clock, Timer

T = TypeVar("T")

SLICE_S: Final = 0.004


class Slices:
    """Touched only on one loop."""

    __slots__ = ("_is_used", "_now", "_slice_s", "_until", "_waiting")

    def __init__(
        self, slice_s: float = SLICE_S, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._slice_s = slice_s
        self._now = now
        self._is_used = False  # somebody has this turn's slice; `_turn_over` comes after it
        self._until = 0.0  # when that slice ends
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def breathe(self) -> None:
        """Come back in a later turn of the loop if this turn's slice is used up."""
        if self._is_used:
            if self._now() < self._until:
                return
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._is_used = True
            asyncio.get_running_loop().call_soon(self._turn_over)
        self._until = self._now() + self._slice_s

    async def gather(self, works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """What all of them return, in their order. They run at the same time, but begin in slices:
        thousands that begin in one turn of the loop would hold it, however short each is.
        """
        begun: list[asyncio.Task[T]] = []
        for work in works:
            begun.append(asyncio.ensure_future(self._after_breath(work)))
            await self.breathe()
        return await asyncio.gather(*begun)

    async def _after_breath(self, work: Coroutine[Any, Any, T]) -> T:
        await self.breathe()
        return await work

    def _turn_over(self) -> None:
        """Once a turn: the slice of the next one is for whoever has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # not given up
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._turn_over)
                return
        self._is_used = False


class SlicedWork:
    """The same for duties, which have a timer and no coroutine. Touched only on one loop.

    A work is an iterator; each `next` does one small step of it. What a step decides it also does,
    because anything may have happened by the next one. Works run one after another, for one slice
    a turn of the loop.
    """

    def __init__(self, clock: Clock, timer: Timer, slice_s: float = SLICE_S) -> None:
        self._clock = clock
        self._timer = timer
        self._slice_s = slice_s
        # With the names that duties give them; the first is under way.
        self._works: deque[tuple[str, Iterator[object]]] = deque()
        self._is_scheduled = False  # a later turn goes on with them
        self._is_running = False
        self._until = -slice_s  # when the last slice ended, or the present one ends

    def repeat(self, name: str, work: Iterator[object]) -> None:
        """For duties: as `start`, but not before the last work of that name is done."""
        if all(name != waiting for waiting, _ in self._works):
            self.start(work, name)

    def start(self, work: Iterator[object], name: str = "") -> None:
        """Begins at once, unless other work is under way or this turn's slice is used up."""
        self._works.append((name, work))
        if self._is_scheduled or self._is_running:
            return
        now = self._clock.monotonic()
        if now >= self._until + self._slice_s:
            self._until = now + self._slice_s
        self._run()

    def give_up(self) -> None:
        """What is not done stays undone."""
        self._works.clear()

    def _turn(self) -> None:
        self._is_scheduled = False
        self._until = self._clock.monotonic() + self._slice_s
        self._run()

    def _run(self) -> None:
        """A step that fails ends its work, not the others; the error passes on."""
        self._is_running = True
        try:
            while self._works and self._clock.monotonic() < self._until:
                if next(self._works[0][1], self) is self:
                    self._works.popleft()
        except BaseException:
            self._works.popleft()
            raise
        finally:
            self._is_running = False
            if self._works:
                self._is_scheduled = True
                self._timer.call_later(0.0, self._turn)
