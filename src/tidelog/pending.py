"""An answer that is not ready yet.

Whoever cannot answer at once returns a `Pending`. Whoever brings the answer about settles it on the
broker loop, exactly once: `complete` with a result, or `fail` with the exception that prevented
one. The outcome stays: a reader that comes late gets the same as one that came early. There is one
reader:

    then      two callbacks: one for the result, one for the cause of a failure
    map       another Pending, of the changed result
    and_then  the same, where the change may itself take time
    await     in a coroutine; a failure raises its cause

It is a bare callback slot and not a future, so hot requests pay for no scheduling: the reader runs
inside `complete`. A reader that raises does not disturb whoever completed: its exception is the
failure of what it was to bring about. A failure that nobody reads is logged.

Two messages travel against the answer, and reach the source through every `map` and `and_then`:
`hurry` (answer soon with what there is) and `abandon` (nobody waits any more).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, final, overload

from tidelog.supervisor import attempt

T = TypeVar("T")
U = TypeVar("U")

logger = logging.getLogger(__name__)

_UNSET: Final = object()


class _Failure:
    """The outcome of a Pending that failed."""

    __slots__ = ("cause", "is_read")

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause
        self.is_read = False

    def __del__(self) -> None:
        if not self.is_read:
            logger.error("nobody heard of a failure: %r", self.cause, exc_info=self.cause)


def _read(outcome: object) -> None:
    """Stands where a reader was, once it has its outcome."""


@final
class Pending(Generic[T]):
    """One that `lets_others_pass` stands for a request whose place in the order is certain: further
    ones of its kind may be handled before it is answered.
    """

    __slots__ = ("_callback", "_failed", "_on_abandon", "_on_hurry", "_outcome", "lets_others_pass")

    def __init__(
        self,
        on_abandon: Callable[[], object] | None = None,
        on_hurry: Callable[[], object] | None = None,
        *,
        lets_others_pass: bool = False,
    ) -> None:
        self.lets_others_pass = lets_others_pass
        # Both are dropped with the outcome, and so is the reader: each of them may hold this.
        self._on_abandon = on_abandon
        self._on_hurry = on_hurry
        self._callback: Callable[[T], object] | None = None
        self._failed: Callable[[BaseException], object] = _read
        self._outcome: object = _UNSET  # then the result, or a _Failure

    @classmethod
    def of_future(cls, future: asyncio.Future[T]) -> Pending[T]:
        """The caller keeps the future alive."""
        pending = cls()

        def done(future: asyncio.Future[T]) -> None:
            if future.cancelled():
                pending.fail(asyncio.CancelledError())
            elif (cause := future.exception()) is not None:
                pending.fail(cause)
            else:
                pending.complete(future.result())

        future.add_done_callback(done)
        return pending

    # For whoever brings the answer about

    @property
    def is_settled(self) -> bool:
        return self._outcome is not _UNSET

    def complete(self, result: T) -> None:
        assert self._outcome is _UNSET, "settled twice"
        self._outcome = result
        self._on_abandon = self._on_hurry = None
        callback = self._callback
        if callback is not None:
            self._callback = _read
            try:
                callback(result)
            except Exception as cause:  # noqa: BLE001 : `failed` is told
                self._tell(cause)
            self._failed = _read

    def fail(self, cause: BaseException) -> None:
        """There will be no answer, because of a bug: the reader must not wait for ever."""
        assert self._outcome is _UNSET, "settled twice"
        self._outcome = failure = _Failure(cause)
        self._on_abandon = self._on_hurry = None
        if self._callback is not None:
            failure.is_read = True
            self._callback = _read
            self._tell(cause)

    def resolve(self, answer: T | Pending[T]) -> None:
        """Completes with the answer, or settles as the other Pending does when it does."""
        if not isinstance(answer, Pending):
            self.complete(answer)
            return
        self._on_abandon = answer.abandon
        self._on_hurry = answer.hurry
        self.lets_others_pass = answer.lets_others_pass
        answer.then(self.complete, self.fail)

    def guard(self, work: Callable[[], object]) -> None:
        """Runs a step towards the answer; what it raises is the failure."""
        try:
            work()
        except Exception as cause:  # noqa: BLE001 : the reader is told
            self.fail(cause)

    # For the reader

    def then(
        self, callback: Callable[[T], object], failed: Callable[[BaseException], object]
    ) -> None:
        """`failed` is also told what the callback itself raises."""
        assert self._callback is None, "a pending answer has one reader"
        self._failed = failed
        outcome = self._outcome
        if outcome is _UNSET:
            self._callback = callback
            return
        self._callback = _read
        if isinstance(outcome, _Failure):
            outcome.is_read = True
            self._tell(outcome.cause)
            return
        try:
            callback(outcome)  # type: ignore[arg-type]
        except Exception as cause:  # noqa: BLE001 : `failed` is told
            self._tell(cause)

    def _tell(self, cause: BaseException) -> None:
        attempt("handling a failure", partial(self._failed, cause))
        self._failed = _read

    def map(self, change: Callable[[T], U]) -> Pending[U]:
        """The changed result. A change that raises is a failure of what this returns."""
        mapped: Pending[U] = Pending(
            self.abandon, self.hurry, lets_others_pass=self.lets_others_pass
        )
        self.then(lambda result: mapped.complete(change(result)), mapped.fail)
        return mapped

    @overload
    def and_then(self, step: Callable[[T], Pending[U]]) -> Pending[U]: ...
    @overload
    def and_then(self, step: Callable[[T], U | Pending[U]]) -> Pending[U]: ...
    def and_then(self, step: Callable[[T], U | Pending[U]]) -> Pending[U]:
        """As `map`. While the step's own Pending is awaited, that one is hurried and abandoned."""
        whole: Pending[U] = Pending(
            self.abandon, self.hurry, lets_others_pass=self.lets_others_pass
        )
        self.then(lambda result: whole.resolve(step(result)), whole.fail)
        return whole

    def followed_by(self, action: Callable[[T], object]) -> Pending[T]:
        """The same answer. Once the reader has had the result, the action comes with it."""
        same: Pending[T] = Pending(self.abandon, self.hurry, lets_others_pass=self.lets_others_pass)

        def completed(result: T) -> None:
            same.complete(result)
            attempt("what follows an answer", partial(action, result))

        self.then(completed, same.fail)
        return same

    def __await__(self) -> Generator[Any, None, T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def completed(result: T) -> None:
            if not future.done():  # its task may have been cancelled
                future.set_result(result)

        def failed(cause: BaseException) -> None:
            if not future.done():
                future.set_exception(cause)

        self.then(completed, failed)
        try:
            return (yield from future.__await__())
        finally:
            self.abandon()

    def hurry(self) -> None:
        """The broker is stopping: complete soon with what there is, if that can be."""
        if self._on_hurry is not None:
            self._on_hurry()

    def abandon(self) -> None:
        """Nobody waits for the answer any more; what would bring it about may stop."""
        if self._on_abandon is not None:
            self._on_abandon()


def all_of(pendings: Sequence[Pending[T]]) -> Pending[list[T]]:
    """All results, in the order given, when the last is there; or the first failure."""
    whole: Pending[list[T]] = Pending()
    results: dict[int, T] = {}

    def completed(place: int, result: T) -> None:
        results[place] = result
        if len(results) == len(pendings) and not whole.is_settled:
            whole.complete([results[each] for each in range(len(pendings))])

    def failed(cause: BaseException) -> None:
        if whole.is_settled:
            logger.error("nobody heard of a failure: %r", cause, exc_info=cause)
        else:
            whole.fail(cause)

    for place, pending in enumerate(pendings):
        pending.then(partial(completed, place), failed)
    if not pendings:
        whole.complete([])
    return whole
