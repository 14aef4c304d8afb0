"""ListConfigResources v0-v1: what has, or can have, a configuration of its own (KIP-1142).

Behaviour
- v0 lists subscriptions to metrics of clients alone.
- v1 lists the types asked for, or all: topics, brokers and their loggers by the brokers that live,
  subscriptions, and groups that have settings of their own. A type that is not among them is
  UNSUPPORTED_VERSION.
- An answer about very many topics is made in slices.
Checks, in order: DESCRIBE_CONFIGS on the cluster (31), the types (35).
Versions: v1 types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.broker.authorized_operations import DESCRIBE_CONFIGS
from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.broker.config_resource import ResourceType
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def handle(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | Pending[EncodedAnswer]:
    if not context.may_on_cluster(DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    types = set(request.resource_types) or set(ResourceType)
    if context.api_version == 0:
        types = {ResourceType.CLIENT_METRICS}
    if not types <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response = ListConfigResourcesResponse()

    def list_all() -> Iterator[None]:
        for resource_type in sorted(types):
            for name in _names(context, resource_type):
                row = ConfigResource(resource_name=name, resource_type=resource_type)
                response.config_resources.append(row)
                yield

    return answer_in_slices(context, list_all(), lambda: response)


def _names(context: RequestContext, resource_type: int) -> Iterable[str]:
    broker = context.broker
    if resource_type == ResourceType.TOPIC:
        return tuple(broker.topics.topics)
    if resource_type == ResourceType.GROUP:
        return broker.dynamic_config.groups_with_overrides()
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [
            str(node.broker_id) for node in broker.metadata.nodes(context.session.listener_name)
        ]
    return tuple(broker.dynamic_config.subscriptions)
