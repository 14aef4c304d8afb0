"""tidelog's own admin client against a broker: `Admin`, and so `AsyncAdmin` below it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator

import pytest

from tests.support.admin_stories import STORIES, AdminStage
from tests.support.broker_process import unlike_apache_kafka
from tidelog.client import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    Admin,
    AsyncAdmin,
    ResourceType,
)
from tidelog.client.errors import BrokerRefused, UnsupportedByBroker
from tidelog.errors import ErrorCode


@pytest.fixture
def stage(bootstrap: str) -> Iterator[AdminStage]:
    with Admin({"bootstrap.servers": bootstrap}, client_id="admin-test") as admin:
        yield AdminStage(admin, bootstrap)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_administrators_story(stage: AdminStage, story: Callable[[AdminStage], None]) -> None:
    story(stage)


def test_asyncio_has_the_same_calls(bootstrap: str) -> None:
    async def story() -> None:
        async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
            first, second = await asyncio.gather(admin.describe_cluster(), admin.list_topics())
            assert first.nodes
            assert isinstance(second, list)

    asyncio.run(story())


def test_the_blocking_calls_are_those_of_asyncio() -> None:
    def calls(kind: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(call)
            for name, call in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    inner = {"once", "each", "broker_ids", "coordinator_of", "coordinator_version"}
    asynchronous = {
        name: signature
        for name, signature in calls(AsyncAdmin).items()
        if name not in inner and not name.startswith("of_")
    }
    assert calls(Admin) == asynchronous


@unlike_apache_kafka
def test_what_the_broker_does_not_serve_is_refused_clearly(stage: AdminStage) -> None:
    admin = stage.admin
    binding = AclBinding(ResourceType.TOPIC, "t", "User:u", AclOperation.READ)
    refused = admin.create_acls([binding])[binding].error
    assert refused is not None
    assert refused.code == ErrorCode.SECURITY_DISABLED
    with pytest.raises(BrokerRefused, match="SECURITY_DISABLED"):
        admin.describe_acls()
    everything = AclBindingFilter()
    assert admin.delete_acls([everything])[everything].error is not None
    for call in (admin.create_delegation_token, admin.describe_delegation_token):
        with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
            call()
    for ask in (admin.renew_delegation_token, admin.expire_delegation_token):
        with pytest.raises(BrokerRefused, match="DELEGATION_TOKEN"):
            ask(b"hmac")
    with pytest.raises(UnsupportedByBroker, match="DESCRIBE_QUORUM"):
        admin.describe_quorum()
