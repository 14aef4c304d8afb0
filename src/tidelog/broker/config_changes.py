"""Learning of configuration that was changed through another broker (/config/changes).

Whoever changes configuration adds a node with a number there, as Kafka does, and every broker takes
over what nodes above the last number it has seen tell of. A broker that starts looks at all that
are there: it has read the configuration before it loaded its logs, which may have taken long. After
a lost session it looks again: a node may have come unseen, but it stays for EXPIRATION_MS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidelog.controller import znodes
from tidelog.controller.metadata_store import MetadataStore, NoNode, StoreError, WatchedEvent
from tidelog.supervisor import attempted, report

if TYPE_CHECKING:
    from tidelog.broker.dynamic_config import DynamicConfig
    from tidelog.clock import Clock

logger = logging.getLogger(__name__)

EXPIRATION_MS: Final = 15 * 60 * 1000


class ConfigChanges:
    """Touched only on the broker loop."""

    def __init__(self, store: MetadataStore, config: DynamicConfig, clock: Clock) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._last_number = -1
        self._made_ms: dict[str, int] = {}  # of nodes seen, by path
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        self._running = False

    async def start(self) -> None:
        """Until all is taken over that can be read now; everything that a change touches is there.

        Nothing is taken over before.
        """
        self._running = True
        self._changed(None)
        assert self._looking is not None
        await self._looking

    def session_began(self) -> None:
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
            report("looking for configuration changes", self._looking)

    async def _look(self) -> None:
        while self._look_again:
            self._look_again = False
            try:
                names = await self._store.children(znodes.CONFIG_CHANGES, watch=self._changed)
                for name in sorted(names, key=_number):
                    await self._process_notification(name)
                await self._remove_old()
            except StoreError as error:
                logger.warning("configuration changes cannot be read: %s", error)

    async def _process_notification(self, name: str) -> None:
        path = f"{znodes.CONFIG_CHANGES}/{name}"
        number = _number(name)
        if number <= self._last_number:
            return
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            self._last_number = number
            return
        await self._apply_change(name, data)
        self._last_number = number
        self._made_ms[path] = stat.ctime_ms

    async def _apply_change(self, name: str, data: bytes) -> None:
        """A change that this broker cannot make use of must not keep it from those behind it."""
        unread: StoreError | None = None

        async def apply() -> None:
            nonlocal unread
            entity_type, _, entity = znodes.decode_config_change(data).partition("/")
            try:
                if entity_type == "topics":
                    await self._config.topic_announced(entity)
                elif entity_type == "brokers":
                    await self._config.broker_announced(entity)
                elif entity_type == "groups":
                    await self._config.group_announced(entity)
                elif entity_type == "users":
                    await self._config.user_announced(entity)
            except StoreError as error:
                unread = error

        await attempted(f"applying {name}: {data!r}", apply)
        if unread is not None:
            raise unread

    async def _remove_old(self) -> None:
        """Whichever broker comes first; every other has seen them by now."""
        oldest_ms = self._clock.time_ms() - EXPIRATION_MS
        for path in [path for path, made_ms in self._made_ms.items() if made_ms < oldest_ms]:
            del self._made_ms[path]
            with contextlib.suppress(NoNode):
                await self._store.delete(path)


def _number(name: str) -> int:
    digits = name.removeprefix(znodes.CONFIG_CHANGE.rpartition("/")[2])
    return int(digits) if digits.isdigit() else -1
