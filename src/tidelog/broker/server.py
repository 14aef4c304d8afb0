"""The composition root: builds a broker from its configuration, starts and stops it.

This is a lone broker; `cluster_server.py` has what is different where zookeeper.connect is set.
Start: lock and load the log directories, open the metadata store, join the cluster, host every
partition under a new leader epoch, listen. Stop: take no more requests, answer those in hand,
flush, checkpoint, write the clean-shutdown marker. `process.py` runs it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tidelog import COMPILED, __version__
from tidelog.broker.api_table import served
from tidelog.broker.broker import Broker
from tidelog.broker.dispatcher import RequestDispatcher
from tidelog.broker.dynamic_config import DynamicConfig
from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.housekeeping import Housekeeping
from tidelog.broker.log_dir_failure_handler import (
    LogDirFailureHandler,
    metadata_directory_of,
)
from tidelog.broker.metadata_cache import MetadataCache, Node
from tidelog.broker.observation.health import BEAT_S, Health
from tidelog.broker.quotas.quota_entity import CONNECTION_CREATION_RATE
from tidelog.broker.refused_sequences import RefusedSequences
from tidelog.broker.security.token_validators import TokenValidators
from tidelog.broker.topic_hosting import TopicHosting
from tidelog.clock import Clock, SystemClock, Timer, TimerHandle
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint, advertise
from tidelog.config.topic import log_config
from tidelog.controller.adoption import adoption_or_none
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import MetadataStore, StoreError
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.registration import join_cluster, register_broker
from tidelog.controller.topics import TopicCatalogue, TopicImage
from tidelog.coordinator.group.coordinator import GroupCoordinator
from tidelog.coordinator.txn.coordinator import TransactionCoordinator
from tidelog.coordinator.txn.markers import MarkerWriter
from tidelog.errors import StartupError
from tidelog.log.cleaner.log_cleaner import LogCleaner
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.network.settings import NetworkSettings
from tidelog.network.socket_server import SocketServer
from tidelog.network.tls_listeners import TlsListeners
from tidelog.record.kernel import COMPILED as KERNEL_IS_COMPILED
from tidelog.replication.flusher import LogFlusher
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.replication.replica_moves import ReplicaMoves
from tidelog.tls.settings import TlsSettings
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.cluster_member import ClusterMember
    from tidelog.broker.observation.collector import Collector
    from tidelog.broker.observation.event_ring import EventRing
    from tidelog.broker.observation.http_server import HttpServer
    from tidelog.broker.security.delegation_tokens import DelegationTokens
    from tidelog.broker.security.request_authorizer import RequestAuthorizer
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager
    from tidelog.controller.cluster.cluster_topics import ClusterTopics
    from tidelog.coordinator.group.group import Topics
    from tidelog.sasl.server_authenticator import SaslServerAuthenticator

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_S: Final = 5.0


class Groundwork(NamedTuple):
    """What a broker stands on before it knows of topics: its configuration and its logs."""

    broker_id: int
    store: MetadataStore
    dynamic_config: DynamicConfig
    producer_ids: ProducerIds
    replicas: ReplicaManager
    flusher: LogFlusher


class Server:
    """One broker in this process."""

    in_cluster: ClassVar[bool] = False

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
        timer: Timer | None = None,
    ) -> None:
        self._static_config = config
        self._loop = loop
        self._clock = clock or SystemClock()
        self._timer: Timer = timer or loop
        self._logs = LogManager(
            config.log_dirs,
            broker_config=config,
            default_log_config=log_config(config, {}),
            clock=self._clock,
        )
        self.halt: Callable[[str], object] = logger.critical  # the broker cannot go on
        self.health = Health(SystemClock(), config.get_int("tidelog.health.loop.stall.ms"))
        self._http: HttpServer | None = None  # where tidelog.metrics.listener is set
        self._events: EventRing | None = None
        self._collector: Collector | None = None  # made by the first scrape
        self._beat_handle: TimerHandle | None = None
        self.broker: Broker
        self.network: SocketServer
        self._endpoints: list[Endpoint] = []
        self._advertised: list[str] = []

    def start(self) -> None:
        """Blocks until all logs are loaded; the broker listens then."""
        self._start_http()
        try:
            self.open()
            self._listen()
        except StoreError as error:
            self._close_http()
            self._close_logs()
            raise unusable_store(error) from error
        except BaseException:
            self._close_http()
            self._close_logs()
            raise
        self._start_background_work()

    async def join(self) -> None:
        """A lone broker joins nobody."""

    def serves(self) -> None:
        """From now on clients are welcome: logs are loaded, and the cluster is joined."""
        self.health.serves()
        self._beat()
        if self._events is not None:
            self._events.broker_id = self.broker.broker_id
        logger.info(
            "serving",
            extra={
                "event": "broker-started",
                "version": __version__,
                "broker_id": self.broker.broker_id,
                "cluster_id": self.broker.metadata.cluster_id,
                "listeners": ",".join(self._advertised),
                "metrics": self.metrics_url,
                "data": ",".join(map(str, self._static_config.log_dirs)),
                "kernel": "c" if KERNEL_IS_COMPILED else "python",
                "modules": "compiled" if COMPILED else "interpreted",
                "partitions": len(self.broker.replicas),
                "clean": self._logs.was_clean,
            },
        )

    def _beat(self) -> None:
        directories = self._logs.directories
        online = directories.online
        offline = [str(each.path) for each in directories if each not in online]
        self.health.beat(offline, self.network.not_accepting())
        self._beat_handle = self._loop.call_later(BEAT_S, self._beat)

    def _start_http(self) -> None:
        """First of all, so that it tells that logs are being loaded."""
        endpoint = self._static_config.metrics_listener
        if endpoint is None:
            return
        from tidelog.broker.observation.event_ring import EventRing
        from tidelog.broker.observation.http_server import HttpServer

        kept_max = self._static_config.get_int("tidelog.events.kept")
        events = EventRing(kept_max) if kept_max else None
        self._http = HttpServer(
            endpoint.host,
            endpoint.port,
            self.health,
            self._collect_metrics,
            self._loop,
            events=events,
        )
        self._http.start()
        if events is not None:
            self._events = events
            events.attach()

    async def _collect_metrics(self) -> list[str]:
        if self._collector is None:
            from tidelog.broker.observation.collector import Collector

            self._collector = Collector(
                self.broker, self.network, self._dispatcher.waiting_by_api, self._cleaner
            )
        return await self._collector.collect()

    def _close_http(self) -> None:
        if self._events is not None:
            self._events.detach()
            self._events = None
        if self._http is not None:
            self._http.close()
            self._http = None

    def _start_background_work(self) -> None:
        if self.broker.authorizer is not None:
            self.broker.authorizer.acls.watch()
        if self.broker.delegation_tokens is not None:
            self.broker.delegation_tokens.announcements.start()
        self._token_validators.start()
        self._housekeeping = Housekeeping(self.broker, self._loop)
        self._housekeeping.start()
        self._cleaner = LogCleaner(
            self._logs,
            self.broker.replicas.take_offline,
            self.broker.config,
            loop=self._loop,
            clock=self._clock,
        )
        self._cleaner.start()

    def _prepare(self) -> None:
        """Before anything is read: no other broker may have these directories."""
        raise_file_limit()
        for warning in self._static_config.warnings:
            logger.warning(warning)
        self._logs.directories.lock()

    def open(self) -> None:
        """Everything up to listening: blocking, before any request is served."""
        self._prepare()
        config, logs = self._static_config, self._logs
        meta = logs.directories.stored_identity()
        broker_id = config.broker_id
        if meta is not None and not config.broker_id_is_set:
            broker_id = meta.broker_id
        metadata_directory = metadata_directory_of(logs)
        store = EmbeddedStore.open(
            config.log_dirs[0], clock=self._clock, io_failed=logs.failures.report
        )
        membership = join_cluster(
            store,
            broker_id,
            self._clock,
            known_cluster_id=None if meta is None else meta.cluster_id,
        )
        topics = TopicCatalogue(store, broker_id, settings=config, rack=config.rack)
        topics.controller_epoch = membership.controller_epoch
        logs.directories.confirm_identity(broker_id, membership.cluster_id)
        adoption = adoption_or_none(store, logs, config, broker_id)
        if adoption is not None:
            adoption.prepare(topics)
        ground = self._lay_groundwork(store, broker_id)
        topics.load()
        if adoption is not None:
            adoption.finish(topics, logs)
        logs.set_aside_strays(topics.hosts)
        topics.start_broker_epoch()
        metadata = MetadataCache(membership.cluster_id, membership.controller_id, topics)
        self._assemble(ground, topics, metadata)
        ground.replicas.is_known = topics.has_partition
        hosting = self._host_all(topics.topics.values(), metadata_directory)
        ground.dynamic_config.follow(topics)
        topics.carry_out = hosting.carry_out

    async def _must_be_usable(self, config: BrokerConfig) -> None:
        """Reading a store may take long, so it is done in a thread."""
        await self._loop.run_in_executor(None, self._tls.check, _network_settings(config))

    def _lay_groundwork(self, store: MetadataStore, broker_id: int) -> Groundwork:
        """The configuration comes first: logs are loaded by it."""
        logs = self._logs
        dynamic_config = DynamicConfig(self._static_config, store, broker_id)
        dynamic_config.load()
        logs.configure(dynamic_config.broker_config)
        logs.start(dynamic_config.log_config)
        self._tls = TlsListeners(
            _network_settings(dynamic_config.broker_config), in_cluster=self.in_cluster
        )
        dynamic_config.must_be_usable = self._must_be_usable
        replicas = ReplicaManager(broker_id, logs)
        return Groundwork(
            broker_id,
            store,
            dynamic_config,
            ProducerIds(store, broker_id),
            replicas,
            LogFlusher(self._loop, partial(flush_failed, replicas)),
        )

    def _assemble(
        self,
        ground: Groundwork,
        topics: TopicCatalogue | ClusterTopics,
        metadata: MetadataCache,
        cluster: ClusterMember | None = None,
    ) -> None:
        config = ground.dynamic_config.broker_config
        groups, transactions = self._coordinators(
            config, ground.replicas, ground.flusher, ground.producer_ids, topics
        )
        self.broker = Broker(
            broker_id=ground.broker_id,
            config=config,
            clock=self._clock,
            timer=self._timer,
            store=ground.store,
            topics=topics,
            dynamic_config=ground.dynamic_config,
            metadata=metadata,
            logs=self._logs,
            replicas=ground.replicas,
            flusher=ground.flusher,
            moves=self._moves(ground.flusher, config),
            producer_ids=ground.producer_ids,
            fetch_sessions=FetchSessions(config["max.incremental.fetch.session.cache.slots"]),
            refused_sequences=RefusedSequences(self._clock),
            groups=groups,
            transactions=transactions,
            controller=None if cluster is None else cluster.controller,
            cluster=cluster,
        )
        ground.dynamic_config.on_topic_change(self._topic_config_changed)
        ground.dynamic_config.on_broker_change(self._broker_config_changed)
        ground.dynamic_config.on_group_change(self._group_config_changed)
        for group_id in ground.dynamic_config.groups_with_overrides():
            self._group_config_changed(group_id)
        self.broker.authorizer = self._authorizer(config, ground.store)
        self.broker.delegation_tokens = self._delegation_tokens(config, ground.store)
        self.broker.client_metrics = self._client_metrics(config, ground.dynamic_config)
        self._token_validators = TokenValidators(config, clock=self._clock, timer=self._timer)

    def _client_metrics(
        self, config: BrokerConfig, dynamic_config: DynamicConfig
    ) -> ClientMetricsManager | None:
        if config.metrics_listener is None:
            return None
        from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager

        return ClientMetricsManager(
            dynamic_config,
            self._clock,
            max_bytes=config.get_int("telemetry.max.bytes"),
            series_max=config.get_int("tidelog.client.metrics.series.max"),
        )

    def _authorizer(self, config: BrokerConfig, store: MetadataStore) -> RequestAuthorizer | None:
        """The lists are read here: nobody is served before they are known."""
        if not config.has_authorizer:
            return None
        from tidelog.broker.security.acl_store import AclStore
        from tidelog.broker.security.authorizer import Authorizer
        from tidelog.broker.security.request_authorizer import RequestAuthorizer

        authorizer = Authorizer(
            super_users=config.super_users,
            allow_everyone_if_no_acl_found=config["allow.everyone.if.no.acl.found"],
        )
        acls = AclStore(store, authorizer, clock=self._clock, timer=self._timer)
        acls.load()
        return RequestAuthorizer(acls, self._clock)

    def _delegation_tokens(
        self, config: BrokerConfig, store: MetadataStore
    ) -> DelegationTokens | None:
        """They are read here: whoever logs in with one has it known."""
        secret_key = config.delegation_token_secret_key
        if secret_key is None:
            return None
        from tidelog.broker.security.delegation_tokens import DelegationTokens

        tokens = DelegationTokens(store, secret_key, config, clock=self._clock, timer=self._timer)
        tokens.load()
        return tokens

    def _moves(self, flusher: LogFlusher, config: BrokerConfig) -> ReplicaMoves:
        return ReplicaMoves(self._logs, flusher, config, loop=self._loop, clock=self._clock)

    def _host_all(
        self, images: Collection[TopicImage], metadata_directory: LogDirectory
    ) -> TopicHosting:
        """As far as the logs are there; from now on directories may fail."""
        broker = self.broker
        broker.logs.expect(
            TopicPartition(image.name, partition.partition)
            for image in images
            for partition in image.partitions
            if broker.broker_id in partition.replicas
        )
        broker.metadata.offline = broker.replicas.offline
        self._watch_directories(metadata_directory)
        hosting = TopicHosting(broker)
        for image in images:
            hosting.host_now(image)
        broker.moves.resume()
        return hosting

    def _watch_directories(self, metadata_directory: LogDirectory | None) -> None:
        broker = self.broker
        LogDirFailureHandler(
            broker.logs,
            broker.replicas,
            broker.coordinators,
            metadata_directory,
            lambda message: self.halt(message),
        ).listen(self._loop)

    def _coordinators(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        flusher: LogFlusher,
        producer_ids: ProducerIds,
        topics: Topics,
    ) -> tuple[GroupCoordinator, TransactionCoordinator]:
        groups = GroupCoordinator(
            config, clock=self._clock, timer=self._timer, flusher=flusher, topics=topics
        )
        transactions = TransactionCoordinator(
            config,
            MarkerWriter(replicas, groups.runtime, flusher, self._clock),
            clock=self._clock,
            timer=self._timer,
            flusher=flusher,
            avoid_producer_ids_to=producer_ids.start_above,
        )
        return groups, transactions

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Where clients find the broker: with the ports that were bound."""
        return self._endpoints

    @property
    def metrics_url(self) -> str | None:
        """With the port that was bound; None where metrics are not served."""
        endpoint = self._static_config.metrics_listener
        if endpoint is None or self._http is None:
            return None
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"http://{host or socket.gethostname()}:{self._http.port}/metrics"

    def ready_line(self) -> str:
        broker = self.broker
        metrics = "" if self.metrics_url is None else f"metrics={self.metrics_url} "
        return (
            f"tidelog ready broker.id={broker.broker_id} "
            f"cluster.id={broker.metadata.cluster_id} listeners={','.join(self._advertised)} "
            f"{metrics}data={','.join(map(str, self._static_config.log_dirs))}"
        )

    async def stop(self) -> None:
        self.health.stops()
        await self.leave()
        self.network.stop_accepting()
        self._dispatcher.wake_waiting()
        self.broker.coordinators.resign()
        await self.network.drain(DRAIN_TIMEOUT_S)
        self.network.close()
        self.broker.append_turn.end()
        await self._cleaner.stop()
        await self._housekeeping.stop()
        if self._beat_handle is not None:
            self._beat_handle.cancel()
        await self.close()
        self._close_http()
        logger.info("stopped", extra={"event": "broker-stopped"})

    async def leave(self) -> None:
        """A lone broker leaves nobody."""

    async def close(self) -> None:
        """What `open` opened."""
        self._token_validators.close()
        if self.broker.authorizer is not None:
            self.broker.authorizer.acls.close()
        if self.broker.delegation_tokens is not None:
            self.broker.delegation_tokens.announcements.close()
        if isinstance(self.broker.topics, TopicCatalogue):
            await self.broker.topics.wait_for_changes()
        await self.broker.moves.stop()
        self.broker.record_threads.close()
        await self.broker.store.close()
        await self.broker.flusher.drain()
        self._close_logs()

    def _close_logs(self) -> None:
        self._logs.shutdown()

    # What a change of the configuration does, once it is durable (`dynamic_config.py`)

    def _topic_config_changed(self, topic: str) -> None:
        config = self.broker.dynamic_config.log_config(topic)
        image = self.broker.topics.topics.get(topic)
        for index in range(len(image.partitions) if image else 0):
            partition = self.broker.replicas.get(topic, index)
            if partition is not None:
                partition.log.update_config(config)

    def _group_config_changed(self, group_id: str) -> None:
        own = self.broker.dynamic_config.group_config_or_none(group_id)
        self.broker.groups.configure_group(group_id, own)

    def _ip_quotas_changed(self) -> None:
        limits = self.broker.dynamic_config.quota_limits
        self.network.configure_ip_rates(limits.of_addresses(CONNECTION_CREATION_RATE))

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        self.broker.config = config
        self.broker.coordinators.configure(config)
        self.broker.logs.configure(config)
        self.broker.moves.configure(config)
        self._cleaner.configure(config)
        self.network.configure(_network_settings(config))
        self.broker.work.start(self._reconfigure_topics())

    def _reconfigure_topics(self) -> Iterator[None]:
        for topic in tuple(self.broker.topics.topics):
            self._topic_config_changed(topic)
            yield

    # Listening

    def _listen(self) -> None:
        self._bind()
        broker, config = self.broker, self.broker.config
        for endpoint in self._endpoints:
            node = Node(broker.broker_id, endpoint.host, endpoint.port, config.rack)
            broker.metadata.advertise(endpoint.listener_name, [node])
        register_broker(
            broker.store, broker.broker_id, self._endpoints, self._clock, rack=config.rack
        )

    def _new_dispatcher(self) -> RequestDispatcher:
        return RequestDispatcher(self.broker, served(in_cluster=self.in_cluster))

    def _authenticators(self) -> dict[str, Callable[[], SaslServerAuthenticator]]:
        if not self.broker.config.sasl_listeners:
            return {}
        from tidelog.broker.security.authenticators import authenticators

        return authenticators(self.broker, self._token_validators)

    def _bind(self) -> None:
        broker, config = self.broker, self.broker.config
        self._dispatcher = self._new_dispatcher()
        self._token_validators.load()
        self.network = SocketServer(
            config.listeners,
            self._dispatcher,
            loop=self._loop,
            settings=_network_settings(config),
            clock=self._clock,
            tls=self._tls,
            authenticators=self._authenticators(),
        )
        self._ip_quotas_changed()
        broker.dynamic_config.on_ip_quota_change(self._ip_quotas_changed)
        ports = self.network.start()
        advertised = advertise(config.advertised_listeners, ports, socket.gethostname())
        self._endpoints = list(advertised)
        self._advertised = [str(endpoint) for endpoint in advertised]


def unusable_store(error: StoreError) -> StartupError:
    return StartupError(f"the metadata store cannot be used: {type(error).__name__} {error}")


def flush_failed(replicas: ReplicaManager, log: PartitionLog, error: OSError) -> None:
    """The system may have dropped what it could not write: a later fsync would prove nothing."""
    replicas.logs.failures.report(str(log.directory), "flush", error)
    partition = replicas.get(*log.topic_partition)
    if partition is not None and partition.log is log:
        replicas.take_offline(log.topic_partition, f"flush failed: {error}")


def _network_settings(config: BrokerConfig) -> NetworkSettings:
    settings = NetworkSettings(
        request_max_bytes=config["socket.request.max.bytes"],
        max_connections=config["max.connections"],
        max_connections_per_ip=config["max.connections.per.ip"],
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connections_per_listener=config.of_listeners("max.connections"),
        max_connection_creation_rate=config["max.connection.creation.rate"],
        max_connection_creation_rate_per_listener=config.of_listeners(
            "max.connection.creation.rate"
        ),
        quota_window_num=config["quota.window.num"],
        quota_window_size_seconds=config["quota.window.size.seconds"],
        inter_broker_listener_name=config.inter_broker_listener_name,
        connections_max_idle_ms=config["connections.max.idle.ms"],
        queued_max_requests=config["queued.max.requests"],
        network_threads=config["num.network.threads"],
        send_buffer_bytes=config["socket.send.buffer.bytes"],
        receive_buffer_bytes=config["socket.receive.buffer.bytes"],
        backlog=config["socket.listen.backlog.size"],
        tls={
            endpoint.listener_name: TlsSettings.of_listener(config, endpoint)
            for endpoint in config.listeners
            if endpoint.is_encrypted
        },
    )
    if config["queued.max.request.bytes"] > 0:
        return replace(settings, bytes_in_flight_max=config["queued.max.request.bytes"])
    return settings


def raise_file_limit() -> None:
    """Every segment stays open: ask for all the file descriptors this process may have."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
