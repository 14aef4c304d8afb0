"""The nodes of one topic: reading its assignment and settings, and removing all of it."""

from __future__ import annotations

import asyncio
import logging

from tidelog.controller import znodes
from tidelog.controller.cluster.fence import Conflict, Fence
from tidelog.controller.cluster.replica_assignment import ReplicaAssignment
from tidelog.controller.cluster.topic_changes import StoredTopic
from tidelog.controller.metadata_store import Delete, Operation, SetData, Watcher
from tidelog.types import Uuid

logger = logging.getLogger(__name__)


async def read(fence: Fence, name: str, *, watch: Watcher | None = None) -> StoredTopic | None:
    """None if there is no such topic, or nothing of use in its node.

    A topic from before Kafka 2.8 is given an id.
    """
    node = await fence.get_or_none(znodes.topic_path(name), watch=watch)
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
            await fence.write([SetData(znodes.topic_path(name), encoded, version)])
        except Conflict:
            return await read(fence, name, watch=watch)
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


async def remove(fence: Fence, name: str) -> None:
    """The topic, its configuration, and the wish to delete it."""
    while True:
        try:
            await fence.write(await _all_nodes(fence, name))
        except Conflict:
            continue
        return


async def _all_nodes(fence: Fence, name: str) -> list[Operation]:
    partitions = await fence.children(znodes.partitions_path(name))
    below = await asyncio.gather(
        *(fence.children(f"{znodes.partitions_path(name)}/{each}") for each in partitions)
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
        if await fence.exists(path):
            paths.append(path)
    return [Delete(path) for path in paths]
