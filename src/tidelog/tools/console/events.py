"""Server-sent events: how pages stay current.

`event_stream` sends what an asynchronous iterator yields. It closes the iterator when the browser
goes, the session is over, the console stops, or the iterator ends. A heartbeat every 15 s finds out
about browsers that went without a word. `Streams` bounds how many there are, for each session and
in all: each holds a connection and what its page looks at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tidelog.client.errors import ClientError
from tidelog.tools.console.page import visitor_of
from tidelog.tools.console.rights import is_still_in

HEARTBEAT_S: Final = 15.0
STREAMS_MAX: Final = 200
SESSION_STREAMS_MAX: Final = 16
RETRY_MS: Final = 3_000

Event = tuple[str, str]
"""Its name and its data, which may have several lines."""


class Streams:
    """Touched on the console's loop only."""

    def __init__(self) -> None:
        self._of_session: Counter[str] = Counter()
        self._is_ending = asyncio.Event()

    def has_room(self, session: str) -> bool:
        return (
            self._of_session.total() < STREAMS_MAX
            and self._of_session[session] < SESSION_STREAMS_MAX
        )

    def begin(self, session: str) -> None:
        self._of_session[session] += 1

    def end(self, session: str) -> None:
        self._of_session[session] -= 1
        if not self._of_session[session]:
            del self._of_session[session]

    def end_all(self) -> None:
        """The console stops; browsers come back when it serves again."""
        self._is_ending.set()

    async def ending(self) -> None:
        await self._is_ending.wait()


def event_stream(request: Request, events: AsyncGenerator[Event, None]) -> Response:
    """`events` must be a generator: it is closed when the stream ends, so its `finally` runs."""
    streams: Streams = request.app.state.streams
    if not streams.has_room(visitor_of(request).session):
        return PlainTextResponse(
            "too many live pages are open; close some", 503, headers={"retry-after": "10"}
        )
    return _EventStream(request, events, streams)


class _EventStream(Response):
    media_type = "text/event-stream"

    def __init__(
        self, request: Request, events: AsyncGenerator[Event, None], streams: Streams
    ) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._streams = streams
        self._request = request
        self._session = visitor_of(request).session
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.begin(self._session)
        work = asyncio.create_task(self._send(send))
        gone = asyncio.create_task(_gone(receive))
        watches = [gone, asyncio.create_task(self._streams.ending())]
        try:
            await asyncio.wait([work, *watches], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, *watches):
                task.cancel()
            await asyncio.wait([work, *watches])
            await self._events.aclose()
            self._streams.end(self._session)
        if not work.cancelled():
            work.result()
        elif gone.cancelled():  # the browser still reads
            if not self._has_begun:
                await self._begin(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, send: Send) -> None:
        self._has_begun = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _send(self, send: Send) -> None:
        await self._begin(send)
        await _write(send, f"retry: {RETRY_MS}\n\n")
        following: asyncio.Future[Event] | None = None
        try:
            while True:
                if following is None:
                    following = asyncio.ensure_future(anext(self._events))
                done, _ = await asyncio.wait([following], timeout=HEARTBEAT_S)
                if not is_still_in(self._request):
                    raise StopAsyncIteration
                if not done:
                    await _write(send, ":\n\n")
                    continue
                name, data = following.result()
                following = None
                await _write(send, encoded(name, data))
        except StopAsyncIteration:
            await _write(send, encoded("end", ""))
        except ClientError as problem:
            await _write(send, encoded("problem", str(problem)))
        finally:
            if following is not None and not following.done():
                following.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration, ClientError):
                    await following
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def encoded(name: str, data: str) -> str:
    """One event. Data of several lines has several fields, so no data can begin another event."""
    assert "\n" not in name, name
    assert "\r" not in name, name
    lines = "".join(f"data: {line}\n" for line in data.replace("\r", "\n").split("\n"))
    return f"event: {name}\n{lines}\n"


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
