"""What a broker and a cluster are to a test: started and ended with a block, and full of topics."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tidelog.testing.expectation import Expectation
from tidelog.testing.topic import Topic


class KafkaService(ABC):
    """Started by `start`, `with` or `async with`. If the block fails, its error shows the log."""

    @abstractmethod
    def start(self) -> Self:
        """StartupError if it cannot start."""

    @abstractmethod
    def close(self) -> None:
        """Ends it, if it runs, and removes its data, if that is temporary."""

    @abstractmethod
    def log_text(self) -> str:
        """What it has logged."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str: ...

    @property
    @abstractmethod
    def client_config(self) -> Mapping[str, object]:
        """Of a client that can reach it; the topics given out here use it."""

    @property
    @abstractmethod
    def replicas(self) -> int:
        """Of a new topic, unless the test says."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and (log := self.log_text()):
            error.add_note(f"log of tidelog:\n{log}")
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int | None = None, **configs: str
    ) -> Topic:
        """Configs with underscores for dots: cleanup_policy="compact"."""
        from tidelog.client import Admin, NewTopic

        settings = {key.replace("_", "."): value for key, value in configs.items()}
        factor = self.replicas if replicas is None else replicas
        with Admin(self.client_config) as admin:
            admin.create_topics([NewTopic(name, partitions, factor, configs=settings)])[name].get()
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """One that is there, or will be."""
        return Topic(name, self.client_config)

    def expect(self, topic: str) -> Expectation:
        return self.topic(topic).expect()

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's own."""
        from tidelog.client import Admin

        with Admin(self.client_config) as admin:
            return sorted(each.name for each in admin.list_topics() if not each.is_internal)
