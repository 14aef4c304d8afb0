"""DeleteRecords v0-v2: move the log start offset of partitions forward.

Behaviour
- Offset -1 means the high watermark. An offset above it is OFFSET_OUT_OF_RANGE; one below the
  log start changes nothing and answers the present log start.
- Without DELETE on the topic its partitions are TOPIC_AUTHORIZATION_FAILED, whether they exist or
  not. Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, others of internal topics
  INVALID_TOPIC_EXCEPTION.
- Of a partition named twice the last offset counts, and it is answered once. A topic without
  partitions is not in the answer.
- Topics without the clean-up policy `delete` are refused with POLICY_VIOLATION.
- A consumer's fetch that waits below the new log start is not woken, as in Kafka. It hears
  OFFSET_OUT_OF_RANGE when its time is over, or when min_bytes have arrived.
- The answer waits until every replica that lives has moved its log start, up to timeout_ms, then
  REQUEST_TIMED_OUT. Its low watermark is the lowest log start of them (-1 with an error).
- At most LINES_MAX partitions of a request are logged, because logging thousands takes long.
Unlike Kafka, which answers in the order of a hash map, the order is the request's.
Versions: v2 flexible.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, NamedTuple

from tidelog.broker.authorized_operations import DELETE, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.broker.requester import asked_by
from tidelog.controller.topic_names import is_internal
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.replication.delayed_answer import DelayedAnswer
from tidelog.replication.partition import Partition

logger = logging.getLogger(__name__)

UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


LINES_MAX: Final = 100


class Deletion(NamedTuple):
    partition: Partition
    from_offset: int
    to_offset: int


def handle(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for row in topic.partitions:
            wanted.setdefault(topic.name, {})[row.partition_index] = row
    pending: Pending[DeleteRecordsResponse] = Pending()
    delayed = DelayedAnswer(context.broker.timer, lambda: pending.complete(response))
    deletions: list[Deletion] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete(context, name, row, delayed, deletions) for row in rows.values()
                ],
            )
            for name, rows in wanted.items()
        ]
    )
    _log(context, deletions)
    if not delayed.is_waiting:
        return response
    delayed.park(request.timeout_ms)
    return pending


def _delete(
    context: RequestContext,
    topic: str,
    row: DeleteRecordsPartition,
    delayed: DelayedAnswer,
    deletions: list[Deletion],
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=row.partition_index, low_watermark=-1)
    try:
        partition = _leader(context, topic, row.partition_index)
        start_before = partition.log.log_start_offset
        offset = partition.delete_records(row.offset)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    if offset > start_before:
        deletions.append(Deletion(partition, start_before, offset))

    def settle(code: ErrorCode) -> None:
        answer.error_code = code
        answer.low_watermark = -1 if code else partition.low_watermark()

    delayed.wait_for(partial(partition.when_low_watermark, offset), settle)
    return answer


def _log(context: RequestContext, deletions: list[Deletion]) -> None:
    for partition, from_offset, to_offset in deletions[:LINES_MAX]:
        logger.info(
            "records deleted",
            extra={
                "event": "records-deleted",
                "partition": str(partition.topic_partition),
                "from_offset": from_offset,
                "to_offset": to_offset,
                **asked_by(context),
            },
        )
    if len(deletions) > LINES_MAX:
        logger.info("records deleted in %d more partitions", len(deletions) - LINES_MAX)


def _leader(context: RequestContext, topic: str, index: int) -> Partition:
    if not context.may(DELETE, TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replicas = context.broker.replicas
    is_known = replicas.get(topic, index) is not None
    if not is_known and replicas.absent_error(topic, index) is UNKNOWN_TOPIC_OR_PARTITION:
        raise KafkaError(UNKNOWN_TOPIC_OR_PARTITION)
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return replicas.leader(topic, index)
