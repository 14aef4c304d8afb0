"""A mapping seen through changes that are not made yet."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(MutableMapping[K, V]):
    """Reads fall through to the base; writes and deletions stay here until `fold`."""

    __slots__ = ("_base", "_changed", "_deleted")

    def __init__(self, base: MutableMapping[K, V]) -> None:
        self._base = base
        self._changed: dict[K, V] = {}
        self._deleted: set[K] = set()

    def __getitem__(self, key: K) -> V:
        if key in self._changed:
            return self._changed[key]
        if key in self._deleted:
            raise KeyError(key)
        return self._base[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._changed[key] = value
        self._deleted.discard(key)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changed.pop(key, None)
        if key in self._base:
            self._deleted.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._changed or (key in self._base and key not in self._deleted)

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._deleted:
                yield key
        for key in self._changed:
            if key not in self._base:
                yield key

    def __len__(self) -> int:
        added = sum(key not in self._base for key in self._changed)
        return len(self._base) - len(self._deleted) + added

    def fold(self) -> None:
        """Makes the changes in the base."""
        for key in self._deleted:
            del self._base[key]
        self._base.update(self._changed)
        self._changed.clear()
        self._deleted.clear()
