"""Harmless requests for the transaction APIs, for `request_samples`: of a transactional id that
nobody has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

MISSING_ID = "no-such-transactional-id"


def txn_samples(topic: str) -> Iterator[tuple[Any, Callable[[int], dict[str, Any]]]]:
    producer = {"transactional_id": MISSING_ID, "producer_id": 7, "producer_epoch": 0}
    described = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    yield AddPartitionsToTxnRequest, lambda version: _add_partitions(topic, version)
    yield AddOffsetsToTxnRequest, lambda version: producer | {"group_id": "no-such-group"}
    yield EndTxnRequest, lambda version: producer | {"committed": True}
    yield TxnOffsetCommitRequest, lambda version: producer | _offsets(topic, version)
    yield WriteTxnMarkersRequest, lambda version: _markers()
    yield DescribeProducersRequest, lambda version: {"topics": [described]}
    yield DescribeTransactionsRequest, lambda version: {"transactional_ids": [MISSING_ID]}
    yield ListTransactionsRequest, lambda version: _list(version)


def _add_partitions(topic: str, version: int) -> dict[str, Any]:
    named = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
    if version < 4:
        return {
            "v3_and_below_transactional_id": MISSING_ID,
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [named],
        }
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=MISSING_ID,
        producer_id=7,
        producer_epoch=0,
        verify_only=True,
        topics=[named],
    )
    return {"transactions": [transaction]}


def _offsets(topic: str, version: int) -> dict[str, Any]:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    if version >= 2:
        row["committed_leader_epoch"] = -1
    row_class = kind.TxnOffsetCommitRequestPartition
    fields: dict[str, Any] = {
        "group_id": "no-such-group",
        "topics": [kind(name=topic, partitions=[row_class(**row)])],
    }
    if version >= 3:
        fields |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return fields


def _markers() -> dict[str, Any]:
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    nowhere = kind.WritableTxnMarkerTopic(name="no-such-topic", partition_indexes=[0])
    marker = kind(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[nowhere],
        coordinator_epoch=0,
    )
    return {"markers": [marker]}


def _list(version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"state_filters": ["Ongoing"], "producer_id_filters": []}
    return fields | ({"duration_filter": -1} if version >= 1 else {})
