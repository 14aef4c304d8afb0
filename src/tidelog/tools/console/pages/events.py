"""The timeline: elections, in-sync sets, rebalances and all the other events, live.

Events come from the brokers' metrics listeners (`brokers_past`). The filters of the page are parts
of its address: `kind`, `name`, `broker` and `text` are looked at here, subjects (a partition, a
group, ...) by the brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.tools.console.brokers_past import events_of
from tidelog.tools.console.event_timeline import FILTERED, EventFilter, Kind, rows_of
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.page import link, part, parts_event, render

NAVIGATION: Final = ("Events", "/events")
LIVE_S: Final = 3.0
UNKNOWN_MAX: Final = 20


async def show(request: Request) -> Response:
    return render(request, "events/timeline.html", **await _context(request))


async def live(request: Request) -> Response:
    async def parts() -> AsyncGenerator[Event, None]:
        while True:
            await asyncio.sleep(LIVE_S)
            context = await _context(request)
            yield parts_event({"events": part(request, "events/rows.html", **context)})

    return event_stream(request, parts())


async def _context(request: Request) -> dict[str, Any]:
    asked = request.query_params
    subjects = {name: asked[name] for name in FILTERED if asked.get(name)}
    broker = asked.get("broker", "").strip()
    is_number = broker.isascii() and broker.isdigit() and len(broker) < 10
    wanted = EventFilter(
        asked.get("kind", ""),
        asked.get("name", ""),
        int(broker) if is_number else None,
        asked.get("text", "").strip(),
    )
    gathered = await events_of(request, subjects)
    rows, left_out = rows_of(gathered.events, wanted)
    return {
        "rows": rows,
        "left_out": left_out,
        "total": len(gathered.events),
        "unknown": gathered.unknown[:UNKNOWN_MAX],
        "kinds": tuple(Kind),
        "wanted": wanted,
        "broker": broker if is_number else "",
        "subjects": subjects,
        "live": link("events", "live", **dict(asked)),
    }


ROUTES: Final[Sequence[BaseRoute]] = (Route("/events", show), Route("/events/live", live))
