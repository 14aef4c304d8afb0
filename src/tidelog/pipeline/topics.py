"""Topics that a pipeline needs: looked up before it starts, and made where the file says how.

Only what is declared with `partitions` is made. A source whose topic is not there and may not be
made is a problem of the file; topics that are written to are otherwise left to the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.admin.topics import NewTopic
from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.config.client import AdminConfig
from tidelog.pipeline.declaration import PipelineError, Place, Problem
from tidelog.spark.references import resolved
from tidelog.spark.topics import create_topics

if TYPE_CHECKING:
    from tidelog.pipeline.declaration import Pipeline

_FIRST_ANSWER_TIMEOUT_MS: Final = 5_000


def prepare_topics(pipeline: Pipeline) -> list[str]:
    """The topics that were made; raises with the line of a source whose topic is not there."""
    given = {
        key: resolved(text) for key, text in pipeline.kafka.items() if key in AdminConfig.TABLE
    }
    config = {
        "default.api.timeout.ms": _FIRST_ANSWER_TIMEOUT_MS,
        **given,
        "bootstrap.servers": pipeline.bootstrap,
    }
    try:
        with Admin(config) as admin:
            return _prepare(admin, pipeline)
    except ClientError as problem:
        line = next((source.line for source in pipeline.sources), 0)
        told = f"no answer from bootstrap {pipeline.bootstrap}: {problem}; is a broker there?"
        raise pipeline.error(line, told) from problem


def _prepare(admin: Admin, pipeline: Pipeline) -> list[str]:
    wanted: dict[str, int | None] = {}
    for source in pipeline.sources:
        wanted |= dict.fromkeys(source.topics, source.partitions)
    for sink in pipeline.sinks:
        if sink.partitions is not None:
            wanted[sink.target] = sink.partitions
    there = {row.name for row in admin.list_topics(include_internal=True)}
    absent = [name for name in wanted if name not in there]
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
    return create_topics(admin, [NewTopic(*row) for row in made.items()])
