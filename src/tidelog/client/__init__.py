"""The columnar client: ranges of offsets in as Arrow record batches, record batches out.

    cluster = Cluster(ClientConfig({"bootstrap.servers": "127.0.0.1:9092"}))
    end = latest_offsets(cluster, [partition])[partition]
    for batch in Fetcher(cluster).fetch_columns(partition, 0, end): ...
    with Producer(cluster, topic="copy") as producer: producer.write(batch)

Works with Apache Kafka from 0.11 to 4.x. `Fetcher`, `FetchRange` and `Producer` need pyarrow (the
`arrow` extra); they are imported when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from tidelog.client.column_producer import Producer
    from tidelog.client.fetcher import Fetcher, FetchRange

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_OFFSET",
    "BrokerRefused",
    "ClientConfig",
    "ClientError",
    "Cluster",
    "ClusterView",
    "CommitRefused",
    "ConnectionFailed",
    "CorruptRecordsFetched",
    "FetchRange",
    "Fetcher",
    "FoundOffset",
    "InvalidRow",
    "MessageTooLarge",
    "NotAuthorized",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartitionView",
    "Producer",
    "RequestTimedOut",
    "TopicPartition",
    "TopicView",
    "UnknownTopic",
    "UnreadableAnswer",
    "UnsupportedByBroker",
    "commit_offsets",
    "earliest_offsets",
    "latest_offsets",
    "list_offsets",
]


def __getattr__(name: str) -> Any:
    if name in ("FetchRange", "Fetcher"):
        from tidelog.client import fetcher

        return getattr(fetcher, name)
    if name == "Producer":
        from tidelog.client.column_producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
