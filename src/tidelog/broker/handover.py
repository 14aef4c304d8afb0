"""A broker that is about to stop has its leaderships moved first (controlled shutdown).

It asks the controller, again every controlled.shutdown.retry.backoff.ms while partitions are left
that no other replica in sync could take, controlled.shutdown.max.retries times. A controller that
cannot be reached, or is not the controller any more, is looked for anew much sooner. When nobody
else is left in the cluster there is nothing to ask for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.clock import pause
from tidelog.controller.metadata_store import StoreError
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownResponse

logger = logging.getLogger(__name__)

PAUSE_S: Final = 0.2
UNREACHABLE_TRIES_MAX: Final = 20

Ask = Callable[[], Awaitable["ControlledShutdownResponse"]]


class Outcome(Enum):
    DONE = "others lead what this broker led"
    INCOMPLETE = "for some partitions no other replica is in sync"
    UNREACHABLE = "no controller answers, or another one has taken its place"


class Handover:
    """One broker's, once."""

    def __init__(
        self,
        ask: Ask,
        has_others: Callable[[], bool],
        config: BrokerConfig,
        *,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._ask = ask
        self._has_others = has_others
        self._tries_left = 1 + config.get_int("controlled.shutdown.max.retries")
        self._backoff_s = config.get_int("controlled.shutdown.retry.backoff.ms") / 1000
        self._clock = clock
        self._timer = timer

    async def run(self) -> None:
        unreachable_left = UNREACHABLE_TRIES_MAX
        while self._tries_left and unreachable_left and self._has_others():
            outcome = await self._try()
            if outcome is Outcome.DONE:
                return
            if outcome is Outcome.UNREACHABLE:
                unreachable_left -= 1
                await pause(self._timer, PAUSE_S)
                continue
            self._tries_left -= 1
            if self._tries_left:
                await self._back_off()
        logger.warning("stopping without having handed over all leaderships")

    async def _back_off(self) -> None:
        """Not for long if nobody is left to take over."""
        deadline = self._clock.monotonic() + self._backoff_s
        while self._has_others() and self._clock.monotonic() < deadline:
            await pause(self._timer, PAUSE_S)

    async def _try(self) -> Outcome:
        try:
            response = await self._ask()
        except (OSError, StoreError) as error:
            logger.warning("the controller cannot be asked to take over: %s", error)
            return Outcome.UNREACHABLE
        if response.error_code:
            logger.warning(
                "the controller does not take over: %s", ErrorCode.of(response.error_code).name
            )
            return Outcome.UNREACHABLE
        if response.remaining_partitions:
            logger.warning(
                "partitions without another leader",
                extra={"partitions": len(response.remaining_partitions)},
            )
            return Outcome.INCOMPLETE
        return Outcome.DONE
