"""Transactions and producers: which there are, who holds one open, which nobody will ever end.

An abort is of one transaction in one partition, named by the offset at which it begins there, and
goes past the coordinator. So the page shows what it found there, and asks, before it aborts.
Looking for hanging transactions asks about every partition of the topics chosen; the page does it
when it is told to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.transactions import (
    NO_TIMESTAMP,
    NO_TXN_OFFSET,
    ActiveProducer,
    TransactionDescription,
)
from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode
from tidelog.tools.console.borrowed_admin import in_thread
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import field_of, link, problem, render, told
from tidelog.tools.console.refusals import calm
from tidelog.tools.hanging_transactions import OpenTransaction, find_hanging, partitions_of
from tidelog.types import TopicPartition

NAVIGATION: Final = ("Transactions", "/transactions")
PAGE_ROWS: Final = 200
LIST_AGE_S: Final = 1.0
MINUTE_MS: Final = 60_000
OLDER_THAN_MIN: Final = 15
NOT_FOUND: Final = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
STATES: Final = (
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Empty",
    "Dead",
    "PrepareEpochFence",
)
TONES: Final[Mapping[str, str]] = {
    "Ongoing": "warn",
    "PrepareCommit": "warn",
    "PrepareAbort": "warn",
    "PrepareEpochFence": "warn",
    "CompleteCommit": "good",
}


async def show_list(request: Request) -> Response:
    clients = clients_of(request)
    asked = request.query_params
    text, state = asked.get("text", "").strip(), asked.get("state", "")
    found, unknown = [], ""
    try:
        listed = await clients.shared("transactions", LIST_AGE_S, clients.admin.list_transactions)
    except ClientError as error:
        unknown = calm(error)
    else:
        found = sorted(
            each
            for each in listed
            if text.casefold() in each.transactional_id.casefold() and state in ("", each.state)
        )
    return render(
        request,
        "transactions/list.html",
        rows=found[:PAGE_ROWS],
        count=len(found),
        text=text,
        state=state,
        states=STATES,
        tones=TONES,
        unknown=unknown,
        older_than=OLDER_THAN_MIN,
    )


async def show_one(request: Request) -> Response:
    admin = clients_of(request).admin
    name = request.query_params.get("id", "")
    described = (await admin.describe_transactions([name]))[name]
    if described.error is not None and described.error.code is NOT_FOUND:
        message = f"No coordinator knows the transactional id {name}."
        return problem(request, "There is no such transactional id", message, status=404)
    found = described.get()
    is_open = found.start_time_ms != NO_TIMESTAMP
    starts: dict[TopicPartition, int] = {}
    unknown = []
    producers = await admin.describe_producers(found.partitions) if found.partitions else {}
    for partition, result in producers.items():
        if result.error is not None:
            unknown.append(calm(result.error))
            continue
        for each in result.get():
            if each.producer_id == found.producer_id and each.txn_start_offset != NO_TXN_OFFSET:
                starts[partition] = each.txn_start_offset
    return render(
        request,
        "transactions/one.html",
        found=found,
        duration_ms=SystemClock().time_ms() - found.start_time_ms if is_open else None,
        left_ms=_left_ms(found) if is_open else None,
        starts=starts,
        partitions=sorted(found.partitions),
        unknown=unknown,
        tones=TONES,
    )


def _left_ms(found: TransactionDescription) -> int:
    """Until the coordinator aborts it."""
    return max(found.start_time_ms + found.timeout_ms - SystemClock().time_ms(), 0)


async def show_producers(request: Request) -> Response:
    """Who writes to a partition."""
    place = _place(request.query_params)
    if place is None:
        return problem(request, "There is no such partition", "Name a topic and a partition.")
    found = (await clients_of(request).admin.describe_producers([place]))[place].get()
    return render(
        request,
        "transactions/producers.html",
        place=place,
        producers=sorted(found),
        none_open=NO_TXN_OFFSET,
    )


async def show_hanging(request: Request) -> Response:
    topic = request.query_params.get("topic", "").strip() or None
    minutes = _minutes(request.query_params.get("minutes", ""))
    now_ms = SystemClock().time_ms()

    def find(admin: Admin) -> list[OpenTransaction]:
        places = partitions_of(admin, topic, None, None)
        return find_hanging(admin, places, older_than_ms=minutes * MINUTE_MS, now_ms=now_ms)

    found = await in_thread(clients_of(request).admin, find)
    return render(
        request,
        "transactions/hanging.html",
        found=found,
        now_ms=now_ms,
        topic=topic or "",
        minutes=minutes,
    )


def _minutes(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else OLDER_THAN_MIN


def _place(fields: Mapping[str, str]) -> TopicPartition | None:
    topic, index = fields.get("topic", "").strip(), fields.get("partition", "").strip()
    if not topic or not (index.isascii() and index.isdigit() and len(index) < 10):
        return None
    return TopicPartition(topic, int(index))


# Abort


async def show_abort(request: Request) -> Response:
    """What would be aborted, with the question whether to do so."""
    place = _place(request.query_params)
    producer = None if place is None else await _open_at(request, place, request.query_params)
    if place is None or producer is None:
        return _nothing_open(request)
    return render(request, "transactions/abort.html", place=place, producer=producer)


async def abort(request: Request) -> Response:
    fields = {name: field_of(request, name) for name in ("topic", "partition", "offset")}
    place = _place(fields)
    producer = None if place is None else await _open_at(request, place, fields)
    if place is None or producer is None:
        return _nothing_open(request)
    await clients_of(request).admin.abort_transaction(
        place,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
    )
    clients_of(request).forget("transactions")
    message = f"The transaction of producer {producer.producer_id} in {place} is aborted."
    return told(
        request, link("transactions", "producers", topic=place[0], partition=place[1]), message
    )


async def _open_at(
    request: Request, place: TopicPartition, fields: Mapping[str, str]
) -> ActiveProducer | None:
    """The producer whose open transaction begins at the offset named."""
    found = (await clients_of(request).admin.describe_producers([place]))[place].get()
    offset = fields.get("offset", "").strip()
    opened = (each for each in found if each.txn_start_offset != NO_TXN_OFFSET)
    return next((each for each in opened if str(each.txn_start_offset) == offset), None)


def _nothing_open(request: Request) -> Response:
    return problem(
        request,
        "There is nothing to abort",
        "No transaction that is open in this partition begins at this offset. It may have ended "
        "meanwhile.",
        status=404,
    )


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/transactions", show_list),
    Route("/transactions/one", show_one),
    Route("/transactions/producers", show_producers),
    Route("/transactions/hanging", show_hanging),
    Route("/transactions/abort", show_abort),
    Route("/transactions/abort", abort, methods=["POST"]),
)
