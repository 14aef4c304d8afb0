"""What a producer of transaction.version 2 may do between its answered EndTxn and the last marker.

It has its next epoch by then (KIP-890) and begins its next transaction at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.metadata import in_loop
from tests.support.slow_broker import SlowBroker
from tests.support.txn_stage import TOPIC, Producer, TxnStage, txn_stage
from tidelog.errors import ErrorCode

WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
# What Produce and TxnOffsetCommit say instead; every client sends again.
SEND_AGAIN = ErrorCode.NOT_ENOUGH_REPLICAS
COMMIT_AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@asynccontextmanager
async def ended(
    directory: Path, *, committed: bool, epoch: int = 0
) -> AsyncIterator[tuple[TxnStage, Producer, SlowBroker]]:
    """A transaction whose EndTxn v5 is answered; the marker of partition 1 is on its way."""
    async with txn_stage(directory) as stage:
        slow = SlowBroker()
        stage.broker.transactions.markers.others = slow
        stage.stage.partition(TOPIC, 1).is_leader = False
        producer = await stage.producer()
        use_epoch(stage, producer, epoch)
        assert await producer.send(b"a", version=12) == 0
        assert await producer.add(1) == [0]
        assert await producer.end(committed=committed, version=5) == 0
        assert stage.state() == ("PrepareCommit" if committed else "PrepareAbort")
        yield stage, producer, slow


def use_epoch(stage: TxnStage, producer: Producer, epoch: int) -> None:
    shard = stage.broker.transactions.runtime.shard_for("x")
    shard.transactions["x"] = shard.transactions["x"]._replace(producer_epoch=epoch)
    producer.producer_epoch = epoch


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("epoch", [0, 32_766])
@in_loop
async def test_the_next_transaction_waits_for_the_markers_and_is_not_fenced(
    tmp_path: Path, epoch: int, committed: bool
) -> None:
    async with ended(tmp_path, committed=committed, epoch=epoch) as (stage, producer, slow):
        before = producer.identity
        assert before[1] == (1 if epoch == 0 else 0)
        assert await producer.send(b"b", version=12) == SEND_AGAIN
        assert await producer.add_offsets() == WAIT
        assert await producer.commit_offset(7, version=5) == COMMIT_AGAIN
        assert await producer.add(0) == [WAIT]
        for commits in (True, False):
            assert await producer.end(committed=commits, version=5) == WAIT
        begun = await stage.init(producer_id=before[0], producer_epoch=before[1])
        assert begun.error_code == WAIT
        slow.answer()
        assert await producer.send(b"b", version=12) == 0
        assert await producer.commit_offset(7, version=5) == 0
        assert await producer.end(committed=True, version=5) == 0
        assert producer.identity == (before[0], before[1] + 1)
        assert stage.committed(0) == ([b"a", b"b"] if committed else [b"b"])
        assert await stage.offset() == 7


@in_loop
async def test_an_abort_right_after_a_commit_takes_the_next_epoch_when_the_markers_are_there(
    tmp_path: Path,
) -> None:
    async with ended(tmp_path, committed=True) as (stage, producer, slow):
        assert await producer.end(committed=False, version=5) == WAIT
        slow.answer()
        assert await producer.end(committed=False, version=5) == 0
        assert producer.producer_epoch == 2
        assert stage.committed(0) == [b"a"]


@in_loop
async def test_the_end_itself_may_be_repeated_while_its_markers_are_written(tmp_path: Path) -> None:
    async with ended(tmp_path, committed=True) as (stage, producer, slow):
        again = Producer(stage, "x", producer.producer_id, 0)
        assert await again.end(committed=True, version=5) == WAIT
        slow.answer()
        assert await again.end(committed=True, version=5) == 0
        assert again.identity == producer.identity


@in_loop
async def test_a_producer_past_its_timeout_goes_on_after_its_abort(tmp_path: Path) -> None:
    """As with Kafka 4: the next epoch is the producer's, unless another instance has come."""
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        assert await producer.send(b"a", version=12) == 0
        stage.clock.advance(ms=60_001)
        stage.broker.transactions.abort_timed_out()
        assert stage.state() == "CompleteAbort"
        assert await producer.send(b"late", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end(committed=True, version=5) == ErrorCode.INVALID_TXN_STATE
        assert await producer.end(committed=False, version=5) == 0
        assert producer.producer_epoch == 1
        assert await producer.send(b"b", version=12) == 0
        assert await producer.end(committed=True, version=5) == 0
        assert stage.committed(0) == [b"b"]


@in_loop
async def test_a_producer_past_its_timeout_is_fenced_by_a_newer_instance(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        assert await producer.send(b"a", version=12) == 0
        stage.clock.advance(ms=60_001)
        stage.broker.transactions.abort_timed_out()
        await stage.producer()
        assert await producer.end(committed=False, version=5) == ErrorCode.PRODUCER_FENCED


@in_loop
async def test_a_timeout_with_the_last_epoch_fences_its_producer(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        use_epoch(stage, producer, 32_766)
        assert await producer.send(b"a", version=12) == 0
        stage.clock.advance(ms=60_001)
        stage.broker.transactions.abort_timed_out()
        assert await producer.end(committed=False, version=5) == ErrorCode.PRODUCER_FENCED
        newer = await stage.producer()
        assert newer.producer_id != producer.producer_id
        assert newer.producer_epoch == 0
