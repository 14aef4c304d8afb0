"""WriteTxnMarkers v0-v2: end a transaction in partitions that this broker leads.

Behaviour
- Sent by transaction coordinators of other brokers, and by tools to end a transaction that hangs.
- Each partition has its own error; a marker is answered when it is in the log (and flushed, where
  flush.messages says so). A producer named twice is answered twice.
- A marker for __consumer_offsets commits or drops the offsets that wait for it.
Checks, in order: ALTER or CLUSTER_ACTION on the cluster (31), partition hosted here (3, 6), its
group coordinator is ready (6), producer epoch (47), coordinator epoch (52).
Versions: v1 flexible, v2 transaction_version: from version 2 on the marker's epoch must be newer
than that of the records before it (47), or a late one could end the next transaction. The epoch
of the last marker is accepted again.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.authorized_operations import ALTER, CLUSTER_ACTION
from tidelog.broker.context import RequestContext
from tidelog.coordinator.txn.transaction import BUMPS_EPOCH
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending, all_of
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.types import TopicPartition

# A transaction coordinator expects to hear only of the partition, not of its coordinator.
_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    if not context.may_on_cluster_quietly(ALTER) and not context.may_on_cluster(CLUSTER_ACTION):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _Writing(context).write(request)


def _refused(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


class _Writing:
    """One request, and those of its markers that are still on their way to the disk."""

    def __init__(self, context: RequestContext) -> None:
        self._broker = context.broker
        self._waiting: list[Pending[None]] = []

    def write(
        self, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
        response = WriteTxnMarkersResponse(markers=[self._marker(m) for m in request.markers])
        if not self._waiting:
            return response
        return all_of(self._waiting).map(lambda _: response)

    def _marker(self, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        return WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        self._partition(marker, TopicPartition(topic.name, index))
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )

    def _partition(
        self, marker: WritableTxnMarker, place: TopicPartition
    ) -> WritableTxnMarkerPartitionResult:
        result = WritableTxnMarkerPartitionResult(partition_index=place.partition)
        try:
            if marker.transaction_version >= BUMPS_EPOCH:
                self._require_newer_epoch(marker, place)
            written = self._broker.transactions.markers.append(
                place,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                committed=marker.transaction_result,
            )
        except KafkaError as error:
            not_ready = error.code in _NOT_READY
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if not_ready else error.code
            return result
        if written is not None:

            def finished(code: ErrorCode) -> None:
                result.error_code = code

            self._waiting.append(written.map(finished))
        return result

    def _require_newer_epoch(self, marker: WritableTxnMarker, place: TopicPartition) -> None:
        producers = self._broker.replicas.leader(*place).log.producers
        if not producers.has_open_transaction(marker.producer_id):
            return
        if marker.producer_epoch <= producers.producers[marker.producer_id].producer_epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
