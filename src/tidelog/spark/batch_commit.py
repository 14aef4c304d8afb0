"""How a driver makes a micro-batch visible exactly once: the protocol, without I/O or clock.

A task with few rows hands them to the driver. A task with many writes them in a transaction of its
own attempt and hands that over, open. Only what the surviving attempts handed over reaches the
driver, which then

    1. fences      older drivers of the query can decide nothing any more, and what they had decided
                   is visible
    2. reads       the query's marker, its last decision: a batch id and the tasks' transactions
    3. decides     rows and a new marker in one transaction, unless the marker has this batch
    4. finishes    commits the tasks' transactions that the marker names

Step 3 is the moment at which the batch counts. Whoever comes after it, a repeated batch or another
driver, finds the marker and goes on with step 4, whatever rows it brings; before it nothing of the
batch is visible. Step 4 may be repeated: a transaction that is committed already stays so.

A decided transaction can still be lost: the coordinator aborts it if no driver reaches step 4
before transaction.timeout.ms is over. Nobody can undo that, so it is never passed over:
RowsLost says what is missing. A batch whose rows all went through the driver has no such moment.

Attempts that do not survive are aborted after step 3, if they began before it. Transactions of the
next batch begin later, because nobody begins it before this one is decided; so a driver that is
late, and is not the only one, aborts nothing that may still be decided.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog.client.producer.transaction_requests import OpenTransaction

Rows = TypeVar("Rows", contravariant=True)
Batch = TypeVar("Batch")

FORMAT: Final = 1


class TaskTransaction(NamedTuple):
    """What one attempt of a task has written and not ended."""

    handed: OpenTransaction
    rows: int


class BatchMarker(NamedTuple):
    batch_id: int
    transactions: tuple[TaskTransaction, ...] = ()

    def to_bytes(self) -> bytes:
        rows = [[*each.handed, each.rows] for each in self.transactions]
        return json.dumps({"format": FORMAT, "batch": self.batch_id, "transactions": rows}).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> BatchMarker:
        told = json.loads(text)
        if told["format"] != FORMAT:
            raise UnreadableMarker(
                f"a marker of format {told['format']}; this version of tidelog reads {FORMAT}"
            )
        return cls(
            told["batch"],
            tuple(
                TaskTransaction(OpenTransaction(name, producer_id, epoch, is_v2), rows)
                for name, producer_id, epoch, is_v2, rows in told["transactions"]
            ),
        )


class UnreadableMarker(ValueError):
    """A newer version of tidelog wrote it."""


class CheckpointTooOld(RuntimeError):
    """The topics hold batches that the checkpoint does not know of."""


class TransactionsTimedOut(RuntimeError):
    """Tasks took longer than their transactions may. Nothing of the batch is visible."""


class RowsLost(RuntimeError):
    """Decided transactions were aborted before anyone committed them."""


class SinkLedger(Protocol[Rows]):
    """What the cluster keeps for one query."""

    async def fence(self) -> None:
        """No older ledger of the query can decide after this, and its decision is readable."""

    async def marker_or_none(self) -> BatchMarker | None:
        """The last decision. Call `fence` first."""

    async def timed_out(self, transactions: Sequence[TaskTransaction]) -> list[TaskTransaction]:
        """Those that are not open any more, or not for long."""

    async def decide(self, rows: Sequence[Rows], marker: BatchMarker) -> None:
        """All of it becomes visible, or nothing. Raises if another ledger has fenced this one."""

    async def end(
        self, transactions: Sequence[TaskTransaction], *, committed: bool
    ) -> list[TaskTransaction]:
        """Those that have ended the other way."""

    async def abort_leftovers(self, kept: Collection[TaskTransaction]) -> None:
        """Aborts the query's open transactions that began before `decide` was called, except those
        kept."""


class BatchCommit(Generic[Batch]):
    def __init__(self, ledger: SinkLedger[Batch], query_id: str, batch_id: int) -> None:
        self._ledger = ledger
        self._query_id = query_id
        self._batch_id = batch_id

    async def commit(self, rows: Sequence[Batch], transactions: Sequence[TaskTransaction]) -> bool:
        """Returns whether these rows were taken: not if the batch was decided before."""
        ledger = self._ledger
        await ledger.fence()
        last = await ledger.marker_or_none()
        if last is not None and last.batch_id > self._batch_id:
            raise self._checkpoint_too_old(last)
        if last is not None and last.batch_id == self._batch_id:
            await self._finish(last)
            await self._abort(transactions, last)
            return False
        timed_out = await ledger.timed_out(transactions)
        if timed_out:
            raise self._timed_out(timed_out)
        marker = BatchMarker(self._batch_id, tuple(transactions))
        await ledger.decide(rows, marker)
        await self._finish(marker)
        if transactions or (last is not None and last.transactions):
            await ledger.abort_leftovers(marker.transactions)
        return True

    async def abort(self, transactions: Sequence[TaskTransaction]) -> None:
        """After a job or a commit that failed, perhaps behind the decision."""
        if not transactions:
            return
        await self._ledger.fence()
        marker = await self._ledger.marker_or_none()
        if marker is not None and marker.batch_id == self._batch_id:
            await self._finish(marker)
        await self._abort(transactions, marker)

    async def _finish(self, marker: BatchMarker) -> None:
        lost = await self._ledger.end(marker.transactions, committed=True)
        if lost:
            raise self._rows_lost(lost, marker)

    async def _abort(
        self, transactions: Sequence[TaskTransaction], marker: BatchMarker | None
    ) -> None:
        decided = () if marker is None else marker.transactions
        undecided = [each for each in transactions if each not in decided]
        await self._ledger.end(undecided, committed=False)

    # What can go wrong

    @property
    def _what(self) -> str:
        return f"batch {self._batch_id} of query {self._query_id}"

    def _checkpoint_too_old(self, marker: BatchMarker) -> CheckpointTooOld:
        return CheckpointTooOld(
            f"{self._what} cannot be written exactly once: the topics already hold the query's "
            f"batches up to {marker.batch_id}, so its checkpoint is older than its output, or "
            "another driver runs the same query. Stop the other driver; or use the newest "
            "checkpoint; or start with an empty one, which is a new query and writes everything it "
            "reads"
        )

    def _timed_out(self, timed_out: Sequence[TaskTransaction]) -> TransactionsTimedOut:
        rows = sum(each.rows for each in timed_out)
        return TransactionsTimedOut(
            f"{self._what} was not written: the transactions of {len(timed_out)} tasks ({rows} "
            "rows) were open for almost as long as transaction.timeout.ms allows, or longer. "
            "Nothing is lost: the batch will be repeated. Make batches smaller, or set the option "
            "kafka.transaction.timeout.ms higher, up to the brokers' transaction.max.timeout.ms"
        )

    def _rows_lost(self, lost: Sequence[TaskTransaction], marker: BatchMarker) -> RowsLost:
        rows = sum(each.rows for each in lost)
        ids = ", ".join(each.handed.transactional_id for each in lost)
        return RowsLost(
            f"{self._what} is incomplete: a driver stopped after it had decided the batch and "
            "nobody committed it before transaction.timeout.ms was over, so the brokers have "
            f"aborted {len(lost)} of its {len(marker.transactions)} transactions with {rows} rows "
            f"({ids}). All other rows of the batch are visible. To write the batch again as a "
            "whole, run the query with deliveryGuarantee=at-least-once until this batch is done, "
            "which writes those other rows a second time; then go back to exactly-once. If another "
            "driver runs the same query, nothing is lost: stop this one"
        )
