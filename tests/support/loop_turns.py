"""What the event loop does in one turn, without a look at the time: tests count, clocks do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

from tidelog.slices import Slices


def counted_slices(items: int) -> Slices:
    """A slice is so many items, however long they take."""
    ticks = count()
    return Slices(items, lambda: float(next(ticks)))


class LoopTurns:
    """Numbers the turns of the running loop, and counts what is done in each."""

    def __init__(self) -> None:
        self._turn = 0
        self._done: Counter[int] = Counter()

    async def __aenter__(self) -> LoopTurns:
        self._counting = asyncio.ensure_future(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    def note(self) -> None:
        self._done[self._turn] += 1

    @property
    def total(self) -> int:
        return sum(self._done.values())

    @property
    def most(self) -> int:
        return max(self._done.values(), default=0)
