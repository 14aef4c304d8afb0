"""A browser without a window: asks the console's application directly, on a loop of its own.

    with ConsoleClient(ConsoleSettings({"bootstrap.servers": bootstrap})) as console:
        page = console.get("/topics")
        done = console.post("/topics/new", name="orders", partitions="3")

It keeps cookies and sends the CSRF token with every form. What it asks runs until it is answered;
nothing of the application runs in between.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.cookies import SimpleCookie
from typing import Any, Self
from urllib.parse import unquote, urlencode, urlsplit

from tidelog.tools.console.application import console_application
from tidelog.tools.console.settings import ConsoleSettings

PATIENCE_S = 60.0


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """What a reader sees: without tags, blanks made one."""
        without = re.sub(r"<(script|style|title)\b.*?</\1>|<[^>]*>", " ", self.text, flags=re.S)
        return " ".join(html.unescape(without).split())

    @property
    def location(self) -> str:
        return self.headers.get("location", "")


class ConsoleClient:
    def __init__(
        self,
        settings: ConsoleSettings | None = None,
        clock: Callable[[], float] | None = None,
        **changes: Any,
    ) -> None:
        known = settings or ConsoleSettings({"bootstrap.servers": "127.0.0.1:1"})
        settings = replace(known, **changes)
        self.app = (
            console_application(settings) if clock is None else console_application(settings, clock)
        )
        self.host = "127.0.0.1"
        self.cookies: dict[str, str] = {}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self.app.state.clients.close())
        self._runner.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._runner.run(self._ask("GET", path, b"", dict(headers or {})))

    def post(
        self,
        path: str,
        fields: Mapping[str, str | Sequence[str]] | None = None,
        *,
        csrf: str | None = None,
        headers: Mapping[str, str] | None = None,
        **named: str,
    ) -> Answer:
        """`csrf` sends another token than the session's."""
        token = self.csrf_token() if csrf is None else csrf
        body = urlencode({"csrf": token, **(fields or {}), **named}, doseq=True).encode()
        sent = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return self._runner.run(self._ask("POST", path, body, sent))

    def send(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """A POST that is no form, as scripts send it."""
        sent = {"x-csrf-token": self.csrf_token(), **(headers or {})}
        return self._runner.run(self._ask("POST", path, body, sent))

    def csrf_token(self) -> str:
        access = self.app.state.access
        if access.cookie not in self.cookies:
            self.get("/login")
        visitor = access.visitor(self.cookies[access.cookie])
        assert visitor is not None
        token: str = visitor.csrf_token
        return token

    def events(self, path: str, count: int) -> list[tuple[str, str]]:
        """The first events of a live part; then the browser goes."""
        return self._runner.run(self._events(path, count))

    def run(self, work: Any) -> Any:
        """Something else on the application's loop."""
        return self._runner.run(work)

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        answer = Answer()
        sent: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Mapping[str, Any]) -> None:
            self._take(message, answer)

        async with asyncio.timeout(PATIENCE_S):
            await self.app(self._scope(method, path, headers), receive, send)
        return answer

    async def _events(self, path: str, count: int) -> list[tuple[str, str]]:
        answer = Answer()
        enough = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Mapping[str, Any]) -> None:
            self._take(message, answer)
            if len(parsed_events(answer.text)) >= count:
                enough.set()

        async with asyncio.timeout(PATIENCE_S):
            await self.app(self._scope("GET", path, {}), receive, send)
        assert answer.status == 200, answer.text
        return parsed_events(answer.text)[:count]

    def _take(self, message: Mapping[str, Any], answer: Answer) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                answer.headers[name.decode()] = value.decode()
                if name == b"set-cookie":
                    for cookie in SimpleCookie(value.decode()).values():
                        self.cookies[cookie.key] = cookie.value
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    def _scope(self, method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
        address = urlsplit(path)
        sent = {"host": self.host, "accept": "text/html", **headers}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(address.path),
            "raw_path": address.path.encode(),
            "query_string": address.query.encode(),
            "root_path": "",
            "headers": [
                (name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()
            ],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
        }


def parsed_events(text: str) -> list[tuple[str, str]]:
    """The whole events of a stream so far, as a browser reads them."""
    found = []
    for block in text.split("\n\n")[:-1]:
        lines = [line.partition(": ") for line in block.split("\n")]
        names = [value for name, _, value in lines if name == "event"]
        data = "\n".join(value for name, _, value in lines if name == "data")
        if names:
            found.append((names[0], data))
    return found
