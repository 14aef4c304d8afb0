"""Spark pipelines of a project, how far they are, and their dead letters.

`--pipelines DIR` names the project. Runs tell how they do in files beside their declaration. Dead
letters are records of a topic, so their page works for any topic of them, also of programs that are
no declared pipeline; they are read and replayed as the visitor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.acls import AclOperation
from tidelog.config.client import ConsumerConfig, ProducerConfig
from tidelog.pipeline.queries.run_status import wish_restart
from tidelog.tools.cli.output import counted
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.dead_letters import (
    BadChoice,
    DeadLetter,
    chosen_letters,
    counted_reasons,
    cursor_text,
    letter_of,
    letters_page,
    places_of,
    replay,
    targets_of,
)
from tidelog.tools.console.events import Event, event_stream
from tidelog.tools.console.messages.apart import Busy, Readings
from tidelog.tools.console.messages.cursor import BadCursor
from tidelog.tools.console.messages.decoding import Decoder
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
from tidelog.tools.console.pipeline_folders import (
    PipelineLook,
    UnknownFolder,
    folder_of,
    letter_topics,
    look_at,
    pipeline_folders,
    queries_of,
)
from tidelog.tools.console.rights import require_on_cluster

NAVIGATION: Final = ("Pipelines", "/pipelines")
LIVE_S: Final = 2.0
SHOWN_CHARACTERS: Final = 300
TONES: Final = {
    "running": "good",
    "runs": "good",
    "waiting": "warn",
    "failed": "bad",
    "unreadable": "bad",
}

T = TypeVar("T")


class ShownLetter(NamedTuple):
    letter: DeadLetter
    name: str  # as a form names it
    key: str | None
    value: str | None
    target: str = ""


# Status


async def show_list(request: Request) -> Response:
    root = request.app.state.settings.pipelines
    looks: list[PipelineLook] = []
    if root is not None:
        looks = await _guarded(request, lambda: _looks(root))
    return render(request, "pipelines/list.html", root=root, looks=looks, tones=TONES)


def _looks(root: Path) -> list[PipelineLook]:
    return [look_at(root, name, time.time()) for name in pipeline_folders(root)]


async def _guarded(request: Request, look: Callable[[], T]) -> T:
    await require_on_cluster(request, AclOperation.DESCRIBE, "Pipelines")
    return await asyncio.to_thread(look)


async def show_one(request: Request) -> Response:
    try:
        context = await _one_context(request)
    except UnknownFolder as error:
        return problem(request, "There is no such pipeline", f"{error}.", status=404)
    topics, undeclared = await asyncio.to_thread(letter_topics, context["where"])
    return render(
        request,
        "pipelines/one.html",
        topics=topics,
        undeclared=undeclared,
        queries=queries_of(context["look"]),
        **context,
    )


async def live_one(request: Request) -> Response:
    try:
        await _one_context(request)
    except UnknownFolder as error:
        return problem(request, "There is no such pipeline", f"{error}.", status=404)

    async def parts() -> AsyncGenerator[Event, None]:
        while True:
            await asyncio.sleep(LIVE_S)
            try:
                context = await _one_context(request)
            except UnknownFolder:  # gone meanwhile, and with it what there is to tell
                return
            yield parts_event({"status": part(request, "pipelines/status.html", **context)})

    return event_stream(request, parts())


async def _one_context(request: Request) -> dict[str, Any]:
    root, name = request.app.state.settings.pipelines, request.query_params.get("folder", "")
    if root is None:
        raise UnknownFolder("the console was given no project of pipelines")

    def look() -> dict[str, Any]:
        folder = folder_of(root, name)
        found = look_at(root, name, time.time())
        title = found.status.name if found.status is not None else folder.resolve().name
        return {"look": found, "title": title, "folder": name, "where": folder, "tones": TONES}

    return await _guarded(request, look)


async def restart(request: Request) -> Response:
    """The run reads the wish, and starts the query again."""
    root, name = request.app.state.settings.pipelines, field_of(request, "folder")
    query = field_of(request, "query")
    await require_on_cluster(request, AclOperation.ALTER, "Pipelines")

    def wish() -> bool:
        if root is None:
            return False
        folder = folder_of(root, name)
        found = look_at(root, name, time.time())
        if not found.runs or query not in queries_of(found):
            return False
        wish_restart(folder, query)
        return True

    try:
        is_wished = await asyncio.to_thread(wish)
    except UnknownFolder as error:
        return problem(request, "There is no such pipeline", f"{error}.", status=404)
    if not is_wished:
        return problem(request, "Nothing was started", "No pipeline with this query runs here.")
    message = f"The pipeline was asked to start {query} again; it does so within seconds."
    return told(request, link("pipelines", "one", folder=name), message)


# Dead letters


async def show_letters(request: Request) -> Response:
    asked = request.query_params
    topic, reason = asked.get("topic", "").strip(), asked.get("reason", "").strip()
    if not topic:
        return render(request, "pipelines/letters.html", topic="", **_no_letters(reason))
    properties = clients_of(request).settings(ConsumerConfig)
    cursor = asked.get("cursor", "")
    try:
        page = await _readings(request).run(lambda: letters_page(properties, topic, reason, cursor))
    except BadCursor as error:
        return problem(request, "This page cannot be shown", f"{error}.")
    except Busy as error:
        return problem(request, "The console is busy", f"{error}.", status=503)
    letters = [letter_of(record) for record in page.records]
    return render(
        request,
        "pipelines/letters.html",
        topic=topic,
        reason=reason,
        letters=[_shown(letter) for letter in letters],
        reasons=counted_reasons(letters),
        following=cursor_text(page.cursor),
        is_first=not cursor,
        gone_through=page.cursor.offsets_done,
        total=page.cursor.total_offsets,
        unreadable=page.problem,
    )


def _no_letters(reason: str) -> dict[str, Any]:
    return {
        "reason": reason,
        "letters": [],
        "reasons": [],
        "following": None,
        "is_first": True,
        "gone_through": 0,
        "total": 0,
        "unreadable": "",
    }


def _shown(letter: DeadLetter, target: str = "") -> ShownLetter:
    decoder = Decoder("auto")
    key, value = (
        None if data is None else decoder.shown(data).text[: SHOWN_CHARACTERS + 1]
        for data in (letter.key, letter.value)
    )
    return ShownLetter(letter, "{}:{}".format(*letter.place), key, value, target)


def _readings(request: Request) -> Readings:
    state = request.app.state
    if not hasattr(state, "letter_readings"):
        state.letter_readings = Readings()
    readings: Readings = state.letter_readings
    return readings


async def preview(request: Request) -> Response:
    """What a replay would write where."""
    topic, target = field_of(request, "topic"), field_of(request, "target")
    try:
        letters, targets = await _chosen(request, topic, target)
    except (BadChoice, Busy) as error:
        return problem(request, "This cannot be replayed", f"{str(error).capitalize()}.")
    return render(
        request,
        "pipelines/preview.html",
        topic=topic,
        target=target,
        letters=[_shown(*each) for each in zip(letters, targets, strict=True)],
        targets=sorted(set(targets)),
        missing=len(set(_names(request))) - len(letters),
    )


async def write_again(request: Request) -> Response:
    topic, target = field_of(request, "topic"), field_of(request, "target")
    try:
        letters, targets = await _chosen(request, topic, target)
        properties = clients_of(request).settings(ProducerConfig)
        done = await _readings(request).run(lambda: replay(properties, letters, targets))
    except (BadChoice, Busy) as error:
        return problem(request, "Nothing was written", f"{str(error).capitalize()}.")
    if done.problems:
        return render(request, "pipelines/replayed.html", status=502, topic=topic, done=done)
    where = ", ".join(sorted(set(targets))[:5])
    message = f"{counted(done.written, 'dead letter')} written again, to {where}."
    return told(request, link("pipelines", "letters", topic=topic), message)


async def _chosen(request: Request, topic: str, target: str) -> tuple[list[DeadLetter], list[str]]:
    places = places_of(_names(request))
    properties = clients_of(request).settings(ConsumerConfig)
    letters = await _readings(request).run(lambda: chosen_letters(properties, topic, places))
    if not letters:
        raise BadChoice("none of these dead letters can be read any more")
    return letters, targets_of(letters, target)


def _names(request: Request) -> Sequence[str]:
    form = form_of(request)
    return form.get("shown" if field_of(request, "all") else "letter", [])


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/pipelines", show_list),
    Route("/pipelines/one", show_one),
    Route("/pipelines/one/live", live_one),
    Route("/pipelines/restart", restart, methods=["POST"]),
    Route("/pipelines/letters", show_letters),
    ReadingPost("/pipelines/letters/preview", preview),
    Route("/pipelines/letters/replay", write_again, methods=["POST"]),
)
