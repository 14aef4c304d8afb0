"""An answer that is not ready yet.

A handler that cannot answer at once returns a `Pending`; whoever brings about the answer
completes it, on the broker loop, exactly once. It is a bare callback slot and not a future: hot
requests pay for no scheduling.

One that `lets_others_pass` stands for a request that has had its effect: further ones of its kind
may be handled before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_UNSET = object()


class Pending(Generic[T]):
    __slots__ = ("_callback", "_failed", "_on_abandon", "_on_hurry", "_result", "lets_others_pass")

    def __init__(
        self,
        on_abandon: Callable[[], object] | None = None,
        on_hurry: Callable[[], object] | None = None,
        *,
        lets_others_pass: bool = False,
    ) -> None:
        self.lets_others_pass = lets_others_pass
        self._on_abandon = on_abandon
        self._on_hurry = on_hurry
        self._callback: Callable[[T], object] | None = None
        self._failed: Callable[[], object] | None = None
        self._result: object = _UNSET

    def then(
        self, callback: Callable[[T], object], failed: Callable[[], object] | None = None
    ) -> None:
        assert self._callback is None, "a pending answer has one reader"
        self._callback = callback
        self._failed = failed
        if self._result is not _UNSET:
            callback(self._result)  # type: ignore[arg-type]

    def complete(self, result: T) -> None:
        assert self._result is _UNSET, "completed twice"
        self._result = result
        if self._callback is not None:
            self._callback(result)

    def fail(self) -> None:
        """There will be no answer, because of a bug: the reader must not wait for ever."""
        if self._failed is not None:
            self._failed()

    def hurry(self) -> None:
        """The broker is stopping: complete soon with what there is, if that can be."""
        if self._on_hurry is not None and self._result is _UNSET:
            self._on_hurry()

    def abandon(self) -> None:
        """Nobody waits for the answer any more; what would bring it about may stop."""
        if self._on_abandon is not None and self._result is _UNSET:
            self._on_abandon()
