"""This broker's place in a cluster: its registration, the controller, the other brokers.

Life
    start     register at /brokers/ids (waiting for the node of a former life to go), start taking
              part in the election of the controller, wait to be told of the cluster
    cut off   the session may be over (DISCONNECTED for long, or EXPIRED): another leader may be
              elected by now, so nothing is promised on this broker's authority alone
    again     a new session: register anew, with a new broker epoch; the controller then says
              again what this broker leads
    stop      have the controller move the leaderships, then go

The broker epoch is the zxid of the registration, as in Kafka (KIP-380).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from enum import Enum
from random import randrange
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.leadership_changes import LeadershipChanges
from tidelog.broker.metadata_cache import Node
from tidelog.broker.topic_updates import apply_updates
from tidelog.controller import znodes
from tidelog.controller.cluster.cluster_topics import ClusterTopics
from tidelog.controller.cluster.controller import ClusterController
from tidelog.controller.cluster.pause import pause
from tidelog.controller.metadata_store import (
    NodeExists,
    SessionState,
    StoreClosed,
    StoreError,
)
from tidelog.controller.placement import PlacementBroker
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.errors import ErrorCode, StartupError
from tidelog.network.peer_directory import PeerDirectory
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.replication.fetcher_settings import FetcherSettings
from tidelog.replication.fetchers import ReplicaFetchers
from tidelog.replication.follower_session import FollowerSessions
from tidelog.replication.isr_changes import IsrAlterations
from tidelog.replication.partition_host import PartitionHost

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.znodes import Endpoint
    from tidelog.coordinator.txn.markers import Answered
    from tidelog.protocol.message import Message
    from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader
    from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
    from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
    from tidelog.replication.flusher import LogFlusher

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
CONTROLLER_TIMEOUT_S: Final = 30.0
FORMER_LIFE_RETRY_S: Final = 0.1
REGISTRATION_RETRY_S: Final = 0.5
WELCOME_TIMEOUT_S: Final = 60.0
UNREACHABLE_PAUSE_S: Final = 0.2
UNREACHABLE_TRIES_MAX: Final = 20
# Of the session timeout: when the loss of the connection is noticed, up to two thirds of the
# session have passed already.
CUT_OFF_SHARE: Final = 1 / 3


class Handover(Enum):
    DONE = "others lead what this broker led"
    INCOMPLETE = "for some partitions no other replica is in sync"
    UNREACHABLE = "no controller answers, or another one has taken its place"


class Address(NamedTuple):
    host: str
    port: int


class Cluster:
    """Touched only on the broker loop."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        store: ZooKeeperStore,
        flusher: LogFlusher,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._store = store
        self._loop = loop
        self._clock = clock
        self._timer = timer
        self.broker_epoch = NO_EPOCH
        self.controller_epoch = 0  # the highest that orders have come with
        self.orders = asyncio.Lock()  # the controller's orders are carried out one by one
        self._listener_name = config.inter_broker_listener_name
        self._addresses: dict[int, Address] = {}
        self._directories: list[PeerDirectory] = []
        self._to_controller = self._directory("to-controller")
        self._to_coordinators = self._directory("to-coordinators")
        self._markers = self._directory("markers")
        # SO_RCVBUF only where it is asked for: the system finds a better size by itself.
        key = "replica.socket.receive.buffer.bytes"
        buffer_bytes = config.get_int(key) if key in config.originals else -1
        self._fetching = self._directory("fetcher", buffer_bytes)
        self._controlled = PeerDirectory(
            f"controller-{broker_id}", loop=loop, clock=clock, timer=timer
        )
        self.controller = ClusterController(
            store,
            broker_id,
            settings=config,
            peers=self._controlled,
            clock=clock,
            timer=timer,
        )
        self.isr_changes = IsrAlterations(
            self._alter_partition, lambda: self.broker_epoch, loop=loop, timer=timer
        )
        self.host = self.isr_changes.host = PartitionHost(
            broker_id,
            clock,
            self.isr_changes,
            replica_lag_time_max_ms=config.get_int("replica.lag.time.max.ms"),
        )
        self.fetchers = ReplicaFetchers(
            self._fetcher_settings(config),
            self._fetching,
            flusher,
            loop=loop,
            timer=timer,
        )
        self.topics = ClusterTopics(
            store,
            broker_id,
            self.controller,
            settings=config,
            peers=self._directory("topics"),
            rack=config.rack,
        )
        self.follower_sessions = FollowerSessions(randrange)
        self.leadership: LeadershipChanges
        self._broker: Broker
        self._endpoints: list[Endpoint] = []
        self._welcome = asyncio.Event()
        self._cut_off_timer: TimerHandle | None = None
        self._registration: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clean_shutdown = False
        self._is_stopping = False

    def _directory(self, purpose: str, receive_buffer_bytes: int = -1) -> PeerDirectory:
        directory = PeerDirectory(
            f"broker-{self._broker_id}-{purpose}",
            loop=self._loop,
            clock=self._clock,
            timer=self._timer,
            receive_buffer_bytes=receive_buffer_bytes,
        )
        self._directories.append(directory)
        return directory

    def attach(self, broker: Broker) -> None:
        """The rest of the broker is there."""
        self._broker = broker
        self.leadership = LeadershipChanges(broker, self.host, self.fetchers)

    def configure(self, config: BrokerConfig) -> None:
        """Dynamic configuration has changed."""
        fetchers = config.get_int("num.replica.fetchers")
        if fetchers != self._config.get_int("num.replica.fetchers"):
            self.fetchers.configure(self._fetcher_settings(config))
        self._config = config

    def _fetcher_settings(self, config: BrokerConfig) -> FetcherSettings:
        return FetcherSettings.of(config, self._broker_id, lambda: self.broker_epoch)

    # Coming

    async def start(self, endpoints: list[Endpoint], *, clean_shutdown: bool) -> None:
        """Until the controller has told this broker of the cluster; StartupError if it cannot."""
        self._endpoints = endpoints
        self._clean_shutdown = clean_shutdown
        deadline = self._clock.monotonic() + self._session_timeout_s * 2 + 5
        await self._register(deadline)
        self._store.on_session(self._session_changed)
        await self.controller.start()
        try:
            await asyncio.wait_for(self._welcome.wait(), WELCOME_TIMEOUT_S)
        except TimeoutError:
            raise StartupError(
                f"no controller has told this broker of the cluster in {WELCOME_TIMEOUT_S:.0f} s"
            ) from None

    @property
    def _session_timeout_s(self) -> float:
        return self._config.get_int("zookeeper.session.timeout.ms") / 1000

    async def _register(self, deadline: float | None = None) -> None:
        path = znodes.broker_path(self._broker_id)
        data = znodes.encode_broker(
            self._endpoints,
            timestamp_ms=self._clock.time_ms(),
            rack=self._config.rack,
            clean_shutdown=self._clean_shutdown,
        )
        said = False
        while True:
            try:
                await self._store.create(path, data, ephemeral=True)
            except NodeExists:
                stat = await self._store.exists(path)
                if stat is None:
                    continue
                if stat.ephemeral_owner != self._store.session_id:
                    if deadline is not None and self._clock.monotonic() > deadline:
                        raise StartupError(
                            f"broker.id {self._broker_id} is taken: {path} belongs to a session "
                            "that lives"
                        ) from None
                    if not said:
                        said = True
                        logger.warning(
                            "waiting for the registration of this broker's former life to end",
                            extra={"path": path},
                        )
                    await pause(self._timer, FORMER_LIFE_RETRY_S)
                    continue
            found = await self._store.exists(path)
            if found is not None and found.ephemeral_owner == self._store.session_id:
                break
        self.broker_epoch = found.czxid
        logger.info("registered", extra={"path": path, "broker_epoch": self.broker_epoch})

    # The session

    def _session_changed(self, state: SessionState) -> None:
        if self._is_stopping:
            return
        if self._cut_off_timer is not None:
            self._cut_off_timer.cancel()
            self._cut_off_timer = None
        if state is SessionState.DISCONNECTED:
            delay_s = self._session_timeout_s * CUT_OFF_SHARE
            self._cut_off_timer = self._timer.call_later(delay_s, self._cut_off)
        elif state is SessionState.EXPIRED:
            self.broker_epoch = NO_EPOCH
            self._clean_shutdown = True  # nothing was lost: the process has gone on
            self.controller.on_broker_session(state)
            self._cut_off()
        elif self.broker_epoch == NO_EPOCH:
            if self._registration is None or self._registration.done():
                self._registration = self._loop.create_task(self._register_again())
        else:
            self.controller.on_broker_session(state)
            self._rejoin()

    async def _register_again(self) -> None:
        while not self._is_stopping:
            try:
                await self._register()
                self.controller.on_broker_session(SessionState.CONNECTED)
                return
            except StoreClosed:
                return  # this session has ended too: CONNECTED comes again
            except StoreError as error:
                logger.warning("cannot register: %s %s", type(error).__name__, error)
                await pause(self._timer, REGISTRATION_RETRY_S)

    def _cut_off(self) -> None:
        if not self.host.is_cut_off:
            logger.warning("cut off from ZooKeeper: others may lead by now")
        self.host.is_cut_off = True

    def _rejoin(self) -> None:
        if self.host.is_cut_off:
            self.host.is_cut_off = False
            for partition in self._broker.replicas:
                if partition.leadership is not None:
                    partition.advance_high_watermark()

    def heard_from_controller(self) -> None:
        """An order for this very life of the broker: it is part of the cluster."""
        if self.broker_epoch != NO_EPOCH:
            self._rejoin()

    # Orders

    async def learn_topics(self, names: Iterable[str]) -> None:
        await self._broker.dynamic_config.learn_topics(names)

    def learn_addresses(self, leaders: Iterable[LeaderAndIsrLiveLeader]) -> None:
        unknown = {
            leader.broker_id: Address(leader.host_name, leader.port)
            for leader in leaders
            if leader.broker_id not in self._addresses
        }
        if unknown:
            self._set_addresses({**self._addresses, **unknown})

    def _set_addresses(self, addresses: dict[int, Address]) -> None:
        self._addresses = addresses
        others = {id: address for id, address in addresses.items() if id != self._broker_id}
        for directory in self._directories:
            directory.update(others)

    def update_metadata(self, request: UpdateMetadataRequest) -> None:
        addresses: dict[int, Address] = {}
        nodes: dict[str, list[Node]] = {}
        for broker in sorted(request.live_brokers, key=lambda broker: broker.id):
            for endpoint in broker.endpoints:
                node = Node(broker.id, endpoint.host, endpoint.port, broker.rack)
                nodes.setdefault(endpoint.listener, []).append(node)
                if endpoint.listener == self._listener_name:
                    addresses[broker.id] = Address(endpoint.host, endpoint.port)
        self._set_addresses(addresses)
        self.host.set_alive(set(addresses))
        metadata = self._broker.metadata
        metadata.controller_id = request.controller_id
        metadata.replace_nodes(nodes)
        self.topics.brokers = [
            PlacementBroker(broker.id, broker.rack)
            for broker in sorted(request.live_brokers, key=lambda broker: broker.id)
        ]
        apply_updates(self.topics, request.topic_states)
        if self._broker_id in addresses:
            self._welcome.set()

    # Asking others

    @property
    def is_controller(self) -> bool:
        return self.controller.is_active

    async def _ask_controller(self, request: Message, timeout_s: float) -> Any:
        controller_id = self.controller.active_id
        if controller_id < 0:
            raise ConnectionError("no controller is known")
        return await self._to_controller.call(controller_id, request, timeout_s=timeout_s)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.is_controller:
            return await self.controller.alter_partition(request)
        response: AlterPartitionResponse = await self._ask_controller(request, CONTROLLER_TIMEOUT_S)
        return response

    def leader_of(self, topic: str, index: int) -> int | None:
        """The broker that leads a partition, NO_LEADER if none does; None if there is no such
        partition, as far as is known here.
        """
        image = self.topics.topics.get(topic)
        if image is None or index >= len(image.partitions):
            return None
        return image.partitions[index].leader

    def write_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest, answered: Answered
    ) -> None:
        self.run(self._write_markers(broker_id, request, answered))

    async def _write_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest, answered: Answered
    ) -> None:
        try:
            response = await self._markers.call(
                broker_id, request, timeout_s=self._request_timeout_s
            )
        except OSError as error:
            logger.info("markers are not written: %s", error)
            answered(None)
        else:
            answered(response)

    async def ask_coordinator(self, broker_id: int, request: Message) -> Any:
        """ConnectionError or TimeoutError if there is no answer."""
        return await self._to_coordinators.call(
            broker_id, request, timeout_s=self._request_timeout_s
        )

    @property
    def _request_timeout_s(self) -> float:
        return self._config.get_int("request.timeout.ms") / 1000

    def run(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Going

    async def hand_over(self) -> None:
        """Controlled shutdown: others lead before this broker is gone."""
        self._is_stopping = True
        config = self._config
        if not config["controlled.shutdown.enable"] or self.broker_epoch == NO_EPOCH:
            return
        tries_left = 1 + config.get_int("controlled.shutdown.max.retries")
        unreachable_left = UNREACHABLE_TRIES_MAX
        while tries_left and unreachable_left and self._has_others:
            handover = await self._try_to_hand_over()
            if handover is Handover.DONE:
                return
            if handover is Handover.UNREACHABLE:
                unreachable_left -= 1
                await pause(self._timer, UNREACHABLE_PAUSE_S)
                continue
            tries_left -= 1
            if tries_left:
                await self._pause_between_tries()
        logger.warning("stopping without having handed over all leaderships")

    @property
    def _has_others(self) -> bool:
        return bool(self._addresses.keys() - {self._broker_id})

    async def _pause_between_tries(self) -> None:
        """Not for long if nobody is left to take over."""
        over_ms = self._config.get_int("controlled.shutdown.retry.backoff.ms")
        deadline = self._clock.monotonic() + over_ms / 1000
        while self._has_others and self._clock.monotonic() < deadline:
            await pause(self._timer, UNREACHABLE_PAUSE_S)

    def shrink_isrs(self) -> None:
        """By the clock: followers that have lagged for too long leave the in-sync sets."""
        for partition in tuple(self._broker.replicas):
            leadership = partition.leadership
            if leadership is not None and leadership.propose_to_remove_laggards():
                self.isr_changes.submit(partition)

    async def _try_to_hand_over(self) -> Handover:
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self.broker_epoch
        )
        try:
            if self.is_controller:
                response = await self.controller.controlled_shutdown(request)
            else:
                response = await self._ask_controller(request, CONTROLLER_TIMEOUT_S)
        except (OSError, StoreError) as error:
            logger.warning("the controller cannot be asked to take over: %s", error)
            return Handover.UNREACHABLE
        assert isinstance(response, ControlledShutdownResponse)
        if response.error_code:
            logger.warning(
                "the controller does not take over: %s", ErrorCode.of(response.error_code).name
            )
            return Handover.UNREACHABLE
        if response.remaining_partitions:
            logger.warning(
                "partitions without another leader",
                extra={"partitions": len(response.remaining_partitions)},
            )
            return Handover.INCOMPLETE
        return Handover.DONE

    def quiesce(self) -> None:
        """After `hand_over`: lead and follow nothing, so that those who wait are answered."""
        self.isr_changes.close()
        self.leadership.stop_all()

    async def stop(self) -> None:
        """Ask nobody any more."""
        self._is_stopping = True
        for task in (self._registration, *self._tasks):
            if task is not None:
                task.cancel()
        with contextlib.suppress(StoreError):
            await self.controller.stop()
        for directory in (self._controlled, *self._directories):
            directory.close()
