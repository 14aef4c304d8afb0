"""Whether the cluster still counts this broker in, asked while ZooKeeper cannot tell.

A broker that has lost ZooKeeper does not learn that its session has run out, and that others lead
what it led: its followers just fetch no more, and producers wait for acknowledgements that cannot
come. The controller knows. An AlterPartition that names no partition is answered STALE_BROKER_EPOCH
if this life of the broker is over; everybody is asked, for who the controller is may have changed
too, and the others answer NOT_CONTROLLER. Where ZooKeeper is gone for all, nobody says so, and
leaders go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

from tidelog.clock import pause
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tidelog.supervisor import keep_going

if TYPE_CHECKING:
    from tidelog.clock import Timer

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.5

Ask = Callable[[int, AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class MembershipCheck:
    """Touched only on the broker loop."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        others: Callable[[], Collection[int]],
        ask: Ask,
        disowned: Callable[[], object],
        timer: Timer,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._others = others
        self._ask = ask
        self._disowned = disowned  # called once, when the controller has said so
        self._timer = timer
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            run = keep_going("asking the cluster for this broker", self._run, self._timer)
            self._task = asyncio.get_running_loop().create_task(run)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while not await self._is_disowned():
            await pause(self._timer, INTERVAL_S)
        logger.warning("the controller does not know this broker any more: others lead by now")
        self._disowned()

    async def _is_disowned(self) -> bool:
        epoch = self._broker_epoch()
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=epoch, topics=[])
        answers = await asyncio.gather(*(self._answer(other, request) for other in self._others()))
        return ErrorCode.STALE_BROKER_EPOCH in answers and epoch == self._broker_epoch()

    async def _answer(self, broker_id: int, request: AlterPartitionRequest) -> int | None:
        try:
            response = await self._ask(broker_id, request)
        except OSError:
            return None
        return response.error_code
