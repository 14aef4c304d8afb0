"""buffer.memory: who gets room, and in which order."""

from __future__ import annotations

from tidelog.client.producer.buffer_pool import BufferPool


def test_what_is_taken_is_missing_until_it_is_given_back() -> None:
    pool = BufferPool(100)
    assert pool.take(60)
    assert not pool.take(60)
    pool.give_back(60)
    assert pool.take(60)


def test_room_goes_to_those_in_line_in_their_order() -> None:
    pool = BufferPool(100)
    pool.take(100)
    granted: list[str] = []
    pool.stand_in_line(80, lambda: granted.append("large"))
    pool.stand_in_line(10, lambda: granted.append("small"))
    pool.give_back(50)
    assert granted == []
    pool.give_back(50)
    assert granted == ["large", "small"]
    assert pool.available_bytes == 10


def test_whoever_comes_later_waits_behind_the_line() -> None:
    pool = BufferPool(100)
    pool.take(50)
    pool.stand_in_line(80, lambda: None)
    assert pool.is_exhausted
    assert not pool.take(10)


def test_leaving_the_line_lets_the_next_one_through() -> None:
    pool = BufferPool(100)
    pool.take(50)
    granted: list[str] = []
    large = pool.stand_in_line(80, lambda: granted.append("large"))
    pool.stand_in_line(10, lambda: granted.append("small"))
    pool.leave_line(large)
    assert granted == ["small"]


def test_what_was_granted_to_one_that_gave_up_is_not_lost() -> None:
    pool = BufferPool(100)
    request = pool.stand_in_line(100, lambda: None)
    assert request.is_granted
    pool.leave_line(request)
    assert pool.available_bytes == 100
