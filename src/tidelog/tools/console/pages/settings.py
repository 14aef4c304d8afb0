"""What the console was told, what the cluster can do, and how the pages look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tidelog import __version__
from tidelog.client.errors import ClientError
from tidelog.config.client import HIDDEN, AdminConfig, ConsumerConfig, ProducerConfig
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import THEMES, ReadingPost, field_of, render

NAVIGATION: Final = ("Settings", "/settings")
THEME_AGE_S: Final = 365 * 86_400


async def show(request: Request) -> Response:
    clients = clients_of(request)
    try:
        features = await clients.admin.describe_features()
        untold = ""
    except ClientError as error:
        features, untold = None, str(error)
    return render(
        request,
        "settings/settings.html",
        told=request.app.state.settings,
        mode=request.app.state.access.mode,
        version=__version__,
        properties=shown_properties(clients.config),
        features=features,
        untold=untold,
        themes=[(each, each.capitalize()) for each in THEMES],
    )


def shown_properties(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Secrets are hidden, by what the tables of the clients say of each key."""
    tables = [kind.TABLE for kind in (AdminConfig, ConsumerConfig, ProducerConfig)]
    found = []
    for name, value in sorted(properties.items()):
        keys = [table.get(name) for table in tables]
        is_secret = any(key is not None and key.sensitive for key in keys)
        found.append((name, HIDDEN if is_secret else value))
    return found


async def choose_theme(request: Request) -> Response:
    theme = field_of(request, "theme")
    answer = RedirectResponse("/settings", 303)
    if theme in THEMES:
        answer.headers.append(
            "set-cookie", f"theme={theme}; Path=/; Max-Age={THEME_AGE_S}; SameSite=Strict"
        )
    return answer


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/settings", show),
    ReadingPost("/settings/theme", choose_theme),
)
