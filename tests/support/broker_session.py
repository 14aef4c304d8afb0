"""A broker's session with the embedded store that can expire, come back, and go deaf.

The embedded store's own sessions never expire. This one can: its ephemeral nodes go and its watches
are dropped, and until it is renewed all calls fail as they do in the ZooKeeper store. A deaf
session misses its watches: the broker does not learn of what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import (
    ANY_VERSION,
    Operation,
    Outcome,
    Stat,
    StoreClosed,
    WatchedEvent,
    Watcher,
)


class BrokerSession:
    def __init__(
        self,
        store: EmbeddedStore,
        written: Callable[[Sequence[Operation]], None] = lambda operations: None,
    ) -> None:
        """written is told of every multi that the store has taken."""
        self._root = store
        self._written = written
        self._session: EmbeddedStore | None = store.new_session()
        self._hearing: dict[tuple[int, Watcher], Watcher] = {}
        self.deaf = False

    @property
    def _open(self) -> EmbeddedStore:
        if self._session is None:
            raise StoreClosed("/")
        return self._session

    async def expire(self) -> None:
        session, self._session = self._open, None
        self._hearing.clear()
        await session.close()

    def renew(self) -> None:
        assert self._session is None
        self._session = self._root.new_session()

    def _heard(self, watch: Watcher | None) -> Watcher | None:
        if watch is None:
            return None
        session = self._open
        key = (session.session_id, watch)

        def hear(event: WatchedEvent) -> None:
            if not self.deaf and self._session is session:
                watch(event)

        return self._hearing.setdefault(key, hear)

    @property
    def session_id(self) -> int:
        return self._open.session_id

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        return await self._open.create(
            path, data, ephemeral=ephemeral, sequence=sequence, make_parents=make_parents
        )

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._open.get(path, watch=self._heard(watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return await self._open.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._open.delete(path, version)

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        return await self._open.exists(path, watch=self._heard(watch))

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        return await self._open.children(path, watch=self._heard(watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = await self._open.multi(operations)
        self._written(operations)
        return outcomes

    def multi_now(self, operations: Sequence[Operation]) -> list[Outcome]:
        return self._open.multi_now(operations)

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        return self._open.subtree(path)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
