"""CreateTopics v0-v7: make topics.

Behaviour
- Each topic is answered on its own; those that are made are made durably before the answer, and
  their partitions take records then. After timeout_ms the answer is REQUEST_TIMED_OUT and the
  creation goes on. validate_only checks and makes nothing; the id in its answer is nobody's.
- num_partitions and replication_factor -1 mean the broker's num.partitions and
  default.replication.factor; with a manual assignment both must be -1.
- Internal topics may be made by hand, but not __cluster_metadata.
- The effective configuration is in the answer from v5 on, for failed topics an empty list. A client
  that may not DESCRIBE_CONFIGS is told neither that nor the counts, but a code that says so.
Checks, in order: this is the active controller (41), named twice in the request (42),
__cluster_metadata (42), CREATE on the topic or the cluster (29), 10,000 partitions a request (44),
name (17), topic is new (36), name collides (17), configs null or bad (40), count together with an
assignment (42), assignment (39), factor (38), count (37).
Versions: v1 validate_only and messages, v2 throttle time, v4 defaults by -1, v5 flexible and
configs, v7 topic id.
A client over its controller_mutation_rate gets 89 from v6 on; before, its topics are made, and it
waits then (KIP-599).
Not done: create.topic.policy.class.name.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, NamedTuple

from tidelog.broker.authorized_operations import CREATE, DESCRIBE_CONFIGS, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.broker.requester import asked_by
from tidelog.config.definition import ConfigError
from tidelog.config.topic import validate_overrides
from tidelog.controller.placement import require_valid_assignment
from tidelog.controller.topic_names import must_not_be_reserved
from tidelog.controller.topics import PARTITIONS_PER_REQUEST_MAX, within
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.types import Uuid

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_CONFIGS: Final = 5
FIRST_STRICT_VERSION: Final = 6


class NewTopic(NamedTuple):
    """A topic that passed all checks."""

    name: str
    assignment: list[list[int]]
    configs: dict[str, str]


async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    if not context.broker.may_administer_topics:
        return CreateTopicsResponse(topics=[_not_controller(topic) for topic in request.topics])
    times = Counter(topic.name for topic in request.topics)
    once = {topic.name: topic for topic in request.topics}
    too_many = _wanted_partitions(context, request) > PARTITIONS_PER_REQUEST_MAX
    may_create_all = context.may_on_cluster_quietly(CREATE)
    denied = {name for name in once if not may_create_all and not context.may(CREATE, TOPIC, name)}
    rows = await context.broker.slices.gather(
        _row(context, request, topic, times[name], too_many, name in denied)
        for name, topic in once.items()
    )
    return CreateTopicsResponse(topics=rows)


def _not_controller(topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, error_code=ErrorCode.NOT_CONTROLLER, error_message=None
    )


def _wanted_partitions(context: RequestContext, request: CreateTopicsRequest) -> int:
    default = context.broker.config.num_partitions
    return sum(
        len(topic.assignments)
        or (default if topic.num_partitions == -1 else max(0, topic.num_partitions))
        for topic in request.topics
    )


async def _row(
    context: RequestContext,
    request: CreateTopicsRequest,
    topic: CreatableTopic,
    times: int,
    too_many: bool,
    is_denied: bool,
) -> CreatableTopicResult:
    try:
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        must_not_be_reserved(topic.name)
        if is_denied:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if too_many:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"One request may not make more than {PARTITIONS_PER_REQUEST_MAX} partitions.",
            )
        new = _checked(context, topic)
        topic_id = Uuid.random()
        if not request.validate_only:
            context.mutate(len(new.assignment), FIRST_STRICT_VERSION)
            change = context.broker.topics.create(new.name, new.assignment, new.configs)
            topic_id = (await within(request.timeout_ms, change)).topic_id
            logger.info(
                "topic created",
                extra={
                    "event": "topic-created",
                    "topic": new.name,
                    "partitions": len(new.assignment),
                    "replication_factor": len(new.assignment[0]),
                    "overrides": new.configs,
                    **asked_by(context),
                },
            )
    except KafkaError as error:
        return CreatableTopicResult(
            name=topic.name, error_code=error.code, error_message=error.message
        )
    return _made(context, new, topic_id)


def _checked(context: RequestContext, topic: CreatableTopic) -> NewTopic:
    topics = context.broker.topics
    topics.must_be_creatable(topic.name)
    try:
        validate_overrides({c.name: c.value for c in topic.configs}, context.broker.config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    configs = {c.name: c.value for c in topic.configs if c.value is not None}
    return NewTopic(topic.name, _assignment(context, topic), configs)


def _assignment(context: RequestContext, topic: CreatableTopic) -> list[list[int]]:
    topics = context.broker.topics
    if not topic.assignments:
        return topics.place(topic.num_partitions, topic.replication_factor)
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "With a manual assignment, num_partitions and replication_factor must be -1.",
        )
    return require_valid_assignment(
        [(row.partition_index, row.broker_ids) for row in topic.assignments],
        {broker.id for broker in topics.brokers},
    )


def _made(context: RequestContext, new: NewTopic, topic_id: Uuid) -> CreatableTopicResult:
    row = CreatableTopicResult(name=new.name, topic_id=topic_id, error_message=None, configs=[])
    if not context.may_quietly(DESCRIBE_CONFIGS, TOPIC, new.name):
        row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif context.api_version >= FIRST_VERSION_WITH_CONFIGS:
        row.num_partitions = len(new.assignment)
        row.replication_factor = len(new.assignment[0])
        row.configs = _config_rows(context, new.configs)
    return row


def _config_rows(context: RequestContext, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in context.broker.dynamic_config.layers.describe_topic(overrides)
    ]
