"""The part of a broker that config handlers touch, over a real embedded store in a directory.

`ConfigBroker` is a lone broker, `ConfigClusterBroker` one of several on the same store.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from tests.support.handlers import FakeConnection
from tests.support.metadata import DEFAULT_SETTINGS, open_catalogue, open_store
from tidelog.broker.context import RequestContext
from tidelog.broker.dynamic_config import DynamicConfig
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.config.broker import BrokerConfig
from tidelog.controller import znodes
from tidelog.controller.cluster.cluster_topics import ClusterTopics
from tidelog.controller.cluster.controller_channel_manager import PeerDirectory
from tidelog.controller.cluster.kafka_controller import KafkaController
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import Create, Delete
from tidelog.controller.registration import find_cluster
from tidelog.controller.topics import PartitionImage, TopicCatalogue, TopicImage
from tidelog.protocol.header import RequestHeader
from tidelog.slices import Slices
from tidelog.types import Uuid


class HasConfig:
    """What handlers of requests find in a broker."""

    broker_id: int
    authorizer = None
    controller = None
    may_administer_topics = True
    dynamic_config: DynamicConfig
    metadata: MetadataCache

    @cached_property
    def slices(self) -> Slices:
        return Slices()

    @property
    def config(self) -> BrokerConfig:
        return self.dynamic_config.broker_config

    def context(self, api_version: int) -> RequestContext:
        header = RequestHeader(-1, api_version, 1, "test", 0)
        return RequestContext(cast(Any, self), cast(Any, FakeConnection()), header)


class ConfigBroker(HasConfig):
    """Opens as a broker starts; close it and open another on the directory to restart."""

    def __init__(
        self, directory: Path, properties: Mapping[str, str] | None = None, broker_id: int = 0
    ) -> None:
        self.broker_id = broker_id
        self.store: EmbeddedStore = open_store(directory)
        self.topics: TopicCatalogue = open_catalogue(self.store, broker_id=broker_id)
        self.metadata = MetadataCache("cluster", broker_id, self.topics)
        self.dynamic_config = DynamicConfig(BrokerConfig(properties), self.store, broker_id)
        self.dynamic_config.load()
        self.dynamic_config.follow(self.topics)

    async def create_topic(self, name: str, overrides: Mapping[str, str] | None = None) -> None:
        await self.topics.create(name, [[self.broker_id]], overrides)

    async def close(self) -> None:
        await self.store.close()


class ConfigClusterBroker(HasConfig):
    """Hosts nothing; `create_topic` and `delete_topic` play the controller's part."""

    def __init__(
        self, store: EmbeddedStore, broker_id: int, properties: Mapping[str, str] | None = None
    ) -> None:
        self.broker_id = broker_id
        self.store = store.new_session()
        self.topics = ClusterTopics(
            self.store,
            broker_id,
            cast(KafkaController, None),
            settings=DEFAULT_SETTINGS,
            peers=cast(PeerDirectory, None),
        )
        self.metadata = MetadataCache("cluster", broker_id, self.topics)
        self.dynamic_config = DynamicConfig(BrokerConfig(properties), self.store, broker_id)
        self.dynamic_config.load()
        self.dynamic_config.follow_cluster(self.topics)


async def create_topic(
    store: EmbeddedStore, name: str, overrides: Mapping[str, str], *told: ConfigClusterBroker
) -> None:
    """In the store, and in the images of the brokers that are told."""
    topic_id = Uuid.random()
    await store.multi(
        [
            Create(znodes.config_path("topics", name), znodes.encode_config(overrides)),
            Create(znodes.topic_path(name), znodes.encode_topic(topic_id, [[1]])),
        ]
    )
    for broker in told:
        image = TopicImage(name, topic_id, [PartitionImage(0, 1, 0, [1], [1], 0)], {})
        broker.topics.put(image)


async def delete_topic(store: EmbeddedStore, name: str, *told: ConfigClusterBroker) -> None:
    await store.multi([Delete(znodes.topic_path(name)), Delete(znodes.config_path("topics", name))])
    for broker in told:
        broker.topics.drop(name)


def found_cluster(directory: Path) -> EmbeddedStore:
    """A store with the nodes that every cluster has."""
    store = open_store(directory)
    find_cluster(store, None)
    return store
