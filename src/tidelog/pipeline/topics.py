"""Topics that a pipeline needs: looked up before it starts, and made where the file says how.

Only what is declared with `partitions` is made. A source whose topic is not there and may not be
made is a problem of the file; topics that are written to are otherwise left to the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError, UnsupportedByBroker, refused
from tidelog.errors import ErrorCode
from tidelog.pipeline.problems import PipelineError, Place, Problem
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from tidelog.client.connection import Connection
    from tidelog.pipeline.declaration import Pipeline
    from tidelog.protocol.message import Message

_ADMIN_TIMEOUT_MS: Final = 20_000
_FIRST_ANSWER_TIMEOUT_MS: Final = 10_000
# From 4 on a topic may leave its replication factor to the broker; 6 names topics otherwise.
_VERSIONS: Final = {ApiKey.CREATE_TOPICS: (4, 7), ApiKey.DELETE_TOPICS: (1, 5)}


def prepare_topics(pipeline: Pipeline) -> list[str]:
    """The topics that were made; raises with the line of a source whose topic is not there."""
    config = {
        "default.api.timeout.ms": _FIRST_ANSWER_TIMEOUT_MS,
        **pipeline.kafka,
        "bootstrap.servers": pipeline.bootstrap,
    }
    try:
        with Cluster(config) as cluster:
            return _prepare(cluster, pipeline)
    except ClientError as problem:
        line = next((source.line for source in pipeline.sources), 0)
        told = f"no answer from bootstrap {pipeline.bootstrap}: {problem}; is a broker there?"
        raise pipeline.error(line, told) from problem


def _prepare(cluster: Cluster, pipeline: Pipeline) -> list[str]:
    wanted: dict[str, int | None] = {}
    for source in pipeline.sources:
        wanted |= dict.fromkeys(source.topics, source.partitions)
    for sink in pipeline.sinks:
        if sink.partitions is not None:
            wanted[sink.target] = sink.partitions
    there = cluster.topics(list(wanted)) if wanted else {}
    absent = [name for name in wanted if not there[name].exists]
    problems = [
        Problem(
            Place(pipeline.file, source.line),
            f'[source.{source.name}] topic "{topic}" is not on {pipeline.bootstrap}; '
            f"create it, or add partitions = 1 to have it made",
        )
        for source in pipeline.sources
        for topic in source.topics
        if topic in absent and source.partitions is None
    ]
    if problems:
        raise PipelineError(*problems)
    made = {name: partitions for name in absent if (partitions := wanted[name]) is not None}
    create_topics(cluster, made)
    return list(made)


def create_topics(cluster: Cluster, partitions: Mapping[str, int]) -> None:
    """One that somebody else made meanwhile is fine."""
    if not partitions:
        return
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=-1)
        for name, count in partitions.items()
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=_ADMIN_TIMEOUT_MS)
    response = _ask_controller(cluster, ApiKey.CREATE_TOPICS, request)
    assert isinstance(response, CreateTopicsResponse), response
    for row in response.topics:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise refused(f"topic {row.name}", row.error_code, row.error_message or "")


def delete_topics(cluster: Cluster, names: Iterable[str]) -> None:
    """One that is not there is fine."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=_ADMIN_TIMEOUT_MS)
    response = _ask_controller(cluster, ApiKey.DELETE_TOPICS, request)
    assert isinstance(response, DeleteTopicsResponse), response
    for row in response.responses:
        if row.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise refused(f"topic {row.name}", row.error_code, row.error_message or "")


def _ask_controller(cluster: Cluster, key: ApiKey, request: Message) -> Message:
    """The broker that the metadata calls the controller; with KRaft any, which passes it on."""

    def ask(connection: Connection) -> Message:
        low, high = _VERSIONS[key]
        offered_low, offered_high = connection.versions.ranges.get(key, (1, 0))
        version = min(high, offered_high)
        if version < max(low, offered_low):
            raise UnsupportedByBroker(f"the broker offers no usable version of {key.name}")
        return connection.call(request, version)

    cluster.topics([])
    controller_id = cluster.view.controller_id
    if controller_id in cluster.view.brokers:
        return cluster.ask_node(controller_id, ask)
    return cluster.ask_any(key.name, ask)
