"""Which names a topic may have, as Kafka's Topic class rules.

Metrics turn dots into underscores, so two names that differ only there would be one: they collide.
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

CLUSTER_METADATA: Final = "__cluster_metadata"  # KRaft's own log, never a topic of clients

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

NAME_LENGTH_MAX: Final = 249

_LEGAL: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def reason_invalid(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.issuperset(name):
        return f"'{name}' has characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def must_be_valid(name: str) -> None:
    reason = reason_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def must_not_be_reserved(name: str) -> None:
    if name == CLUSTER_METADATA:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        )


def collision_form(name: str) -> str:
    """Two different names with the same form collide."""
    return name.replace(".", "_")
