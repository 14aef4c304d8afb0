"""A shop's morning: orders, the payments that follow, and the ledger of what should come of them.

Event time runs faster than the clock on the wall: a tick is a minute of the shop's time. Events
leave in ticks. Of the orders
    1 in 12   is never paid
    1 in 20   reaches the topic late, up to LATE_MINUTES_MAX after its time; payments do so too
and 1 in 100 events is broken besides, in one of the ways of BREAKAGES. The pipeline's watermark of
ten minutes is longer than any lateness together with a tick, so no good event may be dropped.

After the last tick come the first order and payment of the next day. They move the watermark on, so
every window of the morning closes; their own stays open and does not count.

Everything follows from the seed. The ledger is kept as events are made, by plain arithmetic.
"""

from __future__ import annotations

import datetime
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.pipeline.declaration.example import ORDERS_TOPIC, PAYMENTS_TOPIC, WINDOW_MINUTES

CATEGORIES: Final = ("bread", "cheese", "coffee", "flowers", "fruit", "tea")
METHODS: Final = ("card", "cash", "transfer")
LATE_MINUTES_MAX: Final = 5
PAYMENT_MINUTES_MAX: Final = 20
OPENING_HOUR: Final = 8

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS

BREAKAGES: Final = (
    b'{"order_id": "cut o',
    b"<order id='7'><category>tea</category></order>",
    b'{"order_id": "no-time", "category": "tea", "amount_cents": 450}',
    b'{"order_id": "bad-time", "category": "tea", "amount_cents": 450, "ordered_at": "monday",'
    b' "paid_at": "monday"}',
    b"",
    b"\xff\xfe not text",
)


class Event(NamedTuple):
    topic: str
    key: bytes
    value: bytes


class Ledger:
    """What was sent, and so what must come out."""

    def __init__(self) -> None:
        self.orders = 0
        self.payments = 0
        self.late = 0
        self.broken = 0
        # (start of the window in ms, category) to [orders, cents] of paid orders of the morning.
        self.windows: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
        # Of the next day, whose window stays open.
        self.paid_after = 0

    @property
    def events(self) -> int:
        return self.orders + self.payments + self.broken

    @property
    def paid(self) -> int:
        return sum(orders for orders, _ in self.windows.values())

    def count_paid(self, ordered_at_ms: int, category: str, cents: int) -> None:
        start_ms = ordered_at_ms - ordered_at_ms % (WINDOW_MINUTES * _MINUTE_MS)
        window = self.windows[start_ms, category]
        window[0] += 1
        window[1] += cents


class Shop:
    """Makes the events of `orders` orders over `minutes` minutes of shop time."""

    def __init__(self, day: datetime.date, *, orders: int, minutes: int, seed: int = 1) -> None:
        opening = datetime.datetime.combine(day, datetime.time(OPENING_HOUR), datetime.UTC)
        self.opening_ms = int(opening.timestamp() * 1000)
        self.closing_ms = self.opening_ms + minutes * _MINUTE_MS
        self.minutes = minutes
        self.ledger = Ledger()
        self._orders = orders
        self._random = random.Random(seed)
        # Events by the tick in which they leave.
        self._leaving: dict[int, list[Event]] = defaultdict(list)
        self._next_id = 0

    def ticks(self) -> Iterator[list[Event]]:
        """The events of one minute after the other, then those that were paid after closing."""
        for tick in range(self.minutes):
            share = self._orders * (tick + 1) // self.minutes - self._orders * tick // self.minutes
            for _ in range(share):
                self._order(tick)
            yield self._leave(tick)
        for tick in sorted(self._leaving):
            yield self._leave(tick)

    def next_day(self) -> list[Event]:
        at_ms = self.opening_ms + _DAY_MS
        order, payment = self._order_event(at_ms, "tea", 450), self._payment_event(at_ms)
        self.ledger.orders += 1
        self.ledger.payments += 1
        self.ledger.paid_after += 1
        return [order, payment]

    def _order(self, tick: int) -> None:
        choose = self._random
        at_ms = self.opening_ms + tick * _MINUTE_MS + choose.randrange(_MINUTE_MS)
        category = choose.choice(CATEGORIES)
        cents = choose.randrange(100, 10_000)
        self._send(tick, self._order_event(at_ms, category, cents))
        self.ledger.orders += 1
        if choose.random() < 1 / 12:
            return
        paid_at_ms = at_ms + choose.randrange(1000, PAYMENT_MINUTES_MAX * _MINUTE_MS)
        self._send((paid_at_ms - self.opening_ms) // _MINUTE_MS, self._payment_event(paid_at_ms))
        self.ledger.payments += 1
        self.ledger.count_paid(at_ms, category, cents)

    def _send(self, tick: int, event: Event) -> None:
        choose = self._random
        if choose.random() < 1 / 20:
            tick += choose.randint(1, LATE_MINUTES_MAX)
            self.ledger.late += 1
        self._leaving[tick].append(event)
        if choose.random() < 1 / 100:
            broken = Event(event.topic, event.key, choose.choice(BREAKAGES))
            self._leaving[tick].append(broken)
            self.ledger.broken += 1

    def _leave(self, tick: int) -> list[Event]:
        return self._leaving.pop(tick, [])

    def _order_event(self, at_ms: int, category: str, cents: int) -> Event:
        self._next_id += 1
        order = {
            "order_id": self._order_id,
            "category": category,
            "amount_cents": cents,
            "ordered_at": iso(at_ms),
        }
        return Event(ORDERS_TOPIC, self._order_id.encode(), json.dumps(order).encode())

    def _payment_event(self, at_ms: int) -> Event:
        """Of the order made last."""
        payment = {
            "order_id": self._order_id,
            "method": self._random.choice(METHODS),
            "paid_at": iso(at_ms),
        }
        return Event(PAYMENTS_TOPIC, self._order_id.encode(), json.dumps(payment).encode())

    @property
    def _order_id(self) -> str:
        return f"o{self._next_id:07d}"


def iso(at_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"
