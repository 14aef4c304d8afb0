"""Reads the cluster out of the store, leaving watches: what a new controller knows.

Every read that can be out of date the next moment leaves its watch with it, so no change is missed.
What makes no sense is logged and left out; the rest of the cluster must go on.

The settings of topics that elections turn on are read from these nodes, and followed:

/config/topics/T             a topic's overrides
/config/brokers/N            the dynamic configuration of a broker
/config/brokers/<default>    that of all brokers
/config/changes              one node for each change of these
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.controller import znodes
from tidelog.controller.cluster.controller_context import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    BrokerRegistration,
    ControllerContext,
    ReplicaAssignment,
    Texts,
    TopicSettings,
    min_insync_replicas_in,
)
from tidelog.controller.cluster.controller_store import Conflict, ControllerStore
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.controller.cluster.topic_changes import StoredTopic
from tidelog.controller.metadata_store import Delete, Operation, SetData, Watcher
from tidelog.types import TopicPartition, Uuid

logger = logging.getLogger(__name__)


async def read_topic(
    store: ControllerStore, name: str, *, watch: Watcher | None = None
) -> StoredTopic | None:
    """None if there is no such topic, or nothing of use in its node.

    A topic from before Kafka 2.8 is given an id.
    """
    node = await store.get_or_none(znodes.topic_path(name), watch=watch)
    if node is None:
        return None
    data, stat = node
    try:
        topic = znodes.decode_topic(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.error("a topic's node makes no sense: %s", name, exc_info=error)
        return None
    topic_id, version = topic.topic_id, stat.version
    if topic_id is None:
        topic_id = Uuid.random()
        encoded = znodes.encode_assignment(topic._replace(topic_id=topic_id))
        try:
            await store.write([SetData(znodes.topic_path(name), encoded, version)])
        except Conflict:
            return await read_topic(store, name, watch=watch)
        version += 1
    return StoredTopic(
        topic_id,
        version,
        {
            partition: ReplicaAssignment(
                tuple(replicas),
                tuple(topic.adding_replicas.get(partition, ())),
                tuple(topic.removing_replicas.get(partition, ())),
            )
            for partition, replicas in topic.partitions.items()
        },
    )


async def remove_topic(store: ControllerStore, name: str) -> None:
    """The topic, its configuration, and the wish to delete it."""
    while True:
        try:
            await store.write(await _all_nodes(store, name))
        except Conflict:
            continue
        return


async def _all_nodes(store: ControllerStore, name: str) -> list[Operation]:
    partitions = await store.children(znodes.partitions_path(name))
    below = await asyncio.gather(
        *(store.children(f"{znodes.partitions_path(name)}/{each}") for each in partitions)
    )
    paths = []
    for partition, nodes in zip(partitions, below, strict=True):
        path = f"{znodes.partitions_path(name)}/{partition}"
        paths += [f"{path}/{node}" for node in nodes]
        paths.append(path)
    for path in (
        znodes.partitions_path(name),
        znodes.topic_path(name),
        znodes.config_path("topics", name),
        znodes.delete_topic_path(name),
    ):
        if await store.exists(path):
            paths.append(path)
    return [Delete(path) for path in paths]


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


class Watchers(NamedTuple):
    """Who is told of what."""

    brokers: Watcher
    broker: Watcher
    topics: Watcher
    topic: Watcher
    deletions: Watcher
    isr_change_notifications: Watcher
    log_dir_events: Watcher
    config_changes: Watcher
    reassignments: Watcher
    preferred_election: Watcher


class ClusterReader:
    def __init__(self, store: ControllerStore, watchers: Watchers) -> None:
        self._store = store
        self._watchers = watchers

    async def brokers(self) -> dict[int, BrokerRegistration]:
        ids = await self._store.children(znodes.BROKER_IDS, watch=self._watchers.brokers)
        numbers = [int(each) for each in ids if each.isdecimal()]
        found = await asyncio.gather(*(self.broker(number) for number in numbers))
        return {
            number: broker
            for number, broker in zip(numbers, found, strict=True)
            if broker is not None
        }

    async def broker(self, broker_id: int) -> BrokerRegistration | None:
        path = znodes.broker_path(broker_id)
        node = await self._store.get_or_none(path, watch=self._watchers.broker)
        if node is None:
            return None
        data, stat = node
        try:
            return BrokerRegistration.decode(data, stat.czxid)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("a broker's registration makes no sense: %d", broker_id, exc_info=error)
            return None

    async def topic_names(self) -> list[str]:
        return await self._store.children(znodes.TOPICS, watch=self._watchers.topics)

    async def topics(self, names: Sequence[str]) -> dict[str, StoredTopic]:
        found = await asyncio.gather(*(self.topic(name) for name in names))
        return {name: topic for name, topic in zip(names, found, strict=True) if topic is not None}

    async def topic(self, name: str) -> StoredTopic | None:
        return await read_topic(self._store, name, watch=self._watchers.topic)

    async def leadership(self, context: ControllerContext) -> dict[TopicPartition, int]:
        """Into the context; the zxid of the last write of each state."""
        partitions = list(context.assignments)
        found = await asyncio.gather(
            *(self._store.get_or_none(znodes.state_path(*partition)) for partition in partitions)
        )
        zxids = {}
        for partition, node in zip(partitions, found, strict=True):
            if node is None:
                continue
            context.leadership[partition] = LeaderAndIsr.decode(node[0], node[1].version)
            zxids[partition] = node[1].mzxid
        return zxids

    async def deletions(self) -> list[str]:
        return await self._store.children(znodes.DELETE_TOPICS, watch=self._watchers.deletions)

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """None if nobody asks for any."""
        path, watch = znodes.REASSIGN_PARTITIONS, self._watchers.reassignments
        if not await self._store.exists(path, watch=watch):
            return None
        node = await self._store.get_or_none(path)
        try:
            return {} if node is None else znodes.decode_reassignment(node[0])
        except (ValueError, KeyError, TypeError) as error:
            logger.error("the reassignments asked for make no sense", exc_info=error)
            return {}

    async def preferred_elections(self) -> list[TopicPartition] | None:
        """None if nobody asks for any."""
        path, watch = znodes.PREFERRED_REPLICA_ELECTION, self._watchers.preferred_election
        if not await self._store.exists(path, watch=watch):
            return None
        node = await self._store.get_or_none(path)
        try:
            return [] if node is None else znodes.decode_partitions(node[0])
        except (ValueError, KeyError, TypeError) as error:
            logger.error("the elections asked for make no sense", exc_info=error)
            return []

    async def isr_change_notifications(self) -> tuple[list[str], set[TopicPartition]]:
        """Paths of the notifications, and the partitions that they name."""
        paths, found = await self._notifications(
            znodes.ISR_CHANGE_NOTIFICATIONS, self._watchers.isr_change_notifications
        )
        named: set[TopicPartition] = set()
        for data in found:
            try:
                named.update(znodes.decode_partitions(data))
            except (ValueError, KeyError, TypeError) as error:
                logger.error("a notification makes no sense", exc_info=error)
        return paths, named

    async def log_dir_events(self) -> tuple[list[str], set[int]]:
        """Paths of the notifications, and the brokers that they name."""
        watch = self._watchers.log_dir_events
        paths, found = await self._notifications(znodes.LOG_DIR_EVENTS, watch)
        named: set[int] = set()
        for data in found:
            try:
                named.add(znodes.decode_log_dir_event(data))
            except (ValueError, KeyError, TypeError) as error:
                logger.error("a notification makes no sense", exc_info=error)
        return paths, named

    async def _notifications(
        self, parent: str, watch: Watcher
    ) -> tuple[list[str], Collection[bytes]]:
        names = await self._store.children(parent, watch=watch)
        paths = [f"{parent}/{name}" for name in names]
        found = await asyncio.gather(*(self._store.get_or_none(path) for path in paths))
        return paths, [node[0] for node in found if node is not None]
