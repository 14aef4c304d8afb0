"""DeleteTopics v0-v6: remove topics with all their records.

Behaviour
- Topics are named (v0-v5) or given by name or id (v6). Each is answered on its own.
- The answer comes when the deletion is durable; files go later, after file.delete.delay.ms. After
  timeout_ms the answer is REQUEST_TIMED_OUT and the deletion goes on.
- Internal topics may be deleted, as in Kafka.
Checks, in order: this is the active controller (41), delete.topic.enable (73 from v3, 42 before),
name and id both or neither given, given twice, and for a name that belongs to an id given as well
(42); DELETE on a topic that is named (29), topic exists (3 by name, 100 by id), DELETE on one given
by id (29; its name is told to those who may DESCRIBE it).
A client over its controller_mutation_rate gets 89 from v5 on; before, its topics are deleted, and
it waits then (KIP-599).
Versions: v1 throttle time, v4 flexible, v5 error messages, v6 topic ids.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, NamedTuple

from tidelog.broker.authorized_operations import DELETE, DESCRIBE, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.broker.requester import asked_by
from tidelog.controller.topics import TopicImage, within
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.types import ZERO_UUID, Uuid

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_IDS: Final = 6
FIRST_VERSION_WITH_DISABLED_CODE: Final = 3
FIRST_STRICT_VERSION: Final = 5


class Deletion(NamedTuple):
    image: TopicImage
    by_id: bool  # rather than by name


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    states = _states(context, request)
    if not context.broker.may_administer_topics:
        moved = KafkaError(ErrorCode.NOT_CONTROLLER)
        return DeleteTopicsResponse(responses=[_failed(s.name, s.topic_id, moved) for s in states])
    if not context.broker.config.delete_topic_enable:
        disabled = KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED
            if context.api_version >= FIRST_VERSION_WITH_DISABLED_CODE
            else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled.",
        )
        return DeleteTopicsResponse(
            responses=[_failed(s.name, s.topic_id, disabled) for s in states]
        )
    rows: list[DeletableTopicResult] = []
    found = _to_delete(context, states, rows)
    rows += await context.broker.slices.gather(_delete(context, each, request) for each in found)
    return DeleteTopicsResponse(responses=rows)


def _states(context: RequestContext, request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _to_delete(
    context: RequestContext, states: list[DeleteTopicState], rows: list[DeletableTopicResult]
) -> list[Deletion]:
    """The topics to delete; what is wrong with the others goes into the rows."""
    topics = context.broker.topics
    times = Counter((state.name, state.topic_id) for state in states)
    both_ways = {
        image.name
        for _, topic_id in times
        if (image := topics.by_id.get(topic_id)) and times[image.name, ZERO_UUID] == 1
    }
    found: list[Deletion] = []
    for (name, topic_id), count in times.items():
        try:
            named_id, shown = topic_id, name
            _require_one_of_both(name, topic_id)
            if count > 1:
                what = "id" if name is None else "name"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            if name is not None and not context.may(DELETE, TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            image = _image(context, name, topic_id)
            if name is None and not context.may(DELETE, TOPIC, image.name):
                shown = image.name if context.may_quietly(DESCRIBE, TOPIC, image.name) else None
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if image.name not in both_ways:
                found.append(Deletion(image, by_id=name is None))
            elif name is not None:
                named_id = image.topic_id
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "The topic name maps to an id that is in the request as well.",
                )
        except KafkaError as error:
            rows.append(_failed(shown, named_id, error))
    return found


def _image(context: RequestContext, name: str | None, topic_id: Uuid) -> TopicImage:
    if name is not None:
        return context.broker.topics.must_get(name)
    image = context.broker.topics.by_id.get(topic_id)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return image


def _require_one_of_both(name: str | None, topic_id: Uuid) -> None:
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )


async def _delete(
    context: RequestContext, deletion: Deletion, request: DeleteTopicsRequest
) -> DeletableTopicResult:
    """The topic may be another one by the time it is its turn: then only its name counts."""
    name, topic_id = deletion.image.name, deletion.image.topic_id
    try:
        context.mutate(len(deletion.image.partitions), FIRST_STRICT_VERSION)
        work = context.broker.topics.delete(name, topic_id if deletion.by_id else None)
        deleted = await within(request.timeout_ms, work)
    except KafkaError as error:
        return _failed(name, topic_id, error)
    logger.info(
        "topic deleted",
        extra={
            "event": "topic-deleted",
            "topic": name,
            "partitions": len(deletion.image.partitions),
            **asked_by(context),
        },
    )
    return DeletableTopicResult(name=name, topic_id=deleted.topic_id)


def _failed(name: str | None, topic_id: Uuid, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )
