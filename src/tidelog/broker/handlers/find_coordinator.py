"""FindCoordinator v0-v6: which broker looks after a group or a transactional id.

Behaviour
- A group belongs to the leader of partition abs(hash(group id)) % partitions of
  __consumer_offsets, a transactional id likewise to one of __transaction_state. The topic is made
  when it is first asked for, and the answer waits for that (Kafka answers COORDINATOR_NOT_AVAILABLE
  until it is there).
- v4+ asks for many keys; each has its own error.
Checks, in order: DESCRIBE on the group (30) or transactional id (53), key type (42 for share
coordinators before v6, and for unknown types), CLUSTER_ACTION for share coordinators (31).
Versions: v1 key types and messages, v2 throttle time, v3 flexible, v4 many keys, v6 share groups.
Not done: share coordinators (COORDINATOR_NOT_AVAILABLE).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from tidelog.broker.authorized_operations import (
    CLUSTER_ACTION,
    DESCRIBE,
    TRANSACTIONAL_ID,
)
from tidelog.broker.authorized_operations import GROUP as ACL_GROUP
from tidelog.broker.context import RequestContext
from tidelog.broker.metadata_cache import Node
from tidelog.coordinator.runtime import partition_for
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.types import CONSUMER_OFFSETS, TRANSACTION_STATE

GROUP, TRANSACTION, SHARE = 0, 1, 2
TOPICS: Final = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
FIRST_VERSION_WITH_MANY_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE: Final = 6
NO_NODE: Final = Node(-1, "", -1, None)


def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    topic = TOPICS.get(request.key_type)
    if (
        topic is not None
        and context.broker.metadata.topic(topic) is None
        and any(_refusal(context, request.key_type, key) is None for key in _keys(context, request))
    ):
        return _create_then_answer(context, request, topic)
    return _answer(context, request)


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        return request.coordinator_keys
    return [request.key]


def _refusal(context: RequestContext, key_type: int, key: str) -> ErrorCode | None:
    """Why the client is not told."""
    if key_type == GROUP and not context.may(DESCRIBE, ACL_GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == TRANSACTION and not context.may(DESCRIBE, TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE:
        if not context.may_on_cluster(CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return None if key_type in TOPICS else ErrorCode.INVALID_REQUEST


async def _create_then_answer(
    context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    try:
        await context.broker.topics.auto_create(topic)
    except KafkaError as error:
        return _answer(context, request, f"{topic} cannot be made: {error.message}")
    return _answer(context, request)


def _answer(
    context: RequestContext, request: FindCoordinatorRequest, problem: str | None = None
) -> FindCoordinatorResponse:
    if context.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(context, request.key_type, key, problem)
                for key in request.coordinator_keys
            ]
        )
    found = _coordinator(context, request.key_type, request.key, problem)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(
    context: RequestContext, key_type: int, key: str, problem: str | None
) -> Coordinator:
    refusal = _refusal(context, key_type, key)
    node: Node | None = None
    if refusal is None:
        node = _leader_for(context, TOPICS[key_type], key)
        refusal = None if node is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        problem = None
    code = refusal or ErrorCode.NONE
    node = node or NO_NODE
    return Coordinator(
        key=key,
        node_id=node.broker_id,
        host=node.host,
        port=node.port,
        error_code=code,
        error_message="" if code is ErrorCode.NONE else problem or code.text,
    )


def _leader_for(context: RequestContext, topic: str, key: str) -> Node | None:
    metadata = context.broker.metadata
    image = metadata.topic(topic)
    if image is None:
        return None
    leader = image.partitions[partition_for(key, len(image.partitions))].leader
    for node in metadata.nodes(context.session.listener_name):
        if node.broker_id == leader:
            return node
    return None
