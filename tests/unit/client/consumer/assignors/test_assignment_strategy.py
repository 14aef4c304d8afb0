from __future__ import annotations

import pytest

from tidelog.client.consumer.assignors.strategy import assignors_named
from tidelog.config.definition import ConfigError


def test_assignors_have_short_names_and_those_of_kafkas_classes() -> None:
    package = "org.apache.kafka.clients.consumer."
    short = ["range", "roundrobin", "sticky", "cooperative-sticky"]
    classes = ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
    assert [each.name for each in assignors_named(short)] == short
    assert [each.name for each in assignors_named([package + name for name in classes])] == short


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["round-robin"], "no assignor 'round-robin'; did you mean roundrobin?"),
        (["com.example.Mine"], "there are range, roundrobin, sticky, cooperative-sticky"),
        (["range", "org.apache.kafka.clients.consumer.RangeAssignor"], "range is there twice"),
    ],
)
def test_others_are_refused(names: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("?", r"\?")):
        assignors_named(names)
