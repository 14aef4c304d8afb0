"""Topics that a pipeline needs: looked up before it starts, and made where the file says how.

    read          made if declared with `partitions`; a topic that is not there is a problem else
    written to    made if declared with `partitions`; left to the broker else
    dead letters  made in any case, so that no broken row waits for somebody to make them

A topic that is there is left as it is. Where it differs from what the file says of its making,
the caller is told. Only compacted dead letters are a problem: letters of one key replace each
other, and brokers refuse those without a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.admin.configs import ConfigResource, ConfigResourceType
from tidelog.client.blocking.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.config.client import AdminConfig
from tidelog.pipeline.declaration.parts import (
    TOPIC,
    PipelineError,
    Place,
    Problem,
    TopicCreation,
    is_compacted,
)
from tidelog.spark.references import resolved
from tidelog.spark.topics import create_topics, new_topic

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.client.admin.topics import TopicDescription
    from tidelog.pipeline.declaration.parts import Pipeline

NEVER_COMPACTED: Final = {"cleanup.policy": "delete"}  # whatever brokers do to topics by default
_FIRST_ANSWER_TIMEOUT_MS: Final = 5_000


class PreparedTopics(NamedTuple):
    made: list[str]
    remarks: list[Problem]  # on topics that are there and are not as the file says


def prepare_topics(pipeline: Pipeline) -> PreparedTopics:
    """Raises with the line of a source whose topic is not there, of whatever topic the broker
    refuses to make, and of dead letters that would be compacted."""
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


def _prepare(admin: Admin, pipeline: Pipeline) -> PreparedTopics:
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
    problems += _compacted_letters(admin, pipeline, there)
    if problems:
        raise PipelineError(*problems)
    remarks = _remarks(admin, pipeline, there)
    letters = {source.dead_letter for source in pipeline.lettered_sources}
    absent = [
        new_topic(
            name,
            row.partitions,
            row.replication,
            {**NEVER_COMPACTED, **row.config} if name in letters else row.config,
        )
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
    return PreparedTopics(made, remarks)


def _compacted_letters(admin: Admin, pipeline: Pipeline, there: Collection[str]) -> list[Problem]:
    """Nothing is said of topics whose configuration the user may not see."""
    lines = {source.dead_letter: source.line for source in pipeline.lettered_sources}
    configs = _configs(admin, [name for name in lines if name in there])
    return [
        Problem(
            Place(pipeline.file, lines[name]),
            f"topic {name} is for dead letters and has cleanup.policy {config['cleanup.policy']}: "
            f"letters of one key would replace each other; set its cleanup.policy to delete, or "
            f"name another topic by dead_letter",
        )
        for name, config in configs.items()
        if config is not None and is_compacted(config)
    ]


def _remarks(admin: Admin, pipeline: Pipeline, there: Collection[str]) -> list[Problem]:
    wanted = {
        name: row
        for name, row in wanted_topics(pipeline).items()
        if name in there and row[1] != TopicCreation()
    }
    configs = _configs(admin, wanted)
    described = admin.describe_topics(wanted) if wanted else {}
    remarks = []
    for name, (line, row) in wanted.items():
        found = described[name]
        if found.error is None:
            told = differences(row, _as_found(found.get(), configs[name]))
        else:
            told = [f"cannot be looked at: {found.error}"]
        place = Place(pipeline.file, line)
        remarks += [Problem(place, f"topic {name} {difference}") for difference in told]
    return remarks


def _as_found(topic: TopicDescription, config: dict[str, str] | None) -> TopicCreation | None:
    if config is None:
        return None
    replicas = min(len(row.replicas) for row in topic.partitions)
    return TopicCreation(len(topic.partitions), replicas, config)


def differences(wanted: TopicCreation, found: TopicCreation | None) -> list[str]:
    """None was found where the user may not see the configuration."""
    if found is None:
        return ["is there, and this user may not see whether its configuration is as declared"]
    pairs = [
        ("partitions", wanted.partitions, found.partitions),
        ("replicas", wanted.replication, found.replication),
    ]
    told = [
        f"has {there} {what}, not {said}"
        for what, said, there in pairs
        if said not in (None, there)
    ]
    told += [
        f"has {name} {found.config.get(name)}, not {text}"
        for name, text in wanted.config.items()
        if found.config.get(name) != text
    ]
    return [f"{each}; it was there before and is left as it is" for each in told]


def _configs(admin: Admin, names: Collection[str]) -> dict[str, dict[str, str] | None]:
    """None for topics whose configuration the user may not see."""
    resources = {ConfigResource(ConfigResourceType.TOPIC, name): name for name in names}
    if not resources:
        return {}
    found: dict[str, dict[str, str] | None] = {}
    for resource, result in admin.describe_configs(list(resources)).items():
        entries = {} if result.error is not None else result.get()
        values = {name: row.value for name, row in entries.items() if row.value is not None}
        found[resources[resource]] = values if result.error is None else None
    return found
