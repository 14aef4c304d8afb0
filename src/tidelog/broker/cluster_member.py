"""This broker's place in a cluster: what joins it to the controller and to the other brokers.

It carries out what the controller says of brokers and topics, and asks others on behalf of the rest
of the broker: the controller for in-sync sets and to take over, coordinators and leaders for
transactions. Registration, session and the end are `broker_lifecycle.py`.

A peer answers in order, so what waits long would hold up what comes after it: each kind of question
has connections of its own.

A request of the controller is meant for one life of this broker (its broker epoch) and comes from
one controller (its controller epoch). One for an earlier life, or from a controller that has been
replaced, is refused: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.

A controller tells of a deletion once, those brokers that are there. What was deleted while this one
was away, or by a controller that died before it could say so, is looked for in the store when a
life begins or another controller does. Kafka shows such topics until the broker restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from random import randrange
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.authorized_operations import CLUSTER_ACTION
from tidelog.broker.broker_lifecycle import ControlledShutdown, Membership, MembershipCheck
from tidelog.broker.leadership_changes import LeadershipChanges
from tidelog.broker.log_dir_failure_handler import LogDirEvents
from tidelog.broker.metadata_cache import Node, apply_update
from tidelog.clock import pause
from tidelog.controller import znodes
from tidelog.controller.cluster.cluster_topics import ClusterTopics
from tidelog.controller.cluster.kafka_controller import KafkaController
from tidelog.controller.metadata_store import Check, NoNode, SessionState, StoreError
from tidelog.controller.placement import PlacementBroker
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.errors import ErrorCode, KafkaError, StartupError
from tidelog.network.peer_directory import PeerDirectory
from tidelog.pending import Pending
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.replication.alter_partition_manager import AlterPartitionManager
from tidelog.replication.follower_session import FollowerSessions
from tidelog.replication.partition_host import PartitionHost
from tidelog.replication.replica_fetcher import FetcherSettings
from tidelog.replication.replica_fetcher_manager import ReplicaFetcherManager
from tidelog.replication.replication_throttle import ReplicationThrottles
from tidelog.sasl.client_authenticator import SaslLogin
from tidelog.supervisor import report
from tidelog.types import NO_BROKER_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.context import RequestContext
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.config.description import BrokerLayers
    from tidelog.config.listeners import Endpoint
    from tidelog.network.peer_connection import TransportTo
    from tidelog.protocol.message import Message
    from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader
    from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
    from tidelog.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition

logger = logging.getLogger(__name__)

CONTROLLER_TIMEOUT_S: Final = 30.0
MEMBERSHIP_TIMEOUT_S: Final = 2.0
WELCOME_TIMEOUT_S: Final = 60.0
# A client that hears NOT_LEADER_OR_FOLLOWER asks for the new leader, and may ask this broker.
FAREWELL_S: Final = 0.15


class Address(NamedTuple):
    host: str
    port: int


class ClusterMember:
    """Touched only on the broker loop."""

    _told_by = (0, 0)  # controller epoch and own epoch of the last news of topics

    def __init__(
        self,
        layers: BrokerLayers,
        broker_id: int,
        store: ZooKeeperStore,
        flusher: LogFlusher,
        transport_to: TransportTo,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._config = config = layers.effective
        self._login = _login_of(config)
        self._broker_id = broker_id
        self._store = store
        self._transport_to = transport_to
        self._loop = loop
        self._clock = clock
        self._timer = timer
        self._membership = Membership(
            broker_id,
            store,
            rack=config.rack,
            session_timeout_ms=config.get_int("zookeeper.session.timeout.ms"),
            clock=clock,
            timer=timer,
        )
        self.controller_epoch = 0  # the highest that orders have come with
        self.orders = asyncio.Lock()  # the controller's orders are carried out one by one
        self._listener_name = config.inter_broker_listener_name
        self._addresses: dict[int, Address] = {}
        self._directories: list[PeerDirectory] = []
        self._to_controller = self._directory("to-controller")
        self._to_all = self._directory("to-all")
        self._to_coordinators = self._directory("to-coordinators")
        self._markers = self._directory("markers")
        self._controlled = self._new_directory(f"controller-{broker_id}")
        self.controller = KafkaController(
            store,
            broker_id,
            settings=layers.static,
            peers=self._controlled,
            clock=clock,
            timer=timer,
        )
        self.alter_partition_manager = AlterPartitionManager(
            self._alter_partition, lambda: self.broker_epoch, loop=loop, timer=timer
        )
        lag_ms = config.get_int("replica.lag.time.max.ms")
        self.host = self.alter_partition_manager.host = PartitionHost(
            broker_id, clock, self.alter_partition_manager.submit, replica_lag_time_max_ms=lag_ms
        )
        self._throttles = ReplicationThrottles(config, broker_id, clock)
        self.fetchers = self._make_fetchers(flusher)
        self.topics = ClusterTopics(
            store,
            broker_id,
            self.controller,
            settings=config,
            peers=self._directory("topics"),
            rack=config.rack,
        )
        self.follower_sessions = FollowerSessions(randrange, self._throttles.leader)
        self.leadership: LeadershipChanges
        self._broker: Broker
        self._welcome = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log_dir_events = LogDirEvents(store, broker_id, self.run, timer)
        self._membership_check = self._check_membership()

    def _check_membership(self) -> MembershipCheck:
        self.host.may_be_replaced = self._membership.may_be_over
        self._membership.on_cut_off(self._cut_off_changed)
        self._membership.on_session(self._session_changed)
        return MembershipCheck(
            self._broker_id,
            lambda: self.broker_epoch,
            lambda: self._addresses.keys() - {self._broker_id},
            self._ask_for_membership,
            self._disowned,
            self._timer,
        )

    def _directory(self, purpose: str, receive_buffer_bytes: int = -1) -> PeerDirectory:
        directory = self._new_directory(f"broker-{self._broker_id}-{purpose}", receive_buffer_bytes)
        self._directories.append(directory)
        return directory

    def _new_directory(self, client_id: str, receive_buffer_bytes: int = -1) -> PeerDirectory:
        return PeerDirectory(
            client_id,
            loop=self._loop,
            clock=self._clock,
            timer=self._timer,
            receive_buffer_bytes=receive_buffer_bytes,
            setup_timeout_s=self._config["socket.connection.setup.timeout.ms"] / 1000,
            setup_timeout_max_s=self._config["socket.connection.setup.timeout.max.ms"] / 1000,
            transport_to=self._transport_to,
            login=lambda: self._login,
        )

    def _make_fetchers(self, flusher: LogFlusher) -> ReplicaFetcherManager:
        config = self._config
        # SO_RCVBUF only where it is asked for: the system finds a better size by itself.
        key = "replica.socket.receive.buffer.bytes"
        buffer_bytes = config.get_int(key) if key in config.originals else -1
        return ReplicaFetcherManager(
            self._fetcher_settings(config),
            self._directory("fetcher", buffer_bytes),
            flusher,
            self._throttles.follower,
            loop=self._loop,
            timer=self._timer,
        )

    def attach(self, broker: Broker) -> None:
        """The rest of the broker is there."""
        self._broker = broker
        self.leadership = LeadershipChanges(broker, self.host, self.fetchers)

    def configure(self, config: BrokerConfig) -> None:
        """Dynamic configuration has changed."""
        fetchers = config.get_int("num.replica.fetchers")
        if fetchers != self._config.get_int("num.replica.fetchers"):
            self.fetchers.configure(self._fetcher_settings(config))
        self._throttles.configure(config)
        if config.inter_broker_login != self._config.inter_broker_login:
            self._login = _login_of(config)
        self._config = config

    def _fetcher_settings(self, config: BrokerConfig) -> FetcherSettings:
        return FetcherSettings.of(config, self._broker_id, lambda: self.broker_epoch)

    # Coming

    async def start(self, endpoints: list[Endpoint], *, clean_shutdown: bool) -> None:
        """Until the controller has told this broker of the cluster; StartupError if it cannot."""
        static = self._broker.dynamic_config.layers.static
        await self._membership.join(
            endpoints,
            clean_shutdown=clean_shutdown,
            min_insync_replicas=static.get_int("min.insync.replicas"),
        )
        await self.controller.start()
        try:
            await asyncio.wait_for(self._welcome.wait(), WELCOME_TIMEOUT_S)
        except TimeoutError:
            raise StartupError(
                f"no controller has told this broker of the cluster in {WELCOME_TIMEOUT_S:.0f} s"
            ) from None

    @property
    def broker_epoch(self) -> int:
        return self._membership.broker_epoch

    def heard_from_controller(self, broker_epoch: int) -> None:
        """An order for that life of the broker."""
        self._membership.confirmed(broker_epoch)

    # The session

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            # Others lead. What this broker leads in its next life it is told anew.
            self.leadership.resign_all(self.broker_epoch)
        self.controller.on_broker_session(state)

    def _cut_off_changed(self, is_cut_off: bool) -> None:
        if is_cut_off:
            self._membership_check.start()
            return
        self._membership_check.stop()
        self._broker.metadata.hidden_id = None
        for partition in tuple(self._broker.replicas):
            partition.resume()
        self._advance_high_watermarks()

    def _disowned(self) -> None:
        self._broker.metadata.hidden_id = self._broker_id
        for partition in tuple(self._broker.replicas):
            partition.suspend()

    async def _ask_for_membership(
        self, broker_id: int, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self._to_all.call(
            broker_id, request, timeout_s=MEMBERSHIP_TIMEOUT_S
        )
        return response

    # High watermarks

    def _advance_high_watermarks(self) -> None:
        """What held them back may have gone, and no fetch may come to find that out."""
        for partition in tuple(self._broker.replicas):
            if partition.leadership is not None:
                partition.others_changed()

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

    async def update_metadata(
        self, request: UpdateMetadataRequest, must_go_on: Callable[[], object]
    ) -> None:
        """It may tell of thousands of topics: they are learned in slices. `must_go_on` raises a
        KafkaError when another controller has the say meanwhile.
        """
        addresses: dict[int, Address] = {}
        nodes: dict[str, list[Node]] = {}
        for broker in sorted(request.live_brokers, key=lambda broker: broker.id):
            for endpoint in broker.endpoints:
                node = Node(broker.id, endpoint.host, endpoint.port, broker.rack)
                nodes.setdefault(endpoint.listener, []).append(node)
                if endpoint.listener == self._listener_name:
                    addresses[broker.id] = Address(endpoint.host, endpoint.port)
        self._set_addresses(addresses)
        if self.host.set_alive(set(addresses)):
            self._advance_high_watermarks()
        metadata = self._broker.metadata
        metadata.controller_id = request.controller_id
        metadata.replace_nodes(nodes)
        self.topics.brokers = [
            PlacementBroker(broker.id, broker.rack)
            for broker in sorted(request.live_brokers, key=lambda broker: broker.id)
        ]
        for update in request.topic_states:
            await self._broker.slices.breathe()
            must_go_on()
            apply_update(self.topics, update)
        if self._broker_id in addresses:
            self._welcome.set()
        told_by = (request.controller_epoch, request.broker_epoch)
        if told_by != self._told_by:
            self._told_by = told_by
            self.run(self._forget_deleted_topics())

    async def _forget_deleted_topics(self) -> None:
        known = dict(self.topics.topics)
        try:
            names = set(await self._store.children(znodes.TOPICS)) if known else set()
            for name in known.keys() - names:
                with contextlib.suppress(NoNode):
                    # A read may be older than what the controller has said; a transaction is not.
                    await self._store.multi([Check(znodes.topic_path(name))])
                    continue
                now = self.topics.topics.get(name)
                if now is not None and now.topic_id == known[name].topic_id:
                    logger.info("a topic was deleted unseen", extra={"topic": name})
                    self.topics.drop(name)
        except StoreError as error:
            self._told_by = (0, 0)  # the next news brings another look
            logger.warning("deleted topics cannot be looked for: %s", error)

    def replica_lost(self, partition: Partition) -> None:
        self.fetchers.unfollow(partition)
        self._log_dir_events.lost()

    # Asking others

    @property
    def is_controller(self) -> bool:
        return self.controller.is_active

    async def _ask_controller(self, request: Message) -> Any:
        controller_id = self.controller.active_id
        if controller_id < 0:
            raise ConnectionError("no controller is known")
        return await self._to_controller.call(
            controller_id, request, timeout_s=CONTROLLER_TIMEOUT_S
        )

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.is_controller:
            return await self.controller.alter_partition(request)
        response: AlterPartitionResponse = await self._ask_controller(request)
        return response

    def leader_of(self, topic: str, index: int) -> int | None:
        """The broker that leads a partition, NO_LEADER if none does; None if there is no such
        partition, as far as is known here.
        """
        image = self.topics.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index].leader

    def write_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> Pending[WriteTxnMarkersResponse | None]:
        """None when no answer is to be had."""
        task = self._loop.create_task(self._ask_for_markers(broker_id, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Pending.of_future(task)

    async def _ask_for_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | None:
        try:
            response: WriteTxnMarkersResponse = await self._markers.call(
                broker_id, request, timeout_s=self._request_timeout_s
            )
        except OSError as error:
            logger.info("markers are not written: %s", error)
            return None
        return response

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
        report("work for the cluster", task)

    # Going

    async def hand_over(self) -> None:
        """Controlled shutdown: others lead before this broker is gone, and its clients are told
        so while it can tell them.
        """
        if self._config["controlled.shutdown.enable"] and self._membership.is_registered:
            handover = ControlledShutdown(
                self._ask_to_take_over,
                self._has_others,
                self._config,
                clock=self._clock,
                timer=self._timer,
            )
            self.leadership.is_leaving = True
            leads = any(partition.is_leader for partition in self._broker.replicas)
            await handover.run()
            if leads and self._has_others():
                await pause(self._timer, FAREWELL_S)
        self._membership.close()

    def _has_others(self) -> bool:
        return bool(self._addresses.keys() - {self._broker_id})

    async def _ask_to_take_over(self) -> ControlledShutdownResponse:
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self.broker_epoch
        )
        if self.is_controller:
            return await self.controller.controlled_shutdown(request)
        response: ControlledShutdownResponse = await self._ask_controller(request)
        return response

    def quiesce(self) -> None:
        """After `hand_over`: lead and follow nothing, so that those who wait are answered."""
        self.alter_partition_manager.close()
        self.leadership.stop_all()

    async def stop(self) -> None:
        """Ask nobody any more."""
        self._membership.close()
        self._membership_check.stop()
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(StoreError):
            await self.controller.stop()
        for directory in (self._controlled, *self._directories):
            directory.close()


def _login_of(config: BrokerConfig) -> SaslLogin | None:
    return None if config.inter_broker_login is None else SaslLogin(config.inter_broker_login)


def must_be_in_cluster(context: RequestContext) -> ClusterMember:
    """A lone broker takes no orders, and others take them from brokers alone."""
    if not context.may_on_cluster(CLUSTER_ACTION):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.cluster
    if cluster is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker is not part of a cluster.")
    return cluster


def must_obey(cluster: ClusterMember, controller_epoch: int, broker_epoch: int) -> None:
    must_still_hold(cluster, controller_epoch, broker_epoch)
    cluster.controller_epoch = controller_epoch
    cluster.heard_from_controller(broker_epoch)


def must_still_hold(cluster: ClusterMember, controller_epoch: int, broker_epoch: int) -> None:
    """While an order is carried out, this broker may begin another life."""
    if broker_epoch != NO_BROKER_EPOCH and broker_epoch < cluster.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    if controller_epoch < cluster.controller_epoch:
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
