"""The columnar client: ranges of offsets in as Arrow record batches, record batches out.

    cluster = Cluster(ClientConfig({"bootstrap.servers": "127.0.0.1:9092"}))
    end = latest_offsets(cluster, [partition])[partition]
    for batch in Fetcher(cluster).fetch_columns(partition, 0, end): ...
    with Producer(cluster, topic="copy") as producer: producer.write(batch)

Works with Apache Kafka from 0.11 to 4.x. `Fetcher`, `FetchRange` and `Producer` need pyarrow (the
`arrow` extra); they are imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CommitRefused,
    ConnectionFailed,
    CorruptRecordsFetched,
    InvalidRow,
    MessageTooLarge,
    NotAuthorized,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RequestTimedOut,
    UnknownTopic,
    UnreadableAnswer,
    UnsupportedByBroker,
)
from tidelog.client.groups import commit_offsets
from tidelog.client.network.metadata import ClusterView, PartitionView, TopicView
from tidelog.client.offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_OFFSET,
    FoundOffset,
    earliest_offsets,
    latest_offsets,
    list_offsets,
)
from tidelog.config.client import ClientConfig
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.acls import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )
    from tidelog.client.admin.asking import Result
    from tidelog.client.admin.async_admin import AsyncAdmin
    from tidelog.client.admin.brokers import (
        ClusterDescription,
        FeatureDescription,
        FeatureUpdate,
        LogDirDescription,
        QuorumDescription,
        TopicPartitionReplica,
        UpgradeType,
    )
    from tidelog.client.admin.configs import (
        AlterConfig,
        AlterOp,
        ConfigEntry,
        ConfigResource,
        ConfigResourceType,
        ConfigSource,
    )
    from tidelog.client.admin.credentials import (
        DelegationToken,
        Principal,
        ScramCredential,
        ScramDeletion,
        ScramMechanism,
        ScramUpsertion,
    )
    from tidelog.client.admin.groups import GroupDescription, GroupListing, GroupMember
    from tidelog.client.admin.offsets import ListedOffset
    from tidelog.client.admin.partitions import ElectionType, PartitionReassignment
    from tidelog.client.admin.quotas import QuotaEntity, QuotaFilter, QuotaMatch
    from tidelog.client.admin.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        TopicDescription,
        TopicListing,
    )
    from tidelog.client.admin.transactions import (
        ActiveProducer,
        ProducerIdAndEpoch,
        TransactionDescription,
        TransactionListing,
    )
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.column_producer import Producer
    from tidelog.client.fetcher import Fetcher, FetchRange

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_OFFSET",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "ActiveProducer",
    "Admin",
    "AlterConfig",
    "AlterOp",
    "AsyncAdmin",
    "BrokerRefused",
    "ClientConfig",
    "ClientError",
    "Cluster",
    "ClusterDescription",
    "ClusterView",
    "CommitRefused",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConnectionFailed",
    "CorruptRecordsFetched",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "FeatureDescription",
    "FeatureUpdate",
    "FetchRange",
    "Fetcher",
    "FoundOffset",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "InvalidRow",
    "ListedOffset",
    "LogDirDescription",
    "MessageTooLarge",
    "NewPartitions",
    "NewTopic",
    "NotAuthorized",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartitionReassignment",
    "PartitionView",
    "PatternType",
    "Principal",
    "Producer",
    "ProducerIdAndEpoch",
    "QuorumDescription",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaMatch",
    "RequestTimedOut",
    "ResourceType",
    "Result",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "TopicView",
    "TransactionDescription",
    "TransactionListing",
    "UnknownTopic",
    "UnreadableAnswer",
    "UnsupportedByBroker",
    "UpgradeType",
    "commit_offsets",
    "earliest_offsets",
    "latest_offsets",
    "list_offsets",
]


# Imported when first asked for: what stands in which module.
_LATER: Final = {
    "admin.acls": (
        "AclBinding",
        "AclBindingFilter",
        "AclOperation",
        "AclPermission",
        "PatternType",
        "ResourceType",
    ),
    "admin.asking": ("Result",),
    "admin.async_admin": ("AsyncAdmin",),
    "admin.brokers": (
        "ClusterDescription",
        "FeatureDescription",
        "FeatureUpdate",
        "LogDirDescription",
        "QuorumDescription",
        "TopicPartitionReplica",
        "UpgradeType",
    ),
    "admin.configs": (
        "AlterConfig",
        "AlterOp",
        "ConfigEntry",
        "ConfigResource",
        "ConfigResourceType",
        "ConfigSource",
    ),
    "admin.credentials": (
        "DelegationToken",
        "Principal",
        "ScramCredential",
        "ScramDeletion",
        "ScramMechanism",
        "ScramUpsertion",
    ),
    "admin.groups": (
        "GroupDescription",
        "GroupListing",
        "GroupMember",
    ),
    "admin.offsets": ("ListedOffset",),
    "admin.partitions": (
        "ElectionType",
        "PartitionReassignment",
    ),
    "admin.quotas": (
        "QuotaEntity",
        "QuotaFilter",
        "QuotaMatch",
    ),
    "admin.topics": (
        "CreatedTopic",
        "NewPartitions",
        "NewTopic",
        "TopicDescription",
        "TopicListing",
    ),
    "admin.transactions": (
        "ActiveProducer",
        "ProducerIdAndEpoch",
        "TransactionDescription",
        "TransactionListing",
    ),
    "blocking.admin": ("Admin",),
    "column_producer": ("Producer",),
    "fetcher": ("FetchRange", "Fetcher"),
}
_MODULES: Final = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
