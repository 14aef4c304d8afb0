"""Finding out which topics the patterns of groups stand for, a slice of work a turn of the loop.

One group after the other. A slice ends when about SLICE_STATES states of automata were looked at,
some milliseconds, whatever the patterns are: nobody else waits longer for them. Work that meets a
bug resolves nothing, and holds up nobody else's.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.patterns import InvalidPattern, Pattern

if TYPE_CHECKING:
    from tidelog.clock import Timer

logger = logging.getLogger(__name__)

SLICE_STATES: Final = 10_000

Resolved = dict[str, frozenset[str]]  # topic names by regex
Work = Generator[int, None, Resolved]


class PatternResolution:
    """Touched only on the broker loop."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._waiting: deque[tuple[Work, Callable[[Resolved], object]]] = deque()

    def resolve(
        self, regexes: Iterable[str], names: Iterable[str], done: Callable[[Resolved], object]
    ) -> None:
        self._waiting.append((_resolving(sorted(regexes), list(names)), done))
        if len(self._waiting) == 1:
            self._timer.call_later(0.0, self._turn)

    def _turn(self) -> None:
        work, done = self._waiting[0]
        resolved: Resolved | None = {}  # of work that meets a bug, which the loop logs
        try:
            resolved = _slice(work)
        finally:
            if resolved is not None:
                self._waiting.popleft()
            if self._waiting:
                self._timer.call_later(0.0, self._turn)
            if resolved is not None:
                done(resolved)


def _slice(work: Work) -> Resolved | None:
    """Goes on with the work; what came of it, if it is done."""
    states = 0
    while states < SLICE_STATES:
        try:
            states += next(work)
        except StopIteration as result:
            resolved: Resolved = result.value
            return resolved
    return None


def _resolving(regexes: list[str], names: list[str]) -> Work:
    resolved: Resolved = {}
    for regex in regexes:
        try:
            pattern = Pattern(regex)
        except InvalidPattern as error:  # it was accepted by another version
            logger.warning("cannot read a pattern", extra={"regex": regex, "error": str(error)})
            continue
        found = set()
        for name in names:
            if (yield from pattern.matching(name)):
                found.add(name)
            yield len(name)  # what was remembered costs something too
        resolved[regex] = frozenset(found)
    return resolved
