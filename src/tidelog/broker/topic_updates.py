"""From what UpdateMetadata says of topics to their images.

A request tells of some partitions of a topic; the others stay as they were. The leader -2 says that
a partition is being deleted; a topic goes with its last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.controller.topics import NO_STATE, PartitionImage, TopicImage
from tidelog.types import NO_LEADER, NO_LEADER_EPOCH, ZERO_UUID

if TYPE_CHECKING:
    from tidelog.controller.cluster.cluster_topics import ClusterTopics
    from tidelog.protocol.messages.update_metadata import (
        UpdateMetadataPartitionState,
        UpdateMetadataTopicState,
    )

LEADER_DURING_DELETE: Final = -2


def apply_update(topics: ClusterTopics, update: UpdateMetadataTopicState) -> None:
    image = _updated(topics.topics.get(update.topic_name), update)
    if image is not None:
        topics.put(image)
    else:
        topics.drop(update.topic_name)


def _updated(before: TopicImage | None, update: UpdateMetadataTopicState) -> TopicImage | None:
    """None if no partition is left."""
    if before is not None and update.topic_id not in (ZERO_UUID, before.topic_id):
        before = None
    partitions = dict(enumerate(before.partitions)) if before else {}
    for row in update.partition_states:
        if row.leader == LEADER_DURING_DELETE:
            partitions.pop(row.partition_index, None)
        else:
            partitions[row.partition_index] = _image_of(row)
    if not partitions:
        return None
    topic_id = update.topic_id if before is None else before.topic_id
    images = [partitions.get(n) or _unknown(n) for n in range(max(partitions) + 1)]
    return TopicImage(update.topic_name, topic_id, images, {})


def _image_of(row: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        row.partition_index,
        row.leader,
        row.leader_epoch,
        row.replicas,
        row.isr,
        row.zk_version,
        tuple(row.offline_replicas),
    )


def _unknown(partition: int) -> PartitionImage:
    """A partition that the controller has not told of yet, below one that it has."""
    return PartitionImage(partition, NO_LEADER, NO_LEADER_EPOCH, [], [], NO_STATE)
