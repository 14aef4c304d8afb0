"""DescribeTopicPartitions v0 (KIP-966): partitions of topics, page by page.

Behaviour
- Topics are answered in the order of their names; no topics means all. A page ends after
  response_partition_limit partitions (bounded by max.request.partition.size.limit), and the
  cursor names where the next one begins.
- Unknown topics are UNKNOWN_TOPIC_OR_PARTITION, bad names INVALID_TOPIC_EXCEPTION; a cursor
  with a negative partition index, or on a topic that is not among those asked for, is
  INVALID_REQUEST for all of them. A limit below 1 means 1.
- Topics that the client may not DESCRIBE are left out where all are asked for. Those named come
  last, with TOPIC_AUTHORIZATION_FAILED, on every page that is to begin before them.
- A leader that does not live, or has no such listener as the client came by, is not named. That
  is no error, unlike in Metadata.
- Eligible leader replicas, and those that were, are read from the metadata store where replicas
  are not in sync: the controller does not tell brokers of them. Out of its reach, none are shown.
Unlike Kafka, which answers UNKNOWN_SERVER_ERROR for all topics, an empty name is a bad name.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from tidelog.broker.authorized_operations import (
    DESCRIBE,
    NOT_REQUESTED,
    TOPIC,
    TOPIC_OPERATIONS,
)
from tidelog.broker.context import RequestContext
from tidelog.controller import znodes
from tidelog.controller.metadata_store import StoreError
from tidelog.controller.topic_names import is_internal
from tidelog.controller.topics import PartitionImage, TopicImage
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

STORE_TIMEOUT_S: Final = 2.0


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    response = _answer(context, request)
    if context.broker.cluster is not None:
        await _show_eligible(context.broker, response)
    return response


def _answer(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    names = sorted({topic.name for topic in request.topics}) or sorted(
        image.name for image in context.broker.metadata.images()
    )
    if cursor is not None and (
        cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                )
                for topic in request.topics
            ]
        )
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    limit = context.broker.config["max.request.partition.size.limit"]
    room = max(min(request.response_partition_limit, limit), 1)
    if not request.topics:
        names = [name for name in names if context.may_quietly(DESCRIBE, TOPIC, name)]
        return _page(context, names, first, room)
    seen = {name for name in names if context.may(DESCRIBE, TOPIC, name)}
    response = _page(context, [name for name in names if name in seen], first, room)
    response.topics += [
        DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=name,
            topic_authorized_operations=NOT_REQUESTED,
        )
        for name in names
        if name not in seen
    ]
    return response


def _page(
    context: RequestContext, names: list[str], first: int, room: int
) -> DescribeTopicPartitionsResponse:
    nodes = context.broker.metadata.nodes(context.session.listener_name)
    reachable = {node.broker_id for node in nodes}
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name in names:
        if room <= 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        image = context.broker.metadata.topic(name)
        if image is None:
            rows.append(_missing(context, name))
            first = 0
            continue
        page = list(enumerate(image.partitions))[first : first + room]
        rows.append(_row(context, image, page, reachable))
        room -= len(page)
        if page and page[-1][0] + 1 < len(image.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=page[-1][0] + 1)
            break
        first = 0
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=next_cursor)


def _missing(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=context.broker.topics.missing_topic_error(name),
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=context.authorized_operations(TOPIC_OPERATIONS, TOPIC, name),
    )


def _row(
    context: RequestContext,
    image: TopicImage,
    page: list[tuple[int, PartitionImage]],
    reachable: set[int],
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=partition.leader if partition.leader in reachable else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(partition.offline_replicas),
            )
            for index, partition in page
        ],
        topic_authorized_operations=context.authorized_operations(
            TOPIC_OPERATIONS, TOPIC, image.name
        ),
    )


async def _show_eligible(broker: Broker, response: DescribeTopicPartitionsResponse) -> None:
    # Where all replicas are in sync nobody else is eligible.
    wanted = [
        (topic.name, row)
        for topic in response.topics
        for row in topic.partitions
        if topic.name is not None and len(row.isr_nodes) < len(row.replica_nodes)
    ]
    with contextlib.suppress(StoreError, TimeoutError, ValueError):
        async with asyncio.timeout(STORE_TIMEOUT_S):
            for name, row in wanted:
                data, _ = await broker.store.get(znodes.state_path(name, row.partition_index))
                state = znodes.decode_state(data)
                row.eligible_leader_replicas = list(state.elr)
                row.last_known_elr = list(state.last_known_elr)
