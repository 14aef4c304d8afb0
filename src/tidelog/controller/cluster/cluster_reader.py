"""Reads the cluster out of the store, leaving watches: what a new controller knows.

Every read that can be out of date the next moment leaves its watch with it, so no change is missed.
What makes no sense is logged and left out; the rest of the cluster must go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.controller import znodes
from tidelog.controller.cluster.controller_context import (
    BrokerRegistration,
    ControllerContext,
    ReplicaAssignment,
)
from tidelog.controller.cluster.controller_store import Conflict, ControllerStore
from tidelog.controller.cluster.leader_and_isr import LeaderAndIsr
from tidelog.controller.cluster.topic_changes import StoredTopic
from tidelog.controller.metadata_store import SetData, Watcher
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
