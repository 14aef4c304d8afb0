"""Kafka's producer, consumer and admin client, for any Kafka from 0.10 to 4.x.

    from tidelog.client import Admin, Consumer, Producer                 # blocking
    from tidelog.client import AsyncAdmin, AsyncConsumer, AsyncProducer  # asyncio

    with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        print(producer.send("greetings", b"hello").result().offset)

Everything public is here, and is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.acls import (
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
        ScramUpsertion,
    )
    from tidelog.client.admin.groups import GroupDescription, GroupListing, GroupMember
    from tidelog.client.admin.offsets import NO_OFFSET, ListedOffset
    from tidelog.client.admin.partitions import ElectionType, PartitionReassignment
    from tidelog.client.admin.quotas import QuotaEntity, QuotaFilter, QuotaMatch
    from tidelog.client.admin.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        TopicDescription,
        TopicListing,
    )
    from tidelog.client.admin.transactions import (
        ActiveProducer,
        TransactionDescription,
        TransactionListing,
    )
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.client.blocking.producer import Producer
    from tidelog.client.consumer.assignors.assignor import Assignor
    from tidelog.client.consumer.consumer import AsyncConsumer
    from tidelog.client.consumer.fetch_buffer import RawBatch
    from tidelog.client.consumer.offset_and_metadata import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
    )
    from tidelog.client.consumer.rebalance_listener import RebalanceListener
    from tidelog.client.errors import (
        AuthenticationFailed,
        BrokerRefused,
        BufferExhausted,
        ClientError,
        Closed,
        CommitFailed,
        CommitRefused,
        ConnectionFailed,
        CorruptRecordsFetched,
        FencedInstance,
        IllegalState,
        Interrupted,
        InvalidRow,
        LogTruncation,
        MessageTooLarge,
        NoOffsetForPartition,
        NotAuthorized,
        OffsetOutOfRange,
        OutOfOrderSequence,
        ProducerFenced,
        RebalanceInProgress,
        RequestTimedOut,
        Serialization,
        TlsFailed,
        TransactionAbortable,
        UnknownMember,
        UnknownTopic,
        UnreadableAnswer,
        UnsupportedByBroker,
    )
    from tidelog.client.network.metadata import Node
    from tidelog.client.producer.async_producer import AsyncProducer
    from tidelog.client.producer.delivery import ArrowDelivery, Delivery, RecordMetadata
    from tidelog.client.producer.sequences import ProducerIdAndEpoch
    from tidelog.client.producer.transaction_requests import OpenTransaction
    from tidelog.client.tracing import trace_context
    from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig
    from tidelog.protocol.listed_timestamps import (
        EARLIEST,
        EARLIEST_LOCAL,
        LATEST,
        LATEST_TIERED,
        MAX_TIMESTAMP,
    )
    from tidelog.record._results import ConsumerRecord
    from tidelog.sasl.oauth.token_source import AccessToken
    from tidelog.sasl.scram_credential import ScramMechanism
    from tidelog.types import TopicPartition, Uuid

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "NO_OFFSET",
    "AccessToken",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermission",
    "ActiveProducer",
    "Admin",
    "AdminConfig",
    "AlterConfig",
    "AlterOp",
    "ArrowDelivery",
    "Assignor",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AuthenticationFailed",
    "BrokerRefused",
    "BufferExhausted",
    "ClientError",
    "Closed",
    "ClusterDescription",
    "CommitFailed",
    "CommitRefused",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConnectionFailed",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CorruptRecordsFetched",
    "CreatedTopic",
    "DelegationToken",
    "Delivery",
    "ElectionType",
    "FeatureDescription",
    "FeatureUpdate",
    "FencedInstance",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "IllegalState",
    "Interrupted",
    "InvalidRow",
    "ListedOffset",
    "LogDirDescription",
    "LogTruncation",
    "MessageTooLarge",
    "NewPartitions",
    "NewTopic",
    "NoOffsetForPartition",
    "Node",
    "NotAuthorized",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OpenTransaction",
    "OutOfOrderSequence",
    "PartitionDescription",
    "PartitionReassignment",
    "PatternType",
    "Principal",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerIdAndEpoch",
    "QuorumDescription",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaMatch",
    "RawBatch",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecordMetadata",
    "RequestTimedOut",
    "ResourceType",
    "Result",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "Serialization",
    "TlsFailed",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TopicPartitionReplica",
    "TransactionAbortable",
    "TransactionDescription",
    "TransactionListing",
    "UnknownMember",
    "UnknownTopic",
    "UnreadableAnswer",
    "UnsupportedByBroker",
    "UpgradeType",
    "Uuid",
    "trace_context",
]

# The modules below tidelog, and what is taken from them.
_PLACES: Final = {
    "acls": (
        "AclBinding",
        "AclBindingFilter",
        "AclOperation",
        "AclPermission",
        "PatternType",
        "ResourceType",
    ),
    "client.admin.asking": ("Result",),
    "client.admin.async_admin": ("AsyncAdmin",),
    "client.admin.brokers": (
        "ClusterDescription",
        "FeatureDescription",
        "FeatureUpdate",
        "LogDirDescription",
        "QuorumDescription",
        "TopicPartitionReplica",
        "UpgradeType",
    ),
    "client.admin.configs": (
        "AlterConfig",
        "AlterOp",
        "ConfigEntry",
        "ConfigResource",
        "ConfigResourceType",
        "ConfigSource",
    ),
    "client.admin.credentials": (
        "DelegationToken",
        "Principal",
        "ScramCredential",
        "ScramDeletion",
        "ScramUpsertion",
    ),
    "client.admin.groups": (
        "GroupDescription",
        "GroupListing",
        "GroupMember",
    ),
    "client.admin.offsets": (
        "NO_OFFSET",
        "ListedOffset",
    ),
    "client.admin.partitions": (
        "ElectionType",
        "PartitionReassignment",
    ),
    "client.admin.quotas": (
        "QuotaEntity",
        "QuotaFilter",
        "QuotaMatch",
    ),
    "client.admin.topics": (
        "CreatedTopic",
        "NewPartitions",
        "NewTopic",
        "PartitionDescription",
        "TopicDescription",
        "TopicListing",
    ),
    "client.admin.transactions": (
        "ActiveProducer",
        "TransactionDescription",
        "TransactionListing",
    ),
    "client.blocking.admin": ("Admin",),
    "client.blocking.consumer": ("Consumer",),
    "client.blocking.producer": ("Producer",),
    "client.consumer.assignors.assignor": ("Assignor",),
    "client.consumer.consumer": ("AsyncConsumer",),
    "client.consumer.fetch_buffer": ("RawBatch",),
    "client.consumer.offset_and_metadata": (
        "ConsumerGroupMetadata",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
    ),
    "client.consumer.rebalance_listener": ("RebalanceListener",),
    "client.errors": (
        "AuthenticationFailed",
        "BrokerRefused",
        "BufferExhausted",
        "ClientError",
        "Closed",
        "CommitFailed",
        "CommitRefused",
        "ConnectionFailed",
        "CorruptRecordsFetched",
        "FencedInstance",
        "IllegalState",
        "Interrupted",
        "InvalidRow",
        "LogTruncation",
        "MessageTooLarge",
        "NoOffsetForPartition",
        "NotAuthorized",
        "OffsetOutOfRange",
        "OutOfOrderSequence",
        "ProducerFenced",
        "RebalanceInProgress",
        "RequestTimedOut",
        "Serialization",
        "TlsFailed",
        "TransactionAbortable",
        "UnknownMember",
        "UnknownTopic",
        "UnreadableAnswer",
        "UnsupportedByBroker",
    ),
    "client.network.metadata": ("Node",),
    "client.producer.async_producer": ("AsyncProducer",),
    "client.producer.delivery": (
        "ArrowDelivery",
        "Delivery",
        "RecordMetadata",
    ),
    "client.producer.sequences": ("ProducerIdAndEpoch",),
    "client.producer.transaction_requests": ("OpenTransaction",),
    "client.tracing": ("trace_context",),
    "config.client": (
        "AdminConfig",
        "ConsumerConfig",
        "ProducerConfig",
    ),
    "protocol.listed_timestamps": (
        "EARLIEST",
        "EARLIEST_LOCAL",
        "LATEST",
        "LATEST_TIERED",
        "MAX_TIMESTAMP",
    ),
    "record._results": ("ConsumerRecord",),
    "sasl.oauth.token_source": ("AccessToken",),
    "sasl.scram_credential": ("ScramMechanism",),
    "types": (
        "TopicPartition",
        "Uuid",
    ),
}
_MODULES: Final = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tidelog.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
