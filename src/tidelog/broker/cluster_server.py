"""A broker of a cluster over ZooKeeper: what is different from a lone one.

Start: lock and load the log directories, get a session, find the cluster (or found it), listen,
register, take part in the election of the controller, and wait until the controller has told this
broker of the cluster. What it hosts, it hosts by the controller's orders. Stop: have the controller
move the leaderships, then as a lone broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.cluster_member import ClusterMember
from tidelog.broker.config_changes import config_changes
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.server import Server, unusable_store
from tidelog.controller import znodes
from tidelog.controller.announcements import Announcements
from tidelog.controller.metadata_store import SessionState, StoreError
from tidelog.controller.registration import find_cluster, generate_broker_id
from tidelog.controller.topics import TopicChange, TopicImage
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.errors import StartupError
from tidelog.types import NO_CONTROLLER

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.log.directory.meta_properties import MetaProperties


class ClusterServer(Server):
    """One broker in this process, and its place in the cluster."""

    in_cluster = True

    _cluster: ClusterMember
    _config_changes: Announcements
    _has_joined = False
    _has_lost_session = False

    async def join(self) -> None:
        """Until this broker serves as part of the cluster."""
        if self.broker.authorizer is not None:
            await self.broker.authorizer.acls.caught_up()
        if self.broker.delegation_tokens is not None:
            await self.broker.delegation_tokens.announcements.caught_up()
        try:
            await self._cluster.start(self._endpoints, clean_shutdown=self._logs.was_clean)
        except StoreError as error:
            raise unusable_store(error) from error
        self._has_joined = True
        self._config_changes.start()
        await self._config_changes.caught_up()

    def _listen(self) -> None:
        """Who listens is registered when it joins."""
        self._bind()

    def open(self) -> None:
        """Everything up to listening: blocking, before any request is served."""
        self._prepare()
        config = self._static_config
        store = self._connect(config)
        meta = self._logs.directories.stored_identity()
        self._must_know_topics(store)
        cluster_id = find_cluster(store, None if meta is None else meta.cluster_id)
        broker_id = self._broker_id(config, meta, store)
        self._logs.directories.confirm_identity(broker_id, cluster_id)
        ground = self._lay_groundwork(store, broker_id)
        cluster = self._cluster = ClusterMember(
            ground.dynamic_config.layers,
            broker_id,
            store,
            ground.flusher,
            self._tls.transport_to,
            loop=self._loop,
            clock=self._clock,
            timer=self._timer,
        )
        metadata = MetadataCache(cluster_id, NO_CONTROLLER, cluster.topics)
        self._assemble(ground, cluster.topics, metadata, cluster)
        self.broker.transactions.markers.others = cluster
        ground.replicas.is_known = lambda topic, index: cluster.leader_of(topic, index) is not None
        ground.replicas.went_offline = cluster.replica_lost
        cluster.attach(self.broker)
        self._watch_directories(metadata_directory=None)
        self.broker.moves.resume()
        ground.dynamic_config.follow_cluster(cluster.topics)
        cluster.topics.on_change(self._cluster_topic_changed)
        self._config_changes = config_changes(
            store, ground.dynamic_config, clock=self._clock, timer=self._timer
        )
        store.on_session(self._session_changed)

    def _must_know_topics(self, store: ZooKeeperStore) -> None:
        """A ZooKeeper without a cluster has no settings of the topics that are here: by the
        defaults their old records would go. (Apache Kafka does not start there either.)
        """
        is_new = next(store.subtree(znodes.CLUSTER_ID), None) is None
        if is_new and self._logs.directories.hosted():
            raise StartupError(
                "the log directories hold topics, and the ZooKeeper of zookeeper.connect knows of "
                "no cluster: check its address and path. To adopt the topics without ZooKeeper, "
                "leave zookeeper.connect out"
            )

    def _connect(self, config: BrokerConfig) -> ZooKeeperStore:
        session_timeout_ms = config.get_int("zookeeper.session.timeout.ms")
        return ZooKeeperStore.connect(
            config["zookeeper.connect"],
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
            in_flight_max=config.get_int("zookeeper.max.in.flight.requests"),
            loop=self._loop,
            clock=self._clock,
        )

    def _broker_id(
        self, config: BrokerConfig, meta: MetaProperties | None, store: ZooKeeperStore
    ) -> int:
        if config.broker_id_is_set:
            return config.broker_id
        if meta is not None:
            return meta.broker_id
        if not config["broker.id.generation.enable"]:
            raise StartupError("broker.id is not set, and broker.id.generation.enable is false")
        return generate_broker_id(store, config.get_int("reserved.broker.max.id"))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._has_lost_session = True
        if state is SessionState.CONNECTED:
            self._config_changes.session_began(is_new=self._has_lost_session)
            self._has_lost_session = False
            if self.broker.authorizer is not None:
                self.broker.authorizer.acls.session_began()
            if self.broker.delegation_tokens is not None:
                self.broker.delegation_tokens.announcements.session_began()

    def _cluster_topic_changed(self, change: TopicChange, image: TopicImage) -> None:
        groups = self.broker.groups
        runtime = self.broker.coordinators.runtime_of(image.name)
        if change is TopicChange.DELETED:
            if runtime is not None:
                runtime.partition_count = 0
            groups.topic_deleted(image.name)
            return
        if change is TopicChange.CREATED:
            groups.topic_created(image.name)
        else:
            groups.topic_changed(image.name)
        if runtime is not None:
            runtime.count_partitions(len(image.partitions))

    def _broker_config_changed(self, config: BrokerConfig) -> None:
        super()._broker_config_changed(config)
        self._cluster.configure(config)

    async def leave(self) -> None:
        await self._cluster.hand_over()
        self._config_changes.close()
        self._cluster.quiesce()

    async def close(self) -> None:
        await self._cluster.stop()
        await super().close()

    def _close_logs(self) -> None:
        """After a crash no stop is clean before the controller has heard of it: it may hold this
        broker eligible to lead with records that the crash took.
        """
        self._logs.shutdown(mark_clean=self._logs.was_clean or self._has_joined)
