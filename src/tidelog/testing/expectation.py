"""What must hold of the records of a topic. Each check is an AssertionError that shows what does
not, or gives the expectation back for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tidelog.client import ConsumerRecord

SHOWN: Final = 5


class Expectation:
    def __init__(self, topic: str, records: list[ConsumerRecord]) -> None:
        self.topic = topic
        self.records = records

    def count(self, count: int) -> Expectation:
        """As many records, no more and no fewer."""
        assert len(self.records) == count, f"{self.topic}: {len(self.records)} records, not {count}"
        return self

    def ordered(self, by: Callable[[ConsumerRecord], Any] | None = None) -> Expectation:
        """Records of the same key and partition rise in what `by` gives: without it, their values,
        as numbers if all are.
        """
        rank = by or self._value_rank()
        last: dict[tuple[int, bytes | None], tuple[Any, ConsumerRecord]] = {}
        for record in self.records:
            place = (record.partition, record.key)
            value = rank(record)
            if place in last and value < last[place][0]:
                before = last[place][1]
                raise AssertionError(
                    f"{self.topic}: out of order: {_shown(before)} is before {_shown(record)}"
                )
            last[place] = (value, record)
        return self

    def _value_rank(self) -> Callable[[ConsumerRecord], Any]:
        values = [record.value for record in self.records]
        if all(value is not None and value.isdigit() for value in values):
            return lambda record: int(record.value or b"")
        return lambda record: record.value or b""

    def exactly_once(
        self,
        keys: Iterable[bytes | str | int | None] | None = None,
        *,
        values: Iterable[Any] | None = None,
    ) -> Expectation:
        """Each of the keys is there once, and no other; or each of the values. With neither, no key
        is there twice. None is a key or value that is null.
        """
        if values is not None:
            self._must_be(Counter(map(_bytes, values)), [r.value for r in self.records], "value")
        if keys is not None:
            self._must_be(Counter(map(_bytes, keys)), [r.key for r in self.records], "key")
        if keys is None and values is None:
            counts = Counter(record.key for record in self.records)
            doubled = [key for key, times in counts.items() if times > 1]
            assert not doubled, (
                f"{self.topic}: keys that are there more than once: {_some(doubled)}"
            )
        return self

    def _must_be(self, wanted: Counter[bytes | None], found: list[bytes | None], what: str) -> None:
        counts: Counter[Any] = Counter(found)
        missing = list((wanted - counts).elements())
        surplus = list((counts - wanted).elements())
        problems = []
        if missing:
            problems.append(f"{len(missing)} {what}s are missing: {_some(missing)}")
        if surplus:
            problems.append(f"{len(surplus)} {what}s are too many: {_some(surplus)}")
        assert not problems, f"{self.topic}: " + "; ".join(problems)


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _some(items: list[Any]) -> str:
    shown = ", ".join(map(repr, items[:SHOWN]))
    return shown + (", ..." if len(items) > SHOWN else "")


def _shown(record: ConsumerRecord) -> str:
    return (
        f"partition {record.partition} offset {record.offset} key {record.key!r} "
        f"value {record.value!r}"
    )
