"""AlterConfigs v0-v2: replaces all overrides of a topic, a broker, a consumer group or a
subscription to metrics of clients.

Behaviour
- What is not named goes back to its default. validate_only checks and changes nothing.
- Resources succeed and fail singly; a resource named twice fails in both places.
Checks: see `broker/config_resource.py`.
Versions: v1 like v0 (KIP-219, but there are no quotas), v2 flexible.
Loggers cannot be altered so (42).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.config_resource import ConfigChange, alter
from tidelog.broker.context import RequestContext
from tidelog.config.definition import ConfigTable
from tidelog.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    rows = await alter(
        context,
        request.resources,
        replacement,
        AlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
    return AlterConfigsResponse(responses=rows)


def replacement(resource: AlterConfigsResource) -> ConfigChange:
    def edit(before: Mapping[str, str], table: ConfigTable) -> dict[str, str]:
        return {
            config.name: config.value for config in resource.configs if config.value is not None
        }

    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [config.name for config in resource.configs],
        [config.name for config in resource.configs if config.value is None],
        edit,
    )
