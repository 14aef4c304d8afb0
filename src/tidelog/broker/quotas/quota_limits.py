"""The quotas that are set, in memory: no request reads a store.

`DynamicConfig` reads them at the start, and hands over what changes afterwards.
DescribeClientQuotas shows what is here, which is what the broker holds clients to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.broker.quotas.quota_entity import ABSENT, CLIENT_KEYS, IP, QuotaEntity

logger = logging.getLogger(__name__)

# User and client id; one of them is ABSENT where their quota does not tell such clients apart.
Client = tuple[str, str]
# A user or None for any, and a client id or None for any; ABSENT where the quota names none.
Key = tuple[str | None, str | None]


class Limit(NamedTuple):
    client: Client  # who shares it
    rate: float


class ClientLimits:
    """The quotas of one kind, with Kafka's precedence:

    1 user, client id    4 any user, client id    7 client id
    2 user, any client   5 any user, any client   8 any client
    3 user               6 any user

    The first that is set decides. Those of a user alone (3, 6) hold for all clients of that user
    together, those of a client id alone (7, 8) for all users who call their client so, and the
    others for each pair. A request without a client id falls under "any client".
    """

    def __init__(self) -> None:
        self._rates: dict[Key, float] = {}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def set(self, key: Key, rate: float | None) -> None:
        if rate is None:
            self._rates.pop(key, None)
        else:
            self._rates[key] = rate

    def find(self, user: str, client_id: str) -> Limit | None:
        for key, client in _candidates(user, client_id):
            rate = self._rates.get(key)
            if rate is not None:
                return Limit(client, rate)
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Key, Client]]:
    pair, user_alone, client_alone = (user, client_id), (user, ABSENT), (ABSENT, client_id)
    if client_id:
        yield (user, client_id), pair
    yield (user, None), pair
    yield (user, ABSENT), user_alone
    if client_id:
        yield (None, client_id), pair
    yield (None, None), pair
    yield (None, ABSENT), user_alone
    if client_id:
        yield (ABSENT, client_id), client_alone
    yield (ABSENT, None), client_alone


class QuotaLimits:
    """Touched only on the broker loop."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._of_clients = {key: ClientLimits() for key in CLIENT_KEYS}
        self.binds_clients = False  # whether any quota of users and clients is set

    def of(self, key: str) -> ClientLimits:
        return self._of_clients[key]

    def take_over(self, entity: QuotaEntity, texts: Mapping[str, str]) -> bool:
        """All that is stored of an entity. Whether its quotas are others than before."""
        quotas: dict[str, float] = {}
        for key in entity.keys:
            if key in texts:
                try:
                    quotas[key] = float(texts[key])
                except ValueError:
                    logger.warning("quota left out: %s=%s is no number", key, texts[key])
        if quotas == self._quotas.get(entity, {}):
            return False
        if quotas:
            self._quotas[entity] = quotas
        else:
            del self._quotas[entity]
        if entity.ip == ABSENT:
            for key, limits in self._of_clients.items():
                limits.set((entity.user, entity.client_id), quotas.get(key))
            self.binds_clients = any(self._of_clients.values())
        return True

    def all(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        yield from self._quotas.items()

    def of_addresses(self, key: str) -> dict[str | None, float]:
        """Rates by address or host name; None has the one of all others."""
        return {
            dict(entity.parts)[IP]: quotas[key]
            for entity, quotas in self._quotas.items()
            if entity.ip != ABSENT
        }
