"""Many connections to one broker on one event loop, and a network between that behaves badly.

`WirePool` sends a request on any of its connections; answers come in order on each, in any order
between them. `Disorder` delivers copies of a request on several connections after random delays,
some of them long after the sender has had its answer and gone on.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from typing import Any

from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.primitives import skip_tags
from tidelog.protocol.registry import response_class

ANSWER_WITHIN_S = 30.0
PROMPT_MAX_S = 0.004


class WireConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._task = asyncio.create_task(self._read())

    def ask(self, request: Any, version: int) -> asyncio.Future[Any]:
        self._correlation_id += 1
        key = int(request.API_KEY)
        body = encode_request_header(key, version, self._correlation_id, "disorder")
        body += request.encode(version)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, version, self._correlation_id, answer))
        self._writer.write(struct.pack(">i", len(body)) + body)
        return answer

    async def _read(self) -> None:
        try:
            while True:
                size = struct.unpack(">i", await self._reader.readexactly(4))[0]
                self._take(memoryview(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            for *_, answer in self._waiting:
                if not answer.done():
                    answer.set_exception(error)

    def _take(self, frame: memoryview) -> None:
        key, version, correlation_id, answer = self._waiting.popleft()
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        position = skip_tags(frame, 4) if response_header_version(key, version) else 4
        if not answer.done():
            answer.set_result(response_class(key).decode(frame, position, version))

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        await self._writer.wait_closed()


class WirePool:
    def __init__(self, connections: list[WireConnection]) -> None:
        self._connections = connections

    @classmethod
    async def open(cls, bootstrap: str, count: int) -> WirePool:
        host, _, port = bootstrap.rpartition(":")
        pairs = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
        return cls([WireConnection(*pair) for pair in pairs])

    async def ask(self, request: Any, version: int, place: int = 0) -> Any:
        connection = self._connections[place % len(self._connections)]
        return await asyncio.wait_for(connection.ask(request, version), ANSWER_WITHIN_S)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


class Delivery:
    """One request and the copies of it that are on their way."""

    def __init__(self, copies: list[asyncio.Task[Any]]) -> None:
        self.copies = copies

    async def first(self) -> Any:
        """The answer that comes first, whichever copy it belongs to."""
        done, _ = await asyncio.wait(self.copies, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    async def settled(self) -> list[Any]:
        return await asyncio.gather(*self.copies)


class Disorder:
    def __init__(self, pool: WirePool, dice: random.Random, stray_max_s: float) -> None:
        self._pool = pool
        self._dice = dice
        self._stray_max_s = stray_max_s
        self.under_way: set[asyncio.Task[Any]] = set()
        self.sent: dict[str, int] = {}

    def send(self, request: Any, version: int, *, strays: bool) -> Delivery:
        """One or two copies soon; with `strays` perhaps more of them much later."""
        dice = self._dice
        delays = [dice.uniform(0, PROMPT_MAX_S) for _ in range(dice.choice((1, 1, 2)))]
        if strays:
            delays += [dice.uniform(0, self._stray_max_s) for _ in range(dice.choice((0, 1, 2)))]
        return Delivery([self._later(delay, request, version) for delay in delays])

    def send_once(self, request: Any, version: int) -> Delivery:
        return Delivery([self._later(0.0, request, version)])

    def send_late(self, request: Any, version: int) -> None:
        self._later(self._dice.uniform(0, self._stray_max_s), request, version)

    def _later(self, delay_s: float, request: Any, version: int) -> asyncio.Task[Any]:
        name = type(request).__name__.removesuffix("Request")
        self.sent[name] = self.sent.get(name, 0) + 1
        place = self._dice.randrange(1 << 16)

        async def deliver() -> Any:
            await asyncio.sleep(delay_s)
            return await self._pool.ask(request, version, place)

        task = asyncio.create_task(deliver())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task
