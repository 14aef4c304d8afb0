"""Transactions that nobody will ever end.

A partition may hold records of a transaction that its coordinator does not know (any more): before
KIP-890, records that came after their transaction had ended opened another one. Readers with
read_committed wait behind it for ever. Such a transaction

- is open in a partition, and the last of its records is older than any timeout allows;
- belongs to a producer id without a transactional id, or to one whose transaction does not
  include the partition.

One that the coordinator knows ends by itself, at its timeout at the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.errors import BrokerRefused
from tidelog.client.transactions import (
    NO_OFFSET,
    ActiveProducer,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.cluster import Cluster


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ActiveProducer


def find_hanging(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    broker_id: int | None = None,
    older_than_ms: int,
    now_ms: int,
) -> list[OpenTransaction]:
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producers in describe_producers(cluster, partitions, broker_id).items()
        for producer in producers
        if producer.txn_start_offset != NO_OFFSET
        and now_ms - producer.last_timestamp > older_than_ms
    ]
    if not candidates:
        return []
    expected = _expected_to_end(cluster, {each.producer.producer_id for each in candidates})
    return [
        each
        for each in candidates
        if each.partition not in expected.get(each.producer.producer_id, ())
    ]


def _expected_to_end(
    cluster: Cluster, producer_ids: set[int]
) -> dict[int, tuple[TopicPartition, ...]]:
    """By producer id: partitions to which a coordinator will write a marker."""
    expected: dict[int, tuple[TopicPartition, ...]] = {}
    for listing in list_transactions(cluster, producer_ids=producer_ids):
        try:
            described = describe_transaction(cluster, listing.transactional_id)
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue  # it has expired since
        expected[listing.producer_id] = described.partitions
    return expected


def partitions_of(
    cluster: Cluster, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Where to look: the partition named, those of the topic, or all of the cluster; of a broker
    only those it has a replica of.
    """
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    views = cluster.topics(None) if topic is None else {topic: cluster.topic(topic)}
    return [
        TopicPartition(name, index)
        for name, view in sorted(views.items())
        for index, row in sorted(view.partitions.items())
        if broker_id is None or broker_id in row.replicas
    ]
