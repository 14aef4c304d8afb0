"""Topics that are there before a pipeline starts, held against its file; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.client.admin.configs import ConfigResource, ConfigResourceType, ConfigSource
from tidelog.client.admin.topics import NewTopic
from tidelog.client.blocking.admin import Admin
from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError
from tidelog.pipeline.topics import prepare_topics

DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
dead_letter_partitions = 2
dead_letter_config = {{ "retention.ms" = "86400000" }}
[source.orders]
topic = "{name}"
schema = "id string"
partitions = 1
[sink.out]
from = "orders"
topic = "{name}.out"
"""


@pytest.fixture
def pipeline(bootstrap: str, topic_name: str) -> Pipeline:
    text = DECLARATION.format(name=topic_name, bootstrap=bootstrap)
    return parse_pipeline(Path("shop/pipeline.toml"), text, {})


def create(pipeline: Pipeline, topic: NewTopic) -> None:
    with Admin({"bootstrap.servers": pipeline.bootstrap}) as admin:
        for result in admin.create_topics([topic]).values():
            result.get()


def test_topics_as_declared_are_made_once_and_give_no_remark(pipeline: Pipeline) -> None:
    letters = f"{pipeline.name}.dead-letter"
    made, remarks = prepare_topics(pipeline)
    assert (sorted(made), remarks) == ([pipeline.name, letters], [])
    assert prepare_topics(pipeline) == ([], [])
    with Admin({"bootstrap.servers": pipeline.bootstrap}) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, letters)
        policy = admin.describe_configs([resource])[resource].get()["cleanup.policy"]
    assert (policy.value, policy.source) == ("delete", ConfigSource.DYNAMIC_TOPIC)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_letters_are_not_written_to_a_compacted_topic(pipeline: Pipeline, policy: str) -> None:
    letters = f"{pipeline.name}.dead-letter"
    create(pipeline, NewTopic(letters, 2, 1, configs={"cleanup.policy": policy}))
    with pytest.raises(PipelineError) as caught:
        prepare_topics(pipeline)
    (told,) = caught.value.problems
    assert told.place.line == 6
    assert told.message.startswith(
        f"topic {letters} is for dead letters and has cleanup.policy {policy}: letters of one key"
    )


def test_topics_that_are_there_and_differ_are_told_and_left(pipeline: Pipeline) -> None:
    letters = f"{pipeline.name}.dead-letter"
    create(pipeline, NewTopic(letters, 3, 1, configs={"retention.ms": "60000"}))
    create(pipeline, NewTopic(pipeline.name, 4, 1))
    made, remarks = prepare_topics(pipeline)
    assert made == []
    left = "it was there before and is left as it is"
    assert [remark.message for remark in remarks] == [
        f"topic {letters} has 3 partitions, not 2; {left}",
        f"topic {letters} has retention.ms 60000, not 86400000; {left}",
        f"topic {pipeline.name} has 4 partitions, not 1; {left}",
    ]
