"""What visitors may see of things that know no ACLs themselves."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tests.support.clock import FakeClock
from tests.support.console_client import ConsoleClient
from tidelog.acls import AclOperation
from tidelog.tools.console.rights import is_still_in, require_on_cluster


def request_of(console: ConsoleClient) -> Request:
    access = console.app.state.access
    visitor = access.visitor(console.cookies[access.cookie])
    return Request({"type": "http", "app": console.app, "tidelog.visitor": visitor})


def test_a_live_page_ends_when_its_visitor_logs_out() -> None:
    with ConsoleClient(user="admin", password="secret enough") as console:
        console.post("/login", user="admin", password="secret enough")
        request = request_of(console)
        assert is_still_in(request)
        console.post("/logout")
        assert not is_still_in(request)


def test_a_live_page_ends_when_its_session_is_too_old() -> None:
    clock = FakeClock()
    with ConsoleClient(clock=clock.monotonic, user="admin", password="secret enough") as console:
        console.post("/login", user="admin", password="secret enough")
        request = request_of(console)
        clock.advance(ms=3_000_000)
        assert is_still_in(request)
        clock.advance(ms=3_000_000)
        assert not is_still_in(request)


def test_where_nobody_logs_in_everybody_has_the_rights_of_the_console() -> None:
    with ConsoleClient() as console:
        console.get("/segments")
        request = request_of(console)
        assert is_still_in(request)
        asyncio.run(require_on_cluster(request, AclOperation.ALTER, "Files"))
