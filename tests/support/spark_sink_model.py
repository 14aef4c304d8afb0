"""A model of a query that writes exactly once: drivers, tasks, executors and the cluster.

Everything that happens in it takes turns at the points where a real one waits for a broker, in an
order that a seed decides. Drivers die at any such point, or go on as zombies while another one
runs; attempts of tasks fail halfway, are run twice, and go on writing after their batch is decided.
A repeated batch has the same rows, split into tasks in another way. What `BatchCommit` asks of the
cluster is answered as Kafka's transaction coordinator would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import coroutine
from typing import Any

from tidelog.client.producer.transaction_requests import OpenTransaction
from tidelog.spark.batch_commit import BatchCommit, BatchMarker, RowsLost, TaskTransaction

Row = tuple[int, int]  # batch, number
QUERY = "query"
BATCHES = 3
ROWS_PER_BATCH = 4


@coroutine
def turn() -> Generator[None, None, None]:
    """Where others may go on, or whoever waits here may die."""
    yield


class State(Enum):
    ONGOING = "ongoing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EMPTY = "empty"


class Fenced(Exception):
    """A newer producer has the transactional id."""


class Refused(Exception):
    """The coordinator does not do this in the state it is in."""


@dataclass
class Transactional:
    """What a coordinator knows of one transactional id."""

    epoch: int = 0
    state: State = State.EMPTY
    rows: list[Row] = field(default_factory=list)
    began_at: int = 0


class ModelCluster:
    """`visible` is what a reader with read_committed sees."""

    def __init__(self) -> None:
        self.now = 0
        self.ids: dict[str, Transactional] = {}
        self.visible: Counter[Row] = Counter()
        self.marker: BatchMarker | None = None
        self.driver_epoch = 0
        self.under_way: tuple[list[Row], BatchMarker] | None = None  # decided, not readable yet

    # Transactions of tasks

    def init(self, name: str) -> int:
        known = self.ids.setdefault(name, Transactional())
        self._end(known, is_commit=False)
        known.epoch += 1
        known.state = State.EMPTY
        return known.epoch

    def write(self, name: str, epoch: int, row: Row) -> None:
        known = self._owned(name, epoch)
        if known.state is not State.ONGOING:
            if known.state is not State.EMPTY:
                raise Refused(known.state)
            known.state, known.began_at = State.ONGOING, self.now
        known.rows.append(row)

    def end(self, handed: OpenTransaction, *, is_commit: bool) -> None:
        known = self._owned(handed.transactional_id, handed.producer_epoch)
        wanted = State.COMMITTED if is_commit else State.ABORTED
        if known.state is not State.ONGOING and known.state is not wanted:
            raise Refused(known.state)
        self._end(known, is_commit=is_commit)

    def _owned(self, name: str, epoch: int) -> Transactional:
        known = self.ids[name]
        if known.epoch != epoch:
            raise Fenced(name)
        return known

    def _end(self, known: Transactional, *, is_commit: bool) -> None:
        if known.state is not State.ONGOING:
            return
        if is_commit:
            self.visible.update(known.rows)
        known.rows = []
        known.state = State.COMMITTED if is_commit else State.ABORTED

    def time_out(self, name: str) -> None:
        known = self.ids[name]
        if known.state is State.ONGOING:
            self._end(known, is_commit=False)
            known.epoch += 1

    # Transactions of drivers

    def fence(self) -> int:
        self.complete()
        self.driver_epoch += 1
        return self.driver_epoch

    def prepare(self, epoch: int, rows: list[Row], marker: BatchMarker) -> None:
        if epoch != self.driver_epoch:
            raise Fenced("driver")
        assert self.under_way is None
        self.under_way = rows, marker

    def complete(self) -> None:
        if self.under_way is not None:
            rows, self.marker = self.under_way
            self.visible.update(rows)
            self.under_way = None


class ModelLedger:
    """The SinkLedger of one commit."""

    def __init__(self, cluster: ModelCluster) -> None:
        self._cluster = cluster
        self._epoch = 0
        self._decided_at = 0

    async def fence(self) -> None:
        await turn()
        self._epoch = self._cluster.fence()

    async def marker_or_none(self) -> BatchMarker | None:
        await turn()
        return self._cluster.marker

    async def timed_out(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        await turn()
        return [each for each in transactions if not self._is_open(each.handed)]

    def _is_open(self, handed: OpenTransaction) -> bool:
        known = self._cluster.ids[handed.transactional_id]
        return known.state is State.ONGOING and known.epoch == handed.producer_epoch

    async def decide(self, rows: Sequence[Row], marker: BatchMarker) -> None:
        self._decided_at = self._cluster.now
        await turn()
        self._cluster.prepare(self._epoch, list(rows), marker)
        await turn()
        self._cluster.complete()

    async def end(
        self, transactions: Sequence[TaskTransaction], *, committed: bool
    ) -> list[TaskTransaction]:
        ended_otherwise = []
        for each in transactions:
            await turn()
            try:
                self._cluster.end(each.handed, is_commit=committed)
            except (Fenced, Refused):
                ended_otherwise.append(each)
        return ended_otherwise

    async def abort_leftovers(self, kept: Collection[TaskTransaction]) -> None:
        names = {each.handed.transactional_id for each in kept}
        await turn()
        left = [
            OpenTransaction(name, 0, known.epoch, False)
            for name, known in self._cluster.ids.items()
            if known.state is State.ONGOING and name not in names
        ]
        await turn()
        old = [handed for handed in left if self._is_old(handed.transactional_id)]
        for handed in old:
            await self.end([TaskTransaction(handed, 0)], committed=False)

    def _is_old(self, name: str) -> bool:
        known = self._cluster.ids[name]
        return known.state is State.ONGOING and known.began_at < self._decided_at


@dataclass
class Checkpoint:
    committed: int = -1

    @property
    def next_batch(self) -> int:
        return self.committed + 1


@dataclass
class Executors:
    """Those of one run: which slot was last used by which batch."""

    run: int
    slots: list[int] = field(default_factory=list)

    def take(self, batch_id: int) -> str:
        for number, last_batch in enumerate(self.slots):
            if last_batch < batch_id:
                self.slots[number] = batch_id
                return self._name(number)
        self.slots.append(batch_id)
        return self._name(len(self.slots) - 1)

    def _name(self, number: int) -> str:
        return f"{self.run}-{number}"


class SinkModel:
    """One trial. Subclasses plant bugs."""

    commit_class: type[BatchCommit[Row]] = BatchCommit

    def __init__(
        self, seed: int, *, drivers: int = 4, zombies: bool = True, timeouts: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.cluster = ModelCluster()
        self.checkpoint = Checkpoint()
        self.errors: list[Exception] = []  # of drivers
        self._drivers_left = drivers
        self._zombies = zombies
        self._timeouts = timeouts
        self.runs = 0  # drivers that were started
        self._living: list[Coroutine[Any, Any, None]] = []
        self._is_driver: dict[int, bool] = {}

    @property
    def is_done(self) -> bool:
        return self.checkpoint.next_batch == BATCHES

    @property
    def has_lost_loudly(self) -> bool:
        return any(isinstance(error, RowsLost) for error in self.errors)

    def run(self) -> None:
        """Until a driver has finished all batches, and those that are late have ended."""
        while not self.is_done:
            if not any(self._is_driver.values()):
                self._start_driver()
            self._step()
            if self._timeouts and self.has_lost_loudly:
                break
        if self.is_done:
            while self._living:
                self._step()
        self.close()

    def run_until(self, errors_max: int) -> None:
        """As `run`, for a model with a bug that may make every run fail."""
        while not self.is_done and len(self.errors) < errors_max:
            if not any(self._is_driver.values()):
                self._start_driver()
            self._step()
        self.close()

    def close(self) -> None:
        """Kills whoever lives."""
        for work in self._living:
            work.close()
        self._living.clear()
        self._is_driver.clear()
        self.cluster.complete()

    def missing_and_doubled(self) -> tuple[list[Row], list[Row]]:
        wanted = [(batch, number) for batch in range(BATCHES) for number in range(ROWS_PER_BATCH)]
        seen = self.cluster.visible
        return [row for row in wanted if not seen[row]], [row for row in seen if seen[row] > 1]

    def _start_driver(self) -> None:
        self.runs += 1
        self._spawn(self._drive(Executors(self.runs)), is_driver=True)

    def _spawn(self, work: Coroutine[Any, Any, None], *, is_driver: bool) -> None:
        self._living.append(work)
        self._is_driver[id(work)] = is_driver

    def _step(self) -> None:
        self.cluster.now += 1
        chance = self.random.random()
        work = self.random.choice(self._living)
        is_driver = self._is_driver[id(work)]
        if is_driver and self._drivers_left and chance < 0.06:
            self._drivers_left -= 1
            if chance < 0.03 or not self._zombies:
                work.close()  # killed
                self._forget(work)
            else:
                self._start_driver()  # the other goes on
            return
        if self._timeouts and chance > 0.98 and self.cluster.ids:
            self.cluster.time_out(self.random.choice(sorted(self.cluster.ids)))
        try:
            work.send(None)
        except StopIteration:
            self._forget(work)
        except Exception as error:  # noqa: BLE001
            if is_driver:
                self.errors.append(error)
            self._forget(work)

    def _forget(self, work: Coroutine[Any, Any, None]) -> None:
        self._living.remove(work)
        del self._is_driver[id(work)]

    # What a driver does

    async def _drive(self, executors: Executors) -> None:
        batch_id = self.checkpoint.next_batch
        while batch_id < BATCHES:
            await self._run_batch(executors, batch_id)
            await turn()
            if self.checkpoint.committed >= batch_id:
                raise Refused("another driver has committed the batch to the checkpoint")
            self.checkpoint.committed = batch_id
            batch_id += 1

    async def _run_batch(self, executors: Executors, batch_id: int) -> None:
        rows: list[Row] = []
        transactions: list[TaskTransaction] = []
        for part in self._split([(batch_id, number) for number in range(ROWS_PER_BATCH)]):
            if self.random.random() < 0.3:
                rows += part  # few enough for the driver
                continue
            while (handed := await self._attempt(executors, batch_id, part)) is None:
                pass
            transactions.append(handed)
        commit = self.commit_class(self._ledger(), QUERY, batch_id)
        try:
            await commit.commit(rows, transactions)
        except Exception:
            await self.commit_class(self._ledger(), QUERY, batch_id).abort(transactions)
            raise

    def _ledger(self) -> ModelLedger:
        return ModelLedger(self.cluster)

    def _split(self, rows: list[Row]) -> list[list[Row]]:
        self.random.shuffle(rows)
        parts: list[list[Row]] = [[] for _ in range(self.random.randint(1, 3))]
        for row in rows:
            self.random.choice(parts).append(row)
        return [part for part in parts if part]

    async def _attempt(
        self, executors: Executors, batch_id: int, rows: list[Row]
    ) -> TaskTransaction | None:
        """None: it failed, or it was slower than another attempt, and its transaction is left."""
        name = executors.take(batch_id)
        await turn()
        epoch = self.cluster.init(name)
        fate = self.random.random()
        if fate < 0.2:
            late = self._write(name, epoch, rows)
            self._spawn(late, is_driver=False)
            return None
        written = rows if fate > 0.3 else rows[: len(rows) // 2]
        try:
            await self._write(name, epoch, written)
        except (Fenced, Refused):
            return None
        if written is not rows:
            return None
        return TaskTransaction(OpenTransaction(name, 0, epoch, False), len(rows))

    async def _write(self, name: str, epoch: int, rows: list[Row]) -> None:
        for row in rows:
            await turn()
            self.cluster.write(name, epoch, row)
