"""The assignors that partition.assignment.strategy names, by Kafka's class names or their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.range_assignor import RangeAssignor
from tidelog.client.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from tidelog.config.definition import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.client.consumer.assignors.assignor import Assignor
    from tidelog.config.client import ConsumerConfig

_PACKAGE = "org.apache.kafka.clients.consumer."

ASSIGNORS: Final[Mapping[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    _PACKAGE + "RangeAssignor": RangeAssignor,
    _PACKAGE + "RoundRobinAssignor": RoundRobinAssignor,
    _PACKAGE + "StickyAssignor": StickyAssignor,
    _PACKAGE + "CooperativeStickyAssignor": CooperativeStickyAssignor,
}


def configured_assignors(config: ConsumerConfig) -> list[Assignor]:
    """In order of preference; InvalidValue for a name that is none of the above."""
    key = "partition.assignment.strategy"
    names = config.strings(key)
    for name in names:
        if name not in ASSIGNORS:
            raise InvalidValue(
                key,
                name,
                "must be one of range, roundrobin, sticky, cooperative-sticky or Kafka's class of "
                "that name; an assignor of your own is given to the constructor",
            )
    return [ASSIGNORS[name]() for name in names]
