"""The cluster itself: its brokers, their log directories, its features, its quorum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog import __version__
from tidelog.acls import AclOperation
from tidelog.client.admin.acls import operations_of
from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError, UnreadableAnswer
from tidelog.client.network.metadata import Node
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tidelog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.types import TopicPartition, Uuid

METADATA_LOG: Final = "__cluster_metadata"

_OPERATIONS_VERSION: Final = 8  # of Metadata
_UPGRADE_TYPES_VERSION: Final = 1
_FENCED_VERSION: Final = 2


class ClusterDescription(NamedTuple):
    """`fenced` are brokers that are registered but not in service (where asked for)."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    fenced: frozenset[int] = frozenset()


class ReplicaOnDisk(NamedTuple):
    size_bytes: int
    offset_lag: int
    is_future: bool  # on its way here from another directory


class LogDirDescription(NamedTuple):
    """The sizes of the volume are None where the broker does not say (before 3.3)."""

    error: ClientError | None
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


class TopicPartitionReplica(NamedTuple):
    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


class VersionRange(NamedTuple):
    min_version: int
    max_version: int


class FeatureDescription(NamedTuple):
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int | None
    supported: Mapping[str, VersionRange]


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """Level 0 removes a feature."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class QuorumReplica(NamedTuple):
    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


class QuorumDescription(NamedTuple):
    """`endpoints` are the listeners of the controllers, by id and listener name (from 3.9)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, Mapping[str, tuple[str, int]]]


class BrokerCalls(Asking):
    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """Fenced brokers are told of from 4.0 on."""

        async def ask(_: int) -> ClusterDescription:
            versions = await self.cluster.versions(await self.cluster.any_node())
            if versions.version_or_none(ApiKey.DESCRIBE_CLUSTER) is not None:
                return await self._described_cluster(
                    include_authorized_operations, include_fenced_brokers
                )
            return await self._cluster_by_metadata(include_authorized_operations)

        return await self.once("description of the cluster", ask, timeout)

    async def _described_cluster(
        self, include_operations: bool, include_fenced: bool
    ) -> ClusterDescription:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=include_operations,
            include_fenced_brokers=include_fenced,
        )
        at_least = _FENCED_VERSION if include_fenced else 0
        response = await self.of_any(request, DescribeClusterResponse, at_least=at_least)
        problem = problem_of("the cluster", response.error_code, response.error_message)
        if problem is not None:
            raise problem
        nodes = {
            row.broker_id: Node(row.broker_id, row.host, row.port, row.rack)
            for row in response.brokers
        }
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes[node_id] for node_id in sorted(nodes)),
            operations_of(response.cluster_authorized_operations),
            frozenset(row.broker_id for row in response.brokers if row.is_fenced),
        )

    async def _cluster_by_metadata(self, include_operations: bool) -> ClusterDescription:
        request = MetadataRequest(
            topics=[], include_cluster_authorized_operations=include_operations
        )
        at_least = _OPERATIONS_VERSION if include_operations else 0
        # From 11 on DescribeCluster tells what the client is authorized for.
        at_most = 10 if include_operations else None
        response = await self.of_any(request, MetadataResponse, at_most=at_most, at_least=at_least)
        nodes = {
            row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in response.brokers
        }
        return ClusterDescription(
            response.cluster_id,
            nodes.get(response.controller_id),
            tuple(nodes[node_id] for node_id in sorted(nodes)),
            operations_of(response.cluster_authorized_operations),
        )

    # Log directories

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, *, timeout: float | None = None
    ) -> dict[int, Result[dict[str, LogDirDescription]]]:
        """By broker (None: all there are), then by path."""
        brokers = await self.broker_ids(timeout) if broker_ids is None else list(broker_ids)

        async def ask(node_id: int, _: list[int]) -> Found[int, dict[str, LogDirDescription]]:
            request = DescribeLogDirsRequest(topics=None)
            response = await self.of_broker(node_id, request, DescribeLogDirsResponse)
            problem = problem_of(f"log directories of broker {node_id}", response.error_code)
            found = {row.log_dir: _log_dir(row, node_id) for row in response.results}
            return {node_id: problem or found}

        async def step(some: list[int], _: int) -> Found[int, dict[str, LogDirDescription]]:
            return await self.of_brokers({node_id: [node_id] for node_id in some}, ask)

        return await self.each("log directories", brokers, step, timeout)

    async def alter_replica_log_dirs(
        self,
        paths: Mapping[TopicPartitionReplica, str],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartitionReplica, Result[None]]:
        """Moves replicas into these directories of their brokers, in the background. A replica that
        is not there yet will be made there."""

        async def ask(
            node_id: int, replicas: list[TopicPartitionReplica]
        ) -> Found[TopicPartitionReplica, None]:
            dirs: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
            for replica in replicas:
                topics = dirs.setdefault(paths[replica], {})
                topic = topics.setdefault(
                    replica.topic, AlterReplicaLogDirTopic(name=replica.topic)
                )
                topic.partitions.append(replica.partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(path=path, topics=list(topics.values()))
                    for path, topics in dirs.items()
                ]
            )
            response = await self.of_broker(node_id, request, AlterReplicaLogDirsResponse)
            return {
                (
                    key := TopicPartitionReplica(topic.topic_name, row.partition_index, node_id)
                ): problem_of(f"move of {key}", row.error_code)
                for topic in response.results
                for row in topic.partitions
            }

        async def step(
            some: list[TopicPartitionReplica], _: int
        ) -> Found[TopicPartitionReplica, None]:
            by_broker: dict[int, list[TopicPartitionReplica]] = {}
            for replica in some:
                by_broker.setdefault(replica.broker_id, []).append(replica)
            return await self.of_brokers(by_broker, ask)

        return await self.each("moves between log directories", paths, step, timeout)

    # Features and the quorum

    async def describe_features(
        self, *, broker_id: int | None = None, timeout: float | None = None
    ) -> FeatureDescription:
        """What the cluster has agreed on, and what one broker supports."""

        async def ask(_: int) -> FeatureDescription:
            node_id = await self.cluster.any_node() if broker_id is None else broker_id
            request = ApiVersionsRequest(
                client_software_name="tidelog", client_software_version=__version__
            )
            response = await self.of_broker(node_id, request, ApiVersionsResponse)
            problem = problem_of(f"features of broker {node_id}", response.error_code)
            if problem is not None:
                raise problem
            epoch = response.finalized_features_epoch
            return FeatureDescription(
                {
                    row.name: VersionRange(row.min_version_level, row.max_version_level)
                    for row in response.finalized_features
                },
                None if epoch < 0 else epoch,
                {
                    row.name: VersionRange(row.min_version, row.max_version)
                    for row in response.supported_features
                },
            )

        return await self.once("features", ask, timeout)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, Result[None]]:
        """A number is the level to upgrade to. Brokers from 3.3 can only validate."""

        async def step(names: list[str], left_ms: int) -> Found[str, None]:
            wanted = {name: _update(updates[name]) for name in names}
            needs_types = validate_only or any(
                update.upgrade_type is UpgradeType.UNSAFE_DOWNGRADE for update in wanted.values()
            )
            version = await self._controller_version(
                ApiKey.UPDATE_FEATURES, _UPGRADE_TYPES_VERSION if needs_types else 0
            )
            request = UpdateFeaturesRequest(
                timeout_ms=left_ms,
                feature_updates=[_feature_row(*item, version) for item in wanted.items()],
                validate_only=validate_only,
            )
            response = await self.of_controller(
                request, UpdateFeaturesResponse, at_most=version, at_least=version
            )
            problem = problem_of("update of features", response.error_code, response.error_message)
            if problem is not None:
                raise problem
            # From version 2 on the answer is about all of them together.
            found: dict[str, ClientError | None] = dict.fromkeys(names)
            for row in response.results:
                found[row.feature] = problem_of(
                    f"feature {row.feature}", row.error_code, row.error_message
                )
            return found

        return await self.each("update of features", updates, step, timeout)

    async def _controller_version(self, key: ApiKey, at_least: int) -> int:
        if self.cluster.metadata.controller_id not in self.cluster.metadata.brokers:
            await self.cluster.refresh(())
        versions = await self.cluster.versions(self.cluster.metadata.controller_id)
        return versions.version(key, at_least=at_least)

    async def describe_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """The KRaft controllers."""

        async def ask(_: int) -> QuorumDescription:
            request = DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequestTopicData(
                        topic_name=METADATA_LOG,
                        partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
                    )
                ]
            )
            response = await self.of_any(request, DescribeQuorumResponse)
            problem = problem_of("the quorum", response.error_code, response.error_message)
            if problem is not None:
                raise problem
            rows = [row for topic in response.topics for row in topic.partitions]
            if len(rows) != 1:
                raise UnreadableAnswer(f"the quorum: {len(rows)} partitions in the answer")
            (row,) = rows
            problem = problem_of("the quorum", row.error_code, row.error_message)
            if problem is not None:
                raise problem
            return QuorumDescription(
                row.leader_id,
                row.leader_epoch,
                row.high_watermark,
                tuple(map(_quorum_replica, row.current_voters)),
                tuple(map(_quorum_replica, row.observers)),
                {
                    node.node_id: {each.name: (each.host, each.port) for each in node.listeners}
                    for node in response.nodes
                },
            )

        return await self.once("the quorum", ask, timeout)

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Makes the cluster forget a broker that will not come back (KRaft)."""

        async def ask(_: int) -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await self.of_any(request, UnregisterBrokerResponse)
            problem = problem_of(f"broker {broker_id}", response.error_code, response.error_message)
            if problem is not None:
                raise problem

        await self.once(f"removal of broker {broker_id}", ask, timeout)


def _log_dir(row: DescribeLogDirsResult, node_id: int) -> LogDirDescription:
    return LogDirDescription(
        problem_of(f"log directory {row.log_dir} of broker {node_id}", row.error_code),
        {
            TopicPartition(topic.name, each.partition_index): ReplicaOnDisk(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in row.topics
            for each in topic.partitions
        },
        None if row.total_bytes < 0 else row.total_bytes,
        None if row.usable_bytes < 0 else row.usable_bytes,
        row.is_cordoned,
    )


def _update(update: FeatureUpdate | int) -> FeatureUpdate:
    return update if isinstance(update, FeatureUpdate) else FeatureUpdate(update)


def _feature_row(name: str, update: FeatureUpdate, version: int) -> FeatureUpdateKey:
    if version < _UPGRADE_TYPES_VERSION:
        return FeatureUpdateKey(
            feature=name,
            max_version_level=update.max_version_level,
            allow_downgrade=update.upgrade_type is not UpgradeType.UPGRADE,
        )
    return FeatureUpdateKey(
        feature=name,
        max_version_level=update.max_version_level,
        upgrade_type=update.upgrade_type,
    )


def _quorum_replica(row: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        row.replica_id,
        row.replica_directory_id,
        row.log_end_offset,
        None if row.last_fetch_timestamp < 0 else row.last_fetch_timestamp,
        None if row.last_caught_up_timestamp < 0 else row.last_caught_up_timestamp,
    )
