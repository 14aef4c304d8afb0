"""Code for the blocking client, run over the console's own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidelog.client import AsyncAdmin
from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.tools.console.borrowed_admin import in_thread


def test_work_waits_in_a_thread_and_its_calls_run_on_the_loop() -> None:
    seen: list[threading.Thread] = []

    async def call() -> int:
        seen.append(threading.current_thread())
        return 7

    def work(admin: Admin) -> int:
        seen.append(threading.current_thread())
        return admin.thread.run(call) + 1

    async def main() -> int:
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:1") as admin:
            return await in_thread(admin, work)

    assert asyncio.run(main()) == 8
    assert seen[0] is not threading.main_thread()
    assert seen[1] is threading.main_thread()


def test_errors_of_calls_come_through_and_closing_closes_nothing() -> None:
    async def refuse() -> None:
        raise ClientError("no")

    def work(admin: Admin) -> None:
        admin.close()
        admin.thread.run(refuse)

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:1") as admin:
            with pytest.raises(ClientError, match="no"):
                await in_thread(admin, work)
            assert admin.cluster.metadata is not None

    asyncio.run(main())
