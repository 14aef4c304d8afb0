"""The console as an ASGI application: all pages behind the gate of `access.py`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    NotAuthorized,
    UnknownTopic,
)
from tidelog.config.definition import ConfigError
from tidelog.errors import ErrorCode
from tidelog.tools.cli.session import with_next_step
from tidelog.tools.console.access import Access, AccessGate
from tidelog.tools.console.assets import Assets
from tidelog.tools.console.clients import ClientPool
from tidelog.tools.console.events import Streams
from tidelog.tools.console.page import Section, problem, templates
from tidelog.tools.console.settings import ConsoleSettings

# The modules of `pages` by their place in the navigation.
PAGES: Final[Mapping[str, Sequence[str]]] = {
    "": ("login",),
    "Cluster": ("overview", "brokers", "events", "explain"),
    "Data": ("topics", "messages", "pipelines", "segments"),
    "Clients": ("groups", "transactions"),
    "Access": ("acls", "users", "quotas"),
    "Console": ("settings",),
}
FIRST_TEMPLATES: Final = (
    "base.html",
    "elements.html",
    *(f"overview/{name}.html" for name in ("overview", "facts", "troubles", "plots", "busy")),
    "topics/list.html",
    "topics/rows.html",
)
NOT_FOUND_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND}
)


def console_application(
    settings: ConsoleSettings, clock: Callable[[], float] = time.monotonic
) -> Starlette:
    """Raises ConfigError where the settings would let everybody in, or nobody."""
    settings.require_safe()
    access = Access(settings, clock)
    assets = Assets()
    pages = {title: _modules(names) for title, names in PAGES.items()}
    routes: list[BaseRoute] = [Route("/static/{digest}/{name}", assets.serve)]
    for modules in pages.values():
        for module in modules:
            routes += module.ROUTES
    app = Starlette(
        routes=routes,
        middleware=[Middleware(AccessGate, access=access, routes=routes)],
        exception_handlers={
            ClientError: _client_error,
            ConfigError: _config_error,
            HTTPException: _http_error,
        },
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.access = access
    app.state.assets = assets
    app.state.streams = Streams()
    app.state.clients = ClientPool(settings, clock, access.logins)
    app.state.sections = [
        Section(title, [module.NAVIGATION for module in modules if module.NAVIGATION])
        for title, modules in pages.items()
        if any(module.NAVIGATION for module in modules)
    ]
    return app


def _modules(names: Sequence[str]) -> list[ModuleType]:
    return [import_module(f"tidelog.tools.console.pages.{name}") for name in names]


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    for name in FIRST_TEMPLATES:  # compiled now, not while somebody waits for the first page
        templates().get_template(name)
    yield
    app.state.streams.end_all()
    await app.state.clients.close()


async def _client_error(request: Request, error: Exception) -> Response:
    """What the cluster, or the way to it, has refused: a sentence, and what to do about it."""
    assert isinstance(error, ClientError)
    servers = request.app.state.settings.properties.get("bootstrap.servers", "")
    sentence, _, step = with_next_step(error, servers).partition(". ")
    if (
        isinstance(error, NotAuthorized | AuthenticationFailed)
        or "AUTHORIZATION" in error.code.name
    ):
        title, status = "The cluster does not allow this", 403
    elif isinstance(error, UnknownTopic) or error.code in NOT_FOUND_CODES:
        title, status = "There is no such thing in this cluster", 404
    elif isinstance(error, BrokerRefused):
        title, status = "The cluster refused this", 400
    else:
        title, status = "The cluster did not answer this", 502
    hint = "" if "-b " in step or "-X " in step else step
    return problem(request, title, f"{sentence.rstrip('.')}.", status=status, hint=hint)


async def _config_error(request: Request, error: Exception) -> Response:
    return problem(request, "This setting cannot be", str(error), status=400)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(request, "There is no such page", request.url.path, status=404)
    return problem(request, "Refused", str(error.detail), status=error.status_code)
