from __future__ import annotations

from tidelog.network.memory_pool import SMALL_BYTES, MemoryPool

LIMIT = 10 * SMALL_BYTES
STALL_MS = 2_000
FAVOUR_MS = 30_000


class Holder:
    """A connection as the pool sees it."""

    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool
        self.held_bytes = 0
        self.last_active = 0.0
        self.woken = 0
        self.evicted = False
        self.peer_is_due = True

    def wake(self) -> None:
        self.woken += 1

    def waits_for_peer(self) -> bool:
        return self.peer_is_due

    def evict(self) -> None:
        self.evicted = True
        self.pool.leave(self, 0.0)


def new_pool() -> MemoryPool:
    return MemoryPool(LIMIT, STALL_MS, FAVOUR_MS)


def holder_of(pool: MemoryPool, held_bytes: int) -> Holder:
    holder = Holder(pool)
    pool.hold(holder, held_bytes, 0.0)
    return holder


def test_used_is_the_sum_of_what_is_held() -> None:
    pool = new_pool()
    first, second = holder_of(pool, 100), holder_of(pool, 50)

    pool.hold(first, 20, 0.0)
    pool.leave(second, 0.0)

    assert pool.used == 20


def test_small_holders_read_on_up_to_the_small_share_while_memory_is_short() -> None:
    pool = new_pool()
    holder_of(pool, LIMIT + 1)
    small = holder_of(pool, 100)

    assert pool.allowance(small, 0.0) == SMALL_BYTES - 100


def test_one_large_holder_is_favoured_and_the_others_are_parked() -> None:
    pool = new_pool()
    first, second = holder_of(pool, LIMIT), holder_of(pool, SMALL_BYTES)

    assert pool.allowance(first, 0.0) is None
    assert pool.allowance(second, 0.0) == 0
    assert pool.allowance(first, 0.0) is None


def test_the_favour_passes_in_order_of_parking_when_the_frame_is_done() -> None:
    pool = new_pool()
    rest = holder_of(pool, LIMIT)
    first, second, third = (holder_of(pool, SMALL_BYTES) for _ in range(3))
    for holder in (first, second, third):
        pool.allowance(holder, 0.0)

    pool.hold(first, 0, 0.0)

    assert (second.woken, third.woken) == (1, 0)
    assert pool.allowance(second, 0.0) is None
    assert rest.woken == 0


def test_the_favour_passes_when_the_favoured_one_closes() -> None:
    pool = new_pool()
    holder_of(pool, LIMIT)
    first, second = holder_of(pool, SMALL_BYTES), holder_of(pool, SMALL_BYTES)
    pool.allowance(first, 0.0)
    pool.allowance(second, 0.0)

    pool.leave(first, 0.0)

    assert second.woken == 1
    assert pool.allowance(second, 0.0) is None


def test_all_parked_are_woken_when_memory_is_back_within_the_limit() -> None:
    pool = new_pool()
    large = holder_of(pool, LIMIT)
    parked = [holder_of(pool, SMALL_BYTES) for _ in range(3)]
    for holder in (large, *parked):
        pool.allowance(holder, 0.0)

    pool.hold(large, 0, 0.0)

    assert [holder.woken for holder in parked] == [1, 1, 1]
    pool.hold(large, LIMIT, 0.0)
    pool.hold(large, 0, 0.0)
    assert [holder.woken for holder in parked] == [1, 1, 1]


def test_a_parked_holder_whose_answers_have_left_is_woken() -> None:
    pool = new_pool()
    first, second = holder_of(pool, LIMIT), holder_of(pool, 2 * SMALL_BYTES)
    pool.allowance(first, 0.0)
    pool.allowance(second, 0.0)

    pool.hold(first, LIMIT + SMALL_BYTES, 0.0)
    pool.hold(second, 0, 0.0)

    assert second.woken == 1


def test_a_large_holder_whose_peer_stands_still_is_evicted_while_memory_is_short() -> None:
    pool = new_pool()
    still, moving = holder_of(pool, LIMIT), holder_of(pool, LIMIT)
    moving.last_active = 2.0

    pool.evict_stalled([moving, still], 2.5)

    assert still.evicted
    assert not moving.evicted


def test_nobody_is_evicted_while_memory_suffices() -> None:
    pool = new_pool()
    still = holder_of(pool, LIMIT)

    pool.evict_stalled([still], 1000.0)

    assert not still.evicted


def test_small_holders_and_those_the_broker_keeps_waiting_are_spared() -> None:
    pool = new_pool()
    small, waiting = holder_of(pool, SMALL_BYTES - 1), holder_of(pool, 2 * LIMIT)
    waiting.peer_is_due = False

    pool.evict_stalled([small, waiting], 1000.0)

    assert not small.evicted
    assert not waiting.evicted


def test_a_favoured_one_that_trickles_is_evicted_when_its_time_is_over() -> None:
    pool = new_pool()
    trickling = holder_of(pool, 2 * LIMIT)
    pool.allowance(trickling, 0.0)
    trickling.last_active = 30.9

    pool.evict_stalled([trickling], 29.0)
    assert not trickling.evicted
    pool.evict_stalled([trickling], 31.0)
    assert trickling.evicted


def test_the_favour_does_not_stay_with_one_that_waits_for_the_broker() -> None:
    pool = new_pool()
    busy, next_one = holder_of(pool, 2 * LIMIT), holder_of(pool, SMALL_BYTES)
    pool.allowance(busy, 0.0)
    pool.allowance(next_one, 0.0)
    busy.peer_is_due = False

    pool.evict_stalled([busy, next_one], 1.0)

    assert next_one.woken == 1
