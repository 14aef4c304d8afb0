"""DescribeClientQuotas v0-v1: the quotas that are set, as far as a filter lets them through.

Behaviour
- The filter has a component for each entity type that is asked for: with this name (0), the
  default (1), or any name and the default too (2). An entity must match all components; with
  `strict` it must have no other types.
- The answer is what this broker holds clients to. In a cluster it may lag behind a change that
  another broker has made, by less than a second.
Checks, in order: DESCRIBE_CONFIGS on the cluster (31); an empty type, one given twice, ip beside
another, a match that does not fit its kind (42); an unknown type (35).
Versions: v1 flexible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE_CONFIGS
from tidelog.broker.context import RequestContext
from tidelog.broker.quotas.quota_entity import ENTITY_TYPES, IP, Name, QuotaEntity
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        if not context.may_on_cluster(DESCRIBE_CONFIGS):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        _must_be_a_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            _entry(entity, quotas)
            for entity, quotas in context.broker.dynamic_config.quota_limits.all()
            if _matches(dict(entity.parts), request.components, strict=request.strict)
        ],
    )


def _must_be_a_filter(components: Iterable[ComponentData]) -> None:
    seen: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}.")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {each.match_type}")
        if (each.match_type == EXACT) != (each.match is not None):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Only an exact match has a name, and it must have one."
            )
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )


def _matches(parts: Mapping[str, Name], components: list[ComponentData], *, strict: bool) -> bool:
    if strict and len(parts) != len(components):
        return False
    return all(
        each.entity_type in parts
        and (each.match_type == SPECIFIED or parts[each.entity_type] == each.match)
        for each in components
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )
