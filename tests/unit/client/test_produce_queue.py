"""The order of batches of one partition, whatever fails."""

from __future__ import annotations

from tidelog.client.produce_queue import PartitionQueue, ProduceBatch
from tidelog.types import TopicPartition

TP = TopicPartition("t", 0)


def queue_of(*sizes: int) -> PartitionQueue:
    queue = PartitionQueue(TP)
    for size in sizes:
        place = queue.place_for(size)
        queue.add(ProduceBatch(TP, bytearray(size), size, place, 0.0))
    return queue


def places(queue: PartitionQueue) -> list[int]:
    return [batch.place for batch in queue.waiting]


def test_a_place_is_the_number_of_rows_before() -> None:
    assert places(queue_of(3, 5, 2)) == [0, 3, 8]


def test_a_failed_batch_goes_before_those_that_follow_it() -> None:
    queue = queue_of(1, 1, 1)
    first, second = queue.send_next(), queue.send_next()
    queue.put_back(second)
    queue.put_back(first)
    assert places(queue) == [0, 1, 2]
    assert first.attempts == 1


def test_halves_take_the_place_of_a_batch() -> None:
    queue = queue_of(4, 2)
    large = queue.send_next()
    halves = [ProduceBatch(TP, bytearray(2), 2, large.place + at, 0.0) for at in (0, 2)]
    queue.replace(large, halves)
    assert places(queue) == [0, 2, 4]


def test_the_last_offset_is_the_largest_acknowledged() -> None:
    queue = queue_of(3, 2)
    first, second = queue.send_next(), queue.send_next()
    queue.acknowledge(second, 103)
    queue.acknowledge(first, 100)
    assert queue.last_offset == 104
    assert queue.is_empty


def test_an_acknowledgement_without_an_offset_leaves_the_last_one() -> None:
    queue = queue_of(3)
    queue.acknowledge(queue.send_next(), -1)
    assert queue.last_offset == -1


def test_first_is_who_has_nobody_unacknowledged_before() -> None:
    queue = queue_of(1, 1)
    first, second = queue.send_next(), queue.send_next()
    assert queue.is_first(first)
    assert not queue.is_first(second)
    queue.put_back(first)
    assert not queue.is_first(second)
    queue.acknowledge(queue.send_next(), 0)
    assert queue.is_first(second)


def test_no_more_is_sent_beyond_the_first_unacknowledged_than_a_broker_remembers() -> None:
    queue = queue_of(*[1] * 10)
    first = queue.send_next()
    for _ in range(4):
        queue.acknowledge(queue.send_next(), 0)
    assert not queue.may_send(5)
    queue.put_back(first)
    assert queue.may_send(5)
    assert queue.send_next() is first
    assert not queue.may_send(5)
    queue.acknowledge(first, 0)
    assert queue.may_send(5)
