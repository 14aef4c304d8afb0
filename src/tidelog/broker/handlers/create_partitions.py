"""CreatePartitions v0-v3: add partitions to topics.

Behaviour
- `count` is the new total. Without assignments the new partitions are placed by the rules of
  topic creation, going on from the topic's first partition.
- The answer comes when the change is durable and the partitions take records; after timeout_ms it
  is REQUEST_TIMED_OUT and the change goes on. validate_only checks and changes nothing.
Checks, in order: this is the active controller (41), topic named twice in the request (42), ALTER
on the topic (29), 10,000 new partitions a request (44), topic exists (3), count is an increase
(37), as many assignments as new partitions, known brokers, each once, as many as the topic's other
partitions have (39). In a cluster also: topic queued for deletion (17), partitions being reassigned
(60).
Versions: v1 as v0, v2 flexible, v3 as v2.
A client over its controller_mutation_rate gets 89 from v3 on; before, its partitions are added, and
it waits then (KIP-599).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from tidelog.broker.authorized_operations import ALTER, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.broker.requester import asked_by
from tidelog.controller.placement import require_valid_replicas
from tidelog.controller.topics import PARTITIONS_PER_REQUEST_MAX, increase, within
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

logger = logging.getLogger(__name__)

FIRST_STRICT_VERSION: Final = 3


async def handle(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    if not context.broker.may_administer_topics:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=ErrorCode.NOT_CONTROLLER, error_message=None
                )
                for topic in request.topics
            ]
        )
    times = Counter(topic.name for topic in request.topics)
    too_many = _wanted_partitions(context, request) > PARTITIONS_PER_REQUEST_MAX
    once = {topic.name: topic for topic in request.topics}
    rows = await context.broker.slices.gather(
        _row(context, request, topic, times[name], too_many) for name, topic in once.items()
    )
    return CreatePartitionsResponse(results=rows)


def _wanted_partitions(context: RequestContext, request: CreatePartitionsRequest) -> int:
    topics = context.broker.topics.topics
    return sum(
        max(0, topic.count - len(topics[topic.name].partitions))
        for topic in request.topics
        if topic.name in topics
    )


async def _row(
    context: RequestContext,
    request: CreatePartitionsRequest,
    topic: CreatePartitionsTopic,
    times: int,
    too_many: bool,
) -> CreatePartitionsTopicResult:
    try:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        if not context.may(ALTER, TOPIC, topic.name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed."
            )
        if too_many:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"One request may not add more than {PARTITIONS_PER_REQUEST_MAX} partitions.",
            )
        assignment = _assignment(context, topic)
        if not request.validate_only:
            context.mutate(len(assignment), FIRST_STRICT_VERSION)
            change = context.broker.topics.add_partitions(topic.name, topic.count, assignment)
            await within(request.timeout_ms, change)
            logger.info(
                "partitions added",
                extra={
                    "event": "partitions-added",
                    "topic": topic.name,
                    "partitions": topic.count,
                    **asked_by(context),
                },
            )
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return CreatePartitionsTopicResult(name=topic.name)


def _assignment(context: RequestContext, topic: CreatePartitionsTopic) -> list[list[int]]:
    topics = context.broker.topics
    image = topics.must_get(topic.name)
    additional = increase(image, topic.count)
    if topic.assignments is None:
        return topics.place_more(image, additional)
    if len(topic.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {additional} "
            f"but {len(topic.assignments)} assignments provided.",
        )
    known = {broker.id for broker in topics.brokers}
    for row in topic.assignments:
        require_valid_replicas(row.broker_ids, known, len(image.partitions[0].replicas))
    return [row.broker_ids for row in topic.assignments]
