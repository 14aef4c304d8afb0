"""Transactional ids and transactions past their time go a few a turn of the loop."""

from __future__ import annotations

from pathlib import Path

from tests.support.clock import BusyClock
from tests.support.metadata import in_loop
from tests.support.txn_stage import TxnStage, txn_stage
from tidelog.coordinator.txn.coordinator import IDS_PER_STEP
from tidelog.slices import SlicedWork

IDS = 3 * IDS_PER_STEP


def slow_down(stage: TxnStage) -> None:
    """From now on a turn of the loop does one step."""
    transactions = stage.broker.transactions
    transactions._work = SlicedWork(BusyClock(), stage.clock, 0.0015)


def end_offsets(stage: TxnStage) -> int:
    topic = "__transaction_state"
    count = len(stage.broker.topics.topics[topic].partitions)
    return sum(stage.log(index, topic).log_end_offset for index in range(count))


def one_turn(stage: TxnStage) -> int:
    """How many records of transactions it writes."""
    before = end_offsets(stage)
    now, stage.clock._timers = stage.clock._timers, []
    for due_ms, number, handle in now:
        if due_ms <= stage.clock._elapsed_ms:
            handle.callback()
        else:
            stage.clock._timers.append((due_ms, number, handle))
    return end_offsets(stage) - before


@in_loop
async def test_expired_ids_go_a_few_a_turn(tmp_path: Path) -> None:
    async with txn_stage(tmp_path, transactional_id_expiration_ms="1000") as stage:
        for number in range(IDS):
            await stage.init(f"x{number}")
        stage.clock.advance(ms=1000)
        await stage.init("x0")
        slow_down(stage)
        transactions = stage.broker.transactions
        before = end_offsets(stage)
        transactions.remove_expired()
        first = end_offsets(stage) - before
        assert 0 < first <= IDS_PER_STEP
        await stage.init("x1")  # in use again before its turn comes, or made anew after it
        written = [first, *(one_turn(stage) for _ in range(100))]
        assert max(written) <= IDS_PER_STEP
        left = {each.transactional_id for each in transactions.list_transactions()}
        assert left == {"x0", "x1"}


@in_loop
async def test_transactions_past_their_time_are_aborted_a_few_a_turn(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        for number in range(12):
            producer = await stage.producer(f"x{number}", transaction_timeout_ms=1000)
            await producer.add(0)
        stage.clock.advance(ms=1001)
        slow_down(stage)
        stage.broker.transactions.abort_timed_out()
        states = [stage.state(f"x{number}") for number in range(12)]
        assert 0 < states.count("Ongoing") < 12
        for _ in range(100):
            one_turn(stage)
        assert not {stage.state(f"x{number}") for number in range(12)} & {"Ongoing"}
