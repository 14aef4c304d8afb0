"""What happens to the controller, one event after another.

Each event runs in a task of its own and is finished before the next begins. An event that fails is
logged. A request is answered with the failure. What nobody would tell a second time, such as the
death of a broker, has a `retry_key` and is tried again after pauses that grow, while the events
behind it go on; of events with the same key one waits. Kafka's controller drops it.

When the session with the store has expired, `clear` drops all events and cancels the one in hand:
it belongs to a controller that is no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from tidelog.clock import Timer
from tidelog.controller.cluster.controller_store import ControllerMoved
from tidelog.supervisor import FIRST_PAUSE_S, LONGEST_PAUSE_S, attempt

logger = logging.getLogger(__name__)

Run = Callable[[], Awaitable[Any]]


class Event:
    """`run` does it; `abandoned` is called instead of, or after a failure of it. With a `retry_key`
    it is tried again, so `run` must look anew at what there is to do.
    """

    __slots__ = ("abandoned", "name", "retry_key", "run")

    def __init__(
        self,
        name: str,
        run: Run,
        abandoned: Callable[[BaseException | None], None] | None = None,
        *,
        retry_key: Hashable = None,
    ) -> None:
        self.name: Final = name
        self.run: Final = run
        self.abandoned: Final = abandoned
        self.retry_key: Final = retry_key


class ControllerEventManager:
    """Touched only on the broker's loop."""

    def __init__(self, controller_moved: Run, failed: Run, timer: Timer) -> None:
        """controller_moved runs after an event that found another controller in place, failed
        after one that failed in a way that nobody expected.
        """
        self._controller_moved = controller_moved
        self._failed = failed
        self._timer = timer
        self._pauses_s: dict[Hashable, float] = {}  # the next one, of what failed last
        self._waiting: set[Hashable] = set()  # what is to be tried again
        self._events: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._in_hand: asyncio.Task[Any] | None = None
        self._closed = False

    def start(self) -> None:
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        self._closed = True
        if self._worker is None:
            return
        self.clear()
        await self.idle()
        self._worker.cancel()
        await asyncio.wait([self._worker])

    def put(self, event: Event) -> None:
        if self._closed:
            _abandon(event, None)
            return
        self._events.append(event)
        self._idle.clear()
        self._wake.set()

    def clear(self) -> None:
        dropped, self._events = self._events, deque()
        for event in dropped:
            _abandon(event, None)
        if self._in_hand is not None:
            self._in_hand.cancel()

    async def idle(self) -> None:
        """Until everything that was put is done."""
        while self._events or self._in_hand is not None:
            self._idle.clear()
            await self._idle.wait()

    async def _work(self) -> None:
        while True:
            while self._events:
                await self._process(self._events.popleft())
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def _process(self, event: Event) -> None:
        error = await self._finished(event.run)
        if error is None:
            self._pauses_s.pop(event.retry_key, None)
            return
        _abandon(event, error)
        if isinstance(error, ControllerMoved):
            logger.info("the controller has moved", extra={"controller_event": event.name})
            error = await self._finished(self._controller_moved)
        if isinstance(error, asyncio.CancelledError | None):
            return
        logger.error("an event of the controller failed: %s", event.name, exc_info=error)
        error = await self._finished(self._failed)
        if not isinstance(error, asyncio.CancelledError | None):
            logger.error("the failure of %s was not dealt with", event.name, exc_info=error)
        if event.retry_key is not None:
            self._try_again(event)

    def _try_again(self, event: Event) -> None:
        key = event.retry_key
        if key in self._waiting:
            return

        def put() -> None:
            self._waiting.discard(key)
            self.put(event)

        pause_s = self._pauses_s.get(key, FIRST_PAUSE_S)
        self._pauses_s[key] = min(2 * pause_s, LONGEST_PAUSE_S)
        self._waiting.add(key)
        self._timer.call_later(pause_s, put)

    async def _finished(self, run: Run) -> BaseException | None:
        """Runs it in a task; what it failed with."""
        self._in_hand = task = asyncio.ensure_future(_begun(run))
        try:
            await asyncio.wait([task])
        finally:
            self._in_hand = None
            if not task.done():
                task.cancel()
        return asyncio.CancelledError() if task.cancelled() else task.exception()


async def _begun(run: Run) -> None:
    """Inside of the task, so that what fails at once is the event's failure."""
    await run()


def _abandon(event: Event, error: BaseException | None) -> None:
    abandoned = event.abandoned
    if abandoned is not None:
        attempt(f"giving up the event {event.name}", lambda: abandoned(error))
