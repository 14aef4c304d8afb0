"""Client quotas: how much a user, a client id or an address may use (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError
from tidelog.protocol.messages import alter_client_quotas as altering
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class QuotaEntity(NamedTuple):
    """Pairs of type (user, client-id, ip) and name, by type; a name of None is the default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        return cls(tuple(sorted(parts.items())))

    def __str__(self) -> str:
        return ", ".join(f"{kind}={name or '(default)'}" for kind, name in self.parts)


class QuotaMatch(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """Entities that have this type, with this name, as the default, or with any name."""

    entity_type: str
    match: QuotaMatch = QuotaMatch.ANY
    name: str | None = None


class QuotaCalls(Asking):
    async def describe_client_quotas(
        self,
        filters: Iterable[QuotaFilter] = (),
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by key, of the entities that match all filters; `strict` leaves out entities that
        have further types."""
        components = [
            ComponentData(entity_type=each.entity_type, match_type=each.match, match=each.name)
            for each in filters
        ]

        async def ask(_: int) -> DescribeClientQuotasResponse:
            request = DescribeClientQuotasRequest(components=components, strict=strict)
            answer = await self.of_any(request, DescribeClientQuotasResponse)
            problem = problem_of("quotas", answer.error_code, answer.error_message)
            if problem is not None:
                raise problem
            return answer

        response = await self.once("quotas", ask, timeout)
        return {
            QuotaEntity.of({part.entity_type: part.entity_name for part in row.entity}): {
                each.key: each.value for each in row.values
            }
            for row in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, Result[None]]:
        """Sets quotas; None removes one."""

        async def step(some: list[QuotaEntity], _: int) -> Found[QuotaEntity, None]:
            request = altering.AlterClientQuotasRequest(
                entries=[
                    altering.AlterClientQuotasRequestEntryData(
                        entity=[
                            altering.EntityData(entity_type=kind, entity_name=name)
                            for kind, name in entity.parts
                        ],
                        ops=[
                            altering.OpData(key=key, value=value or 0.0, remove=value is None)
                            for key, value in quotas[entity].items()
                        ],
                    )
                    for entity in some
                ],
                validate_only=validate_only,
            )
            response = await self.of_any(request, altering.AlterClientQuotasResponse)
            found: dict[QuotaEntity, ClientError | None] = {}
            for row in response.entries:
                entity = QuotaEntity.of({part.entity_type: part.entity_name for part in row.entity})
                found[entity] = problem_of(f"quotas of {entity}", row.error_code, row.error_message)
            return found

        return await self.each("change of quotas", quotas, step, timeout)
