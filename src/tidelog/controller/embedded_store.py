"""The default metadata store: durable files in the first log directory, serving one process.

How a write goes
1. It is checked against the tree and all writes under way (`outstanding_changes.py`). If it is
   refused, the error waits for the writes under way: it may rest on one of them, and whoever reads
   and tries again must find what refused it.
2. It joins the queue. At the end of the loop's turn the whole queue becomes one append and one
   fsync in a thread (group commit); writes made meanwhile form the next queue.
3. Back on the loop, the transactions of the append are applied in order, watches fire, and the
   waiting callers go on.
So the tree, which answers all reads, never shows what a crash could take back. If the append
fails, everything queued fails with `StoreUnavailable` and the tree stays as it was; the next write
tries again. A caller that is cancelled while it waits does not undo its write.

The journal is folded into a snapshot when it exceeds 1 MiB and twice the last snapshot.

A process may open several sessions on the same files with `new_session`, one for each broker that
it hosts. Sessions do not expire; they end with `close` or with the process. Ephemeral nodes are
never on disk. So writing them costs no fsync, and numbers that only ephemeral sequence nodes had
may be given again after a restart.

zxids are ZooKeeper's: the number of the run in the upper 32 bits, a counter in the lower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tidelog.clock import Clock, SystemClock
from tidelog.controller.journal import Journal, encode_transaction
from tidelog.controller.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    EventType,
    Operation,
    Outcome,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    WatchedEvent,
    Watcher,
    parent_of,
    require_valid_path,
)
from tidelog.controller.node_tree import Change, ChangeKind, Node, NodeTree, Transaction
from tidelog.controller.outstanding_changes import OutstandingChanges
from tidelog.slices import Slices
from tidelog.supervisor import attempted

JOURNAL_BYTES_MAX: Final = 1024 * 1024
SMALL_TRANSACTION: Final = 200  # operations that are staged and applied in one turn of the loop


class EmbeddedStore:
    """One session on the files of a directory. Touched only on the broker's loop."""

    def __init__(self, database: _Database, session_id: int) -> None:
        self._database = database
        self._session_id = session_id
        self._closed = False
        self.data_watches: dict[str, dict[Watcher, None]] = {}
        self.child_watches: dict[str, dict[Watcher, None]] = {}

    @classmethod
    def open(
        cls,
        directory: Path | str,
        *,
        clock: Clock | None = None,
        journal_bytes_max: int = JOURNAL_BYTES_MAX,
        io_failed: Callable[[str, str, OSError], object] = lambda path, what, error: None,
    ) -> EmbeddedStore:
        """Reads the files, which takes about 2 us a node. Raises StartupError if it cannot."""
        journal = Journal(Path(directory), io_failed)
        try:
            tree = journal.load()
        except BaseException:
            journal.close()
            raise
        if journal.wants_snapshot(journal_bytes_max):
            journal.write_snapshot(tree.zxid, tree.subtree("/"))
        database = _Database(journal, tree, clock or SystemClock(), journal_bytes_max)
        return database.new_session()

    def new_session(self) -> EmbeddedStore:
        return self._database.new_session()

    @property
    def session_id(self) -> int:
        return self._session_id

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        made = await self._write([Create(path, data, ephemeral, sequence, make_parents)])
        assert isinstance(made[0], str)
        return made[0]

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        node = self._node(path)
        if watch is not None:
            self.data_watches.setdefault(path, {})[watch] = None
        return node.data, node.stat()

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        made = await self._write([SetData(path, data, version)])
        assert isinstance(made[0], int)
        return made[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        self._require_open(path)
        require_valid_path(path)
        if watch is not None:
            self.data_watches.setdefault(path, {})[watch] = None
        node = self._database.tree.nodes.get(path)
        return node.stat() if node else None

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        node = self._node(path)
        if watch is not None:
            self.child_watches.setdefault(path, {})[watch] = None
        return sorted(node.children or ())

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        return await self._write(operations)

    def multi_now(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._require_open("/")
        return self._database.write_now(operations, self._session_id)

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        for below, node in self._database.tree.subtree(path):
            yield below, node.data, node.stat()

    async def close(self) -> None:
        if self._closed:
            return
        gone = sorted(self._database.tree.ephemerals_of(self._session_id), reverse=True)
        if gone:
            await self._write([Delete(path) for path in gone])
        self._closed = True
        await self._database.end_session(self)

    def fire(self, change: Change) -> list[tuple[Watcher, WatchedEvent]]:
        """Takes the watches that wait for this change."""
        path = change.path
        if change.kind == ChangeKind.SET:
            return _take_watches(self.data_watches, path, EventType.CHANGED)
        if change.kind == ChangeKind.CREATED:
            fired = _take_watches(self.data_watches, path, EventType.CREATED)
        else:
            fired = _take_watches(self.data_watches, path, EventType.DELETED)
            fired += [
                entry
                for entry in _take_watches(self.child_watches, path, EventType.DELETED)
                if entry not in fired
            ]
        return fired + _take_watches(self.child_watches, parent_of(path), EventType.CHILD)

    def _node(self, path: str) -> Node:
        self._require_open(path)
        require_valid_path(path)
        return self._database.tree.node(path)

    def _require_open(self, path: str) -> None:
        if self._closed:
            raise StoreClosed(path)

    async def _write(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._require_open("/")
        return await self._database.write(operations, self._session_id)


def _take_watches(
    watches: dict[str, dict[Watcher, None]], path: str, type: EventType
) -> list[tuple[Watcher, WatchedEvent]]:
    waiting = watches.pop(path, None)
    return [(watcher, WatchedEvent(type, path)) for watcher in waiting] if waiting else []


class _Waiting:
    """A transaction in the queue, with what its maker is told when it is durable."""

    __slots__ = ("future", "outcomes", "transaction")

    def __init__(
        self,
        transaction: Transaction,
        outcomes: list[Outcome],
        future: asyncio.Future[list[Outcome]],
    ) -> None:
        self.transaction = transaction
        self.outcomes = outcomes
        self.future = future


class _Database:
    """The files and the tree that all sessions of this process share."""

    def __init__(
        self, journal: Journal, tree: NodeTree, clock: Clock, journal_bytes_max: int
    ) -> None:
        self.tree = tree
        self._journal = journal
        self._clock = clock
        self._journal_bytes_max = journal_bytes_max
        self._durable_zxid = tree.zxid  # of the last record on disk
        tree.zxid = (tree.zxid >> 32) + 1 << 32
        self._outstanding = OutstandingChanges(tree)
        self._slices = Slices()
        self._stager = asyncio.Lock()  # held while a large write is checked
        self._queue: list[_Waiting] = []
        self._in_hand: list[_Waiting] = []  # being written to disk
        self._sessions: list[EmbeddedStore] = []
        self._sessions_opened = 0
        self._worker: asyncio.Task[None] | None = None  # there is one while the queue is served
        self._latest: asyncio.Future[list[Outcome]] | None = None  # of the last write accepted

    def new_session(self) -> EmbeddedStore:
        self._sessions_opened += 1
        session = EmbeddedStore(self, (self.tree.zxid >> 32 << 24) + self._sessions_opened)
        self._sessions.append(session)
        return session

    async def end_session(self, session: EmbeddedStore) -> None:
        self._sessions.remove(session)
        if self._sessions:
            return
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._journal.close()

    def write_now(self, operations: Sequence[Operation], session_id: int) -> list[Outcome]:
        assert self._worker is None, "blocking writes are for start-up, before any other"
        transaction, outcomes = self._outstanding.stage(
            operations, session_id, self._clock.time_ms()
        )
        record = encode_transaction(transaction, self._durable_zxid)
        try:
            if record:
                self._journal.append(record)
                self._durable_zxid = transaction.zxid
        except StoreUnavailable:
            self._outstanding.forget_all()
            raise
        self.tree.apply(transaction)
        self._outstanding.applied(transaction)
        for watcher, event in self._fired(transaction):
            watcher(event)
        return outcomes

    async def write(self, operations: Sequence[Operation], session_id: int) -> list[Outcome]:
        try:
            transaction, outcomes = await self._stage(operations, session_id)
        except StoreError:
            if self._latest is not None:
                await asyncio.shield(self._latest)
            raise
        loop = asyncio.get_running_loop()
        waiting = _Waiting(transaction, outcomes, loop.create_future())
        self._latest = waiting.future
        self._queue.append(waiting)
        if self._worker is None:
            self._worker = loop.create_task(self._serve_queue())
        return await asyncio.shield(waiting.future)

    async def _stage(
        self, operations: Sequence[Operation], session_id: int
    ) -> tuple[Transaction, list[Outcome]]:
        if len(operations) <= SMALL_TRANSACTION and not self._stager.locked():
            return self._outstanding.stage(operations, session_id, self._clock.time_ms())
        async with self._stager:  # writes are judged in the order in which they were asked for
            losses = self._outstanding.losses
            multi = self._outstanding.begin(session_id)
            for operation in operations:
                await self._slices.breathe()
                multi.perform(operation)
            if not self._sessions:
                raise StoreClosed("/")
            if losses != self._outstanding.losses:
                raise StoreUnavailable("/")
            return self._outstanding.accept(multi, self._clock.time_ms()), multi.outcomes

    async def _serve_queue(self) -> None:
        try:
            while self._queue:
                self._in_hand, self._queue = self._queue, []
                await self._commit()
                if self._journal.wants_snapshot(self._journal_bytes_max):
                    await attempted("the snapshot of the metadata", self._snapshot)
        finally:
            self._worker = self._latest = None
            if self._in_hand:  # the loop is being closed
                self._fail("/")

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        changes = sum(len(waiting.transaction.changes) for waiting in self._in_hand)
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
            record = encode_transaction(waiting.transaction, self._durable_zxid)
            if record:
                records.append(record)
                last_zxid = waiting.transaction.zxid
        return b"".join(records), last_zxid

    async def _finish(self) -> None:
        """Each transaction is applied as a whole; between two of them others have their turn."""
        loop = asyncio.get_running_loop()
        for waiting in self._in_hand:
            if len(self._in_hand) > 1:
                await self._slices.breathe()
            self.tree.apply(waiting.transaction)
            for watcher, event in self._fired(waiting.transaction):
                loop.call_soon(watcher, event)
            await self._forget_expected(waiting.transaction)
            waiting.future.set_result(waiting.outcomes)
        self._in_hand = []

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
            if not waiting.future.done():
                waiting.future.set_exception(StoreUnavailable(path))
                waiting.future.exception()  # marks it as seen: the caller may have gone

    def _fired(self, transaction: Transaction) -> list[tuple[Watcher, WatchedEvent]]:
        watched = [s for s in self._sessions if s.data_watches or s.child_watches]
        if not watched:
            return []
        fired = []
        for change in transaction.changes:
            for session in watched:
                fired += session.fire(change)
        return fired

    async def _snapshot(self) -> None:
        """A thread reads the tree: nothing is applied to it before the next commit."""
        loop = asyncio.get_running_loop()
        rows = (row for row in self.tree.subtree("/") if not row[1].ephemeral_owner)
        await loop.run_in_executor(None, self._journal.write_snapshot, self.tree.zxid, rows)
