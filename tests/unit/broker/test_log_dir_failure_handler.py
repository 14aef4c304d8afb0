"""How the controller hears of lost replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.broker.log_dir_failure_handler import LogDirEvents
from tidelog.controller.metadata_store import StoreUnavailable
from tidelog.controller.znodes import LOG_DIR_EVENT, decode_log_dir_event


class FakeStore:
    """Sequence nodes, refused as often as the test says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.reporters: list[int] = []

    async def create(self, path: str, data: bytes, *, sequence: bool) -> str:
        assert (path, sequence) == (LOG_DIR_EVENT, True)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(path)
        self.reporters.append(decode_log_dir_event(data))
        return f"{path}{len(self.reporters):010}"


class Stage:
    def __init__(self, store: FakeStore) -> None:
        self.clock = FakeClock()
        self._tasks: list[asyncio.Task[None]] = []
        self.reports = LogDirEvents(cast(Any, store), 7, self._run, self.clock)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@in_loop
async def test_what_is_lost_at_once_is_one_report() -> None:
    store = FakeStore()
    stage = Stage(store)
    for _ in range(3):
        stage.reports.lost()
    await stage.settle()
    assert store.reporters == [7]
    stage.reports.lost()
    await stage.settle()
    assert store.reporters == [7, 7]


@in_loop
async def test_a_report_is_made_again_until_the_store_takes_it() -> None:
    store = FakeStore(failures=2)
    stage = Stage(store)
    stage.reports.lost()
    for _ in range(2):
        await stage.settle()
        assert store.reporters == []
        stage.clock.advance(ms=1000)
    await stage.settle()
    assert store.reporters == [7]
