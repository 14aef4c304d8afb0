from __future__ import annotations

import datetime
import json
from collections import defaultdict

from tidelog.demo.shop import BREAKAGES, LATE_MINUTES_MAX, Shop
from tidelog.pipeline.declaration.example import ORDERS_TOPIC, PAYMENTS_TOPIC

DAY = datetime.date(2026, 1, 5)


def morning(seed: int = 1) -> Shop:
    return Shop(DAY, orders=3_000, minutes=30, seed=seed)


def at_ms(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def test_the_ledger_is_what_the_events_say() -> None:
    shop = morning()
    orders, paid, broken = {}, set(), 0
    for event in [event for tick in shop.ticks() for event in tick]:
        if event.value in BREAKAGES:
            broken += 1
        elif event.topic == ORDERS_TOPIC:
            order = json.loads(event.value)
            orders[order["order_id"]] = order
        else:
            assert event.topic == PAYMENTS_TOPIC
            paid.add(json.loads(event.value)["order_id"])
    windows: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for order in (orders[name] for name in paid):
        start = at_ms(order["ordered_at"]) // 600_000 * 600_000
        windows[start, order["category"]][0] += 1
        windows[start, order["category"]][1] += order["amount_cents"]
    assert dict(shop.ledger.windows) == dict(windows)
    assert (shop.ledger.orders, shop.ledger.broken) == (3_000, broken)
    assert shop.ledger.paid == shop.ledger.payments == len(paid)
    assert 0 < broken < 150
    assert 2_500 < len(paid) < 3_000


def test_no_event_is_later_than_the_watermark_forgives() -> None:
    """Ten minutes; a tick may be read in part, which is one more."""
    shop = morning()
    latest = {ORDERS_TOPIC: 0, PAYMENTS_TOPIC: 0}
    late = 0
    for tick in shop.ticks():
        for event in tick:
            if event.value not in BREAKAGES:
                row = json.loads(event.value)
                moment = at_ms(row.get("ordered_at") or row["paid_at"])
                late = max(late, latest[event.topic] - moment)
                latest[event.topic] = max(latest[event.topic], moment)
    assert 60_000 < late <= (LATE_MINUTES_MAX + 1) * 60_000


def test_the_next_day_closes_the_windows_of_the_morning() -> None:
    shop = morning()
    list(shop.ticks())
    order, payment = (json.loads(event.value) for event in shop.next_day())
    assert order["order_id"] == payment["order_id"]
    assert at_ms(order["ordered_at"]) > shop.closing_ms + 20 * 3_600_000
    assert shop.ledger.paid_after == 1


def test_everything_follows_from_the_seed() -> None:
    def events(seed: int) -> list[object]:
        return [event for tick in morning(seed).ticks() for event in tick]

    assert events(1) == events(1) != events(2)
