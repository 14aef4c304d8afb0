"""A coordinator whose partition goes to another broker and comes back while markers are due."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.metadata import in_loop
from tests.support.slow_broker import SlowBroker
from tests.support.txn_stage import TOPIC, Producer, TxnStage, txn_stage
from tidelog.coordinator.txn.records import transaction_record
from tidelog.coordinator.txn.states import TransactionState
from tidelog.coordinator.txn.transaction import Transaction
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from tidelog.record.builder import batch_of

STATE_TOPIC = "__transaction_state"


@asynccontextmanager
async def ending(directory: Path) -> AsyncIterator[tuple[TxnStage, Producer, SlowBroker]]:
    """A transaction that is prepared; its one marker is asked for."""
    async with txn_stage(directory) as stage:
        slow = SlowBroker()
        stage.broker.transactions.markers.others = slow
        stage.stage.partition(TOPIC, 1).is_leader = False
        producer = await stage.producer()
        assert await producer.add(1) == [0]
        assert await producer.end(committed=True) == 0
        assert (stage.state(), len(slow.asked)) == ("PrepareCommit", 1)
        yield stage, producer, slow


def transaction(stage: TxnStage) -> Transaction:
    found = stage.broker.transactions.transaction_or_none("x")
    assert found is not None
    return found


def lead_again(stage: TxnStage, *meanwhile: Transaction) -> None:
    """After a term of another broker, which wrote these."""
    runtime = stage.broker.transactions.runtime
    partition = stage.stage.partition(STATE_TOPIC, 0)
    runtime.resign(0)
    for each in meanwhile:
        batch = batch_of([(*transaction_record(each).encoded(), (), stage.clock.time_ms())])
        partition.append_as_coordinator(memoryview(batch))
    runtime.lead(partition)
    stage.clock.advance(ms=0)


@in_loop
async def test_a_new_term_asks_for_markers_without_waiting_for_the_answer_to_the_old_one(
    tmp_path: Path,
) -> None:
    async with ending(tmp_path) as (stage, producer, slow):
        lead_again(stage)
        assert len(slow.asked) == 2
        slow.answer(1)
        assert stage.state() == "CompleteCommit"
        assert await producer.add(1) == [0]
        slow.answer(0)
        assert stage.state() == "Ongoing"


@in_loop
async def test_the_answer_to_an_old_term_does_not_end_the_transaction_of_the_new_one(
    tmp_path: Path,
) -> None:
    async with ending(tmp_path) as (stage, _, slow):
        completed = transaction(stage).completed(stage.clock.time_ms())
        lead_again(stage, completed, completed._replace(state=TransactionState.ONGOING))
        assert stage.state() == "Ongoing"
        slow.answer(0)
        assert stage.state() == "Ongoing"


@in_loop
async def test_the_answer_to_an_old_term_is_nothing_to_one_that_loads(tmp_path: Path) -> None:
    async with ending(tmp_path) as (stage, _, slow):
        runtime = stage.broker.transactions.runtime
        runtime.resign(0)
        runtime.lead(stage.stage.partition(STATE_TOPIC, 0))
        slow.answer(0)
        stage.clock.advance(ms=0)
        assert (stage.state(), len(slow.asked)) == ("PrepareCommit", 2)


@in_loop
async def test_an_answer_that_leaves_a_partition_out_has_not_written_its_marker(
    tmp_path: Path,
) -> None:
    async with ending(tmp_path) as (stage, _, slow):
        _, answer = slow.asked[0]
        answer.complete(WriteTxnMarkersResponse())
        assert stage.state() == "PrepareCommit"
        stage.clock.advance(ms=200)
        assert len(slow.asked) == 2
        slow.answer()
        assert stage.state() == "CompleteCommit"
