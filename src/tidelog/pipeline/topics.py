"""Topics that a pipeline needs: looked up before it starts, and made where the file says how.

    read          made if declared with `partitions`; a topic that is not there is a problem else
    written to    made if declared with `partitions`; left to the broker else
    dead letters  made in any case, so that no broken row waits for somebody to make them

A topic that is there is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.config.client import AdminConfig
from tidelog.pipeline.declaration.parts import TOPIC, PipelineError, Place, Problem
from tidelog.spark.references import resolved
from tidelog.spark.topics import create_topics, new_topic

if TYPE_CHECKING:
    from tidelog.pipeline.declaration.parts import Pipeline, TopicCreation

_FIRST_ANSWER_TIMEOUT_MS: Final = 5_000


def prepare_topics(pipeline: Pipeline) -> list[str]:
    """The topics that were made; raises with the line of a source whose topic is not there, and of
    whatever topic the broker refuses to make."""
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


def wanted_topics(pipeline: Pipeline) -> dict[str, tuple[int, TopicCreation]]:
    """What may be made, and the line that says how."""
    wanted: dict[str, tuple[int, TopicCreation]] = {}
    for source in pipeline.lettered_sources:
        wanted[source.dead_letter] = source.line, pipeline.dead_letter
    for sink in pipeline.sinks:
        if sink.kind == TOPIC and sink.creation.partitions is not None:
            wanted[sink.target] = sink.line, sink.creation
    for source in pipeline.sources:
        if source.creation.partitions is not None:
            wanted |= dict.fromkeys(source.topics, (source.line, source.creation))
    return wanted


def _prepare(admin: Admin, pipeline: Pipeline) -> list[str]:
    wanted = wanted_topics(pipeline)
    there = {row.name for row in admin.list_topics(include_internal=True)}
    problems = [
        Problem(
            Place(pipeline.file, source.line),
            f'[source.{source.name}] topic "{topic}" is not on {pipeline.bootstrap}; '
            f"create it, or add partitions = 1 to have it made",
        )
        for source in pipeline.sources
        for topic in source.topics
        if topic not in there and topic not in wanted
    ]
    if problems:
        raise PipelineError(*problems)
    absent = [
        new_topic(name, row.partitions, row.replication, row.config)
        for name, (_, row) in wanted.items()
        if name not in there
    ]
    made, refused = create_topics(admin, absent)
    if refused:
        raise PipelineError(
            *(
                Problem(
                    Place(pipeline.file, wanted[name][0]), f"topic {name} could not be made: {why}"
                )
                for name, why in refused.items()
            )
        )
    return made
