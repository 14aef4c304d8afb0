"""Records and offsets of transactions whose coordinator is another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.metadata import in_loop
from tests.support.remote_coordinator import RemoteCoordinator
from tests.support.txn_stage import Producer, TxnStage, txn_stage
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

STATE_TOPIC = "__transaction_state"
SEND_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
COMMIT_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


async def asked(
    stage: TxnStage, request: Coroutine[Any, Any, int]
) -> tuple[RemoteCoordinator, asyncio.Task[int]]:
    """The request, once it has asked the coordinator, which looks as if it were elsewhere."""
    remote = RemoteCoordinator()
    partition = stage.stage.partition(STATE_TOPIC, 0)
    stage.broker.cluster, partition.is_leader = cast(Any, remote), False
    task = asyncio.create_task(request)
    await remote.until_asked()
    stage.broker.cluster, partition.is_leader = None, True
    return remote, task


async def open_transaction(stage: TxnStage) -> Producer:
    producer = await stage.producer()
    assert await producer.add(0) == [0]
    assert await producer.add_offsets() == 0
    return producer


@pytest.mark.parametrize("version", [3, 4, 5])
@in_loop
async def test_offsets_that_a_marker_has_overtaken_are_not_written(
    tmp_path: Path, version: int
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        offsets = stage.log(0, "__consumer_offsets")
        remote, committing = await asked(stage, producer.commit_offset(5, version=version))
        assert await producer.end(committed=True) == 0
        end = offsets.log_end_offset
        remote.agree()
        assert await committing == COMMIT_AGAIN
        assert offsets.log_end_offset == end, "they would begin a transaction that nobody ends"
        assert offsets.last_stable_offset == end
        assert await stage.offset(require_stable=True) == -1


@in_loop
async def test_records_that_a_marker_has_overtaken_are_not_appended(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, sending = await asked(stage, producer.send(b"late"))
        assert await producer.end(committed=True) == 0
        remote.agree()
        assert await sending == SEND_AGAIN
        assert stage.committed(0) == []


@in_loop
async def test_a_partition_that_was_led_elsewhere_meanwhile_is_asked_for_again(
    tmp_path: Path,
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, committing = await asked(stage, producer.commit_offset(5))
        stage.stage.partition("__consumer_offsets", 0).leader_epoch += 2
        remote.agree()
        assert await committing == COMMIT_AGAIN


@in_loop
async def test_offsets_of_a_topic_that_is_deleted_meanwhile_are_not_written(
    tmp_path: Path,
) -> None:
    """They would outlive the topic, whose other offsets have gone with it."""
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, committing = await asked(stage, producer.commit_offset(5))
        await stage.broker.topics.delete("t")
        end = stage.log(0, "__consumer_offsets").log_end_offset
        remote.agree()
        assert await committing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.log(0, "__consumer_offsets").log_end_offset == end


@in_loop
async def test_offsets_are_written_when_the_coordinator_agrees(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, committing = await asked(stage, producer.commit_offset(5))
        remote.agree()
        assert await committing == 0
        assert await producer.end(committed=True) == 0
        assert await stage.offset() == 5


@pytest.mark.parametrize("error", [ConnectionError("gone"), LookupError("nobody expected this")])
@in_loop
async def test_a_client_is_answered_whatever_the_question_comes_to(
    tmp_path: Path, error: Exception
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, committing = await asked(stage, producer.commit_offset(5))
        remote.fail(error)
        assert await asyncio.wait_for(committing, 60) == UNAVAILABLE
        assert await remote.failures() == [error if isinstance(error, LookupError) else None]


@in_loop
async def test_a_partition_of_which_the_coordinator_says_nothing_is_not_admitted(
    tmp_path: Path,
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await open_transaction(stage)
        remote, committing = await asked(stage, producer.commit_offset(5))
        remote.answer(AddPartitionsToTxnResponse())
        assert await committing == UNAVAILABLE
