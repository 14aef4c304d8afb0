"""Shares as equal as can be for members with different subscriptions.

Everybody keeps what it had of the topics it is still subscribed to. Free partitions go, topic by
topic, to the subscriber with the fewest; topics with many partitions for few subscribers come
first, since they leave the least choice. Then partitions move, again topic by topic, from the
subscriber with the most to the one with the fewest, until no topic can be improved.

Where subscriptions overlap without being equal, a topic at a time does not always find the best
assignment, and may need several rounds; there are at most ROUNDS_MAX of them, as in Kafka.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from tidelog.coordinator.group.consumer.assignors.spec import (
    Members,
    PartitionCounts,
    Shares,
    Targets,
)
from tidelog.types import Uuid

ROUNDS_MAX: Final = 16

Subscribers = dict[Uuid, list[str]]  # in the members' order


def assign(members: Members, counts: PartitionCounts) -> Targets:
    shares = Shares(members, counts)
    subscribers: Subscribers = {}
    for member_id, member in members.items():
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    topic_ids = sorted(
        subscribers,
        key=lambda topic_id: (
            -counts[topic_id] / len(subscribers[topic_id]),
            len(subscribers[topic_id]),
            topic_id,
        ),
    )
    for topic_id in topic_ids:
        _give_free(shares, topic_id, subscribers[topic_id])
    shared = [topic_id for topic_id in topic_ids if len(subscribers[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        moves = [_balance(shares, topic_id, subscribers[topic_id]) for topic_id in shared]
        if not any(moves):
            break
    return shares.targets()


def _give_free(shares: Shares, topic_id: Uuid, subscribers: list[str]) -> None:
    fewest_first = [(shares.sizes[name], place) for place, name in enumerate(subscribers)]
    heapify(fewest_first)
    for number in shares.unassigned(topic_id):
        size, place = heappop(fewest_first)
        shares.give(subscribers[place], topic_id, number)
        heappush(fewest_first, (size + 1, place))


def _balance(shares: Shares, topic_id: Uuid, subscribers: list[str]) -> int:
    """Moves the topic's partitions until its subscribers are even; how many it moved."""
    fewest_first = [(shares.sizes[name], place) for place, name in enumerate(subscribers)]
    most_first = [
        (-shares.sizes[name], place)
        for place, name in enumerate(subscribers)
        if shares.held[name].get(topic_id)
    ]
    heapify(fewest_first)
    heapify(most_first)
    moves = 0
    while most_first:
        giver = subscribers[most_first[0][1]]
        taker = subscribers[fewest_first[0][1]]
        if _is_outdated(most_first[0], -shares.sizes[giver]):
            _, place = heappop(most_first)
            heappush(most_first, (-shares.sizes[giver], place))
            continue
        if _is_outdated(fewest_first[0], shares.sizes[taker]):
            _, place = heappop(fewest_first)
            heappush(fewest_first, (shares.sizes[taker], place))
            continue
        if shares.sizes[giver] - shares.sizes[taker] <= 1:
            break
        number = max(shares.held[giver][topic_id])
        shares.take(giver, topic_id, number)
        shares.give(taker, topic_id, number)
        moves += 1
        if not shares.held[giver][topic_id]:
            heappop(most_first)
    return moves


def _is_outdated(entry: tuple[int, int], size: int) -> bool:
    """A move changed the member's size since it was put into the heap."""
    return entry[0] != size
