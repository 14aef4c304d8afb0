"""Which brokers hold the replicas of which partition; pure.

Leaders go round the broker list from a random start; followers are the brokers behind the leader,
at a distance that grows by one each time the list has been gone through, so that the same brokers
do not always share partitions. With racks, the list alternates between them and a follower goes
to a rack without a replica while there is one. These are the rules of Kafka over ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError


class PlacementBroker(NamedTuple):
    id: int
    rack: str | None = None


RandomBelow = Callable[[int], int]  # a number from 0 up to but without the bound


def place_new_topic(
    brokers: Sequence[PlacementBroker],
    partition_count: int,
    replication_factor: int,
    random_below: RandomBelow,
) -> list[list[int]]:
    _require_possible(brokers, partition_count, replication_factor)
    start, shift = random_below(len(brokers)), random_below(len(brokers))
    return _place(brokers, range(partition_count), replication_factor, start, shift)


def place_more_partitions(
    brokers: Sequence[PlacementBroker], existing: Sequence[Sequence[int]], additional: int
) -> list[list[int]]:
    """Goes on where the topic's first partition started, with as many replicas as that has."""
    factor, first_leader = len(existing[0]), existing[0][0]
    _require_possible(brokers, additional, factor)
    start = next((i for i, broker in enumerate(brokers) if broker.id >= first_leader), 0)
    partitions = range(len(existing), len(existing) + additional)
    return _place(brokers, partitions, factor, start, start)


def _require_possible(
    brokers: Collection[PlacementBroker], partition_count: int, replication_factor: int
) -> None:
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."
        )
    if partition_count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."
        )
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than "
            f"available brokers: {len(brokers)}.",
        )


def _place(
    brokers: Sequence[PlacementBroker],
    partitions: range,
    replication_factor: int,
    start: int,
    shift: int,
) -> list[list[int]]:
    racks = {broker.id: broker.rack for broker in brokers if broker.rack is not None}
    if racks and len(racks) < len(brokers):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Some brokers have a rack and others have none."
        )
    ids = rack_alternated(racks) if racks else [broker.id for broker in brokers]
    placed = []
    for partition in partitions:
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        leader_index = (partition + start) % len(ids)
        if racks:
            placed.append(_replicas_on_racks(ids, racks, leader_index, shift, replication_factor))
        else:
            placed.append(_replicas(ids, leader_index, shift, replication_factor))
    return placed


def _replicas(ids: list[int], leader_index: int, shift: int, factor: int) -> list[int]:
    followers = (ids[_follower_index(leader_index, shift, n, len(ids))] for n in range(factor - 1))
    return [ids[leader_index], *followers]


def _replicas_on_racks(
    ids: list[int], racks: dict[int, str], leader_index: int, shift: int, factor: int
) -> list[int]:
    rack_count = len(set(racks.values()))
    replicas = [ids[leader_index]]
    racks_used = {racks[replicas[0]]}
    tried = 0
    while len(replicas) < factor:
        broker = ids[_follower_index(leader_index, shift * rack_count, tried, len(ids))]
        tried += 1
        rack_is_free = racks[broker] not in racks_used or len(racks_used) == rack_count
        if rack_is_free and broker not in replicas:
            replicas.append(broker)
            racks_used.add(racks[broker])
    return replicas


def _follower_index(leader_index: int, shift: int, n: int, broker_count: int) -> int:
    return (leader_index + 1 + (shift + n) % (broker_count - 1)) % broker_count


def rack_alternated(racks: dict[int, str]) -> list[int]:
    """The first broker of each rack in order of the racks' names, then the second of each, ..."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    longest = max(map(len, by_rack.values()))
    rows = [by_rack[rack] for rack in sorted(by_rack)]
    return [row[i] for i in range(longest) for row in rows if i < len(row)]


def require_valid_replicas(
    replicas: Sequence[int], known_brokers: Collection[int], replication_factor: int | None
) -> None:
    """A manual assignment of one partition; the factor is that of the partitions before it."""
    if not replicas:
        raise _bad_assignment("The manual partition assignment has an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in known_brokers:
            raise _bad_assignment(
                f"The manual partition assignment has broker {broker_id}, "
                f"but no such broker is registered."
            )
        if replicas.count(broker_id) > 1:
            raise _bad_assignment(
                f"The manual partition assignment has broker {broker_id} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"The manual partition assignment has a partition with {len(replicas)} replica(s), "
            f"but the partitions before it have {replication_factor}."
        )


def require_valid_assignment(
    assignment: Sequence[tuple[int, Sequence[int]]], known_brokers: Collection[int]
) -> list[list[int]]:
    """The replicas of partition 0, 1, ... out of (partition, replicas) pairs in any order."""
    by_partition: dict[int, list[int]] = {}
    factor: int | None = None
    for partition, replicas in assignment:
        if partition in by_partition:
            raise _bad_assignment(
                f"There is more than one manual assignment for partition {partition}."
            )
        require_valid_replicas(replicas, known_brokers, factor)
        factor = len(replicas)
        by_partition[partition] = list(replicas)
    if set(by_partition) != set(range(len(by_partition))):
        raise _bad_assignment("Partitions should be a consecutive 0-based integer sequence.")
    return [by_partition[partition] for partition in range(len(by_partition))]


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
