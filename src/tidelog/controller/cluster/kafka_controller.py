"""The controller of a cluster over ZooKeeper: every broker has one, one of them is active.

The first broker that makes the ephemeral node /controller is the active one; the others watch the
node and try again when it goes. What the active one does is its `ActiveController`. That ends when
another is in its place or when its session with the store has expired, which it may learn late:
until then it is a zombie, whose writes the store refuses (`controller_store.py`) and whose requests
brokers refuse, both by its epoch.

Requests are answered NOT_CONTROLLER unless this broker is the active controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from tidelog.clock import Clock, Timer, pause
from tidelog.controller import znodes
from tidelog.controller.cluster import controller_apis
from tidelog.controller.cluster.active_controller import ActiveController
from tidelog.controller.cluster.controller_channel_manager import PeerDirectory
from tidelog.controller.cluster.controller_event_manager import ControllerEventManager, Event
from tidelog.controller.cluster.controller_store import (
    ControllerMoved,
    ControllerRegistration,
    register_controller,
)
from tidelog.controller.cluster.settings_reader import Settings
from tidelog.controller.metadata_store import (
    Check,
    Delete,
    EventType,
    MetadataStore,
    NoNode,
    SessionState,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WatchedEvent,
)
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tidelog.supervisor import keep_going
from tidelog.types import NO_CONTROLLER

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S: Final = 0.5
NEWS_TIMEOUT_S: Final = 0.5  # a broker that does not answer holds up no other's stop for longer

T = TypeVar("T")


class KafkaController:
    """Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        settings: Settings,
        peers: PeerDirectory,
        clock: Clock,
        timer: Timer,
    ) -> None:
        """The settings are those of the file; `ActiveController` reads what was changed since."""
        self._store = store
        self._broker_id = broker_id
        self._settings = settings
        self._peers = peers
        self._clock = clock
        self._timer = timer
        self._queue = ControllerEventManager(self._look_again, self._event_failed, timer)
        self._is_election_called = False  # and has not begun
        self._active: ActiveController | None = None
        self._epoch_version = 0  # of the last time it was elected
        self.elections: Counter[str] = (
            Counter()
        )  # held here so far, by reason; those that succeeded
        self.active_id = NO_CONTROLLER  # as far as this broker knows

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def epoch(self) -> int:
        """Of the active controller here; 0 if this broker is not the active controller."""
        return 0 if self._active is None else self._active.context.epoch

    async def start(self) -> None:
        """The broker is registered. The election goes on by itself."""
        self._queue.start()
        self._call_election("start-up")

    async def stop(self) -> None:
        """Leaves the place to others at once, should this be the active controller."""
        await self._queue.stop()
        was_active = self.is_active
        self._resign()
        if was_active:
            epoch = Check(znodes.CONTROLLER_EPOCH, self._epoch_version)
            with suppress(StoreError):
                await self._store.multi([epoch, Delete(znodes.CONTROLLER)])

    async def settled(self) -> None:
        """Until everything that has come in so far is done."""
        await self._queue.idle()

    def on_broker_session(self, state: SessionState) -> None:
        """Tell it CONNECTED after the broker has registered again."""
        if state is SessionState.EXPIRED:
            self.active_id = NO_CONTROLLER
            self._queue.clear()
            self._resign()
        elif state is SessionState.CONNECTED:
            self._call_election("session")

    def is_queued_for_deletion(self, topic: str) -> bool:
        return self._active is not None and self._active.context.is_to_be_deleted(topic)

    # Election

    async def _elect(self) -> None:
        """Finds out who is the controller, and becomes it if nobody is."""
        self._is_election_called = False
        while True:
            await self._look_again()
            if self.active_id != NO_CONTROLLER:
                return
            try:
                await self._on_controller_failover()
                return
            except ControllerMoved:
                continue
            except StoreClosed:
                return  # the next session brings another election
            except StoreUnavailable:
                await pause(self._timer, RETRY_BACKOFF_S)

    async def _on_controller_failover(self) -> None:
        registration = await self._register()
        logger.info(
            "elected controller", extra={"event": "controller-elected", "epoch": registration.epoch}
        )
        self._epoch_version = registration.epoch_version
        self.active_id = self._broker_id
        begun = False
        try:
            self._active = ActiveController(
                self._store,
                self._broker_id,
                registration,
                settings=self._settings,
                peers=self._peers,
                timer=self._timer,
                queue=self._queue,
                elections=self.elections,
            )
            await self._active.begin()
            begun = True
        finally:
            if not begun:
                self._on_controller_resignation()

    async def _register(self) -> ControllerRegistration:
        """Tried until something is known to come of it: nobody else calls the election."""
        outcome: ControllerRegistration | ControllerMoved | StoreError | None = None

        async def register() -> None:
            nonlocal outcome
            try:
                outcome = await register_controller(self._store, self._broker_id, self._clock)
            except (ControllerMoved, StoreClosed, StoreUnavailable) as error:
                outcome = error

        await keep_going("claiming the controller's place", register, self._timer)
        if not isinstance(outcome, ControllerRegistration):
            assert outcome is not None
            raise outcome
        return outcome

    def _on_controller_resignation(self) -> None:
        """The election gives the place back first."""
        self._resign()
        self._call_election("give back")

    def _call_election(self, why: str) -> None:
        """Ask for an election, unless one is queued that has not begun."""
        if self._is_election_called:
            return

        def abandoned(error: BaseException | None) -> None:
            if error is None or isinstance(error, asyncio.CancelledError):
                self._is_election_called = False  # it may not have begun

        self._is_election_called = True
        self._queue.put(Event(why, self._elect, abandoned))

    async def _event_failed(self) -> None:
        """Only the next active controller tells brokers what the store has and they were not told.

        Kafka's controller resigns too when it cannot tell.
        """
        if self._active is not None and self._active.is_half_done:
            logger.error("not all brokers were told what was decided: another term is to tell them")
            self._on_controller_resignation()

    async def _look_again(self) -> None:
        """Who is the controller now? If this broker was and is not any more, it resigns."""
        await keep_going("looking for the controller", self._look, self._timer)

    async def _look(self) -> None:
        self.active_id = await self._stored_controller()
        if self.active_id != self._broker_id:
            self._resign()

    async def _stored_controller(self) -> int:
        while True:
            try:
                # A watch by `exists` is there whether or not the node is.
                await self._store.exists(znodes.CONTROLLER, watch=self._controller_watched)
                data, stat = await self._store.get(znodes.CONTROLLER)
            except NoNode:
                return NO_CONTROLLER
            except StoreUnavailable:
                await pause(self._timer, RETRY_BACKOFF_S)
                continue
            except StoreClosed:
                return NO_CONTROLLER
            controller_id = znodes.decode_controller(data)
            is_own_past = controller_id == self._broker_id and self._active is None
            if is_own_past and stat.ephemeral_owner == self._store.session_id:
                await self._give_back()
                continue
            return controller_id

    async def _give_back(self) -> None:
        """The place is this broker's, and it is not in office: it could not take it over.

        Others get the time to try.
        """
        with suppress(StoreError):
            await self._store.delete(znodes.CONTROLLER)
        await pause(self._timer, RETRY_BACKOFF_S)

    def _controller_watched(self, event: WatchedEvent) -> None:
        if event.type is EventType.DELETED:
            self._call_election("controller gone")
        else:
            self._queue.put(Event("controller changed", self._look_again))

    def _resign(self) -> None:
        if self._active is not None:
            logger.info(
                "no longer the controller",
                extra={"event": "controller-resigned", "epoch": self.epoch},
            )
            self._active.end()
            self._active = None

    # Requests

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int = AlterPartitionRequest.MAX_VERSION
    ) -> AlterPartitionResponse:
        return await self._ask(
            "AlterPartition",
            lambda active: active.alter_partition(request, version),
            controller_apis.alter_partition_refused(),
        )

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Answered when the brokers know who leads now: the one that asks stops with the answer,
        and clients that look for the new leaders are to find them.
        """
        response = await self._ask(
            "ControlledShutdown",
            lambda active: controller_apis.controlled_shutdown(active, request),
            controller_apis.controlled_shutdown_refused(),
        )
        if self._active is not None and not response.error_code:
            await self._active.answered_by_all(NEWS_TIMEOUT_S)
        return response

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        return await self._ask(
            "ElectLeaders",
            lambda active: controller_apis.elect_leaders(active, request),
            controller_apis.elect_leaders_refused(request),
        )

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        return await self._ask(
            "AlterPartitionReassignments",
            lambda active: controller_apis.alter_reassignments(active, request),
            controller_apis.alter_reassignments_refused(),
        )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        return await self._ask(
            "ListPartitionReassignments",
            lambda active: controller_apis.list_reassignments(active, request),
            controller_apis.list_reassignments_refused(),
        )

    async def _ask(
        self, name: str, answer: Callable[[ActiveController], Awaitable[T]], refusal: T
    ) -> T:
        """In its turn, by the active controller; the refusal if this broker is not it then."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            response = refusal if self._active is None else await answer(self._active)
            if not future.done():
                future.set_result(response)

        def abandoned(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None or isinstance(error, ControllerMoved | asyncio.CancelledError):
                future.set_result(refusal)
            else:
                future.set_exception(error)

        if self._active is None:
            return refusal
        self._queue.put(Event(name, run, abandoned))
        return await future
