"""Changes of one kind of node in the metadata store: one at a time, again if others are faster.

A change runs in a task of its own, so that a caller that gives up does not stop one that has begun.
A change that is written only if the node is still as it was read fails when somebody else has
written meanwhile. `until_written` begins such a change again, a few times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from tidelog.clock import Timer, pause
from tidelog.controller.metadata_store import BadVersion, NodeExists, NoNode, OutcomeUnknown

T = TypeVar("T")

ATTEMPTS_MAX: Final = 11
RETRY_BACKOFF_S: Final = 0.1
RETRY_JITTER_S: Final = 0.05


class ChangedByOthers(Exception):
    """Somebody else wrote the node before each of ATTEMPTS_MAX attempts."""


class StoreChanges:
    """Touched only on the broker's loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # held by the change that runs, and by whoever reads in between
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop alone would not keep them alive

    async def in_turn(self, change: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self.task(self._locked(change)))

    def task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Work without a turn of its own, kept alive until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _locked(self, change: Coroutine[Any, Any, T]) -> T:
        async with self.lock:
            return await change


async def until_written(attempt: Callable[[], Awaitable[T]], timer: Timer) -> T:
    """What the first attempt gives that nobody else's write gets in the way of."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await attempt()
        except (BadVersion, NodeExists, NoNode, OutcomeUnknown):
            await pause(timer, RETRY_BACKOFF_S + random.random() * RETRY_JITTER_S)
    raise ChangedByOthers(f"others changed it before each of {ATTEMPTS_MAX} attempts, try again")
