"""ListConfigResources: what has a configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.broker.config_resource import ResourceType
from tidelog.broker.handlers import list_config_resources
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


async def ask(stage: HandlerStage, version: int, *types: int) -> ListConfigResourcesResponse:
    request = ListConfigResourcesRequest(resource_types=list(types))
    answer: Any = list_config_resources.handle(stage.context(version), request)
    if isinstance(answer, Pending):
        answer = await asyncio.wait_for(answer, 60)
    if isinstance(answer, EncodedAnswer):
        text = memoryview(answer.encode(version))
        return ListConfigResourcesResponse.decode(text, 0, version)
    assert isinstance(answer, ListConfigResourcesResponse)
    return answer


def rows(answer: ListConfigResourcesResponse) -> set[tuple[int, str]]:
    assert answer.error_code == 0
    return {(row.resource_type, row.resource_name) for row in answer.config_resources}


@in_loop
async def test_all_types_are_listed_if_none_is_named(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders")
        assert rows(await ask(stage, 1)) == {
            (ResourceType.TOPIC, "orders"),
            (ResourceType.BROKER, "0"),
            (ResourceType.BROKER_LOGGER, "0"),
        }
        assert rows(await ask(stage, 1, ResourceType.TOPIC)) == {(ResourceType.TOPIC, "orders")}


@in_loop
async def test_the_old_version_lists_client_metrics_alone(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("orders")
        assert rows(await ask(stage, 0)) == set()
        config = stage.broker.dynamic_config
        await config.alter_subscription("all", lambda before: {"metrics": "*"})
        assert rows(await ask(stage, 0)) == {(ResourceType.CLIENT_METRICS, "all")}
        assert rows(await ask(stage, 1, 16)) == {(ResourceType.CLIENT_METRICS, "all")}


@in_loop
async def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        answer = await ask(stage, 1, ResourceType.TOPIC, 3)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
