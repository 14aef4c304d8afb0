"""Consumer groups: who reads, how far behind, since when; where a group goes on, and its end.

The list shows PAGE_GROUPS groups at a time, and asks about those alone. States of groups over a
while (`group_watch`) come from the looks of this page and its live parts: they are there for groups
that somebody looks at. What was looked at with one user's credentials is shown to that user alone.

A reset shows its plan first. The form below the plan holds the offsets themselves, so what is
committed is what was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.groups import GroupDescription, GroupListing
from tidelog.client.errors import ClientError
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.tools.cli.output import counted
from tidelog.tools.console.borrowed_admin import in_thread
from tidelog.tools.console.clients import Clients, clients_of
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.page import (
    ReadingPost,
    field_of,
    form_of,
    link,
    part,
    parts_event,
    problem,
    render,
    told,
)
from tidelog.tools.console.plots import Line, Plot, Point, plot, sparkline
from tidelog.tools.console.refusals import calm
from tidelog.tools.group_lag import (
    PartitionLag,
    committed_offsets,
    lags_of_groups,
    partition_lags,
    total_lag,
)
from tidelog.tools.group_watch import GroupWatch, Status, WatchedGroup
from tidelog.tools.offset_reset import BadPlan, Target, plan, target_of
from tidelog.types import TopicPartition

NAVIGATION: Final = ("Consumer groups", "/groups")
PAGE_GROUPS: Final = 50
PARTITIONS_SHOWN: Final = 500
LIST_AGE_S: Final = 2.0
LIVE_S: Final = 5.0
GAP_MS: Final = 20_000
PATIENCE_S: Final = 3.0  # with a coordinator or a leader that is not there
EMPTY: Final = "Empty"
TONES: Final[Mapping[str, str]] = {
    Status.OK: "good",
    Status.WARN: "warn",
    Status.STALL: "bad",
    Status.STOP: "bad",
    Status.REWIND: "bad",
    Status.ERR: "bad",
    "Stable": "good",
    "Dead": "bad",
    "PreparingRebalance": "warn",
    "CompletingRebalance": "warn",
    "Assigning": "warn",
    "Reconciling": "warn",
}
TARGETS: Final = (
    ("to-earliest", "the beginning of each partition"),
    ("to-latest", "the end of each partition"),
    ("to-offset", "an offset: N"),
    ("shift-by", "N records on, or back with -N"),
    ("to-datetime", "the first record from a time on: 2026-01-31T13:00:00 (UTC)"),
    ("by-duration", "the first record of the last while: PT1H30M, P1D"),
    ("to-current", "where it is, moved into the log"),
)


class GroupRow(NamedTuple):
    """One line of the list; `problem` stands in place of what could not be asked."""

    group_id: str
    state: str
    type: str
    members: int | None = None
    partitions: int | None = None
    lag: int | None = None
    status: Status = Status.UNKNOWN
    trend: Plot | None = None  # of the lag, from the second look on
    problem: str = ""


class PlannedOffset(NamedTuple):
    partition: TopicPartition
    committed: int | None
    planned: int

    @property
    def change(self) -> int | None:
        return None if self.committed is None else self.planned - self.committed


def watch_of(request: Request) -> GroupWatch:
    """Of the user who asks. It goes with the user's clients."""
    state = request.app.state
    if not hasattr(state, "group_watches"):
        state.group_watches = WeakKeyDictionary()
    watches: WeakKeyDictionary[Clients, GroupWatch] = state.group_watches
    return watches.setdefault(clients_of(request), GroupWatch())


# The list


async def show_list(request: Request) -> Response:
    return render(request, "groups/list.html", tones=TONES, **await _list_context(request))


async def live_list(request: Request) -> Response:
    async def parts() -> AsyncGenerator[Event, None]:
        while True:
            await asyncio.sleep(LIVE_S)
            context = await _list_context(request)
            yield parts_event({"groups": part(request, "groups/rows.html", tones=TONES, **context)})

    return event_stream(request, parts())


async def _list_context(request: Request) -> dict[str, Any]:
    clients = clients_of(request)
    asked = request.query_params
    text, state = asked.get("text", "").strip(), asked.get("state", "")
    first = _number(asked.get("from"))
    listings = await clients.shared("groups", LIST_AGE_S, clients.admin.list_groups)
    found = [
        each
        for each in listings
        if text.casefold() in each.group_id.casefold() and state in ("", each.state)
    ]
    shown = found[first : first + PAGE_GROUPS]
    rows = await _rows(clients, watch_of(request), shown)
    return {
        "rows": rows,
        "count": len(found),
        "total": len(listings),
        "first": first,
        "last": first + len(shown),
        "step": PAGE_GROUPS,
        "text": text,
        "state": state,
        "states": sorted({each.state for each in listings if each.state}),
    }


async def _rows(
    clients: Clients, watch: GroupWatch, listings: Sequence[GroupListing]
) -> list[GroupRow]:
    names = [each.group_id for each in listings]
    described = await clients.admin.describe_groups(names, timeout=PATIENCE_S)
    there = [result.get() for result in described.values() if result.error is None]
    lags = await lags_of_groups(clients.admin, there, PATIENCE_S)
    now_ms = SystemClock().time_ms()
    rows = []
    for listing in listings:
        result, lag = described[listing.group_id], lags.get(listing.group_id)
        row = GroupRow(listing.group_id, listing.state, listing.type)
        if result.error is not None:
            rows.append(row._replace(problem=calm(result.error)))
            continue
        group = result.get()
        row = row._replace(state=group.state, type=group.type, members=len(group.members))
        if isinstance(lag, list):
            seen = watch.note(group.group_id, now_ms, lag)
            row = row._replace(
                partitions=len(lag), lag=total_lag(lag), status=seen.status, trend=lag_trend(seen)
            )
        elif lag is not None:
            row = row._replace(problem=calm(lag))
        rows.append(row)
    return rows


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


# One group


async def show_one(request: Request) -> Response:
    group_id = request.query_params.get("group", "")
    context = await _one_context(request, group_id)
    return render(request, "groups/one.html", targets=TARGETS, **context)


async def live_one(request: Request) -> Response:
    group_id = request.query_params.get("group", "")

    async def parts() -> AsyncGenerator[Event, None]:
        while True:
            await asyncio.sleep(LIVE_S)
            context = await _one_context(request, group_id)
            yield parts_event(
                {
                    "lag": part(request, "groups/lag.html", **context),
                    "members": part(request, "groups/members.html", **context),
                }
            )

    return event_stream(request, parts())


async def _one_context(request: Request, group_id: str) -> dict[str, Any]:
    clients = clients_of(request)
    described = await clients.admin.describe_groups([group_id], timeout=PATIENCE_S)
    group = described[group_id].get()
    unknown = ""
    rows: list[PartitionLag] = []
    watched = watch_of(request).group(group_id)
    try:
        rows = await partition_lags(clients.admin, group, PATIENCE_S)
    except ClientError as error:
        unknown = calm(error)
    else:
        watched = watch_of(request).note(group_id, SystemClock().time_ms(), rows)
    return {
        "group": group,
        "rows": rows[:PARTITIONS_SHOWN],
        "left_out": max(len(rows) - PARTITIONS_SHOWN, 0),
        "lag": total_lag(rows),
        "topics": sorted({row.partition.topic for row in rows}),
        "watched": watched,
        "lag_plot": lag_plot(group, watched),
        "tones": TONES,
        "unknown": unknown,
        "is_empty": group.state == EMPTY,
    }


def lag_plot(group: GroupDescription, watched: WatchedGroup) -> Plot | None:
    """None before the second look."""
    if len(watched.lags) < 2:
        return None
    return plot(f"Lag of {group.group_id}", [Line("lag", _points(watched))], unit="records")


def lag_trend(watched: WatchedGroup) -> Plot | None:
    return sparkline("Lag", _points(watched)) if len(watched.lags) > 1 else None


def _points(watched: WatchedGroup) -> list[Point]:
    """With a gap where nobody looked for a while."""
    points: list[Point] = []
    for point in watched.lags:
        if points and point.at_ms - points[-1][0] > GAP_MS:
            points.append((points[-1][0], None))
        points.append((point.at_ms, float(point.lag)))
    return points


# Reset


async def preview(request: Request) -> Response:
    group_id, kind = field_of(request, "group"), field_of(request, "kind")
    try:
        target = target_of(kind, field_of(request, "value"), SystemClock().time_ms())
        planned = await _planned(request, group_id, target)
    except BadPlan as error:
        return problem(request, "This cannot be planned", f"{str(error).rstrip('.')}.")
    return render(
        request,
        "groups/preview.html",
        group_id=group_id,
        how=dict(TARGETS)[kind],
        value=field_of(request, "value"),
        planned=planned,
        skipped=sum(max(each.change or 0, 0) for each in planned),
        again=-sum(min(each.change or 0, 0) for each in planned),
        offsets="\n".join(f"{p.topic} {p.partition} {offset}" for p, _, offset in planned),
    )


async def _planned(request: Request, group_id: str, target: Target) -> list[PlannedOffset]:
    admin = clients_of(request).admin
    await _require_inactive(request, group_id)
    committed = await committed_offsets(admin, group_id)
    chosen = [topic for topic in form_of(request).get("topic", []) if topic]
    other = field_of(request, "other")
    places = [each for each in sorted(committed) if not (chosen or other) or each.topic in chosen]
    if other:
        topic = (await admin.describe_topics([other]))[other].get()
        places += [TopicPartition(other, row.partition) for row in topic.partitions]
    if not places:
        raise BadPlan("the group has committed nothing for these topics; name another topic")
    offsets = await in_thread(admin, lambda borrowed: plan(borrowed, target, places, committed))
    return [
        PlannedOffset(each, committed.get(each), offset) for each, offset in sorted(offsets.items())
    ]


async def _require_inactive(request: Request, group_id: str) -> None:
    """A group that is not there yet may be given offsets: that makes it."""
    result = (await clients_of(request).admin.describe_groups([group_id]))[group_id]
    if result.error is not None:
        if result.error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise result.error
    if result.get().state != EMPTY:
        raise BadPlan(
            f"offsets can only be reset if group {group_id} is inactive, but its state is "
            f"{result.get().state}"
        )


async def reset(request: Request) -> Response:
    group_id = field_of(request, "group")
    try:
        offsets = offsets_of(field_of(request, "offsets"))
        await _require_inactive(request, group_id)
    except BadPlan as error:
        return problem(request, "Nothing was changed", f"{str(error).rstrip('.')}.")
    clients = clients_of(request)
    results = await clients.admin.alter_group_offsets(group_id, offsets)
    for result in results.values():
        result.get()
    clients.forget("groups")
    message = (
        f"Group {group_id} goes on at the new offsets of {counted(len(offsets), 'partition')}."
    )
    return told(request, link("groups", "one", group=group_id), message)


def offsets_of(text: str) -> dict[TopicPartition, int]:
    """Lines of a topic, a partition and an offset; BadPlan where they are not."""
    found: dict[TopicPartition, int] = {}
    for line in text.splitlines():
        try:
            topic, partition, offset = line.split(" ")
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise BadPlan(f"{line[:100]} is no topic with a partition and an offset") from None
    if not found or any(offset < 0 or tp.partition < 0 for tp, offset in found.items()):
        raise BadPlan("there is no offset to go on from")
    return found


# The end


async def delete(request: Request) -> Response:
    group_id = field_of(request, "group")
    if field_of(request, "confirm") != group_id:
        return problem(request, "Nothing was deleted", "The name of the group was not repeated.")
    clients = clients_of(request)
    (await clients.admin.delete_groups([group_id]))[group_id].get()
    clients.forget("groups")
    return told(request, "/groups", f"Group {group_id} and its offsets are deleted.")


async def delete_offsets(request: Request) -> Response:
    """What the group has committed for one topic."""
    group_id, topic = field_of(request, "group"), field_of(request, "topic")
    admin = clients_of(request).admin
    places = [each for each in await committed_offsets(admin, group_id) if each.topic == topic]
    for result in (await admin.delete_group_offsets(group_id, places)).values():
        result.get()
    message = f"Group {group_id} has forgotten its offsets in {topic}."
    return told(request, link("groups", "one", group=group_id), message)


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/groups", show_list),
    Route("/groups/live", live_list),
    Route("/groups/one", show_one),
    Route("/groups/one/live", live_one),
    ReadingPost("/groups/preview", preview),
    Route("/groups/reset", reset, methods=["POST"]),
    Route("/groups/delete", delete, methods=["POST"]),
    Route("/groups/delete-offsets", delete_offsets, methods=["POST"]),
)
