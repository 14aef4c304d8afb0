"""The default metadata store: durable files in the first log directory, serving one process.

`node_database.py` has the files, and tells how a write goes. A caller that is cancelled while it
waits does not undo its write.

A process may open several sessions on the same files with `new_session`, one for each broker that
it hosts. Sessions do not expire; they end with `close` or with the process. Ephemeral nodes are
never on disk. So writing them costs no fsync, and numbers that only ephemeral sequence nodes had
may be given again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidelog.clock import Clock
from tidelog.controller.metadata_store import (
    Delete,
    EventType,
    MetadataStore,
    Operation,
    Outcome,
    Stat,
    StoreClosed,
    StoreUnavailable,
    WatchedEvent,
    Watcher,
    parent_of,
    require_valid_path,
)
from tidelog.controller.node_database import JOURNAL_BYTES_MAX, NodeDatabase
from tidelog.controller.node_tree import Change, ChangeKind, DeletedAccess, Node, Transaction


class EmbeddedStore(MetadataStore):
    """One session on the files of a directory. Touched only on the broker's loop."""

    def __init__(self, database: NodeDatabase, sessions: _Sessions) -> None:
        self._database = database
        self._sessions = sessions
        self._session_id = sessions.add(self)
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
        database = NodeDatabase.open(
            directory, clock=clock, journal_bytes_max=journal_bytes_max, io_failed=io_failed
        )
        return cls(database, _Sessions(database))

    def new_session(self) -> EmbeddedStore:
        return EmbeddedStore(self._database, self._sessions)

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        node = self._node(path)
        if watch is not None:
            self.data_watches.setdefault(path, {})[watch] = None
        return node.data, node.stat()

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
        self._closed = True
        try:
            await self._drop_ephemerals()
        except StoreUnavailable:
            self._closed = False
            raise
        await self._sessions.remove(self)

    async def _drop_ephemerals(self) -> None:
        if self._database.waiting_count:  # those that were asked for before are made first
            await self._database.write([], self._session_id)
        gone = sorted(self._database.tree.ephemerals_of(self._session_id), reverse=True)
        if gone:
            await self._database.write([Delete(path) for path in gone], self._session_id)

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


class _Sessions:
    """All sessions on one database; the last one closes it."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        self._open: list[EmbeddedStore] = []
        self._opened = 0
        database.fired = self._fired

    def add(self, session: EmbeddedStore) -> int:
        self._open.append(session)
        self._opened += 1
        return self._database.session_id(self._opened)

    async def remove(self, session: EmbeddedStore) -> None:
        self._open.remove(session)
        if not self._open:
            await self._database.close()

    def _fired(
        self, transaction: Transaction, deleted: DeletedAccess
    ) -> list[tuple[Watcher, WatchedEvent]]:
        watched = [s for s in self._open if s.data_watches or s.child_watches]
        if not watched:
            return []
        fired = []
        for change in transaction.changes:
            for session in watched:
                fired += session.fire(change)
        return fired


def _take_watches(
    watches: dict[str, dict[Watcher, None]], path: str, type: EventType
) -> list[tuple[Watcher, WatchedEvent]]:
    waiting = watches.pop(path, None)
    return [(watcher, WatchedEvent(type, path)) for watcher in waiting] if waiting else []
