"""DeleteRecords v0-v2: move the log start offset of partitions forward.

Behaviour
- Offset -1 means the high watermark. An offset above it is OFFSET_OUT_OF_RANGE; one below the
  log start changes nothing and answers the present log start.
- Internal topics are INVALID_TOPIC_EXCEPTION.
- Topics that are compacted and not deleted by retention are refused with POLICY_VIOLATION.
- The answer's low watermark is the new log start offset (-1 with an error).
Versions: v2 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.controller.topic_names import is_internal
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(context, topic.name, row) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    context: RequestContext, topic: str, row: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _move_log_start(context, topic, row)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=row.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=row.partition_index, low_watermark=low_watermark
    )


def _move_log_start(context: RequestContext, topic: str, row: DeleteRecordsPartition) -> int:
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = context.broker.replicas.leader(topic, row.partition_index).log
    if log.config.compact and not log.config.delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if row.offset == HIGH_WATERMARK else row.offset
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.maybe_increment_log_start_offset(offset)
    return log.log_start_offset
