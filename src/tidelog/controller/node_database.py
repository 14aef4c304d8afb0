"""The files and the tree that all sessions of a process share.

How a write goes
1. It is checked against the tree and all writes under way (`outstanding_changes.py`). If it is
   refused, the error waits for the writes under way: it may rest on one of them, and whoever reads
   and tries again must find what refused it.
2. It joins the queue. At the end of the loop's turn the whole queue becomes one append and one
   fsync in a thread (group commit); writes made meanwhile form the next queue.
3. Back on the loop, the transactions of the append are applied in order, watches fire, and whoever
   waits is told, all in the order in which the writes were asked for.
So the tree, which answers all reads, never shows what a crash could take back. If the append
fails, everything queued fails with `StoreUnavailable` and the tree stays as it was; the next write
tries again.

The journal is folded into a snapshot when it exceeds 1 MiB and twice the last snapshot.

A large transaction is applied in slices where readers wait meanwhile (`readers_wait`): they ask for
`is_applying` and wait for `settled`. Elsewhere it is applied in one turn of the loop.

zxids are ZooKeeper's: the number of the run in the upper 32 bits, a counter in the lower. Where
sessions are kept, each run begins with a record of its own, because whoever comes back from an
earlier run has seen zxids that were in no record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from tidelog.clock import Clock, SystemClock
from tidelog.controller.access_lists import Identity
from tidelog.controller.journal import Journal, encode_start, encode_transaction
from tidelog.controller.metadata_store import (
    Operation,
    Outcome,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WatchedEvent,
    Watcher,
)
from tidelog.controller.node_tree import DeletedAccess, NodeTree, Transaction
from tidelog.controller.outstanding_changes import OutstandingChanges, ServerOperation
from tidelog.slices import Slices
from tidelog.supervisor import attempted

JOURNAL_BYTES_MAX: Final = 1024 * 1024
SMALL_TRANSACTION: Final = 200  # operations that are staged and applied in one turn of the loop

Operations = Sequence[Operation | ServerOperation]
Result = list[Outcome] | StoreError
# What it gives, if it is not None, is awaited before the next transaction is applied.
Done = Callable[[Result], Awaitable[None] | None]


Fired = Callable[[Transaction, DeletedAccess], Sequence[tuple[Watcher, WatchedEvent]]]


def _nothing_fired(
    transaction: Transaction, deleted: DeletedAccess
) -> Sequence[tuple[Watcher, WatchedEvent]]:
    return ()


class _Waiting:
    """A write in the queue, with what its maker is told when its turn has come; one that was
    refused has no transaction.
    """

    __slots__ = ("done", "result", "transaction")

    def __init__(
        self,
        transaction: Transaction | None,
        result: Result,
        done: Done,
    ) -> None:
        self.transaction = transaction
        self.result = result
        self.done = done


class NodeDatabase:
    """Touched only on one loop."""

    def __init__(
        self, journal: Journal, tree: NodeTree, clock: Clock, journal_bytes_max: int
    ) -> None:
        self.tree = tree
        # Asked with each transaction that has just been applied, before anything else can read it.
        # The watchers that it gives are called in the next turn, before the writer goes on.
        self.fired: Fired = _nothing_fired
        self.readers_wait = False
        self.is_applying = False
        self.settled = asyncio.Event()
        self.settled.set()
        self._journal = journal
        self._clock = clock
        self._journal_bytes_max = journal_bytes_max
        self._durable_zxid = tree.zxid  # of the last record on disk
        tree.zxid = (tree.zxid >> 32) + 1 << 32
        self._outstanding = OutstandingChanges(tree)
        self._slices = Slices()
        self._stager = asyncio.Lock()  # held while a large write is checked
        self._staging: set[asyncio.Task[None]] = set()  # large writes, and those behind them
        self._queue: list[_Waiting] = []
        self._in_hand: list[_Waiting] = []  # being written to disk
        self.is_closed = False  # or about to be; no write is taken any more
        self._worker: asyncio.Task[None] | None = None  # there is one while the queue is served

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        clock: Clock | None = None,
        journal_bytes_max: int = JOURNAL_BYTES_MAX,
        io_failed: Callable[[str, str, OSError], object] = lambda path, what, error: None,
        keeps_sessions: bool = False,
    ) -> NodeDatabase:
        """Reads the files, which takes about 2 us a node. Raises StartupError if it cannot."""
        journal = Journal(Path(directory), io_failed, keeps_sessions=keeps_sessions)
        try:
            tree = journal.load()
            if journal.wants_snapshot(journal_bytes_max):
                journal.write_snapshot(tree)
            database = cls(journal, tree, clock or SystemClock(), journal_bytes_max)
            if keeps_sessions:
                database._note_start()
        except BaseException:
            journal.close()
            raise
        return database

    def _note_start(self) -> None:
        start_zxid = self._outstanding.zxid + 1
        record = encode_start(start_zxid, self._clock.time_ms(), self._durable_zxid)
        self._journal.append(record)
        self.tree.zxid = self._outstanding.zxid = self._durable_zxid = start_zxid

    def session_id(self, number: int) -> int:
        """Of the session that this run opens with that number; no other run has it."""
        return (self.tree.zxid >> 32 << 24) + number

    @property
    def waiting_count(self) -> int:
        """Writes under way."""
        return len(self._queue) + len(self._in_hand) + len(self._staging)

    async def close(self) -> None:
        self.is_closed = True
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._journal.close()

    def write_now(self, operations: Operations, session_id: int) -> list[Outcome]:
        assert self._worker is None, "blocking writes are for start-up, before any other"
        transaction, outcomes = self._outstanding.stage(
            operations, session_id, self._clock.time_ms()
        )
        record = self._record(transaction)
        try:
            if record:
                self._journal.append(record)
                self._durable_zxid = transaction.zxid
        except StoreUnavailable:
            self._outstanding.forget_all()
            raise
        deleted = self.tree.apply(transaction)
        self._outstanding.applied(transaction)
        for watcher, event in self.fired(transaction, deleted):
            watcher(event)
        return outcomes

    async def write(self, operations: Operations, session_id: int) -> list[Outcome]:
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()

        def done(result: Result) -> None:
            if answer.done():
                return  # whoever waited has given up
            if isinstance(result, StoreError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.submit(operations, session_id, done)
        return await answer

    def submit(
        self,
        operations: Operations,
        session_id: int,
        done: Done,
        identities: Collection[Identity] | None = None,
    ) -> None:
        """`done` is called, on the loop, once the write is durable and applied or has failed: for
        all writes in the order in which they were submitted. It must not raise, and returns
        something to await only for a write that has succeeded.

        Access lists are checked for the identities, which must not change. Without identities
        everything is permitted.
        """
        if self._staging or len(operations) > SMALL_TRANSACTION:
            staging = asyncio.get_running_loop().create_task(
                self._submit_in_slices(operations, session_id, done, identities)
            )
            self._staging.add(staging)
            staging.add_done_callback(self._staging.discard)
            return
        try:
            if self.is_closed:
                raise StoreClosed("/")
            transaction, outcomes = self._outstanding.stage(
                operations, session_id, self._clock.time_ms(), identities
            )
        except StoreError as error:
            self._refuse(error, done)
            return
        self._enqueue(_Waiting(transaction, outcomes, done))

    async def _submit_in_slices(
        self,
        operations: Operations,
        session_id: int,
        done: Done,
        identities: Collection[Identity] | None,
    ) -> None:
        async with self._stager:  # writes are judged in the order in which they were asked for
            try:
                transaction, outcomes = await self._stage_in_slices(
                    operations, session_id, identities
                )
            except StoreError as error:
                self._refuse(error, done)
                return
            self._enqueue(_Waiting(transaction, outcomes, done))

    async def _stage_in_slices(
        self,
        operations: Operations,
        session_id: int,
        identities: Collection[Identity] | None,
    ) -> tuple[Transaction, list[Outcome]]:
        losses = self._outstanding.losses
        multi = self._outstanding.begin(session_id, identities)
        for operation in operations:
            await self._slices.breathe()
            multi.perform(operation)
        if self.is_closed:
            raise StoreClosed("/")
        if losses != self._outstanding.losses:
            raise StoreUnavailable("/")
        return self._outstanding.accept(multi, self._clock.time_ms()), multi.outcomes

    def _refuse(self, error: StoreError, done: Done) -> None:
        if self._worker is None:
            done(error)
        else:
            self._queue.append(_Waiting(None, error, done))

    def _enqueue(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._serve_queue())

    async def _serve_queue(self) -> None:
        try:
            while self._queue:
                self._in_hand, self._queue = self._queue, []
                await self._commit()
                if self._journal.wants_snapshot(self._journal_bytes_max):
                    await attempted("the snapshot of the metadata", self._snapshot)
        finally:
            self._worker = None
            if self._in_hand:  # the loop is being closed
                self._fail("/")

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        changes = sum(
            len(waiting.transaction.changes) for waiting in self._in_hand if waiting.transaction
        )
        if changes <= SMALL_TRANSACTION:
            records, last_zxid = self._encode(self._in_hand)
        else:
            records, last_zxid = await loop.run_in_executor(None, self._encode, self._in_hand)
        if records:
            try:
                await loop.run_in_executor(None, self._journal.append, records)
            except StoreUnavailable as error:
                self._fail(error.path)
                return
            self._durable_zxid = last_zxid
        await self._finish()

    def _encode(self, queue: list[_Waiting]) -> tuple[bytes, int]:
        """The records, and the zxid of the last one. For any thread."""
        records = []
        last_zxid = self._durable_zxid
        for waiting in queue:
            record = self._record(waiting.transaction) if waiting.transaction else b""
            if waiting.transaction and record:
                records.append(record)
                last_zxid = waiting.transaction.zxid
        return b"".join(records), last_zxid

    def _record(self, transaction: Transaction) -> bytes:
        return encode_transaction(transaction, self._durable_zxid, self._journal.keeps_sessions)

    async def _finish(self) -> None:
        """Each transaction is applied as a whole; between two of them others have their turn."""
        loop = asyncio.get_running_loop()
        for waiting in self._in_hand:
            if len(self._in_hand) > 1:
                await self._slices.breathe()
            transaction = waiting.transaction
            if transaction is not None:
                if self.readers_wait and len(transaction.changes) > SMALL_TRANSACTION:
                    await self._apply_in_slices(transaction)
                else:
                    deleted = self.tree.apply(transaction)
                    for watcher, event in self.fired(transaction, deleted):
                        loop.call_soon(watcher, event)
                await self._forget_expected(transaction)
            more = waiting.done(waiting.result)
            if more is not None:
                await more
        self._in_hand = []

    async def _apply_in_slices(self, transaction: Transaction) -> None:
        changes = transaction.changes
        pieces = [
            transaction._replace(changes=changes[start : start + SMALL_TRANSACTION])
            for start in range(0, len(changes), SMALL_TRANSACTION)
        ]
        loop = asyncio.get_running_loop()
        self.is_applying = True
        self.settled.clear()
        try:
            deleted: DeletedAccess = {}
            for _ in self.tree.apply_in_pieces(pieces, deleted):
                await self._slices.breathe()
            for piece in pieces:
                for watcher, event in self.fired(piece, deleted):
                    loop.call_soon(watcher, event)
                await self._slices.breathe()
        finally:  # otherwise all requests would wait for ever
            self.is_applying = False
            self.settled.set()

    async def _forget_expected(self, transaction: Transaction) -> None:
        if len(transaction.changes) <= SMALL_TRANSACTION:
            self._outstanding.applied(transaction)
            return
        for _ in self._outstanding.applied_bit_by_bit(transaction):
            await self._slices.breathe()

    def _fail(self, path: str) -> None:
        lost = self._in_hand + self._queue
        self._in_hand, self._queue = [], []
        self._outstanding.forget_all()
        for waiting in lost:
            waiting.done(StoreUnavailable(path))

    async def _snapshot(self) -> None:
        """A thread reads the tree: nothing is applied to it before the next commit."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._journal.write_snapshot, self.tree)
