"""`--topic NAME` and `--topic NAME:0,1,2`: partitions that an option names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.cluster import Cluster


class BadChoice(ValueError):
    """The option does not name partitions."""


def chosen_partitions(cluster: Cluster, choices: Sequence[str]) -> list[TopicPartition]:
    """All partitions of a topic that is named alone. Raises UnknownTopic."""
    found: list[TopicPartition] = []
    for choice in choices:
        name, colon, indexes = choice.partition(":")
        there = cluster.topic(name).partitions
        if not colon:
            found += [TopicPartition(name, index) for index in sorted(there)]
            continue
        for text in indexes.split(","):
            if not text.isascii() or not text.isdigit() or int(text) not in there:
                raise BadChoice(f"topic {name} has no partition {text or '(none given)'}")
            found.append(TopicPartition(name, int(text)))
    return found
