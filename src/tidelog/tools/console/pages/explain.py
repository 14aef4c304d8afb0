"""Why things are as they are: what `tidelog explain` answers, as findings and a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.clock import SystemClock
from tidelog.tools.console.borrowed_admin import in_thread
from tidelog.tools.console.brokers_past import events_of
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import problem, render
from tidelog.tools.explain.cluster_facts import (
    group_facts,
    partition_facts,
    record_facts,
    transaction_facts,
)
from tidelog.tools.explain.explanation import Explanation
from tidelog.tools.explain.group import explain_group
from tidelog.tools.explain.partition import explain_partition
from tidelog.tools.explain.record import explain_record
from tidelog.tools.explain.transaction import explain_transaction
from tidelog.types import TopicPartition

NAVIGATION: Final = ("Explain", "/explain")
GROUP_INTERVAL_MS: Final = 2_000
MOMENTS_SHOWN: Final = 200
KINDS: Final = ("partition", "record", "group", "txn")


async def show(request: Request) -> Response:
    asked = {name: value.strip() for name, value in request.query_params.items()}
    kind = asked.get("kind", "")
    if kind not in KINDS:
        return render(request, "explain/questions.html")
    try:
        found = await _EXPLAIN[kind](request, asked)
    except ValueError as error:
        return problem(request, "This question is not whole", str(error))
    return render(
        request,
        "explain/answer.html",
        found=found,
        kind=kind,
        moments=found.timeline[-MOMENTS_SHOWN:][::-1],
        left_out=max(len(found.timeline) - MOMENTS_SHOWN, 0),
    )


def place_of(asked: Mapping[str, str]) -> TopicPartition:
    if not asked.get("topic"):
        raise ValueError("Name a topic.")
    return TopicPartition(asked["topic"], _number(asked, "partition"))


def _number(asked: Mapping[str, str], name: str) -> int:
    text = asked.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"The {name} is a number from 0 on.")
    return int(text)


def _named(asked: Mapping[str, str], name: str, what: str) -> str:
    if not asked.get(name):
        raise ValueError(f"Name a {what}.")
    return asked[name]


async def _partition(request: Request, asked: Mapping[str, str]) -> Explanation:
    place = place_of(asked)
    facts = await in_thread(clients_of(request).admin, lambda admin: partition_facts(admin, place))
    past = await events_of(request, {"partition": str(place), "topic": place.topic})
    found = explain_partition(facts, past.events, SystemClock().time_ms())
    found.unknown += past.unknown
    return found


async def _record(request: Request, asked: Mapping[str, str]) -> Explanation:
    place, offset = place_of(asked), _number(asked, "offset")

    facts = await in_thread(
        clients_of(request).admin, lambda admin: record_facts(admin, place, offset)
    )
    subjects = {"partition": str(place), "topic": place.topic}
    if facts.is_transactional:
        subjects["producer_id"] = str(facts.producer_id)
    past = await events_of(request, subjects)
    found = explain_record(facts, past.events, SystemClock().time_ms())
    found.unknown += past.unknown
    return found


async def _group(request: Request, asked: Mapping[str, str]) -> Explanation:
    group = _named(asked, "group", "group")
    facts = await in_thread(
        clients_of(request).admin, lambda admin: group_facts(admin, group, GROUP_INTERVAL_MS)
    )
    past = await events_of(request, {"group": group})
    found = explain_group(facts, past.events, SystemClock().time_ms())
    found.unknown += past.unknown
    return found


async def _transaction(request: Request, asked: Mapping[str, str]) -> Explanation:
    name = _named(asked, "id", "transactional id")
    facts = await in_thread(clients_of(request).admin, lambda admin: transaction_facts(admin, name))
    past = await events_of(request, {"transactional_id": name})
    found = explain_transaction(facts, past.events, SystemClock().time_ms())
    found.unknown += past.unknown
    return found


_EXPLAIN: Final = {
    "partition": _partition,
    "record": _record,
    "group": _group,
    "txn": _transaction,
}

ROUTES: Final[Sequence[BaseRoute]] = (Route("/explain", show),)
