"""Transactions that cannot be ended now: what they cost, and that they are ended in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.group_stage import HeldFlusher
from tests.support.metadata import in_loop
from tests.support.slow_broker import SlowBroker
from tests.support.txn_stage import TOPIC, TxnStage, txn_stage
from tidelog.coordinator.txn.markers import MarkerWriter
from tidelog.coordinator.txn.retries import PAUSE_MAX_S, PER_TURN, Retries
from tidelog.coordinator.txn.shard import TransactionShard
from tidelog.coordinator.txn.transaction import Transaction


class NeverScanned(dict[str, Transaction]):
    """Looked into by id alone."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all ids are looked at")

    def _all(self) -> Any:
        raise AssertionError("all ids are looked at")

    keys = values = items = _all


async def stuck(stage: TxnStage) -> SlowBroker:
    """A transaction whose marker no broker writes."""
    slow = SlowBroker()
    stage.broker.transactions.markers.others = slow
    stage.stage.partition(TOPIC, 1).is_leader = False
    producer = await stage.producer()
    await producer.add(1)
    assert await producer.end(committed=True) == 0
    assert stage.state() == "PrepareCommit"
    return slow


@in_loop
async def test_a_transaction_that_cannot_be_ended_costs_no_look_at_the_others(
    tmp_path: Path,
) -> None:
    async with txn_stage(tmp_path) as stage:
        slow = await stuck(stage)
        transactions = stage.broker.transactions
        shard = transactions.runtime.shard_for("x")
        shard.transactions = NeverScanned(shard.transactions)
        for _ in range(30):
            slow.lose()
            stage.clock.advance(ms=1000)
            transactions.abort_timed_out()
        slow.answer()
        assert stage.state() == "CompleteCommit"
        assert not shard.retry_pauses


@in_loop
async def test_the_pause_before_the_next_try_doubles_up_to_a_second(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        slow = await stuck(stage)
        for pause_ms in (100, 200, 400, 800, 1000, 1000):
            tries = len(slow.asked)
            slow.lose()
            stage.clock.advance(ms=pause_ms - 1)
            assert len(slow.asked) == tries
            stage.clock.advance(ms=1)
            assert len(slow.asked) == tries + 1


def test_a_turn_of_the_loop_takes_a_bounded_number_of_those_due() -> None:
    clock = FakeClock()
    tried: list[str] = []
    turns: list[int] = []

    def call_later(delay: float, callback: Any) -> Any:
        turns.append(len(tried))
        return clock.call_later(delay, callback)

    timer: Any = type("Timer", (), {"call_later": staticmethod(call_later)})()
    retries = Retries(clock, timer, lambda shard, transactional_id: tried.append(transactional_id))
    shard = TransactionShard(0)
    wanted = [f"id-{number}" for number in range(3 * PER_TURN + 1)]
    for transactional_id in wanted:
        retries.soon(shard, transactional_id)
        retries.soon(shard, transactional_id)
    clock.advance(ms=0)
    assert tried == wanted
    assert turns == [0, 0, PER_TURN, 2 * PER_TURN]


def test_one_that_meets_a_bug_is_tried_again_and_so_are_those_behind_it() -> None:
    clock = FakeClock()
    tried: list[str] = []

    def retry(shard: TransactionShard, transactional_id: str) -> None:
        tried.append(transactional_id)
        if tried == ["a"]:
            raise LookupError("nobody expected this")

    retries = Retries(clock, clock, retry)
    shard = TransactionShard(0)
    for transactional_id in ("a", "b"):
        retries.soon(shard, transactional_id)
    with pytest.raises(LookupError):
        clock.advance(ms=0)
    clock.advance(ms=int(PAUSE_MAX_S * 1000))
    assert tried == ["a", "b", "a"]


@pytest.mark.parametrize("method", ["append_all", "append"])
@in_loop
async def test_a_bug_met_while_markers_are_written_does_not_leave_the_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        await producer.send(b"a", version=12)

        def fail(*arguments: object, **named: object) -> None:
            raise LookupError("nobody expected this")

        with monkeypatch.context() as patch:
            patch.setattr(MarkerWriter, method, fail)
            assert await producer.end(committed=True) == 0
        causes = [record.exc_info[1] for record in caplog.records if record.exc_info is not None]
        assert [str(cause) for cause in causes] == ["nobody expected this"]
        assert stage.state() == "PrepareCommit"
        stage.clock.advance(ms=100)
        assert stage.state() == "CompleteCommit"
        assert stage.committed(0) == [b"a"]


@in_loop
async def test_the_client_is_answered_whatever_comes_of_the_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with txn_stage(tmp_path, log_flush_interval_messages="1") as stage:
        producer = await stage.producer()
        await producer.send(b"a", version=12)
        held: Any = HeldFlusher()
        monkeypatch.setattr(stage.broker.transactions.runtime, "_flusher", held)
        ending = asyncio.create_task(producer.end(committed=True))
        while not held.waiting:
            await asyncio.sleep(0)

        def fail(*arguments: object, **named: object) -> None:
            raise LookupError("nobody expected this")

        with monkeypatch.context() as patch:
            patch.setattr(MarkerWriter, "append_all", fail)
            held.end()
        assert await asyncio.wait_for(ending, 60) == 0
        assert "nobody expected this" in caplog.text
