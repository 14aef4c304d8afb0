"""The past of the brokers, for pages: events of /events, asked for with the visitor's rights.

The addresses are those that the console was given, or the listeners that the brokers' settings
name. Listeners know no users; a visitor who may not DESCRIBE the cluster gets no events (`rights`).
Visitors with the same login share an answer about everything for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request

from tidelog.acls import AclOperation
from tidelog.client.errors import ClientError
from tidelog.tools.console.borrowed_admin import in_thread
from tidelog.tools.console.clients import Clients, clients_of
from tidelog.tools.console.rights import require_on_cluster
from tidelog.tools.explain.cluster_facts import event_urls
from tidelog.tools.explain.event_sources import Gathered, gather

AGE_S: Final = 1.0
URLS_AGE_S: Final = 60.0


async def events_of(request: Request, subjects: Mapping[str, str]) -> Gathered:
    """Of these subjects, and of the brokers themselves; of everything if there are none."""
    clients = clients_of(request)
    given = tuple(request.app.state.settings.metrics_urls)
    try:
        await require_on_cluster(request, AclOperation.DESCRIBE, "Events")
    except ClientError as error:
        return Gathered([], [f"{str(error).rstrip('.')}."])
    if subjects:  # of which there are too many to keep an answer for each
        return await _gathered(clients, given, subjects)
    return await clients.shared("events", AGE_S, lambda: _gathered(clients, given, subjects))


async def _gathered(
    clients: Clients, given: tuple[str, ...], subjects: Mapping[str, str]
) -> Gathered:
    urls, unknown = given, list[str]()
    if not given:
        found = await clients.shared("event urls", URLS_AGE_S, lambda: _urls(clients))
        urls, unknown = tuple(found[0]), found[1]
    gathered = await asyncio.to_thread(gather, urls, (), subjects)
    return Gathered(gathered.events, [*unknown, *gathered.unknown])


async def _urls(clients: Clients) -> tuple[list[str], list[str]]:
    return await in_thread(clients.admin, event_urls)
