"""Topics that a pipeline needs: looked up before it starts, and made where the file says how.

Only what is declared with `partitions` is made. A source whose topic is not there and may not be
made is a problem of the file; topics that are written to are otherwise left to the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.topics import create_topics
from tidelog.pipeline.declaration import PipelineError, Place, Problem

if TYPE_CHECKING:
    from tidelog.pipeline.declaration import Pipeline

_FIRST_ANSWER_TIMEOUT_MS: Final = 5_000


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
