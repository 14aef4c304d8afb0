"""The assignors that partition.assignment.strategy names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.range_assignor import RangeAssignor
from tidelog.client.consumer.assignors.round_robin_assignor import RoundRobinAssignor
from tidelog.client.consumer.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from tidelog.config.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.consumer.assignors.assignor import Assignor

KEY: Final = "partition.assignment.strategy"

_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_BUILT_IN: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_BY_JAVA_CLASS: Final[dict[str, type[Assignor]]] = {
    _JAVA_PACKAGE + kind.__name__: kind for kind in _BUILT_IN.values()
}


def assignors_named(names: Sequence[str]) -> list[Assignor]:
    """Fresh ones, by their own names or those of Kafka's classes. ConfigError for others, and for
    one that comes twice."""
    chosen: dict[str, Assignor] = {}
    for name in names:
        kind = _BUILT_IN.get(name) or _BY_JAVA_CLASS.get(name)
        if kind is None:
            raise ConfigError(f"{KEY}: there is no assignor {name!r}{_hint(name)}")
        assignor = kind()
        if assignor.name in chosen:
            raise ConfigError(f"{KEY}: {assignor.name} is there twice")
        chosen[assignor.name] = assignor
    return list(chosen.values())


def _hint(name: str) -> str:
    nearest = get_close_matches(name.removeprefix(_JAVA_PACKAGE), _BUILT_IN, n=1)
    if nearest:
        return f"; did you mean {nearest[0]}?"
    return f"; there are {', '.join(_BUILT_IN)}, and your own as `assignors`"
