"""How the controller hears of replicas whose logs are lost.

A node under /log_dir_event_notification names this broker. The controller that sees it asks for all
replicas of the broker again, and hears from the answers which are offline: one node is enough for
all that are lost at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Final

from tidelog.clock import Timer, pause
from tidelog.controller import znodes
from tidelog.controller.metadata_store import MetadataStore, StoreError

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0

Run = Callable[[Coroutine[None, None, None]], None]


class LossReports:
    """Touched only on the broker loop."""

    def __init__(self, store: MetadataStore, broker_id: int, run: Run, timer: Timer) -> None:
        self._store = store
        self._broker_id = broker_id
        self._run = run
        self._timer = timer
        self._is_due = False

    def lost(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._run(self._report())

    async def _report(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                event = znodes.encode_log_dir_event(self._broker_id)
                await self._store.create(znodes.LOG_DIR_EVENT, event, sequence=True)
            except StoreError as error:
                logger.warning("the controller is not told of lost logs yet: %s", error)
                await pause(self._timer, RETRY_S)
                self._is_due = True
