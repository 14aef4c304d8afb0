"""Who may do what: the gate before every page.

In this order, and before a page sees the request:

1. The Host header must be an IP address, localhost, the listener's host, or a name from
   --host-name. A page of another site whose name was made to point here (DNS rebinding) is refused.
2. The session: an identifier in a signed cookie (HttpOnly, SameSite=Strict). Without a login it is
   no more than that, and the console keeps nothing for it. After a login the console keeps who it
   is, and the password, in memory: an hour after its last use, twelve hours at most, at most 500.
3. Where somebody must log in, everything but the login page and the assets.
4. A POST must come from this console (Origin, if the browser says it) and carry the session's CSRF
   token, in the field `csrf` or the header X-CSRF-Token. A form is read here, at most 2 MiB of it.
   A body of another type needs the header and is left to the page.
5. A POST whose route is no `ReadingPost` needs --write.

Every answer gets the security headers. Scripts and styles come from this console's files alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.tools.console.page import ReadingPost, link, problem
from tidelog.tools.console.settings import ConsoleSettings, LoginMode

IDLE_MAX_S: Final = 3_600.0
AGE_MAX_S: Final = 12 * 3_600.0
SESSIONS_MAX: Final = 500
FORM_BYTES_MAX: Final = 2 << 20
FORM_FIELDS_MAX: Final = 5_000
MESSAGES_MAX: Final = 5
FAILURES_MAX: Final = 10  # wrong passwords from one address in FAILURES_S
FAILURES_S: Final = 60.0
ADDRESSES_MAX: Final = 1_000
OPEN_PATHS: Final = ("/static/", "/login")
FORM_TYPE: Final = "application/x-www-form-urlencoded"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
COME_AGAIN: Final = (
    '<!doctype html><html lang="en"><title>tidelog</title><meta http-equiv="refresh" content="0">'
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True, slots=True)
class Login:
    """Who logged in. The password is the cluster's; the console's own user needs none here."""

    user: str
    password: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.user!r}, [hidden])"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a session, and who has logged in with it."""

    session: str
    csrf_token: str
    login: Login | None = None

    @property
    def user(self) -> str | None:
        return None if self.login is None else self.login.user


@dataclass(slots=True)
class _LoggedIn:
    login: Login
    began_s: float
    used_s: float


class Access:
    """Sessions, their messages, and failed logins. Touched on the console's loop only."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.mode = settings.login_mode
        self.cookie = f"tidelog_console_{settings.listener.port}"  # cookies know no ports
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, _LoggedIn] = OrderedDict()  # the least recently used first
        self._messages: OrderedDict[str, list[str]] = OrderedDict()
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()  # since when, how many

    # Sessions

    def visitor(self, cookie: str | None) -> Visitor | None:
        """Of a cookie that this console has signed."""
        session, _, signature = (cookie or "").partition(".")
        if not session or not hmac.compare_digest(
            signature.encode(), self._sign("session", session).encode()
        ):
            return None
        return self._visitor(session)

    def new_visitor(self) -> Visitor:
        return self._visitor(secrets.token_urlsafe(18))

    def _visitor(self, session: str) -> Visitor:
        return Visitor(session, self._sign("csrf", session), self._login_or_none(session))

    def _login_or_none(self, session: str) -> Login | None:
        known = self._sessions.get(session)
        if known is None:
            return None
        now = self._clock()
        if now - known.used_s > IDLE_MAX_S or now - known.began_s > AGE_MAX_S:
            del self._sessions[session]
            return None
        known.used_s = now
        self._sessions.move_to_end(session)
        return known.login

    def log_in(self, login: Login) -> Visitor:
        """A new session: the one before may be known to somebody."""
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        visitor = self.new_visitor()
        now = self._clock()
        self._sessions[visitor.session] = _LoggedIn(login, now, now)
        return self._visitor(visitor.session)

    def log_out(self, visitor: Visitor) -> None:
        self._sessions.pop(visitor.session, None)

    def logins(self) -> set[Login]:
        """Of the sessions that are not over."""
        for session in list(self._sessions):
            known, now = self._sessions[session], self._clock()
            if now - known.used_s > IDLE_MAX_S or now - known.began_s > AGE_MAX_S:
                del self._sessions[session]
        return {known.login for known in self._sessions.values()}

    def cookie_value(self, visitor: Visitor) -> str:
        return f"{visitor.session}.{self._sign('session', visitor.session)}"

    def is_token(self, visitor: Visitor, token: str) -> bool:
        return hmac.compare_digest(token.encode(), visitor.csrf_token.encode())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()

    def may_enter(self, visitor: Visitor) -> bool:
        return self.mode is LoginMode.NOBODY or visitor.login is not None

    # Messages that are shown once

    def tell(self, visitor: Visitor, message: str) -> None:
        told = self._messages.pop(visitor.session, [])
        self._messages[visitor.session] = [*told, message][-MESSAGES_MAX:]
        while len(self._messages) > SESSIONS_MAX:
            self._messages.popitem(last=False)

    def messages(self, visitor: Visitor) -> list[str]:
        return self._messages.pop(visitor.session, [])

    # Wrong passwords

    def may_try(self, address: str) -> bool:
        since, count = self._failures.get(address, (0.0, 0))
        return count < FAILURES_MAX or self._clock() - since > FAILURES_S

    def failed(self, address: str) -> None:
        since, count = self._failures.pop(address, (self._clock(), 0))
        if self._clock() - since > FAILURES_S:
            since, count = self._clock(), 0
        self._failures[address] = (since, count + 1)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    # The Host header

    def is_own_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in {"localhost", self.settings.listener.host, *self.settings.host_names}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.endswith(".localhost")
        return True


class AccessGate:
    """The middleware that does all of the above."""

    def __init__(self, app: ASGIApp, access: Access, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._access = access
        self._reading_posts = [route for route in routes if isinstance(route, ReadingPost)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        guarded = _with_headers(send)
        headers = Headers(scope=scope)
        if not self._access.is_own_host(headers.get("host", "")):
            refusal = PlainTextResponse(
                "This console does not know the host name that it was called by.\n"
                "Call it by its IP address, or start it with --host-name NAME.\n",
                421,
            )
            await refusal(scope, receive, guarded)
            return
        visitor = self._access.visitor(_cookie(headers, self._access.cookie))
        if visitor is None and _follows_a_link_from_elsewhere(scope, headers):
            await HTMLResponse(COME_AGAIN)(scope, receive, guarded)
            return
        if visitor is None:
            visitor = self._access.new_visitor()
            guarded = _with_cookie(guarded, self._access, visitor)
        scope["tidelog.visitor"] = visitor
        refused, receive = await self._refused_or_none(scope, headers, visitor, receive)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    async def _refused_or_none(
        self, scope: Scope, headers: Headers, visitor: Visitor, receive: Receive
    ) -> tuple[Response | None, Receive]:
        """The answer to a request that may not pass, and where the page reads the body from."""
        request = Request(scope, receive)
        is_post = scope["method"] == "POST"
        is_open = str(scope["path"]).startswith(OPEN_PATHS)
        if not is_open and not self._access.may_enter(visitor):
            return _to_login(request), receive
        if scope["method"] in ("GET", "HEAD"):
            return None, receive
        if not is_post:
            return PlainTextResponse("only GET and POST", 405), receive
        if not self._is_from_here(headers):
            return _forbidden(request, "The request comes from another site."), receive
        token = headers.get("x-csrf-token", "")
        scope["tidelog.form"] = {}
        if headers.get("content-type", "").partition(";")[0].strip().lower() == FORM_TYPE:
            body = await _body_or_none(receive)
            if body is None:
                return PlainTextResponse("the form is too large", 413), receive
            receive = _again(body, receive)
            try:
                scope["tidelog.form"] = parse_qs(
                    body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX
                )
            except ValueError:
                return PlainTextResponse("the form cannot be read", 400), receive
            token = token or scope["tidelog.form"].get("csrf", [""])[0]
        if not self._access.is_token(visitor, token):
            text = "The form is of another session, or too old. Load the page again."
            return _forbidden(request, text), receive
        if not self._access.settings.can_write and not self._only_reads(scope):
            return _forbidden(request, "This console is read-only."), receive
        return None, receive

    def _only_reads(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self._reading_posts)

    def _is_from_here(self, headers: Headers) -> bool:
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or urlsplit(origin).netloc == headers.get("host")


def _follows_a_link_from_elsewhere(scope: Scope, headers: Headers) -> bool:
    """Browsers then leave out the cookie. A new one would end the session that the visitor may
    have, so the page is asked for once more, by the console itself."""
    return (
        scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-site") in ("cross-site", "same-site")
    )


def _forbidden(request: Request, why: str) -> Response:
    hint = "Start it with --write to change things." if "read-only" in why else ""
    return problem(request, "Refused", why, status=403, hint=hint)


def _to_login(request: Request) -> Response:
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse("log in first", 401)
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(link("login", next=asked), 303)


def _with_headers(send: Send) -> Send:
    async def send_guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_guarded


def _with_cookie(send: Send, access: Access, visitor: Visitor) -> Send:
    async def send_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if not any(access.cookie in each for each in headers.getlist("set-cookie")):
                headers.append("set-cookie", session_cookie(access, visitor))
        await send(message)

    return send_cookie


def session_cookie(access: Access, visitor: Visitor) -> str:
    return f"{access.cookie}={access.cookie_value(visitor)}; Path=/; HttpOnly; SameSite=Strict"


def _cookie(headers: Headers, name: str) -> str | None:
    for line in headers.getlist("cookie"):
        try:
            found = SimpleCookie(line).get(name)
        except CookieError:
            continue
        if found is not None:
            return found.value
    return None


async def _body_or_none(receive: Receive) -> bytes | None:
    """None if it is longer than a form may be."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > FORM_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pieces.pop() if pieces else await receive()

    return receive_again


def path_of_console(text: str) -> str:
    """Where to go after a login: a path of this console, never another site's address."""
    if not text.startswith("/") or text.startswith("//") or "\\" in text:
        return "/"
    return "/" if any(ord(each) < 0x20 for each in text) else text
