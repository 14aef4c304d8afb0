"""Sends the controller's requests to brokers: to each in order, and again until it answers.

A channel belongs to one life of a broker (its id and epoch) and ends with it. It drops the requests
that are left then, because the controller tells the broker's next life everything anew. A channel
sends a request when the one before has been answered, and again after RETRY_BACKOFF_S if the
connection fails or the answer does not come in time. Brokers recognise by the epochs what they have
already done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from tidelog.clock import Timer, pause
from tidelog.config.listeners import Endpoint
from tidelog.controller.cluster.controller_broker_request_batch import ControlRequest, Request
from tidelog.controller.cluster.controller_context import BrokerRegistration
from tidelog.supervisor import attempt, attempted, report

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S: Final = 0.1
Answered = Callable[[int, Request, Any], None]  # broker id, request, response


class PeerDirectory(Protocol):
    """How the controller reaches brokers. The network has one, tests have a fake."""

    def update(self, brokers: Mapping[int, Endpoint]) -> None:
        """These are the brokers now, each with its endpoint of the inter-broker listener."""

    async def call(
        self, broker_id: int, request: Any, *, version: int | None = None, timeout_s: float
    ) -> Any:
        """The response; ConnectionError or TimeoutError if there is none."""


class _Channel:
    __slots__ = ("epoch", "queue", "task")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.queue: asyncio.Queue[ControlRequest] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None


class ControllerChannelManager:
    """Touched only on the broker's loop."""

    def __init__(
        self,
        peers: PeerDirectory,
        *,
        listener_name: str,
        timeout_s: float,
        timer: Timer,
        answered: Answered,
    ) -> None:
        self._peers = peers
        self._listener_name = listener_name
        self._timeout_s = timeout_s
        self._timer = timer
        self._answered = answered
        self._channels: dict[int, _Channel] = {}

    def reconcile(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Ends the channels of brokers whose life is over and opens those of new ones."""
        for broker_id, channel in list(self._channels.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != channel.epoch:
                self._close(self._channels.pop(broker_id))
        self._peers.update(
            {
                broker_id: broker.endpoint(self._listener_name)
                for broker_id, broker in brokers.items()
            }
        )
        for broker_id, broker in brokers.items():
            if broker_id not in self._channels:
                self._channels[broker_id] = _Channel(broker.epoch)

    def send(self, broker_id: int, requests: Iterable[ControlRequest]) -> None:
        channel = self._channels[broker_id]
        for request in requests:
            channel.queue.put_nowait(request)
        if channel.task is None:
            channel.task = asyncio.get_running_loop().create_task(self._serve(broker_id, channel))
            report(f"the controller's channel to broker {broker_id}", channel.task)

    async def answered_by_all(self, within_s: float) -> None:
        """Until every broker has answered all that it was sent so far, or the time is over."""
        loop = asyncio.get_running_loop()
        everybody = loop.create_task(self._until_answered_by_all())
        over = loop.create_task(pause(self._timer, within_s))
        await asyncio.wait([everybody, over], return_when=asyncio.FIRST_COMPLETED)
        for task in (everybody, over):
            task.cancel()

    async def _until_answered_by_all(self) -> None:
        for channel in tuple(self._channels.values()):
            await channel.queue.join()

    def close(self) -> None:
        for channel in self._channels.values():
            self._close(channel)
        self._channels.clear()

    @staticmethod
    def _close(channel: _Channel) -> None:
        if channel.task is not None:
            channel.task.cancel()

    async def _serve(self, broker_id: int, channel: _Channel) -> None:
        while True:
            request, version = await channel.queue.get()
            response = await self._until_answered(broker_id, request, version)
            taken = partial(self._answered, broker_id, request, response)
            attempt(f"taking the answer of broker {broker_id}", taken)
            channel.queue.task_done()

    async def _until_answered(self, broker_id: int, request: Request, version: int) -> Any:
        response: Any = None

        async def ask() -> None:
            nonlocal response
            try:
                response = await self._peers.call(
                    broker_id, request, version=version, timeout_s=self._timeout_s
                )
            except OSError as error:  # no connection, or no answer in time
                logger.warning(
                    "a broker does not answer the controller",
                    extra={"broker": broker_id, "request": type(request).__name__, "why": error},
                )

        while True:
            await attempted(f"{type(request).__name__} to broker {broker_id}", ask)
            if response is not None:
                return response
            await pause(self._timer, RETRY_BACKOFF_S)
