"""Making and removing topics: asked of the broker that the metadata calls the controller.

With KRaft any broker is named there and passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import refused
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster
    from tidelog.client.connection import Connection
    from tidelog.protocol.message import Message

_ADMIN_TIMEOUT_MS: Final = 20_000


def create_topics(cluster: Cluster, partitions: Mapping[str, int]) -> None:
    """With the broker's default replication factor. One that somebody else made meanwhile is
    fine."""
    if not partitions:
        return
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        for name, count in partitions.items()
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=_ADMIN_TIMEOUT_MS)
    response = _ask_controller(cluster, ApiKey.CREATE_TOPICS, request, at_least=4)
    assert isinstance(response, CreateTopicsResponse), response
    for row in response.topics:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise refused(f"topic {row.name}", row.error_code, row.error_message or "")


def delete_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """One that is not there is fine."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=_ADMIN_TIMEOUT_MS)
    response = _ask_controller(cluster, ApiKey.DELETE_TOPICS, request, at_most=5, at_least=1)
    assert isinstance(response, DeleteTopicsResponse), response
    for row in response.responses:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise refused(f"topic {row.name}", row.error_code, row.error_message or "")


def _ask_controller(
    cluster: Cluster, key: ApiKey, request: Message, *, at_most: int | None = None, at_least: int
) -> Message:
    def ask(connection: Connection) -> Message:
        return connection.call(request, connection.versions.version(key, at_most, at_least))

    cluster.topics([])
    controller_id = cluster.view.controller_id
    if controller_id in cluster.view.brokers:
        return cluster.ask_node(controller_id, ask)
    return cluster.ask_any(key.name, ask)
