"""The coordinators of a broker, each by the internal topic that it keeps its state in.

Whoever hosts, leads, loses or deletes partitions asks here who looks after them, and knows no
coordinator by name: a new one joins where `broker/broker.py` makes
this registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tidelog.config.broker import BrokerConfig
    from tidelog.coordinator.runtime import CoordinatorRuntime


class Coordinator(Protocol):
    """What a broker asks of every one of them."""

    @property
    def runtime(self) -> CoordinatorRuntime[Any]: ...

    def configure(self, config: BrokerConfig) -> None: ...


class Coordinators:
    def __init__(self, *coordinators: Coordinator) -> None:
        self._by_topic = {each.runtime.topic: each for each in coordinators}

    def __iter__(self) -> Iterator[Coordinator]:
        return iter(self._by_topic.values())

    def runtime_of(self, topic: str) -> CoordinatorRuntime[Any] | None:
        """None for topics that no coordinator here keeps its state in."""
        coordinator = self._by_topic.get(topic)
        return None if coordinator is None else coordinator.runtime

    def configure(self, config: BrokerConfig) -> None:
        for each in self:
            each.configure(config)

    def resign(self) -> None:
        """The broker stops: all who wait are sent away."""
        for each in self:
            each.runtime.resign_all()
