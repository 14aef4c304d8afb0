"""The settings of topics that elections turn on, as the controller reads and follows them.

    /config/topics/T             a topic's overrides
    /config/brokers/N            the dynamic configuration of a broker
    /config/brokers/<default>    that of all brokers
    /config/changes              one node for each change of these

Settings that make no sense are logged and left out; the rest of the cluster must go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Protocol

from tidelog.controller import znodes
from tidelog.controller.cluster.controller_context import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    Texts,
    TopicSettings,
    min_insync_replicas_in,
)
from tidelog.controller.cluster.controller_store import ControllerStore
from tidelog.controller.metadata_store import Watcher

logger = logging.getLogger(__name__)


class Settings(Protocol):
    """The broker's configuration, by Kafka's key."""

    inter_broker_listener_name: str

    def __getitem__(self, key: str, /) -> Any: ...


class SettingsReader:
    def __init__(self, store: ControllerStore, broker_id: int, settings: Settings) -> None:
        self._store = store
        self._broker_id = broker_id
        self._static = TopicSettings(settings[UNCLEAN_ELECTION])
        self._overrides: dict[str, Texts] = {}  # of topics that have some of the two
        self._seen: set[str] = set()  # changes that were taken in before
        self._present: set[str] = set()  # changes that were there at the last look
        self.defaults = self._static  # of topics without overrides
        self.dynamic_min_isr: Mapping[str, int] = {}  # by broker, and DEFAULT_ENTITY

    async def read_brokers(self) -> None:
        names = await self._store.children(znodes.BROKER_CONFIGS)
        found = await asyncio.gather(*(self._read("brokers", name) for name in names))
        layers = dict(zip(names, found, strict=True))
        own = (layers.get(str(self._broker_id), {}), layers.get(znodes.DEFAULT_ENTITY, {}))
        self.defaults = self._static.overridden(*own)._replace(min_insync_replicas=None)
        self.dynamic_min_isr = {
            name: minimum
            for name, texts in layers.items()
            if (minimum := min_insync_replicas_in(texts)) is not None
        }

    async def read_topics(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Of the topics that have settings of their own."""
        present = set(await self._store.children(znodes.TOPIC_CONFIGS))
        asked = list(topics)
        names = [name for name in asked if name in present]
        found = await asyncio.gather(*(self._read("topics", name) for name in names))
        for name in asked:
            self._overrides.pop(name, None)
        for name, texts in zip(names, found, strict=True):
            if UNCLEAN_ELECTION in texts or MIN_INSYNC_REPLICAS in texts:
                self._overrides[name] = texts
        overridden = self.with_overrides()
        return {name: overridden[name] for name in names if name in overridden}

    async def read_topic(self, name: str) -> TopicSettings | None:
        """None if the defaults hold."""
        return (await self.read_topics([name])).get(name)

    def forget_all_but(self, topics: Container[str]) -> None:
        """Another topic may get the name of one that is gone."""
        self._overrides = {
            name: self._overrides[name] for name in self._overrides if name in topics
        }

    def with_overrides(self) -> Mapping[str, TopicSettings]:
        """Of all topics with settings of their own, on top of the defaults as they are now."""
        return {name: self.defaults.overridden(texts) for name, texts in self._overrides.items()}

    async def changes(self, watch: Watcher) -> set[str]:
        """What has changed since the last `changes_taken_in`, as `topics/NAME` or `brokers/ID`."""
        self._present = set(await self._store.children(znodes.CONFIG_CHANGES, watch=watch))
        return await self._named_by(self._present - self._seen)

    def changes_taken_in(self) -> None:
        """Those of the last call of `changes`."""
        self._seen = self._present

    async def _named_by(self, changes: Collection[str]) -> set[str]:
        found = await asyncio.gather(
            *(self._store.get_or_none(f"{znodes.CONFIG_CHANGES}/{each}") for each in changes)
        )
        named = set()
        for node in found:
            if node is not None:
                named.add(_entity(node[0]))
        return named

    async def _read(self, entity_type: str, name: str) -> Texts:
        node = await self._store.get_or_none(znodes.config_path(entity_type, name))
        try:
            return {} if node is None else znodes.decode_config(node[0])
        except (ValueError, TypeError) as error:
            logger.error("a configuration makes no sense: %s", name, exc_info=error)
            return {}


def _entity(data: bytes) -> str:
    try:
        return znodes.decode_config_change(data)
    except ValueError:
        return ""
