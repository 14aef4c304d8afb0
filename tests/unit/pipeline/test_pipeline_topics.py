"""Which topics a pipeline makes, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.pipeline.declaration.file import parse_pipeline
from tidelog.pipeline.declaration.parts import Pipeline, PipelineError, TopicCreation
from tidelog.pipeline.topics import differences, wanted_topics

TEXT = """\
[pipeline]
name = "shop"
dead_letter_partitions = 3
dead_letter_replication = 2
dead_letter_config = { "retention.ms" = 86400000 }
[source.orders]
topic = "orders"
schema = "id string"
partitions = 4
replication = 3
topic_config = { "retention.ms" = "604800000", "cleanup.policy" = "compact" }
[sink.out]
from = "orders"
topic = "out"
partitions = 2
topic_config = { "compression.type" = "zstd" }
[sink.left]
from = "orders"
topic = "left"
"""


def parsed(text: str) -> Pipeline:
    return parse_pipeline(Path("shop/pipeline.toml"), text, {})


def test_topics_are_made_with_the_settings_of_their_part() -> None:
    wanted = {name: creation for name, (_, creation) in wanted_topics(parsed(TEXT)).items()}
    assert wanted == {
        "shop.dead-letter": TopicCreation(3, 2, {"retention.ms": "86400000"}),
        "orders": TopicCreation(4, 3, {"retention.ms": "604800000", "cleanup.policy": "compact"}),
        "out": TopicCreation(2, None, {"compression.type": "zstd"}),
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [("replication = 3", "11: [source.orders] replication"), ("topic_config", "11: [source.ord")],
)
def test_settings_of_a_topic_that_is_not_made_are_refused(key: str, told: str) -> None:
    text = TEXT.replace("partitions = 4\nreplication = 3\n", "")
    if key.startswith("replication"):
        text = TEXT.replace("partitions = 4\n", "").replace(
            'topic_config = { "ret', 'options = { "x.'
        )
    with pytest.raises(PipelineError, match="is for a topic that is made; add partitions = 1"):
        parsed(text)


def test_compacted_dead_letters_are_refused() -> None:
    text = TEXT.replace('"retention.ms" = 86400000', '"cleanup.policy" = "delete, compact"')
    with pytest.raises(PipelineError, match=r":5: \[pipeline\] dead_letter_config: letters of one"):
        parsed(text)


def test_topics_that_are_not_as_declared_are_told() -> None:
    wanted = TopicCreation(3, 2, {"retention.ms": "5", "min.insync.replicas": "2"})
    found = TopicCreation(4, 1, {"retention.ms": "6", "min.insync.replicas": "2"})
    left = "; it was there before and is left as it is"
    assert differences(wanted, found) == [
        f"has 4 partitions, not 3{left}",
        f"has 1 replicas, not 2{left}",
        f"has retention.ms 6, not 5{left}",
    ]
    assert differences(TopicCreation(), found) == []
    assert "this user may not see" in differences(wanted, None)[0]
