"""That a test which leaves a client open fails."""

from __future__ import annotations

import pytest

from tests.support.open_clients import open_clusters
from tests.support.scripted_broker import ScriptedCluster, run
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError


def test_a_client_is_open_from_its_first_use_until_it_is_closed() -> None:
    async def story() -> None:
        async with ScriptedCluster(1, {"t": 1}) as cluster:
            before = open_clusters()
            admin = AsyncAdmin(bootstrap_servers=cluster.bootstrap)
            assert open_clusters() == before
            await admin.list_topics()
            assert len(open_clusters() - before) == 1
            await admin.close()
            assert open_clusters() == before

    run(story)


def test_a_blocking_client_that_failed_is_open_until_it_is_closed() -> None:
    before = open_clusters()
    with Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=1) as admin:
        with pytest.raises(ClientError):
            admin.list_topics()
        assert len(open_clusters() - before) == 1
    assert open_clusters() == before
