"""A small HTTP/1.1 server for /metrics, /events, /healthz and /readyz, on a thread of its own.

The thread has an event loop of its own, so that it answers while the broker's loop is held or loads
logs, and so that slow and hostile clients cost the broker nothing. It touches no broker state: it
reads `Health` and `EventRing`, and has `collect` run on the broker's loop.

What a client can make it hold is bounded: CONNECTIONS_MAX connections (further ones are closed at
once), HEAD_BYTES_MAX for the head of a request, PAGES_MAX pages of metrics at a time (503 beyond
it). A client has TIMEOUT_S to send a head, and as long to take an answer. Requests on one
connection are answered in their order. A request with a body is refused, because none needs one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from tidelog.broker.observation.event_ring import BadFilter, EventRing
from tidelog.broker.observation.exposition import CONTENT_TYPE
from tidelog.broker.observation.health import Health, State
from tidelog.errors import StartupError
from tidelog.supervisor import attempted

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 8 * 1024
PAGES_MAX: Final = 4
TIMEOUT_S: Final = 30.0
COLLECT_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0
PLAIN: Final = "text/plain; charset=utf-8"
JSON_LINES: Final = "application/x-ndjson"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
INDEX: Final = "/metrics\n/events\n/healthz\n/readyz\n"

Collect = Callable[[], Awaitable[list[str]]]


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = PLAIN
    closes: bool = False


class Head(NamedTuple):
    method: str
    path: str
    keeps_alive: bool
    query: str = ""


class BadRequest(ValueError):
    pass


class HttpServer:
    """Made, started and closed on the broker's thread."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        collect: Collect,
        broker_loop: asyncio.AbstractEventLoop,
        *,
        events: EventRing | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._health = health
        self._collect = collect
        self._broker_loop = broker_loop
        self._events = events
        self._timeout_s = timeout_s
        self._connections = 0
        self._pages = 0
        self._listening = _listening_socket(host, port)
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._is_served = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Cuts off whoever is connected."""
        if self._thread.is_alive() and self._is_served.wait(STOP_TIMEOUT_S):
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
        elif not self._thread.is_alive() and not self._loop.is_closed():
            self._loop.close()
        self._listening.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, sock=self._listening, limit=HEAD_BYTES_MAX)
        )
        self._is_served.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connections += 1
        try:
            await attempted("answering over HTTP", partial(self._serve, reader, writer))
        finally:
            self._connections -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        keeps_alive = True
        while keeps_alive:
            is_bare = False
            try:
                async with asyncio.timeout(self._timeout_s):
                    text = await reader.readuntil(b"\r\n\r\n")
                head = parse_head(text)
            except (asyncio.IncompleteReadError, TimeoutError, ConnectionError):
                return
            except asyncio.LimitOverrunError:
                answer, keeps_alive = Answer(431, b"the head is too long\n"), False
            except BadRequest as error:
                answer, keeps_alive = Answer(400, f"{error}\n".encode()), False
            else:
                keeps_alive, is_bare = head.keeps_alive, head.method == "HEAD"
                answer = await self._answer(head)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._send(writer, answer, keeps_alive, is_bare)
            except (TimeoutError, ConnectionError):
                writer.transport.abort()
                return

    async def _send(
        self, writer: asyncio.StreamWriter, answer: Answer, keeps_alive: bool, is_bare: bool
    ) -> None:
        holds_page = answer.content_type == CONTENT_TYPE
        try:
            head = (
                f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\n"
                f"Content-Type: {answer.content_type}\r\n"
                f"Content-Length: {len(answer.body)}\r\n"
                "Cache-Control: no-store\r\n"
                f"Connection: {'keep-alive' if keeps_alive else 'close'}\r\n\r\n"
            )
            writer.transport.set_write_buffer_limits(high=0)  # `drain` waits until all is sent
            writer.write(head.encode() + (b"" if is_bare else answer.body))
            await writer.drain()
        finally:
            if holds_page:
                self._pages -= 1

    async def _answer(self, head: Head) -> Answer:
        if head.method not in ("GET", "HEAD"):
            return Answer(405, b"only GET and HEAD are served\n")
        if head.path == "/metrics":
            return await self._metrics()
        if head.path == "/events":
            return self._events_told(head.query)
        if head.path == "/healthz":
            return _told(self._health.sick(), "live")
        if head.path == "/readyz":
            return _told(self._health.not_ready(), "ready")
        if head.path == "/":
            return Answer(200, INDEX.encode())
        return Answer(404, b"there is /metrics, /events, /healthz and /readyz\n")

    def _events_told(self, query: str) -> Answer:
        if self._events is None:
            return Answer(404, b"no events are kept: tidelog.events.kept is 0\n")
        try:
            return Answer(200, self._events.page(query).encode(), JSON_LINES)
        except BadFilter as problem:
            return Answer(400, f"{problem}\n".encode())

    async def _metrics(self) -> Answer:
        if self._health.state is not State.SERVING:
            return Answer(503, f"the broker is {self._health.state.value}\n".encode())
        if self._pages >= PAGES_MAX:
            return Answer(503, b"too many scrapes at a time\n")
        self._pages += 1
        page: bytes | None = None
        try:
            page = await self._collected()
        finally:
            if page is None:
                self._pages -= 1
        if page is None:
            return Answer(503, b"the broker did not answer in time\n")
        return Answer(200, page, CONTENT_TYPE)

    async def _collected(self) -> bytes | None:
        async def collect() -> list[str]:
            return await self._collect()

        work = collect()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._broker_loop)
        except RuntimeError:  # the broker's loop is closed
            work.close()
            return None
        try:
            async with asyncio.timeout(COLLECT_TIMEOUT_S):
                pieces = await asyncio.wrap_future(future)
        except (TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
            return None
        return "".join(pieces).encode()


def parse_head(text: bytes) -> Head:
    """The head of a request without a body; BadRequest for anything else."""
    lines = text[:-4].split(b"\r\n")
    words = lines[0].split(b" ")
    if len(words) != 3 or not words[0].isalpha() or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest("no request of HTTP/1.1")
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise BadRequest("a header without a name")
        fields[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
    if fields.get("content-length", "0") != "0" or "transfer-encoding" in fields:
        raise BadRequest("a request with a body is not served")
    path, _, query = words[1].decode("latin-1").partition("?")
    return Head(words[0].decode(), path, _keeps_alive(words[2], fields), query)


def _keeps_alive(version: bytes, fields: Mapping[str, str]) -> bool:
    wish = fields.get("connection", "").lower()
    return wish == "keep-alive" if version == b"HTTP/1.0" else wish != "close"


def _told(problem: str | None, good: str) -> Answer:
    if problem is None:
        return Answer(200, f"{good}\n".encode())
    return Answer(503, f"not {good}: {problem}\n".encode())


def _listening_socket(host: str, port: int) -> socket.socket:
    where = f"{host or '*'}:{port} (tidelog.metrics.listener)"
    try:
        rows = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = rows[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen()
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise StartupError(f"cannot listen on {where}: {error}") from error
    return sock
