"""Client quotas: how much a user, a client id or an address may use (KIP-13, KIP-546).

An entity is a user, a client id, both together, or an address; the default of a kind stands for all
that have no quota of their own. A value is a number, and an empty one removes the quota.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.client.admin.quotas import QuotaEntity
from tidelog.client.errors import ClientError
from tidelog.tools.console.clients import clients_of
from tidelog.tools.console.page import field_of, form_of, problem, render, told
from tidelog.tools.console.refusals import calm

NAVIGATION: Final = ("Quotas", "/quotas")
KINDS: Final = ("user", "client-id", "ip")
KEYS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes a second that are produced, to each broker",
    "consumer_byte_rate": "bytes a second that are fetched, from each broker",
    "request_percentage": "share of a broker's time, in per cent of one thread",
    "controller_mutation_rate": "topics and partitions made or deleted a second",
    "connection_creation_rate": "connections a second; of addresses alone",
}
IP_KEYS: Final = frozenset({"connection_creation_rate"})
ROWS_MAX: Final = 1_000


class WrongQuota(Exception):
    """What the user has to change."""


class QuotaRow(NamedTuple):
    entity: QuotaEntity
    whole: str  # the entity as a form names it
    values: Mapping[str, float]


async def show_list(request: Request) -> Response:
    text = request.query_params.get("text", "").strip()
    rows: list[QuotaRow] = []
    unknown = ""
    try:
        found = await clients_of(request).admin.describe_client_quotas()
    except ClientError as error:
        unknown = calm(error)
    else:
        rows = [
            QuotaRow(entity, name_of(entity), dict(sorted(values.items())))
            for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
            if text.casefold() in str(entity).casefold()
        ]
    return render(
        request,
        "quotas/list.html",
        rows=rows[:ROWS_MAX],
        count=len(rows),
        text=text,
        unknown=unknown,
        keys=KEYS,
        kinds=KINDS,
    )


async def alter(request: Request) -> Response:
    try:
        entity = entity_of(
            {kind: form_of(request).get(kind, [""])[0] for kind in KINDS}, _defaults(request)
        )
        values = values_of(entity, {key: field_of(request, key) for key in KEYS})
    except WrongQuota as error:
        return problem(request, "Nothing was changed", str(error))
    admin = clients_of(request).admin
    (await admin.alter_client_quotas({entity: values}))[entity].get()
    return told(request, "/quotas", f"Quotas of {entity} are set.")


def _defaults(request: Request) -> frozenset[str]:
    return frozenset(form_of(request).get("default", [])) & frozenset(KINDS)


async def remove(request: Request) -> Response:
    """One quota of an entity."""
    key = field_of(request, "key")
    try:
        entity = named_entity(field_of(request, "entity"))
    except WrongQuota as error:
        return problem(request, "Nothing was changed", str(error))
    admin = clients_of(request).admin
    (await admin.alter_client_quotas({entity: {key: None}}))[entity].get()
    return told(request, "/quotas", f"{entity} has no {key} any more.")


def entity_of(names: Mapping[str, str], defaults: frozenset[str] = frozenset()) -> QuotaEntity:
    """Of the names given, and of the kinds whose default is meant."""
    parts: dict[str, str | None] = {kind: name for kind, name in names.items() if name}
    for kind in defaults:
        if kind in parts:
            raise WrongQuota(f"Name a {kind} or choose the default of all, not both.")
        parts[kind] = None
    if not parts:
        raise WrongQuota("Name a user, a client id or an address, or choose a default.")
    if "ip" in parts and len(parts) > 1:
        raise WrongQuota("An address goes with no user and no client id.")
    return QuotaEntity.of(parts)


def values_of(entity: QuotaEntity, texts: Mapping[str, str]) -> dict[str, float | None]:
    """Those that were given."""
    is_ip = any(kind == "ip" for kind, _ in entity.parts)
    found: dict[str, float | None] = {}
    for key, text in texts.items():
        if not text:
            continue
        if (key in IP_KEYS) != is_ip:
            raise WrongQuota(f"{key} is no quota of {'an address' if is_ip else 'a client'}.")
        try:
            value = float(text)
        except ValueError:
            raise WrongQuota(f"{key} takes a number, not {text[:100]}.") from None
        if not math.isfinite(value) or value <= 0:
            raise WrongQuota(f"{key} takes a number above zero.")
        found[key] = value
    if not found:
        raise WrongQuota("Give at least one value.")
    return found


def name_of(entity: QuotaEntity) -> str:
    return json.dumps(entity.parts)


def named_entity(text: str) -> QuotaEntity:
    try:
        parts = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        parts = {}
    if not parts or not all(
        kind in KINDS and (name is None or isinstance(name, str)) for kind, name in parts.items()
    ):
        raise WrongQuota("The form names something that has no quotas.")
    return QuotaEntity.of(parts)


ROUTES: Final[Sequence[BaseRoute]] = (
    Route("/quotas", show_list),
    Route("/quotas/alter", alter, methods=["POST"]),
    Route("/quotas/remove", remove, methods=["POST"]),
)
