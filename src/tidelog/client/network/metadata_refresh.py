"""Keeping metadata fresh: at once for who waits for it, in the background for what is watched.

Whoever asks while a request is under way waits for the next one, because the one under way may have
been answered before the change that he knows of; all who ask meanwhile share it.

In the background what is watched is asked for when it is older than metadata.max.age.ms, or when
somebody says `soon`; never more often than retry.backoff.ms, which grows while it fails.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.client.errors import AuthenticationFailed, ClientError, Closed
from tidelog.client.network.backoff import Backoff
from tidelog.clock import pause
from tidelog.supervisor import keep_going, report

if TYPE_CHECKING:
    from tidelog.client.network.cluster import Cluster


class _Batch:
    """What one request will ask for."""

    __slots__ = ("may_create", "names", "waiters")

    def __init__(self, may_create: bool) -> None:
        self.may_create = may_create
        self.names: set[str] | None = set()
        self.waiters: list[asyncio.Future[None]] = []

    def add(self, names: set[str] | None) -> asyncio.Future[None]:
        self.names = None if self.names is None or names is None else self.names | names
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def settle(self, problem: ClientError | None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if problem is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(problem)
                waiter.exception()  # nobody may be waiting any more


class MetadataRefresh:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next: dict[bool, _Batch] = {}  # by whether topics may be created
        self._asking: asyncio.Task[None] | None = None
        self._watched: set[str] | None = set()
        self._may_create = False
        self._background: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._is_closed = False
        self._refusal: AuthenticationFailed | None = None  # that nobody has been told

    def take_refusal(self) -> AuthenticationFailed | None:
        """Why the background stopped asking; told once."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            self.soon()
        return refusal

    async def close(self) -> None:
        self._is_closed = True
        tasks = [task for task in (self._asking, self._background) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for batch in self._next.values():
            batch.settle(Closed("the client is closed"))
        self._next.clear()

    # At once

    async def now(self, names: set[str] | None, *, may_create: bool) -> None:
        if self._is_closed:
            raise Closed("the client is closed")
        batch = self._next.setdefault(may_create, _Batch(may_create))
        waiter = batch.add(names)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            report("asking for metadata", self._asking)
        await waiter

    async def watched_now(self) -> None:
        await self.now(self._watched, may_create=self._may_create)

    async def _ask(self) -> None:
        try:
            while self._next:
                batch = self._next.pop(next(iter(self._next)))
                problem: ClientError | None = Closed("the client is closed")
                try:
                    await self._cluster.ask_metadata(batch.names, may_create=batch.may_create)
                    problem = None
                except ClientError as failed:
                    problem = failed
                finally:
                    batch.settle(problem)
        finally:
            self._asking = None

    # In the background

    def watch(self, topics: set[str] | None, *, may_create: bool) -> None:
        self._watched = topics
        self._may_create = may_create
        known = self._cluster.metadata.topics
        if topics is None or not topics <= known.keys():
            self.soon()
        elif topics:
            self._begin_background()

    def soon(self) -> None:
        if self._is_closed:
            return
        self._begin_background()
        assert self._wake is not None
        self._wake.set()

    def _begin_background(self) -> None:
        if self._background is None and not self._is_closed:
            self._wake = asyncio.Event()
            work = keep_going("keeping metadata fresh", self._keep_fresh, self._cluster.timer)
            self._background = asyncio.get_running_loop().create_task(work)

    async def _keep_fresh(self) -> None:
        assert self._wake is not None
        config = self._cluster.config
        backoff = Backoff.of(config, "retry.backoff.ms")
        while True:
            await self._woken_or_old()
            await pause(self._cluster.timer, backoff.next_s())
            self._wake.clear()
            try:
                await self.watched_now()
            except AuthenticationFailed as problem:
                self._refusal = problem  # asked again only when somebody wants to know
            except ClientError:
                self._wake.set()
            else:
                backoff.reset()

    async def _woken_or_old(self) -> None:
        assert self._wake is not None
        age_s = self._cluster.config.seconds("metadata.max.age.ms")
        handle = self._cluster.timer.call_later(age_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            handle.cancel()
