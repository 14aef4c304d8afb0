"""ConsumerGroupHeartbeat v0-v1: be a member of a consumer group (KIP-848).

Behaviour
- Member epoch 0 joins; the answer has the member's epoch and, whenever it changes or the request is
  a full one, its partitions. The broker assigns, by what most members ask for among
  group.consumer.assignors, else by the first of them.
- A member that must give up partitions keeps its epoch until a heartbeat lists, as what it owns,
  none of them any more; it has its rebalance timeout for that. Null fields say nothing new.
- Epoch -1 leaves. -2 is a static member's that will be back: its partitions wait for it, for
  group.consumer.session.timeout.ms; whoever joins with its instance id then takes them over.
- A pattern (v1) is looked at in the background; its topics come with a later heartbeat. The empty
  pattern is none. It stands for topics that the member may DESCRIBE.
- A classic group of consumers becomes a consumer group with its first such member, and a classic
  one again with the last, as far as group.consumer.migration.policy allows.
Checks, in order: protocol enabled (35), READ on the group (30), DESCRIBE on all topics it names
(29, as in Kafka 4), coordinator (14, 16), request (42), assignor (112), group
(69), group.consumer.max.size (81), instance id held (111) or known (25, 82), member (25), epoch
(110), pattern (128).
Versions: v1 pattern, and the client must make its own member id (KIP-1082).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE, GROUP, READ, TOPIC
from tidelog.broker.context import RequestContext
from tidelog.coordinator.group.consumer.consumer_group_membership import Sender
from tidelog.coordinator.group.results import ConsumerGroupHeartbeatResult
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

FIRST_VERSION_WITH_CLIENTS_MEMBER_ID: Final = 1


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Pending[ConsumerGroupHeartbeatResponse]:
    denied = _denied(context, request)
    if denied is not None:
        return ConsumerGroupHeartbeatResponse(error_code=denied)
    sender = Sender(
        makes_member_id=context.api_version >= FIRST_VERSION_WITH_CLIENTS_MEMBER_ID,
        client_id=context.client_id or "",
        client_host=f"/{context.session.client_host}",
        may_describe=partial(context.may_quietly, DESCRIBE, TOPIC),
    )
    result = context.broker.groups.consumer_group_heartbeat(request, sender)
    return result.map(_response) if isinstance(result, Pending) else _response(result)


def _denied(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ErrorCode | None:
    if not context.broker.groups.settings.consumer.is_enabled:
        return None  # which is told first
    if not context.may(READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = request.subscribed_topic_names or ()
    if not all(context.may(DESCRIBE, TOPIC, name) for name in names):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


def _response(result: ConsumerGroupHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
    )
    if result.assignment is not None:
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in result.assignment.items()
            ]
        )
    return response
