"""IncrementalAlterConfigs v0-v1 (KIP-339): changes single overrides.

They are those of topics, brokers, consumer groups, subscriptions to metrics of clients, and
loggers.

Behaviour
- SET and DELETE work on any key; APPEND and SUBTRACT on lists, beginning with the key's default
  where it has no override. What is appended and there already, or subtracted and not there, is
  no error.
- validate_only checks and changes nothing. Resources succeed and fail singly; a resource named
  twice fails in both places. An unknown operation is INVALID_REQUEST.
- A logger's level is SET, or DELETEd so that it follows the loggers above it; the root logger's
  cannot be deleted (42).
Checks: see `broker/config_resource.py`.
Versions: v1 flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from tidelog.broker.broker_loggers import ROOT, LevelChange
from tidelog.broker.config_resource import ConfigChange, alter, invalid_request
from tidelog.broker.context import RequestContext
from tidelog.config.definition import ConfigError, ConfigTable, ConfigType, to_text
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    rows = await alter(
        context,
        request.resources,
        increment,
        AlterConfigsResourceResponse,
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(responses=rows)


def increment(resource: AlterConfigsResource) -> ConfigChange:
    def edit(before: Mapping[str, str], table: ConfigTable) -> dict[str, str]:
        texts = dict(before)
        for config in resource.configs:
            apply_operation(texts, config, table)
        return texts

    return ConfigChange(
        resource.resource_type,
        resource.resource_name,
        [config.name for config in resource.configs],
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != Operation.DELETE
        ],
        edit,
        lambda: [level_of(config) for config in resource.configs],
    )


def level_of(config: AlterableConfig) -> LevelChange:
    if config.config_operation == Operation.SET:
        return LevelChange(config.name, config.value)
    if config.config_operation != Operation.DELETE:
        raise invalid_request(
            f"Operation {config.config_operation} is not allowed for the level of a logger"
        )
    if config.name == ROOT:
        raise invalid_request("Removing the log level of the root logger is not allowed")
    return LevelChange(config.name, None)


def apply_operation(texts: dict[str, str], config: AlterableConfig, table: ConfigTable) -> None:
    operation, name = config.config_operation, config.name
    if operation == Operation.DELETE:
        texts.pop(name, None)
        return
    if operation not in tuple(Operation):
        raise invalid_request(f"Unknown operation type {operation}")
    assert config.value is not None, name
    if operation == Operation.SET:
        texts[name] = config.value
        return
    key = table.must_get(name)
    if key.type is not ConfigType.LIST:
        verb = "append" if operation == Operation.APPEND else "subtract"
        raise ConfigError(f"Config value {verb} is not allowed for config key: {name}")
    items = split_items(texts.get(name, to_text(key.default) or ""))
    given = split_items(config.value)
    if operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    texts[name] = ",".join(items)


def split_items(text: str) -> list[str]:
    return text.split(",") if text else []
