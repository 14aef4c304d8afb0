"""The clients that ask the cluster for a visitor, with that visitor's credentials.

    admin = clients_of(request).admin
    consumer = AsyncConsumer(clients_of(request).settings(ConsumerConfig))

Visitors with the same login share one `Clients`: an AsyncAdmin and the looks that were taken with
it. A `Clients` is closed when no session has its login any more, at the next request of anybody.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.config.client import AdminConfig, KafkaConfig
from tidelog.config.jaas import MODULES
from tidelog.tools.console.access import Login
from tidelog.tools.console.page import visitor_of
from tidelog.tools.console.settings import JAAS_CONFIG, ConsoleSettings

T = TypeVar("T")

TIMEOUT_MS: Final = 10_000
LOOKS_MAX: Final = 256
TIME_LIMITS: Final = {
    "default.api.timeout.ms": str(TIMEOUT_MS),
    "request.timeout.ms": str(TIMEOUT_MS),
    "socket.connection.setup.timeout.ms": str(TIMEOUT_MS // 2),
    "client.id": "tidelog-console",
}


class Clients:
    """Of one user of the cluster, on the console's loop."""

    def __init__(self, config: Mapping[str, str], clock: Callable[[], float]) -> None:
        self.config = config
        self.clock = clock
        self.admin = AsyncAdmin(self.settings(AdminConfig))
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._kept: dict[type, object] = {}

    def settings(self, kind: type[KafkaConfig]) -> dict[str, str]:
        """The keys that this kind of client knows, and short time limits."""
        given = {key: value for key, value in self.config.items() if key in kind.TABLE}
        limits = {key: value for key, value in TIME_LIMITS.items() if key in kind.TABLE}
        return limits | given

    async def shared(self, name: str, age_max_s: float, take: Callable[[], Awaitable[T]]) -> T:
        """What `take` returned at most so long ago; those who ask at once share one look.

        The name says what it is: who uses a name twice gets the other's look.
        """
        known = self._looks.get(name)
        if known is not None and self.clock() - known.at_s <= age_max_s:
            self._looks.move_to_end(name)
            found: T = known.value
            return found
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.ensure_future(self._taken(name, take))
            self._tasks[name] = task
            task.add_done_callback(lambda done: self._forget(name, done))
        shared: T = await asyncio.shield(task)
        return shared

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """The one object of this kind that lives as long as these clients."""
        if kind not in self._kept:
            self._kept[kind] = make()
        found: Any = self._kept[kind]
        return found  # type: ignore[no-any-return]

    def forget(self, *names: str) -> None:
        """After a change, so that the next page shows it."""
        for name in names:
            self._looks.pop(name, None)

    async def _taken(self, name: str, take: Callable[[], Awaitable[T]]) -> T:
        value = await take()
        self._looks[name] = _Look(self.clock(), value)
        self._looks.move_to_end(name)
        while len(self._looks) > LOOKS_MAX:
            self._looks.popitem(last=False)
        return value

    def _forget(self, name: str, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may wait any more

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        await self.admin.close()


class _Look:
    __slots__ = ("at_s", "value")

    def __init__(self, at_s: float, value: Any) -> None:
        self.at_s = at_s
        self.value = value


class ClientPool:
    """The `Clients` of all who are logged in, by login."""

    def __init__(
        self,
        settings: ConsoleSettings,
        clock: Callable[[], float],
        logins: Callable[[], Collection[Login]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._logins = logins
        self._of: dict[Login | None, Clients] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, login: Login | None) -> Clients:
        key = login if login is not None and login.password is not None else None
        self._close_left(key)
        clients = self._of.get(key)
        if clients is None:
            config = properties_of(self._settings, key)
            clients = self._of[key] = Clients(config, self._clock)
        return clients

    def _close_left(self, asking: Login | None) -> None:
        if len(self._of) < 2:
            return
        needed = {asking, None, *self._logins()}
        for login in [each for each in self._of if each not in needed]:
            task = asyncio.ensure_future(self._of.pop(login).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def check(self, login: Login) -> None:
        """Raises what the cluster answers to this login."""
        clients = Clients(properties_of(self._settings, login), self._clock)
        try:
            await clients.admin.describe_cluster(timeout=TIMEOUT_MS / 1_000)
        finally:
            await clients.close()

    async def close(self) -> None:
        while self._of:
            await self._of.popitem()[1].close()
        if self._closing:
            await asyncio.wait(list(self._closing))


def properties_of(settings: ConsoleSettings, login: Login | None) -> dict[str, str]:
    """The client's keys, with this user's credentials in place of any others."""
    properties = dict(settings.properties)
    if login is not None and login.password is not None:
        module = MODULES[settings.mechanism]
        user, password = _quoted(login.user), _quoted(login.password)
        properties[JAAS_CONFIG] = f"{module} required username={user} password={password};"
    return properties


def _quoted(text: str) -> str:
    escapes: dict[str, str | int | None] = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + text.translate(str.maketrans(escapes)) + '"'


def clients_of(request: Request) -> Clients:
    """Of the visitor who asks."""
    pool: ClientPool = request.app.state.clients
    return pool.of(visitor_of(request).login)
