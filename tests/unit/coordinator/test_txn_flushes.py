"""Where flush.messages asks for it, each step of an end waits until the one before is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.group_stage import HeldFlusher
from tests.support.metadata import in_loop
from tests.support.txn_stage import Producer, TxnStage, txn_stage
from tidelog.errors import ErrorCode

EACH = {"log_flush_interval_messages": "1"}


@contextmanager
def held_flushes(stage: TxnStage) -> Iterator[HeldFlusher]:
    held: Any = HeldFlusher()
    broker = stage.broker
    parts = (broker.groups.runtime, broker.transactions.runtime, broker.transactions.markers)
    flusher = broker.flusher
    broker.flusher = held
    for part in parts:
        part._flusher = held
    yield held
    broker.flusher = flusher


async def until_held(held: HeldFlusher) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
        if held.waiting:
            return
    raise AssertionError("nothing waits for a flush")


@in_loop
async def test_each_step_of_an_end_waits_for_the_flush_before(tmp_path: Path) -> None:
    async with txn_stage(tmp_path, **EACH) as stage:
        producer = await stage.producer()
        await producer.add(0)
        await producer.send(b"a")
        with held_flushes(stage) as held:
            ending = asyncio.create_task(producer.end(committed=True))
            await until_held(held)
            assert [str(log.topic_partition) for log, _ in held.waiting] == [
                "__transaction_state-0"
            ]
            assert stage.log(0).log_end_offset == 1  # no marker before the decision is on disk
            assert stage.state() == "PrepareCommit"
            held.end()
            assert await ending == 0
            assert [str(log.topic_partition) for log, _ in held.waiting] == ["t-0"]
            assert stage.log(0).last_stable_offset == 0
            assert await producer.add(0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
            held.end()
            assert stage.state() == "CompleteCommit"
            assert stage.committed(0) == [b"a"]


@in_loop
async def test_decision_that_cannot_be_flushed_writes_no_marker(tmp_path: Path) -> None:
    async with txn_stage(tmp_path, **EACH) as stage:
        producer = await stage.producer()
        await producer.add(0)
        await producer.send(b"a")
        with held_flushes(stage) as held:
            ending = asyncio.create_task(producer.end(committed=True))
            await until_held(held)
            held.end(OSError("disk"))
            assert await ending == ErrorCode.NOT_COORDINATOR
            assert stage.log(0).log_end_offset == 1
            assert await producer.end(committed=True) == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_records_wait_until_their_partition_is_added_on_disk(tmp_path: Path) -> None:
    async with txn_stage(tmp_path, **EACH) as stage:
        producer: Producer = await stage.producer()
        with held_flushes(stage) as held:
            sending = asyncio.create_task(producer.send(b"a", version=12))
            await until_held(held)
            assert stage.log(0).log_end_offset == 0
            held.end()
            await until_held(held)
            assert stage.log(0).log_end_offset == 1
            held.end()
            assert await sending == 0
