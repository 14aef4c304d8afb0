"""Everything a handler can reach, in one place; `server.py` builds it, in a cluster
`cluster_server.py` with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.broker.observation.request_metrics import RequestMetrics
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.record_threads import RecordThreads
from tidelog.coordinator.registry import Coordinators
from tidelog.replication.append_turn import AppendTurn
from tidelog.slices import SlicedWork, Slices

if TYPE_CHECKING:
    from tidelog.broker.cluster_member import ClusterMember
    from tidelog.broker.dynamic_config import DynamicConfig
    from tidelog.broker.fetch_sessions import FetchSessions
    from tidelog.broker.metadata_cache import MetadataCache
    from tidelog.broker.refused_sequences import RefusedSequences
    from tidelog.broker.security.delegation_tokens import DelegationTokens
    from tidelog.broker.security.request_authorizer import RequestAuthorizer
    from tidelog.broker.telemetry.client_metrics_manager import ClientMetricsManager
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.controller.cluster.cluster_topics import ClusterTopics
    from tidelog.controller.cluster.kafka_controller import KafkaController
    from tidelog.controller.metadata_store import MetadataStore
    from tidelog.controller.producer_ids import ProducerIds
    from tidelog.controller.topics import TopicCatalogue
    from tidelog.coordinator.group.coordinator import GroupCoordinator
    from tidelog.coordinator.txn.coordinator import TransactionCoordinator
    from tidelog.log.log_manager import LogManager
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.replication.replica_moves import ReplicaMoves


@dataclass(slots=True)
class Broker:
    """One broker's parts; touched only on its loop."""

    broker_id: int
    config: BrokerConfig  # effective: static values with dynamic ones on top
    clock: Clock
    timer: Timer
    store: MetadataStore
    topics: TopicCatalogue | ClusterTopics
    dynamic_config: DynamicConfig
    metadata: MetadataCache
    logs: LogManager
    replicas: ReplicaManager
    flusher: LogFlusher
    moves: ReplicaMoves
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    refused_sequences: RefusedSequences
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    controller: KafkaController | None = None  # None for a lone broker with its own store
    cluster: ClusterMember | None = None  # likewise
    authorizer: RequestAuthorizer | None = None  # None where everybody may do everything
    delegation_tokens: DelegationTokens | None = None  # None without a key to make them with
    client_metrics: ClientMetricsManager | None = None  # None where nobody could see them
    record_threads: RecordThreads = field(default_factory=RecordThreads)
    request_metrics: RequestMetrics = field(default_factory=RequestMetrics)
    slices: Slices = field(default_factory=Slices)  # of all long works on requests and orders
    quotas: ClientQuotas = field(init=False)
    append_turn: AppendTurn = field(init=False)
    coordinators: Coordinators = field(init=False)
    work: SlicedWork = field(init=False)  # of answers and changes that take long to make

    def __post_init__(self) -> None:
        self.quotas = ClientQuotas(self.dynamic_config.quota_limits, self.config, self.clock)
        self.append_turn = AppendTurn(self.timer)
        self.coordinators = Coordinators(self.groups, self.transactions)
        self.work = SlicedWork(self.clock, self.timer)

    @property
    def may_administer_topics(self) -> bool:
        """In a cluster only the active controller's broker may."""
        return self.controller is None or self.controller.is_active
