"""This broker as a member of the cluster: registration, session, membership, controlled shutdown.

    registered   the ephemeral node /brokers/ids/N is this session's; its zxid is the broker epoch
                 (KIP-380)
    cut off      the connection has been lost for so long that the session may be over, or it is:
                 another leader may be elected by now. An order does not end this while the
                 connection is lost; having it again does
    again        a new session: registered anew, with a new epoch; a member again once the
                 controller has given an order for that epoch

A broker that was killed may come back while the node of its former life is there still. Whoever
listens at the very endpoints that the node names is that broker, and nobody else is: it removes the
node, and the cluster hears of its death at once instead of when the session runs out. Otherwise it
waits for the node to go; Kafka exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from tidelog.clock import pause
from tidelog.controller import znodes
from tidelog.controller.cluster.controller_context import STRICT_MIN_ISR_FEATURE
from tidelog.controller.metadata_store import (
    BadVersion,
    NodeExists,
    NoNode,
    SessionState,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from tidelog.errors import ErrorCode, StartupError
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.supervisor import keep_going
from tidelog.types import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.listeners import Endpoint
    from tidelog.controller.zookeeper_store import ZooKeeperStore
    from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownResponse

logger = logging.getLogger(__name__)

FORMER_LIFE_RETRY_S: Final = 0.1
FORMER_LIFE_MARGIN_S: Final = 5.0
REGISTRATION_RETRY_S: Final = 0.5
# Of the session timeout, from the loss of the connection on: by then up to two thirds of the
# session have passed, or more where something held the loop.
CUT_OFF_SHARE: Final = 1 / 3

SESSION_CHECK_S: Final = 0.1

# What this broker's registration promises: `replication/leadership.py` keeps it.
FEATURES: Final = {STRICT_MIN_ISR_FEATURE: 1}

SessionListener = Callable[[SessionState], object]

CHECK_INTERVAL_S: Final = 0.5
AskForMembership = Callable[[int, AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
SHUTDOWN_PAUSE_S: Final = 0.2
UNREACHABLE_TRIES_MAX: Final = 20
AskToTakeOver = Callable[[], Awaitable["ControlledShutdownResponse"]]


class Membership:
    """Touched only on the broker loop."""

    def __init__(
        self,
        broker_id: int,
        store: ZooKeeperStore,
        *,
        rack: str | None,
        session_timeout_ms: int,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._broker_id = broker_id
        self._path = znodes.broker_path(broker_id)
        self._store = store
        self._rack = rack
        self._session_timeout_s = session_timeout_ms / 1000
        self._clock = clock
        self._timer = timer
        self._endpoints: Sequence[Endpoint] = ()
        self._clean_shutdown = False
        self._min_insync_replicas = 1
        self._cut_off_changed: Callable[[bool], object] = lambda is_cut_off: None
        self._session_listener: SessionListener = lambda state: None
        self._timeout: TimerHandle | None = None  # while the connection is lost, or silent
        self._again: asyncio.Task[None] | None = None
        self._is_cut_off = False
        self._is_registered = False
        self._is_closed = False
        self.broker_epoch = NO_BROKER_EPOCH  # of the last registration
        self._confirmed_epoch = NO_BROKER_EPOCH  # the highest that orders have named

    @property
    def is_registered(self) -> bool:
        return self._is_registered

    def on_cut_off(self, listener: Callable[[bool], object]) -> None:
        """To be told when this broker may not be part of the cluster any more, and is again."""
        self._cut_off_changed = listener

    def on_session(self, listener: SessionListener) -> None:
        """As the store's, but told of a new session only when it is registered."""
        self._session_listener = listener

    async def join(
        self, endpoints: Sequence[Endpoint], *, clean_shutdown: bool, min_insync_replicas: int
    ) -> None:
        """Registers; StartupError if another broker has the id.

        min_insync_replicas is the static one: the controller knows what is dynamic by itself.
        """
        self._endpoints = endpoints
        self._clean_shutdown = clean_shutdown
        self._min_insync_replicas = min_insync_replicas
        patience_s = 2 * self._session_timeout_s + FORMER_LIFE_MARGIN_S
        await self._register_first(self._clock.monotonic() + patience_s)
        self._store.on_session(self._session_changed)

    def confirmed(self, broker_epoch: int) -> None:
        """The controller has given an order for that life of the broker.

        It may know of a registration before this broker has heard that it was made.
        """
        self._confirmed_epoch = max(self._confirmed_epoch, broker_epoch)
        self._maybe_recognized()

    def close(self) -> None:
        self._is_closed = True
        if self._timeout is not None:
            self._timeout.cancel()
        if self._again is not None:
            self._again.cancel()

    # Registration

    async def _register_first(self, deadline: float) -> None:
        """The session may end while the logs are loaded; another one follows."""
        while True:
            try:
                await self._register(deadline)
                return
            except (StoreClosed, StoreUnavailable) as error:
                if self._is_closed or self._clock.monotonic() > deadline:
                    raise
                logger.warning("cannot register yet: %s", type(error).__name__)
                await pause(self._timer, REGISTRATION_RETRY_S)

    async def _register(self, deadline: float | None = None) -> None:
        data = znodes.encode_broker(
            self._endpoints,
            timestamp_ms=self._clock.time_ms(),
            rack=self._rack,
            features=FEATURES,
            clean_shutdown=self._clean_shutdown,
            min_insync_replicas=self._min_insync_replicas,
        )
        waited = False
        while True:
            # The node may be a former life's, or this one's whose answer was lost.
            with contextlib.suppress(NodeExists):
                await self._store.create(self._path, data, ephemeral=True)
            stat = await self._store.exists(self._path)
            if stat is None:
                continue
            if stat.ephemeral_owner == self._store.session_id:
                break
            if deadline is not None and self._clock.monotonic() > deadline:
                raise StartupError(
                    f"broker.id {self._broker_id} is taken: {self._path} belongs to a session "
                    "that lives"
                )
            if await self._remove_former_life():
                continue
            if not waited:
                waited = True
                logger.warning(
                    "waiting for the registration of this broker's former life to end",
                    extra={"path": self._path},
                )
            await pause(self._timer, FORMER_LIFE_RETRY_S)
        self.broker_epoch = stat.czxid
        self._is_registered = True
        self._maybe_recognized()
        logger.info("registered", extra={"path": self._path, "broker_epoch": stat.czxid})

    async def _remove_former_life(self) -> bool:
        """Whether the node was one that this broker had made before it died."""
        try:
            data, stat = await self._store.get(self._path)
            if znodes.decode_broker(data).endpoints != tuple(self._endpoints):
                return False
            await self._store.delete(self._path, stat.version)
        except (NoNode, BadVersion, ValueError):
            return False
        logger.info("the registration of this broker's former life is removed")
        return True

    async def _register_again(self) -> None:
        while not self._is_closed:
            try:
                await self._register()
            except StoreClosed:
                return  # this session has ended too: CONNECTED comes again
            except StoreError as error:
                logger.warning("cannot register: %s %s", type(error).__name__, error)
                await pause(self._timer, REGISTRATION_RETRY_S)
            else:
                self._session_listener(SessionState.CONNECTED)
                return

    # The session

    def may_be_over(self) -> bool:
        """Whether the session may have expired, noticed or not.

        A process that was stopped for a while finds requests to answer before it finds that out.
        """
        if not self._is_cut_off and self._store.session_left_s() > 0:
            return False
        if self._timeout is None and not self._is_cut_off:
            self._timeout = self._timer.call_later(0.0, self._look_at_session)
        return True

    def _look_at_session(self) -> None:
        """The connection stands, and the server has not been heard for too long: until it is, or
        the connection goes, this broker counts as cut off.
        """
        if self._store.session_left_s() > 0:
            self._timeout = None
            self._set_cut_off(False)
        else:
            self._timeout = self._timer.call_later(SESSION_CHECK_S, self._look_at_session)
            self._set_cut_off(True)

    def _session_changed(self, state: SessionState) -> None:
        if self._is_closed:
            return
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if state is SessionState.DISCONNECTED:
            delay_s = min(self._session_timeout_s * CUT_OFF_SHARE, self._store.session_left_s())
            self._timeout = self._timer.call_later(
                max(delay_s, 0.0), lambda: self._set_cut_off(True)
            )
            if delay_s <= 0:
                self._set_cut_off(True)
        elif state is SessionState.EXPIRED:
            self._is_registered = False
            self._session_listener(state)
            self._set_cut_off(True)
        elif self._is_registered:
            self._session_listener(state)
            self._set_cut_off(False)
        elif self._again is None or self._again.done():
            work = keep_going("registration", self._register_again, self._timer)
            self._again = asyncio.get_running_loop().create_task(work)

    def _maybe_recognized(self) -> None:
        """The controller has read this registration, and what it says of the last stop.

        While the connection is lost that makes no member of it: what held when the order was given
        may be over the next moment, and nothing would tell.
        """
        if self._is_registered and self._confirmed_epoch == self.broker_epoch:
            # Should the session end: the process goes on, nothing is lost.
            self._clean_shutdown = True
            if self._timeout is None:
                self._set_cut_off(False)

    def _set_cut_off(self, is_cut_off: bool) -> None:
        if is_cut_off != self._is_cut_off:
            self._is_cut_off = is_cut_off
            logger.warning(
                "cut off from ZooKeeper: others may lead by now"
                if is_cut_off
                else "part of the cluster again"
            )
            self._cut_off_changed(is_cut_off)


class MembershipCheck:
    """Asks whether the cluster still counts this broker in, while ZooKeeper cannot tell.

    A broker that has lost ZooKeeper does not learn that its session has run out, and that others
    lead what it led: its followers just fetch no more, and producers wait for acknowledgements that
    cannot come. The controller knows. It answers STALE_BROKER_EPOCH to an AlterPartition that names
    no partition if this life of the broker is over. The check asks every broker, because another
    may be the controller by now; the others answer NOT_CONTROLLER. If ZooKeeper is gone for all,
    nobody answers STALE_BROKER_EPOCH, and leaders go on.

    Touched only on the broker loop.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        others: Callable[[], Collection[int]],
        ask: AskForMembership,
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
            await pause(self._timer, CHECK_INTERVAL_S)
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


class ShutdownOutcome(Enum):
    DONE = "others lead what this broker led"
    INCOMPLETE = "for some partitions no other replica is in sync"
    UNREACHABLE = "no controller answers, or another one has taken its place"


class ControlledShutdown:
    """Has the leaderships of a broker that is about to stop moved first; one broker's, once.

    It asks the controller, again every controlled.shutdown.retry.backoff.ms while partitions are
    left that no other replica in sync could take, controlled.shutdown.max.retries times. A
    controller that cannot be reached, or is not the controller any more, is looked for anew much
    sooner. When nobody else is left in the cluster there is nothing to ask for.
    """

    def __init__(
        self,
        ask: AskToTakeOver,
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
            if outcome is ShutdownOutcome.DONE:
                return
            if outcome is ShutdownOutcome.UNREACHABLE:
                unreachable_left -= 1
                await pause(self._timer, SHUTDOWN_PAUSE_S)
                continue
            self._tries_left -= 1
            if self._tries_left:
                await self._back_off()
        logger.warning("stopping without having handed over all leaderships")

    async def _back_off(self) -> None:
        """Not for long if nobody is left to take over."""
        deadline = self._clock.monotonic() + self._backoff_s
        while self._has_others() and self._clock.monotonic() < deadline:
            await pause(self._timer, SHUTDOWN_PAUSE_S)

    async def _try(self) -> ShutdownOutcome:
        try:
            response = await self._ask()
        except (OSError, StoreError) as error:
            logger.warning("the controller cannot be asked to take over: %s", error)
            return ShutdownOutcome.UNREACHABLE
        if response.error_code:
            logger.warning(
                "the controller does not take over: %s", ErrorCode.of(response.error_code).name
            )
            return ShutdownOutcome.UNREACHABLE
        if response.remaining_partitions:
            logger.warning(
                "partitions without another leader",
                extra={"partitions": len(response.remaining_partitions)},
            )
            return ShutdownOutcome.INCOMPLETE
        return ShutdownOutcome.DONE
