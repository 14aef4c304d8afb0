"""A coordinator joins a broker by one row: here one that tidelog does not have."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tests.support.share_coordinator import SHARE_GROUP_STATE, ShareCoordinator
from tidelog.broker.log_dir_failure_handler import LogDirFailureHandler
from tidelog.coordinator.registry import Coordinators


@asynccontextmanager
async def with_third(directory: Path) -> AsyncIterator[tuple[HandlerStage, ShareCoordinator]]:
    async with handler_stage(directory) as stage:
        third = ShareCoordinator(stage.broker)
        stage.broker.coordinators = Coordinators(*stage.broker.coordinators, third)
        await stage.topic(SHARE_GROUP_STATE, 3)
        yield stage, third


@in_loop
async def test_it_serves_the_partitions_of_its_topic_that_the_broker_leads(tmp_path: Path) -> None:
    async with with_third(tmp_path) as (stage, third):
        assert third.led == [0, 1, 2]
        assert third.runtime.partition_count == 3
        assert stage.broker.coordinators.runtime_of(SHARE_GROUP_STATE) is third.runtime


@in_loop
async def test_it_resigns_with_its_topic(tmp_path: Path) -> None:
    async with with_third(tmp_path) as (stage, third):
        await stage.broker.topics.delete(SHARE_GROUP_STATE)
        assert (third.led, third.unloaded) == ([], [0, 1, 2])
        assert third.runtime.partition_count == 0


@in_loop
async def test_it_resigns_when_the_broker_stops(tmp_path: Path) -> None:
    async with with_third(tmp_path) as (stage, third):
        stage.broker.coordinators.resign()
        assert (third.led, third.unloaded) == ([], [0, 1, 2])


@in_loop
async def test_it_resigns_with_a_log_directory(tmp_path: Path) -> None:
    async with with_third(tmp_path) as (stage, third):
        broker = stage.broker
        halted: list[str] = []
        handler = LogDirFailureHandler(
            broker.logs, broker.replicas, broker.coordinators, None, halted.append
        )
        broker.logs.failures.listener = handler.handle
        path = str(broker.logs.directories[0].path)
        broker.logs.failures.report(path, "write", OSError(errno.EIO, "dead"))
        assert (third.led, third.unloaded) == ([], [0, 1, 2])


@in_loop
async def test_it_hears_of_another_configuration(tmp_path: Path) -> None:
    async with with_third(tmp_path) as (stage, third):
        stage.broker.coordinators.configure(stage.broker.config)
        assert third.configs == [stage.broker.config]


@in_loop
async def test_other_topics_have_no_coordinator(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        coordinators = stage.broker.coordinators
        assert coordinators.runtime_of("t") is None
        assert coordinators.runtime_of(SHARE_GROUP_STATE) is None
        assert coordinators.runtime_of("__consumer_offsets") is stage.broker.groups.runtime
        assert coordinators.runtime_of("__transaction_state") is stage.broker.transactions.runtime
