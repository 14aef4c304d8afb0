"""Exactly once through crashes, zombies and repeated batches, in a model of drivers and brokers."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from tests.support.spark_sink_model import (
    QUERY,
    Executors,
    ModelCluster,
    ModelLedger,
    Row,
    SinkModel,
)
from tidelog.client.producer.transaction_requests import OpenTransaction
from tidelog.spark.batch_commit import (
    BatchCommit,
    BatchMarker,
    CheckpointTooOld,
    RowsLost,
    TaskTransaction,
    TransactionsTimedOut,
    UnreadableMarker,
)

TRIALS = 3_000
TRIALS_FOR_A_BUG = 3_000


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    while True:
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value


def attempt(cluster: ModelCluster, name: str, *rows: Row) -> TaskTransaction:
    epoch = cluster.init(name)
    for row in rows:
        cluster.write(name, epoch, row)
    return TaskTransaction(OpenTransaction(name, 0, epoch, False), len(rows))


def commit_of(cluster: ModelCluster, batch_id: int = 0) -> BatchCommit[Row]:
    return BatchCommit(ModelLedger(cluster), QUERY, batch_id)


# Trials


@pytest.mark.parametrize("zombies", [False, True])
def test_every_row_is_there_once_however_drivers_and_tasks_die(zombies: bool) -> None:
    deaths = 0
    for seed in range(TRIALS):
        model = SinkModel(seed, zombies=zombies)
        model.run()
        assert model.missing_and_doubled() == ([], []), seed
        deaths += model.runs - 1
        if not zombies:
            assert not model.errors, seed
    assert deaths > TRIALS / 2


def test_a_transaction_that_times_out_is_never_lost_silently() -> None:
    told = 0
    for seed in range(TRIALS):
        model = SinkModel(seed, timeouts=True)
        model.run()
        missing, doubled = model.missing_and_doubled()
        assert not doubled, seed
        assert not missing or model.has_lost_loudly, seed
        told += model.has_lost_loudly
    assert 0 < told < TRIALS / 2


class NoMarker(SinkModel):
    """Nobody remembers what was written."""

    def _ledger(self) -> ModelLedger:
        return ForgetfulLedger(self.cluster)


class ForgetfulLedger(ModelLedger):
    async def marker_or_none(self) -> BatchMarker | None:
        await super().marker_or_none()
        return None


class MarkerReadBeforeFencing(SinkModel):
    def _ledger(self) -> ModelLedger:
        return HastyLedger(self.cluster)


class HastyLedger(ModelLedger):
    """Asked to fence, it reads first."""

    _read: BatchMarker | None = None

    async def fence(self) -> None:
        self._read = await super().marker_or_none()
        await super().fence()

    async def marker_or_none(self) -> BatchMarker | None:
        return self._read


class TasksCommitThemselves(SinkModel):
    """Before all tasks are done."""

    async def _attempt(
        self, executors: Executors, batch_id: int, rows: list[Row]
    ) -> TaskTransaction | None:
        handed = await super()._attempt(executors, batch_id, rows)
        if handed is not None:
            self.cluster.end(handed.handed, is_commit=True)
        return handed


class OneSlotForARetriedTask(SinkModel):
    """An attempt takes the transactional id of another one of the same batch."""

    async def _attempt(
        self, executors: Executors, batch_id: int, rows: list[Row]
    ) -> TaskTransaction | None:
        handed = await super()._attempt(executors, batch_id, rows)
        executors.slots = [-1 for _ in executors.slots]
        return handed


class SlotsOutliveTheRun(SinkModel):
    """The next run of a query goes on with the ids of the last one."""

    async def _drive(self, executors: Executors) -> None:
        await super()._drive(Executors(0))


class DecisionLast(SinkModel):
    """The tasks' transactions are committed before the batch is decided."""

    class commit_class(BatchCommit[Row]):
        async def commit(
            self, rows: Sequence[Row], transactions: Sequence[TaskTransaction]
        ) -> bool:
            await self._ledger.fence()
            marker = await self._ledger.marker_or_none()
            if marker is None or marker.batch_id < self._batch_id:
                await self._ledger.end(transactions, committed=True)
                await self._ledger.decide(rows, BatchMarker(self._batch_id, tuple(transactions)))
            return True


class LeftoversOfAnyAge(SinkModel):
    """A driver that comes late aborts what another has decided."""

    def _ledger(self) -> ModelLedger:
        return EagerLedger(self.cluster)


class EagerLedger(ModelLedger):
    def _is_old(self, name: str) -> bool:
        return True


@pytest.mark.parametrize(
    "bug",
    [
        NoMarker,
        MarkerReadBeforeFencing,
        TasksCommitThemselves,
        OneSlotForARetriedTask,
        SlotsOutliveTheRun,
        DecisionLast,
    ],
)
def test_the_model_finds_planted_bugs(bug: type[SinkModel]) -> None:
    for seed in range(TRIALS_FOR_A_BUG):
        model = bug(seed, zombies=False)
        model.run_until(errors_max=50)
        if model.missing_and_doubled() != ([], []) or model.errors:
            return
    pytest.fail("not found")


def test_a_driver_may_die_at_any_two_steps() -> None:
    """Exhaustively, for a batch with rows for the driver and two transactions."""
    first_steps = 0
    while True:
        second_steps = 0
        while True:
            cluster = ModelCluster()
            crashed = [run_partly(cluster, 1, first_steps), run_partly(cluster, 2, second_steps)]
            assert cluster.visible[(0, 0)] <= 1
            finish(commit_of(cluster).commit([(0, 0)], two_attempts(cluster, 3)))
            assert cluster.visible == {(0, 0): 1, (0, 1): 1, (0, 2): 1, (0, 3): 1}, crashed
            assert cluster.marker is not None
            if not crashed[1]:
                break
            second_steps += 1
        if not crashed[0]:
            break
        first_steps += 1
    assert first_steps > 6
    assert second_steps > 3


def two_attempts(cluster: ModelCluster, run: int) -> list[TaskTransaction]:
    return [
        attempt(cluster, f"{run}-0", (0, 1), (0, 2)),
        attempt(cluster, f"{run}-1", (0, 3)),
    ]


def run_partly(cluster: ModelCluster, run: int, steps: int) -> bool:
    """A commit that dies after so many steps; False if it is done before."""
    work = commit_of(cluster).commit([(0, 0)], two_attempts(cluster, run))
    for _ in range(steps):
        try:
            work.send(None)
        except StopIteration:
            return False
    work.close()
    return True


# What is decided and told


def test_a_repeated_batch_is_finished_and_its_new_rows_are_left() -> None:
    cluster = ModelCluster()
    old = attempt(cluster, "1-0", (0, 1))
    cluster.prepare(cluster.fence(), [(0, 0)], BatchMarker(0, (old,)))
    new = attempt(cluster, "2-0", (0, 0), (0, 1))
    assert not finish(commit_of(cluster).commit([], [new]))
    assert cluster.visible == {(0, 0): 1, (0, 1): 1}
    assert not finish(commit_of(cluster).commit([(0, 0)], []))


def test_a_checkpoint_that_is_older_than_the_output_is_refused() -> None:
    cluster = ModelCluster()
    finish(commit_of(cluster, 5).commit([(5, 0)], []))
    with pytest.raises(CheckpointTooOld, match="batches up to 5"):
        finish(commit_of(cluster, 4).commit([(4, 0)], []))
    assert cluster.visible == {(5, 0): 1}


def test_a_transaction_that_timed_out_before_the_decision_leaves_the_batch_to_be_repeated() -> None:
    cluster = ModelCluster()
    first, second = attempt(cluster, "1-0", (0, 0)), attempt(cluster, "1-1", (0, 1))
    cluster.time_out("1-0")
    with pytest.raises(TransactionsTimedOut, match=r"1 tasks \(1 rows\) .*Nothing is lost"):
        finish(commit_of(cluster).commit([], [first, second]))
    finish(commit_of(cluster).abort([first, second]))
    assert (cluster.marker, cluster.visible) == (None, {})
    assert finish(commit_of(cluster).commit([(0, 0), (0, 1)], []))


def test_decided_rows_that_timed_out_are_named() -> None:
    cluster = ModelCluster()
    kept, lost = attempt(cluster, "1-0", (0, 0)), attempt(cluster, "1-1", (0, 1))
    cluster.prepare(cluster.fence(), [], BatchMarker(0, (kept, lost)))
    cluster.time_out("1-1")
    for _ in range(2):
        with pytest.raises(RowsLost, match=r"aborted 1 of its 2 .* with 1 rows \(1-1\)"):
            finish(commit_of(cluster).commit([(0, 0), (0, 1)], []))
    assert cluster.visible == {(0, 0): 1}


def test_an_abort_after_the_decision_finishes_the_batch() -> None:
    cluster = ModelCluster()
    handed = attempt(cluster, "1-0", (0, 0))
    cluster.prepare(cluster.fence(), [], BatchMarker(0, (handed,)))
    finish(commit_of(cluster).abort([handed]))
    assert cluster.visible == {(0, 0): 1}


def test_attempts_that_nobody_ended_are_aborted_unless_they_may_be_of_the_next_batch() -> None:
    cluster = ModelCluster()
    dead = attempt(cluster, "0-0", (0, 0))
    winner = attempt(cluster, "1-0", (0, 0))
    cluster.now = 1
    work = commit_of(cluster).commit([], [winner])
    while cluster.marker is None:
        work.send(None)
    cluster.now = 2
    next_one = attempt(cluster, "2-0", (1, 0))
    finish(work)
    with pytest.raises(Exception, match="ABORTED"):
        cluster.end(dead.handed, is_commit=True)
    cluster.end(next_one.handed, is_commit=True)
    assert cluster.visible == {(0, 0): 1, (1, 0): 1}


def test_a_late_driver_that_aborted_leftovers_of_any_age_would_lose_decided_rows() -> None:
    for seed in range(TRIALS_FOR_A_BUG):
        model = LeftoversOfAnyAge(seed)
        model.run_until(errors_max=50)
        if model.missing_and_doubled() != ([], []) or model.has_lost_loudly:
            return
    pytest.fail("not found")


def test_a_marker_is_read_as_it_was_written() -> None:
    handed = OpenTransaction("tidelog-spark-q-1", 4_000_000_000, 32_000, True)
    marker = BatchMarker(17, (TaskTransaction(handed, 20_000),))
    assert BatchMarker.from_bytes(marker.to_bytes()) == marker
    with pytest.raises(UnreadableMarker, match="format 2"):
        BatchMarker.from_bytes(b'{"format": 2, "batch": 1, "transactions": []}')
