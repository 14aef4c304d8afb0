"""The broker of a test: a real one, whose clock jumps and whose requests meet faults when asked.

All of it runs on the broker's loop. `SteeredBroker` is what a test steers: it starts the server,
starts it again on another state, and carries out the commands of `control`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog.broker.api_table import served
from tidelog.broker.cluster_server import ClusterServer
from tidelog.broker.dispatcher import RequestDispatcher
from tidelog.broker.server import Server
from tidelog.config.broker import BrokerConfig
from tidelog.testing.faults import Effect, Fault, FaultRules, api_named, error_named
from tidelog.testing.warp_clock import WarpClock

SETTLE_TURNS: Final = 20  # of the loop, for what was woken to do its work
SETTLE_S: Final = 0.001
# What a thread may be deleting, and the loader would.
LEFT_OUT: Final = shutil.ignore_patterns(".lock", "*.deleted", "*-delete")


class SteeredServer(Server):
    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        faults: FaultRules,
        ahead_s: float,
    ) -> None:
        self.warp = WarpClock(loop, ahead_s)
        self._faults = faults
        super().__init__(config, loop, clock=self.warp, timer=self.warp)

    def _new_dispatcher(self) -> RequestDispatcher:
        """Kept Metadata answers would pass the faults by."""
        apis = self._faults.wrap(served(in_cluster=self.in_cluster))
        return RequestDispatcher(self.broker, apis, recalls_metadata=False)

    async def jump(self, seconds: float) -> None:
        """Until what became due by it is done.

        The clocks of clients do not jump along. From now on topics take the broker's time for that
        of their records, unless they have a message.timestamp.type of their own; new records would
        be born old.
        """
        self.warp.jump(seconds)
        await self.broker.dynamic_config.alter_broker(None, _with_own_time)
        self._cleaner.end_rests()
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        await self.cleaner_rests()

    async def cleaner_rests(self) -> None:
        """It works on threads, so files come and go while it does."""
        while not self._cleaner.is_resting:  # noqa: ASYNC110 it has no event for a test alone
            await asyncio.sleep(SETTLE_S)


class SteeredClusterServer(SteeredServer, ClusterServer):
    """The same in a cluster. Its clock does not jump: the others have theirs."""


def _lone_only(what: str) -> ValueError:
    """A broker of a cluster shares its time and its state with the others."""
    return ValueError(f"{what} is for a broker on its own, not for one of a cluster")


def _with_own_time(before: Mapping[str, str]) -> dict[str, str]:
    return {**before, "log.message.timestamp.type": "LogAppendTime"}


class SteeredBroker:
    def __init__(
        self,
        overrides: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        ahead_s: float = 0.0,
    ) -> None:
        """`ahead_s` is how far the clock had jumped before it was started again."""
        self._overrides = dict(overrides)
        self._loop = loop
        self._faults = FaultRules()
        self._ahead_s = ahead_s
        self._server: SteeredServer

    async def start(self) -> dict[str, str]:
        """Where it listens, by listener. From the second start on the ports are the same."""
        kind = SteeredClusterServer if self._is_in_cluster else SteeredServer
        server = kind(BrokerConfig(self._overrides), self._loop, self._faults, self._ahead_s)
        server.start()
        server.serves()
        self._server = server
        await server.join()
        if self._ahead_s:
            await server.jump(0)  # a snapshot may be older than the first jump
        self._overrides["listeners"] = ",".join(map(str, server.endpoints))
        return {each.listener_name: f"{each.host}:{each.port}" for each in server.endpoints}

    @property
    def _is_in_cluster(self) -> bool:
        return bool(self._overrides.get("zookeeper.connect"))

    async def stop(self) -> None:
        await self._server.stop()

    async def advance(self, seconds: float) -> None:
        if self._is_in_cluster:
            raise _lone_only("a clock that jumps")
        await self._server.jump(seconds)
        self._ahead_s += seconds

    def add_fault(
        self, effect: str, api: str, error: str | int | None = None, **limits: Any
    ) -> None:
        code = error_named(0 if error is None else error)
        self._faults.add(Fault(Effect(effect), api_named(api), code, **limits))

    def clear_faults(self) -> None:
        self._faults.clear()

    async def snapshot(self, target: str) -> None:
        """All that is stored, as it is between two turns of the loop. The broker serves nobody
        meanwhile, and serves on.
        """
        if self._is_in_cluster:
            raise _lone_only("a snapshot")
        await self._server.cleaner_rests()
        self._server.broker.append_turn.end()
        for data, copy in self._copies(target):
            shutil.copytree(data, copy, ignore=LEFT_OUT)

    async def restore(self, source: str) -> None:
        """Connections close; clients find the broker at its address, as the snapshot has it."""
        await self._server.stop()
        for data, copy in self._copies(source):
            shutil.rmtree(data)
            shutil.copytree(copy, data)
        await self.start()

    def _copies(self, snapshot: str) -> Iterator[tuple[Path, Path]]:
        """Each log directory, and where the snapshot has it."""
        for number, directory in enumerate(BrokerConfig(self._overrides).log_dirs):
            yield Path(directory), Path(snapshot) / str(number)
