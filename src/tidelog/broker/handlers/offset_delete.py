"""OffsetDelete v0: forget offsets of a group.

Behaviour
- In a group without members any offset may go. A classic group goes with its last one, at once, or
  if it has none (Kafka 3.9; 4.x keeps it until offsets are expired next). A consumer group of
  KIP-848 stays until then.
- In a group of consumers with members only offsets of topics that no member is subscribed to may go
  (else 86); groups of other protocols must be empty (68).
- An offset that waits for its transaction goes as well. One that is not there is no error.
Checks, in order: topic and partition exist (3), group id (24), coordinator (14, 16), group known
(69), group empty or a consumer group (68), not subscribed (86).
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    topics = context.broker.topics.topics
    wanted = [
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    ]
    known = [
        (name, index)
        for name, index in wanted
        if name in topics and 0 <= index < len(topics[name].partitions)
    ]
    try:
        outcomes = context.broker.groups.delete_offsets(request.group_id, known)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index,
                        error_code=outcomes.get((topic.name, row.partition_index), missing),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
