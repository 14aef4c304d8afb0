"""Telling a client that has come to the wrong broker who leads (KIP-951).

It saves the client a Metadata request, which matters most when leadership has just moved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.metadata_cache import Node


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


def current_leader(broker: Broker, topic: str, index: int) -> CurrentLeader | None:
    """As this broker knows it: by the controller's order if it hosts the partition, else by
    metadata; of both what is newer.
    """
    known: list[CurrentLeader] = []
    partition = broker.replicas.get(topic, index)
    if partition is not None and not partition.is_leader:
        known.append(CurrentLeader(partition.leader_id, partition.leader_epoch))
    image = broker.topics.topics.get(topic)
    if image is not None and 0 <= index < len(image.partitions):
        row = image.partitions[index]
        known.append(CurrentLeader(row.leader, row.leader_epoch))
    newest = max(known, key=lambda leader: leader.leader_epoch, default=None)
    if newest is None or newest.leader_id in (NO_LEADER, broker.broker_id):
        return None
    return newest


def endpoints(broker: Broker, leader_ids: Iterable[int], listener_name: str) -> list[Node]:
    wanted = set(leader_ids)
    return [node for node in broker.metadata.nodes(listener_name) if node.broker_id in wanted]
