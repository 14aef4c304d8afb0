"""The assignors that group.consumer.assignors may name, in short or by the class Kafka has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.coordinator.group.consumer.assignors import range as range_assignor
from tidelog.coordinator.group.consumer.assignors import uniform
from tidelog.coordinator.group.consumer.assignors.spec import Assignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": uniform.assign,
    "range": range_assignor.assign,
}
_KAFKA_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor."
_SHORT_NAMES: Final = {
    _KAFKA_PACKAGE + "UniformAssignor": "uniform",
    _KAFKA_PACKAGE + "RangeAssignor": "range",
}


def assignors_of(names: Sequence[str]) -> dict[str, Assignor]:
    """By short name, the default first. The configuration admits no others."""
    short = [_SHORT_NAMES.get(name, name) for name in names]
    return {name: ASSIGNORS[name] for name in short}
