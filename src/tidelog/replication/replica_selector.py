"""Which replica a consumer is to read from (replica.selector.class, KIP-392).

RackAwareReplicaSelector sends a consumer that names its rack to a replica in that rack: the leader
if it is there, else the one that has come farthest. Only replicas that are in sync, alive and hold
the offset asked for count. Classes cannot be loaded here, so Kafka's two are known by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.replication.partition import Partition

NO_REPLICA: Final = -1


def preferred_read_replica(
    partition: Partition, offset: int, rack: str, racks: Mapping[int, str | None]
) -> int:
    """A follower that the consumer is better served by; NO_REPLICA if that is this leader."""
    leadership = partition.leadership
    if leadership is None or racks.get(partition.leader_id) == rack:
        return NO_REPLICA
    candidates = [
        remote
        for remote in leadership.remotes.values()
        if racks.get(remote.broker_id) == rack
        and remote.broker.is_alive
        and remote.broker_id in leadership.isr
        and remote.log_start_offset <= offset <= remote.log_end_offset
    ]
    if not candidates:
        return NO_REPLICA
    return max(candidates, key=lambda remote: remote.log_end_offset).broker_id
