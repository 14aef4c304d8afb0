"""OffsetDelete v0: forget offsets of a group.

Behaviour
- In a group without members any offset may go. A classic group goes with its last one, at once, or
  if it has none (Kafka 3.9; 4.x keeps it until offsets are expired next). A consumer group of
  KIP-848 stays until then.
- In a group of consumers with members only offsets of topics that no member is subscribed to may go
  (else 86); groups of other protocols must be empty (68).
- An offset that waits for its transaction goes as well. One that is not there is no error. A topic
  without partitions is left out of the answer.
Checks, in order: DELETE on the group (30), READ on the topic (29), topic and partition exist (3),
group id (24), coordinator (14, 16), group known
(69), group empty or a consumer group (68), not subscribed (86).
Unlike Kafka
- More than `OFFSETS_PER_STEP` offsets are deleted in steps, and other requests are served between
  two of them. Where the group or its coordinator has changed meanwhile (68, 16), that is the answer
  for all, and the offsets deleted so far stay deleted. The client may ask again for all of them:
  one that is gone is no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.broker.authorized_operations import DELETE, GROUP, READ, TOPIC
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

OFFSETS_PER_STEP: Final = 50


def handle(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Pending[EncodedAnswer]:
    if not context.may(DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = context.broker.topics.topics
    denied = {topic.name for topic in request.topics if not context.may(READ, TOPIC, topic.name)}
    wanted = [
        (topic.name, row.partition_index) for topic in request.topics for row in topic.partitions
    ]
    known = [
        (name, index)
        for name, index in wanted
        if name not in denied and name in topics and 0 <= index < len(topics[name].partitions)
    ]
    outcomes = {
        (name, index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name, index in wanted
        if name in denied
    }
    refused: list[ErrorCode] = []

    def delete_all() -> Iterator[None]:
        for first in range(0, len(known) or 1, OFFSETS_PER_STEP):
            some = known[first : first + OFFSETS_PER_STEP]
            try:
                outcomes.update(context.broker.groups.delete_offsets(request.group_id, some))
            except KafkaError as error:
                if not first or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    refused.append(error.code)
                    return
                # It went with its last offset, so that the others are not there.
                outcomes.update(dict.fromkeys(known[first:], ErrorCode.NONE))
                return
            yield

    def answer() -> OffsetDeleteResponse:
        if refused:
            return OffsetDeleteResponse(error_code=refused[0])
        return _response(request, outcomes)

    return answer_in_slices(context, delete_all(), answer)


def _response(
    request: OffsetDeleteRequest, outcomes: Mapping[tuple[str, int], ErrorCode]
) -> OffsetDeleteResponse:
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
            if topic.partitions
        ]
    )
