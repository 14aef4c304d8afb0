"""Announcements: numbered nodes below one path of the store that tell of changes, as Kafka's
brokers make and follow them (/config/changes, /kafka-acl-changes, ...).

Whoever changes something adds a node, and every broker takes over what nodes above the last number
it has seen tell of, in their order. One that starts looks at all that are there. After a lost
session it looks again: a node may have come unseen. Nodes go after EXPIRATION_MS; a broker that was
away for longer has to read everything anew, if that matters (`reread`).

A change that cannot be made use of is logged, and does not keep the broker from those behind it. If
the store cannot be read, the broker looks again after LOOK_AGAIN_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from tidelog.controller.metadata_store import MetadataStore, NoNode, StoreError, WatchedEvent
from tidelog.supervisor import attempted, report

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer

logger = logging.getLogger(__name__)

EXPIRATION_MS: Final = 15 * 60 * 1000
LOOK_AGAIN_S: Final = 1.0

TakeOver = Callable[[bytes], Awaitable[None]]


class Announcements:
    """Touched only on the broker loop. Nothing is taken over before `start`."""

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        take_over: TakeOver,
        *,
        clock: Clock,
        timer: Timer,
        reread: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`path` is that of the nodes, without a number; `reread` runs when a session has begun."""
        self._store = store
        self._folder, _, self._prefix = path.rpartition("/")
        self._take_over = take_over
        self._clock = clock
        self._timer = timer
        self._reread = reread
        self._last_number = -1
        self._made_ms: dict[str, int] = {}  # of nodes seen, by path
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        self._must_reread = False
        self._running = False

    def start(self) -> None:
        self._running = True
        self._changed(None)

    async def caught_up(self) -> None:
        """Until all is taken over that can be read now."""
        if self._looking is not None:
            await self._looking

    def session_began(self, *, is_new: bool = True) -> None:
        """There is a connection again; a session that has gone on is not new."""
        if is_new:
            self._must_reread = self._reread is not None
        self._changed(None)

    def close(self) -> None:
        self._running = False
        if self._looking is not None:
            self._looking.cancel()

    def _changed(self, _: WatchedEvent | None) -> None:
        if not self._running:
            return
        self._look_again = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
            report(f"following {self._folder}", self._looking)

    async def _look(self) -> None:
        while self._look_again:
            self._look_again = False
            try:
                names = await self._store.children(self._folder, watch=self._changed)
                for name in sorted(names, key=self._number):
                    await self._follow(name)
                if self._must_reread and self._reread is not None:
                    await self._reread()
                    self._must_reread = False
                await self._remove_old()
            except StoreError as error:
                logger.warning("%s cannot be read: %s", self._folder, error)
                self._timer.call_later(LOOK_AGAIN_S, lambda: self._changed(None))

    async def _follow(self, name: str) -> None:
        path = f"{self._folder}/{name}"
        number = self._number(name)
        if number <= self._last_number:
            return
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            self._last_number = number
            return
        unread: StoreError | None = None

        async def take_over() -> None:
            nonlocal unread
            try:
                await self._take_over(data)
            except StoreError as error:
                unread = error

        await attempted(f"applying {path}: {data!r}", take_over)
        if unread is not None:
            raise unread
        self._last_number = number
        self._made_ms[path] = stat.ctime_ms

    async def _remove_old(self) -> None:
        """Whichever broker comes first; every other has seen them by now."""
        oldest_ms = self._clock.time_ms() - EXPIRATION_MS
        for path in [path for path, made_ms in self._made_ms.items() if made_ms < oldest_ms]:
            del self._made_ms[path]
            with contextlib.suppress(NoNode):
                await self._store.delete(path)

    def _number(self, name: str) -> int:
        digits = name.removeprefix(self._prefix)
        return int(digits) if digits.isdigit() else -1
