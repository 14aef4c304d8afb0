"""AlterClientQuotas v0-v1: set and remove quotas of users, clients and addresses (KIP-546).

Behaviour
- Any broker of a cluster does it, and all of them hold clients to it within a second.
- All quotas of an entity are changed or none; entities are independent of each other. An entity
  that is named twice is not changed.
- SCRAM credentials of a user are in the same node, and stay as they are.
- validate_only checks and changes nothing.
Checks of an entity, in order: ALTER_CONFIGS on the cluster (31); a type that is unknown or given
twice, an empty name, ip beside another type; an address that is none and no known host; a key that
is given twice or is no quota of such an entity; a value that is not above 0, not whole or too large
(42).
Versions: v1 flexible.
Unlike Kafka, which in ZooKeeper mode takes quotas of 0 and below and removes any key of a user's
node; Kafka without ZooKeeper refuses these values too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.broker.authorized_operations import ALTER_CONFIGS
from tidelog.broker.context import RequestContext
from tidelog.broker.quotas.quota_entity import ABSENT, Alteration, QuotaEntity
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
)


async def handle(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    is_allowed = context.may_on_cluster(ALTER_CONFIGS)
    times = Counter(_parts(entry) for entry in request.entries)
    once = {_parts(entry): entry for entry in request.entries}
    rows = await context.broker.slices.gather(
        _row(
            context,
            entry,
            times=times[parts],
            is_allowed=is_allowed,
            validate_only=request.validate_only,
        )
        for parts, entry in once.items()
    )
    return AlterClientQuotasResponse(entries=rows)


def _parts(entry: AlterClientQuotasRequestEntryData) -> tuple[tuple[str, str | None], ...]:
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] or "", part[1] is None)))


async def _row(
    context: RequestContext,
    entry: AlterClientQuotasRequestEntryData,
    *,
    times: int,
    is_allowed: bool,
    validate_only: bool,
) -> AlterClientQuotasResponseEntryData:
    row = AlterClientQuotasResponseEntryData(
        error_message=None,
        entity=[
            EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )
    alterations = [Alteration(op.key, None if op.remove else op.value) for op in entry.ops]
    try:
        if not is_allowed:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if times > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate entity in the request.")
        entity = QuotaEntity.of((part.entity_type, part.entity_name) for part in entry.entity)
        await _must_be_known(entity)
        texts = _texts(entity, alterations)
        await context.broker.dynamic_config.alter_quotas(
            entity, lambda stored: _edited(stored, texts), validate_only=validate_only
        )
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message
    return row


async def _must_be_known(entity: QuotaEntity) -> None:
    if entity.ip is None or entity.ip == ABSENT:
        return
    try:
        await asyncio.get_running_loop().getaddrinfo(entity.ip, None)
    except (OSError, UnicodeError):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{entity.ip} is not a valid IP or resolvable host."
        ) from None


def _texts(entity: QuotaEntity, alterations: Sequence[Alteration]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for each in alterations:
        if each.key in texts:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {each.key}")
        texts[each.key] = each.text(entity)
    return texts


def _edited(stored: Mapping[str, str], texts: Mapping[str, str | None]) -> dict[str, str]:
    together = {**stored, **texts}
    return {key: text for key, text in together.items() if text is not None}
