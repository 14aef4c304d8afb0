"""Long work gives way to others, whoever and however many do it."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.support.metadata import in_loop
from tidelog.slices import Slices


class Work:
    """Items that take a second each, by a clock that only they move."""

    def __init__(self, slice_s: float) -> None:
        self.now_s = 0.0
        self.turn = 0
        self.done: list[tuple[str, int]] = []  # who, in which turn of the loop
        self.slices = Slices(slice_s, lambda: self.now_s)

    async def run(self, name: str, items: int) -> None:
        for _ in range(items):
            await self.slices.breathe()
            self.now_s += 1
            self.done.append((name, self.turn))

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def per_turn(self) -> Counter[int]:
        return Counter(turn for _, turn in self.done)


async def _run(work: Work, **works: int) -> None:
    counting = asyncio.ensure_future(work.count_turns())
    await asyncio.gather(*(work.run(name, items) for name, items in works.items()))
    counting.cancel()


@in_loop
async def test_no_turn_of_the_loop_does_more_than_a_slice() -> None:
    work = Work(slice_s=4)

    await _run(work, one=40)

    assert len(work.done) == 40
    assert max(work.per_turn().values()) == 4


@in_loop
async def test_many_works_at_once_share_the_slice_of_a_turn_and_all_get_on() -> None:
    work = Work(slice_s=4)

    await _run(work, **{f"work{n}": 8 for n in range(50)})

    assert max(work.per_turn().values()) == 4
    earlier = [name for name, _ in work.done[:204]]
    assert len(set(earlier)) == 50


@in_loop
async def test_a_work_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    work = Work(slice_s=1)
    given_up = asyncio.ensure_future(work.run("given up", 10))
    other = asyncio.ensure_future(work.run("other", 10))
    await asyncio.sleep(0)
    given_up.cancel()

    await asyncio.wait_for(other, 60)

    assert [name for name, _ in work.done].count("other") == 10
