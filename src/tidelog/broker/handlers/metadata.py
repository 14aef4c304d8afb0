"""Metadata v0-v13: brokers, controller, topics and who leads their partitions.

Behaviour
- No topics: v0 an empty list means all, v1+ null means all and an empty list none.
- A topic that does not exist is created where auto.create.topics.enable and (v4+) the request
  allow it, and answered as it then is. A bad name is INVALID_TOPIC_EXCEPTION, a topic that is
  not created, as __cluster_metadata never is, UNKNOWN_TOPIC_OR_PARTITION, an id
  nobody has UNKNOWN_TOPIC_ID (v12).
- A topic named twice is answered once; an id, or no name, before v12 is INVALID_REQUEST. From v12
  on names count only where no topic is asked for by id; a topic with neither is then
  UNKNOWN_SERVER_ERROR for the whole request.
- A partition whose log directory has failed has no leader: LEADER_NOT_AVAILABLE, and the replica
  is among the offline ones.
- A leader that does not live is not named: LEADER_NOT_AVAILABLE. Nor is one that lives without
  the listener the client came by: LISTENER_NOT_FOUND (v6+).
- Topics that the client may not DESCRIBE are left out where all are asked for. Those asked for by
  name are TOPIC_AUTHORIZATION_FAILED, whether they exist or not, and so are those with a known id;
  the answer has nothing else of them. To be created a topic needs CREATE on it or the cluster, else
  the same error.
- Authorised operations are the whole set while no authorizer is configured, also of topics that do
  not exist; the smallest integer when not asked for. Without DESCRIBE on the cluster those on it
  are none.
Versions: v1 controller, rack, internal flag; v2 cluster id; v4 auto-creation flag; v5 offline
replicas; v7 leader epochs; v8 authorised operations; v9 flexible; v10 topic ids; v12 look-up by
id; v13 top-level error.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from tidelog.acls import CLUSTER_NAME
from tidelog.broker.authorized_operations import (
    CLUSTER,
    CLUSTER_OPERATIONS,
    CREATE,
    DESCRIBE,
    NOT_REQUESTED,
    TOPIC,
    TOPIC_OPERATIONS,
)
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.context import RequestContext
from tidelog.broker.requester import asked_by
from tidelog.controller.topic_names import CLUSTER_METADATA, is_internal
from tidelog.controller.topics import TopicImage
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.types import NO_LEADER, ZERO_UUID

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_CREATION_FLAG: Final = 4
FIRST_VERSION_WITH_LISTENER_ERROR: Final = 6
FIRST_VERSION_BY_ID: Final = 12
LEADER_NOT_AVAILABLE: Final = ErrorCode.LEADER_NOT_AVAILABLE  # looked at once a partition


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Pending[EncodedAnswer] | Coroutine[Any, Any, MetadataResponse]:
    topics = request.topics
    if topics is None or (context.api_version == 0 and not topics):
        return _all_topics(context, request)
    if context.api_version < FIRST_VERSION_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in topics
    ):
        return _refuse(topics, ErrorCode.INVALID_REQUEST)
    if context.api_version >= FIRST_VERSION_BY_ID:
        if any(topic.topic_id != ZERO_UUID for topic in topics):
            topics = [topic for topic in topics if topic.topic_id != ZERO_UUID]
        elif any(topic.name is None for topic in topics):
            return _refuse(topics, ErrorCode.UNKNOWN_SERVER_ERROR)
    topics = request.topics = _distinct(topics)
    missing = _to_create(context, request, topics)
    if missing:
        return _create_then_answer(context, request, missing)
    return _response(context, request, _named_rows(context, request, topics, {}))


def _all_topics(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Pending[EncodedAnswer]:
    metadata, errors = context.broker.metadata, _leader_errors(context)
    rows: list[MetadataResponseTopic] = []

    def describe_all() -> Iterator[None]:
        for image in metadata.images():
            if context.may_quietly(DESCRIBE, TOPIC, image.name):
                rows.append(_row(context, metadata.as_seen(image), request, errors))
            yield

    return answer_in_slices(context, describe_all(), lambda: _response(context, request, rows))


def _distinct(topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """One of each: an answer must not be many times its request."""
    return list({(topic.name, topic.topic_id): topic for topic in topics}.values())


def _refuse(topics: list[MetadataRequestTopic], code: ErrorCode) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in topics
        ],
    )


def _to_create(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataRequestTopic]
) -> list[str]:
    if not context.broker.config.auto_create_topics_enable:
        return []
    if (
        context.api_version >= FIRST_VERSION_WITH_CREATION_FLAG
        and not request.allow_auto_topic_creation
    ):
        return []
    metadata = context.broker.metadata
    return [
        topic.name
        for topic in topics
        if topic.name is not None
        and topic.topic_id == ZERO_UUID
        and topic.name != CLUSTER_METADATA
        and metadata.topic(topic.name) is None
        and context.may_quietly(DESCRIBE, TOPIC, topic.name)
    ]


async def _create_then_answer(
    context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    may_create_all = context.may_on_cluster_quietly(CREATE)
    for name in missing:
        if not may_create_all and not context.may(CREATE, TOPIC, name):
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        if context.charge is not None:
            context.charge.note_mutations(context.broker.config.num_partitions)
        try:
            made = await context.broker.topics.auto_create(name)
        except KafkaError as error:
            refused[name] = error.code
            continue
        logger.info(
            "topic created because a client asked about it",
            extra={
                "event": "topic-auto-created",
                "topic": name,
                "partitions": len(made.partitions),
                **asked_by(context),
            },
        )
    return _response(context, request, _named_rows(context, request, request.topics or [], refused))


def _leader_errors(context: RequestContext) -> dict[int, int]:
    """By broker, the error of the partitions that it leads; see `MetadataCache`."""
    without_listener = LEADER_NOT_AVAILABLE
    if context.api_version >= FIRST_VERSION_WITH_LISTENER_ERROR:
        without_listener = ErrorCode.LISTENER_NOT_FOUND
    return context.broker.metadata.leader_errors(context.session.listener_name, without_listener)


def _named_rows(
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataRequestTopic],
    refused: dict[str, ErrorCode],
) -> list[MetadataResponseTopic]:
    errors = _leader_errors(context)
    return [_named(context, request, topic, refused, errors) for topic in topics]


def _named(
    context: RequestContext,
    request: MetadataRequest,
    topic: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
    errors: dict[int, int],
) -> MetadataResponseTopic:
    if topic.name is None or topic.topic_id != ZERO_UUID:
        image = context.broker.topics.by_id.get(topic.topic_id)
        if image is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id
            )
        if not context.may(DESCRIBE, TOPIC, image.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic.topic_id
            )
        return _row(context, context.broker.metadata.as_seen(image), request, errors)
    if not context.may(DESCRIBE, TOPIC, topic.name):
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=topic.name
        )
    image = context.broker.metadata.topic(topic.name)
    if image is None:
        code = refused.get(topic.name)
        if code is None:
            code = context.broker.topics.missing_topic_error(topic.name)
        return MetadataResponseTopic(
            error_code=code,
            name=topic.name,
            is_internal=is_internal(topic.name),
            topic_authorized_operations=NOT_REQUESTED
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else _topic_operations(context, request, topic.name),
        )
    return _row(context, image, request, errors)


def _topic_operations(context: RequestContext, request: MetadataRequest, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_REQUESTED
    return context.authorized_operations(TOPIC_OPERATIONS, TOPIC, name)


def _row(
    context: RequestContext, image: TopicImage, request: MetadataRequest, errors: dict[int, int]
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=(code := errors.get(partition.leader, LEADER_NOT_AVAILABLE)),
                partition_index=index,
                leader_id=NO_LEADER if code else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=list(partition.offline_replicas),
            )
            for index, partition in enumerate(image.partitions)
        ],
        topic_authorized_operations=_topic_operations(context, request, image.name),
    )


def _cluster_operations(context: RequestContext, request: MetadataRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return NOT_REQUESTED
    if not context.may_on_cluster(DESCRIBE):
        return 0
    return context.authorized_operations(CLUSTER_OPERATIONS, CLUSTER, CLUSTER_NAME)


def _response(
    context: RequestContext, request: MetadataRequest, rows: list[MetadataResponseTopic]
) -> MetadataResponse:
    metadata = context.broker.metadata
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in metadata.nodes(context.session.listener_name)
        ],
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=rows,
        cluster_authorized_operations=_cluster_operations(context, request),
    )
