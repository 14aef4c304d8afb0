"""What an administrator asks about transactions: which there are, how far they are, who writes.

A transactional id is known to its coordinator (`list_transactions`, `describe_transaction`), a
producer with an open transaction to the leaders of the partitions it writes to
(`describe_producers`). `abort_transaction` writes an abort marker to one partition, past the
coordinator: for a transaction that the coordinator knows nothing of.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.coordinators import CoordinatorKind, ask_coordinator
from tidelog.client.errors import ClientError, UnknownTopic, UnsupportedByBroker, refused
from tidelog.client.network.backoff import may_pass
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
    from tidelog.client.coordinators import Coordinator

NO_DURATION: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
PARTITIONS_PER_REQUEST: Final = 500
_DURATION_VERSION: Final = 1
_PATTERN_VERSION: Final = 2


class TransactionListing(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int  # NO_TIMESTAMP where none is under way
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """As the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # of the last marker; -1 before the first
    last_sequence: int
    last_timestamp: int
    txn_start_offset: int  # NO_OFFSET: no transaction is open


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = NO_DURATION,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Of all brokers; the filters are the brokers' own."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )
    needed = 0 if duration_ms == NO_DURATION else _DURATION_VERSION
    needed = needed if pattern is None else _PATTERN_VERSION
    found: list[TransactionListing] = []
    for node_id in sorted(cluster.brokers()):

        def ask(connection: Connection, node_id: int = node_id) -> list[TransactionListing]:
            version = connection.versions.version(ApiKey.LIST_TRANSACTIONS)
            if version < needed:
                raise UnsupportedByBroker(
                    f"broker {connection.broker} offers LIST_TRANSACTIONS up to version {version}, "
                    f"this filter needs {needed}"
                )
            response = connection.call(request, version)
            assert isinstance(response, ListTransactionsResponse), response
            if response.error_code:
                raise refused(f"transactions of broker {node_id}", response.error_code)
            return [
                TransactionListing(
                    row.transactional_id, node_id, row.producer_id, row.transaction_state
                )
                for row in response.transaction_states
            ]

        found += cluster.ask_broker(node_id, f"transactions of broker {node_id}", ask)
    return found


def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Raises BrokerRefused with TRANSACTIONAL_ID_NOT_FOUND where the id is not known."""
    what = f"transactional id {transactional_id}"

    def ask(connection: Connection, coordinator: Coordinator) -> TransactionDescription:
        version = connection.versions.version(ApiKey.DESCRIBE_TRANSACTIONS)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = connection.call(request, version)
        assert isinstance(response, DescribeTransactionsResponse), response
        (row,) = response.transaction_states
        if row.error_code:
            raise refused(what, row.error_code)
        return TransactionDescription(
            transactional_id,
            coordinator.node_id,
            row.producer_id,
            row.producer_epoch,
            row.transaction_state,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms,
            tuple(
                TopicPartition(topic.topic, index)
                for topic in row.topics
                for index in topic.partitions
            ),
        )

    return ask_coordinator(cluster, CoordinatorKind.TRANSACTION, transactional_id, what, ask)


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """As the leader of each partition, or the broker named, knows them."""
    wanted = list(partitions)
    patience = cluster.patience(f"producers of {len(wanted)} partitions")
    while True:
        try:
            return _describe_producers(cluster, wanted, broker_id)
        except ClientError as problem:
            if isinstance(problem, UnknownTopic) or not may_pass(problem):
                raise
            cluster.refresh({partition.topic for partition in wanted})
            patience.wait_after(problem)


def _describe_producers(
    cluster: Cluster, partitions: Sequence[TopicPartition], broker_id: int | None
) -> dict[TopicPartition, list[ActiveProducer]]:
    by_broker: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader_id = cluster.leader_of(partition).leader_id
        by_broker.setdefault(leader_id if broker_id is None else broker_id, []).append(partition)
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    for node_id, asked in by_broker.items():
        for start in range(0, len(asked), PARTITIONS_PER_REQUEST):
            some = asked[start : start + PARTITIONS_PER_REQUEST]
            found |= cluster.ask_node(node_id, partial(_producers_at, partitions=some))
    return found


def _producers_at(
    connection: Connection, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    topics: dict[str, TopicRequest] = {}
    for name, index in partitions:
        topics.setdefault(name, TopicRequest(name=name, partition_indexes=[]))
        topics[name].partition_indexes.append(index)
    request = DescribeProducersRequest(topics=list(topics.values()))
    response = connection.call(request, connection.versions.version(ApiKey.DESCRIBE_PRODUCERS))
    assert isinstance(response, DescribeProducersResponse), response
    found: dict[TopicPartition, list[ActiveProducer]] = {}
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                raise refused(
                    f"producers of partition {partition} at broker {connection.broker}",
                    row.error_code,
                    row.error_message,
                )
            found[partition] = [
                ActiveProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.current_txn_start_offset,
                )
                for producer in row.active_producers
            ]
    return found


def abort_transaction(
    cluster: Cluster,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Writes an abort marker for the producer to this one partition."""
    what = f"abort of producer {producer_id} in partition {partition}"
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        ],
        # Before the producer's first marker there is none; 0 is older than any leader's.
        coordinator_epoch=max(coordinator_epoch, 0),
    )

    def ask(connection: Connection) -> None:
        version = connection.versions.version(ApiKey.WRITE_TXN_MARKERS)
        response = connection.call(WriteTxnMarkersRequest(markers=[marker]), version)
        assert isinstance(response, WriteTxnMarkersResponse), response
        row = response.markers[0].topics[0].partitions[0]
        if row.error_code:
            raise refused(what, row.error_code)

    patience = cluster.patience(what)
    while True:
        try:
            cluster.ask_node(cluster.leader_of(partition).leader_id, ask)
            return
        except ClientError as problem:
            if isinstance(problem, UnknownTopic) or not may_pass(problem):
                raise
            cluster.refresh([partition.topic])
            patience.wait_after(problem)
