"""Finding the coordinator of a group or a transactional id, and asking it.

A coordinator moves with the leadership of a partition, so it is looked up for every question, and
the question is asked again while the answer says that it may pass.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.client.errors import ClientError, UnsupportedByBroker, refused
from tidelog.client.network.backoff import may_pass
from tidelog.config.client import Address
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection

Answered = TypeVar("Answered")

_SEVERAL_KEYS_VERSION: Final = 4
_KINDS_VERSION: Final = 1


class CoordinatorKind(IntEnum):
    """The numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def text(self) -> str:
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


class Coordinator(NamedTuple):
    node_id: int
    address: Address


def ask_coordinator(
    cluster: Cluster,
    kind: CoordinatorKind,
    key: str,
    what: str,
    ask: Callable[[Connection, Coordinator], Answered],
) -> Answered:
    """What `ask` gets from the coordinator of `key`; retries while it moves or cannot answer."""
    patience = cluster.patience(what)
    while True:
        try:
            coordinator = coordinator_of(cluster, kind, key)
            connection = cluster.take_at(coordinator.address)
            try:
                return ask(connection, coordinator)
            finally:
                cluster.give_back(connection)
        except ClientError as problem:
            if not may_pass(problem):
                raise
            patience.wait_after(problem)


def coordinator_of(cluster: Cluster, kind: CoordinatorKind, key: str) -> Coordinator:
    what = f"coordinator of {kind.text} {key}"

    def ask(connection: Connection) -> Coordinator:
        if not connection.versions.offers(ApiKey.FIND_COORDINATOR):
            raise UnsupportedByBroker(
                f"broker {connection.broker} has no {kind.name.lower()} coordinator (it does not "
                f"offer FIND_COORDINATOR) for {kind.text} {key}"
            )
        version = connection.versions.version(ApiKey.FIND_COORDINATOR)
        if version < _KINDS_VERSION and kind is not CoordinatorKind.GROUP:
            raise UnsupportedByBroker(
                f"broker {connection.broker} has no transaction coordinator for {key}"
            )
        if version >= _SEVERAL_KEYS_VERSION:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key_type=kind, key=key)
        response = connection.call(request, version)
        assert isinstance(response, FindCoordinatorResponse), response
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise refused(what, found.error_code, found.error_message or None)
        return Coordinator(found.node_id, Address(found.host, found.port))

    return cluster.ask_any(what, ask)
