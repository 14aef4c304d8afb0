"""The part of a broker that config handlers touch, over a real embedded store in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.support.metadata import open_catalogue, open_store
from tidelog.broker.context import RequestContext
from tidelog.broker.dynamic_config import DynamicConfig
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.config.broker import BrokerConfig
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.topics import TopicCatalogue


class ConfigBroker:
    """Opens as a broker starts; close it and open another on the directory to restart."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str] | None = None, broker_id: int = 0
    ) -> None:
        self.broker_id = broker_id
        self.controller = None  # a lone broker
        self.may_administer_topics = True
        self.store: EmbeddedStore = open_store(directory)
        self.topics: TopicCatalogue = open_catalogue(self.store, broker_id=broker_id)
        self.metadata = MetadataCache("cluster", broker_id, self.topics)
        self.dynamic_config = DynamicConfig(BrokerConfig(properties), self.store, broker_id)
        self.dynamic_config.load()
        self.dynamic_config.follow(self.topics)

    @property
    def config(self) -> BrokerConfig:
        return self.dynamic_config.broker_config

    def context(self, api_version: int) -> RequestContext:
        return cast(RequestContext, SimpleNamespace(broker=self, api_version=api_version))

    async def create_topic(self, name: str, overrides: Mapping[str, str] | None = None) -> None:
        await self.topics.create(name, [[self.broker_id]], overrides)

    async def close(self) -> None:
        await self.store.close()
