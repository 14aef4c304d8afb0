"""Whom a quota is for, where it is stored, and which quotas there are (KIP-13, 124, 546, 599, 612).

    user                /config/users/USER                    producer_byte_rate
    user and client-id  /config/users/USER/clients/CLIENT     consumer_byte_rate
    client-id           /config/clients/CLIENT                request_percentage
                                                              controller_mutation_rate
    ip                  /config/ips/IP                        connection_creation_rate

Names are as in a URL; `<default>` stands for all who have no quota of their own. In memory a name
is None for that default, and empty where the entity has no such part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.controller.znodes import DEFAULT_ENTITY, desanitized, sanitized
from tidelog.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)
ABSENT: Final = ""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# What a quota may be at most, where it is a whole number; None where it may be a fraction.
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
CLIENT_KEYS: Final[dict[str, int | None]] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
IP_KEYS: Final[dict[str, int | None]] = {CONNECTION_CREATION_RATE: INT_MAX}
FRACTION_MAX: Final = 1e-6  # above it a number is not whole, as in Kafka

Name = str | None


class QuotaEntity(NamedTuple):
    user: Name = ABSENT
    client_id: Name = ABSENT
    ip: Name = ABSENT

    @classmethod
    def of(cls, parts: Iterable[tuple[str, Name]]) -> QuotaEntity:
        """Raises KafkaError where Kafka takes no such entity."""
        names: dict[str, Name] = {}
        for kind, name in parts:
            if kind not in ENTITY_TYPES:
                raise _invalid(f"Unhandled client quota entity type: {kind}")
            if kind in names:
                raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
            if name == "":
                raise _invalid(f"Empty {kind} not supported")
            if name in (".", ".."):
                raise _invalid(f"{kind} must not be {name}")
            names[kind] = name
        if not names:
            raise _invalid("Invalid empty client quota entity")
        if IP in names and len(names) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be used with user/client "
                "ID entity."
            )
        return cls(*(names.get(kind, ABSENT) for kind in ENTITY_TYPES))

    @classmethod
    def of_node(cls, entity_type: str, path: str) -> QuotaEntity | None:
        """By its place below /config; None of a node that is only on the way to others."""
        names = [None if part == DEFAULT_ENTITY else desanitized(part) for part in path.split("/")]
        if entity_type == "users":
            if len(names) == 1:
                return cls(user=names[0])
            if len(names) == 3 and names[1] == "clients":
                return cls(user=names[0], client_id=names[2])
        elif len(names) == 1 and entity_type == "clients":
            return cls(client_id=names[0])
        elif len(names) == 1 and entity_type == "ips":
            return cls(ip=names[0])
        return None

    @property
    def node(self) -> tuple[str, str]:
        """The entity type below /config, and the path below that."""
        if self.ip != ABSENT:
            return "ips", _node_name(self.ip)
        client = _node_name(self.client_id)
        if self.user == ABSENT:
            return "clients", client
        user = _node_name(self.user)
        return "users", user if self.client_id == ABSENT else f"{user}/clients/{client}"

    @property
    def parts(self) -> Iterator[tuple[str, Name]]:
        """Type and name of those there are."""
        for kind, name in zip(ENTITY_TYPES, self, strict=True):
            if name != ABSENT:
                yield kind, name

    @property
    def keys(self) -> dict[str, int | None]:
        """The quotas that it may have."""
        return CLIENT_KEYS if self.ip == ABSENT else IP_KEYS


class Alteration(NamedTuple):
    key: str
    value: float | None  # None removes the quota

    def text(self, entity: QuotaEntity) -> str | None:
        """As it is stored; None if it is removed. Raises KafkaError if there is no such quota."""
        if self.key not in entity.keys:
            raise _invalid(f"Invalid configuration key {self.key}")
        if self.value is None:
            return None
        if not self.value > 0.0 or math.isinf(self.value):
            raise _invalid(f"Quota {self.key} must be greater than 0")
        value_max = entity.keys[self.key]
        if value_max is None:
            return repr(self.value)
        if self.value > float(value_max):
            size = "a LONG" if value_max == LONG_MAX else "an INT"
            raise _invalid(f"Proposed value for {self.key} is too large for {size}.")
        if abs(self.value % 1.0) > FRACTION_MAX:
            raise _invalid(f"{self.key} cannot be a fractional value.")
        return str(min(int(self.value), value_max))


def _node_name(name: Name) -> str:
    return DEFAULT_ENTITY if name is None else sanitized(name)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
