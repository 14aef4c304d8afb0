"""The first page: is the cluster well, and what does it do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import render

NAVIGATION: Final = ("Overview", "/")


async def show(request: Request) -> Response:
    clients = clients_of(request)
    found = await clients.shared("cluster", 2.0, clients.admin.describe_cluster)
    return render(request, "overview/overview.html", found=found)


ROUTES: Final[Sequence[BaseRoute]] = (Route("/", show),)
