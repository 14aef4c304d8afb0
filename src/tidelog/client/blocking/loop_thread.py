"""The event loop below all blocking clients of a process: one daemon thread, made when needed.

`run` has a coroutine made and run by the thread, and waits for what it returns. Whoever is
interrupted while waiting (Ctrl-C) cancels the coroutine, waits until it has cleaned up, and goes on
with KeyboardInterrupt. The thread makes the coroutine, because an interrupt between its making and
its start would leave one that is never awaited.
A process made by fork has no such thread and makes its own; clients made before the fork belong to
the parent.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast

from tidelog.client.errors import IllegalState, RequestTimedOut
from tidelog.event_loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

# How long an interrupted caller waits for the coroutine to clean up.
CLEANUP_S: Final = 5.0


class Handed(Generic[T]):
    """A coroutine that the thread makes and runs.

    Its caller waits for a bare lock. An interrupt in the middle of a Condition, which futures and
    events wait for, can leave it broken: "cannot release un-acquired lock", or a wait for ever.
    """

    __slots__ = ("_begin", "_ended_lock", "_problem", "_result", "_task", "is_done")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.is_done = False
        self._begin = begin
        self._task: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._problem: BaseException | None = None
        self._ended_lock = threading.Lock()  # free once it has ended
        self._ended_lock.acquire()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended; by its caller."""
        if not self.is_done:
            self._ended_lock.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0))
        return self.is_done

    def outcome(self) -> T:
        if self._problem is not None:
            raise self._problem
        return cast("T", self._result)

    # By the thread

    def begin(self) -> None:
        if not self.is_done:
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(self._ended)

    async def _work(self) -> T:
        """Calls `begin` inside the task, so that the caller gets its error too."""
        return await self._begin()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._end(None, concurrent.futures.CancelledError())

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._end(None, concurrent.futures.CancelledError())
        elif (problem := task.exception()) is not None:
            self._end(None, problem)
        else:
            self._end(task.result(), None)

    def _end(self, result: T | None, problem: BaseException | None) -> None:
        self._result, self._problem = result, problem
        self.is_done = True
        self._ended_lock.release()


class LoopThread:
    _shared: ClassVar[LoopThread | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.loop = new_loop()
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run_loop, name="tidelog-client", daemon=True)
        self._thread.start()

    @classmethod
    def shared(cls) -> LoopThread:
        with cls._making:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def forget_parents(cls) -> None:
        """Called in a forked child, where the parent's thread does not exist and its lock may be
        held."""
        cls._shared = None
        cls._making = threading.Lock()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, which would wait for itself."""
        return threading.current_thread() is self._thread

    def run(self, begin: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        """What the coroutine that `begin` makes gives or raises. Not for the loop's own thread."""
        if self.is_current:
            raise IllegalState("a blocking call inside a callback of the client would wait forever")
        if self._process_id != os.getpid():
            raise IllegalState("the client was made before a fork; make one in this process")
        handed = Handed(begin)
        try:
            self.loop.call_soon_threadsafe(handed.begin)
            in_time = handed.wait(timeout_s)
        except BaseException:
            if not handed.is_done:
                self._cancel(handed)
            raise
        if not in_time:
            self._cancel(handed)
            raise RequestTimedOut(f"not done within {timeout_s} s")
        return handed.outcome()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        """Ends the thread; for one that is not shared."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _cancel(self, handed: Handed[T]) -> None:
        self.loop.call_soon_threadsafe(handed.cancel)
        handed.wait(CLEANUP_S)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


os.register_at_fork(after_in_child=LoopThread.forget_parents)
