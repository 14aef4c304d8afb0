"""A blocking `Admin` over an `AsyncAdmin` of the console's loop, for code that waits in threads.

What the command line works out (plans of resets, hanging transactions, explanations) is written
against the blocking client. The console runs it in a thread, and its calls run on the console's
loop, over the connections of the user who asks:

    planned = await in_thread(clients.admin, lambda admin: plan(admin, target, places, committed))

Closing the borrowed admin closes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.blocking.admin import Admin
from tidelog.client.blocking.loop_thread import LoopThread

T = TypeVar("T")


async def in_thread(admin: AsyncAdmin, work: Callable[[Admin], T]) -> T:
    borrowed = BorrowedAdmin(admin, asyncio.get_running_loop())
    return await asyncio.to_thread(work, borrowed)


class BorrowedAdmin(Admin):
    def __init__(self, admin: AsyncAdmin, loop: asyncio.AbstractEventLoop) -> None:
        self.admin = admin
        self.thread = _RunningLoop(loop)

    def close(self) -> None:
        """The owner closes it."""


class _RunningLoop(LoopThread):
    """Runs coroutines on a loop that somebody else runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        async def work() -> T:
            return await begin()

        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(timeout_s)
