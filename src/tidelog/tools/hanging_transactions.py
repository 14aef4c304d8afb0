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

from tidelog.client.admin.transactions import NO_TXN_OFFSET, ActiveProducer
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.client.blocking.admin import Admin


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ActiveProducer


def find_hanging(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    *,
    broker_id: int | None = None,
    older_than_ms: int,
    now_ms: int,
) -> list[OpenTransaction]:
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producers in admin.describe_producers(
            partitions, broker_id=broker_id
        ).items()
        for producer in producers.get()
        if producer.txn_start_offset != NO_TXN_OFFSET
        and now_ms - producer.last_timestamp > older_than_ms
    ]
    if not candidates:
        return []
    expected = _expected_to_end(admin, {each.producer.producer_id for each in candidates})
    return [
        each
        for each in candidates
        if each.partition not in expected.get(each.producer.producer_id, ())
    ]


def _expected_to_end(admin: Admin, producer_ids: set[int]) -> dict[int, tuple[TopicPartition, ...]]:
    """By producer id: partitions to which a coordinator will write a marker."""
    expected: dict[int, tuple[TopicPartition, ...]] = {}
    listed = admin.list_transactions(producer_ids=producer_ids)
    described = admin.describe_transactions([each.transactional_id for each in listed])
    for listing in listed:
        result = described[listing.transactional_id]
        if result.error is not None and result.error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue  # it has expired since
        expected[listing.producer_id] = result.get().partitions
    return expected


def partitions_of(
    admin: Admin, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Where to look: the partition named, those of the topic, or all of the cluster; of a broker
    only those it has a replica of.
    """
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = (
        [topic]
        if topic is not None
        else [listing.name for listing in admin.list_topics(include_internal=True)]
    )
    return [
        TopicPartition(result.get().name, row.partition)
        for result in admin.describe_topics(names).values()
        for row in sorted(result.get().partitions)
        if broker_id is None or broker_id in row.replicas
    ]
