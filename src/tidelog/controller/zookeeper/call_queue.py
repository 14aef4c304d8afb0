"""The store's calls on their way to the server: in order, a bounded number at a time.

    waiting --> in flight --> answered
                    |
                    v         connection lost
                  lost   ---> to the head of the queue once there is a connection again

A call that is one request is sent as soon as fewer than the bound are unanswered. One that takes
several (`write_steps`) is sent when nothing is in flight, and nothing else until it is done. So
writes take effect in the order they were made. The exception is a write that the server refused,
the refusal being lost, while one behind it was accepted: it is judged again, and so after that one.

A read whose answer was lost is sent again; a write is looked for first. To be found it must be the
only one of this session that changed its nodes, so a node is written by one call in flight at most.

How long a call waits
- Without a connection: the session timeout, from the loss or from when it was made, whichever is
  later. Then StoreUnavailable, or OutcomeUnknown for a write that had been sent. One that is lost
  again and again counts from the first time: it may be what breaks the connection.
- With one: for its answer. A server that is silent loses the connection (`session.py`).
When the session has expired, the loop's calls made in it fail with StoreClosed. Those of start-up
go on in the next session: nobody has acted on the one that is gone.

All that was in flight is answered, as lost, before the queue is told that the connection is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from tidelog.clock import Clock
from tidelog.controller.metadata_store import (
    Check,
    Create,
    Operation,
    Outcome,
    OutcomeUnknown,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    Watcher,
)
from tidelog.controller.zookeeper import jute, write_steps
from tidelog.controller.zookeeper.connect_string import Chroot
from tidelog.controller.zookeeper.jute import Code, Read, Request
from tidelog.controller.zookeeper.session import Answered
from tidelog.controller.zookeeper.write_steps import LostAnswer, Steps

Future = asyncio.Future[Any] | concurrent.futures.Future[Any]  # of the loop, or of start-up


class Line(Protocol):
    """The session, as far as the queue needs it."""

    session_id: int
    zxid_seen: int

    @property
    def is_connected(self) -> bool: ...

    def send(
        self, request: Request, answered: Answered, watcher: Watcher | None = None
    ) -> None: ...

    def drop(self, reason: str) -> None: ...


class ReadCall:
    """One request."""

    def __init__(
        self, future: Future, read: Read, path: str, watcher: Watcher | None = None
    ) -> None:
        self.future = future
        self.path = path
        self.watcher = watcher
        self.deadline = 0.0
        self.losses = 0
        self._read = read

    @property
    def written(self) -> frozenset[str]:
        return frozenset()

    def request(self, line: Line) -> Request:
        return self._read

    def steps_or_none(self, line: Line) -> None:
        return None

    def result(self, answer: Any) -> Any:
        return answer

    def unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(self.path)


class WriteCall:
    """A multi."""

    watcher = None

    def __init__(self, future: Future, operations: Sequence[Operation], chroot: Chroot) -> None:
        self.future = future
        self.path = operations[0].path if operations else "/"
        self.deadline = 0.0
        self.losses = 0
        self._operations = operations
        self._chroot = chroot
        self._zxid_before: int | None = None  # None until it has been sent
        self._makes_parents = any(isinstance(o, Create) and o.make_parents for o in operations)
        self.written = frozenset(o.path for o in operations if not isinstance(o, Check))

    def request(self, line: Line) -> Request:
        self._remember(line)
        return write_steps.transaction(self._operations, self._chroot)

    def steps_or_none(self, line: Line) -> Steps[list[Outcome]] | None:
        if not self.losses and not self._makes_parents:
            return None
        zxid_before = self._remember(line)
        lost = LostAnswer(line.session_id, zxid_before) if self.losses else None
        return write_steps.write(self._operations, self._chroot, lost)

    def result(self, answer: Any) -> list[Outcome]:
        refused = jute.refusal(answer)
        if refused is not None:
            index, code = refused
            raise jute.store_error(code, self._operations[index].path, index)
        return write_steps.outcomes(answer, self._chroot)

    def unavailable(self) -> StoreUnavailable:
        return OutcomeUnknown(self.path) if self.losses else StoreUnavailable(self.path)

    def _remember(self, line: Line) -> int:
        if self._zxid_before is None:
            self._zxid_before = line.zxid_seen
        return self._zxid_before


Call = ReadCall | WriteCall


class CallQueue:
    def __init__(
        self, line: Line, *, session_timeout_s: float, in_flight_max: int, clock: Clock
    ) -> None:
        self._line = line
        self._session_timeout_s = session_timeout_s
        self._in_flight_max = in_flight_max
        self._clock = clock
        self._waiting: deque[Call] = deque()  # deadlines do not fall while there is no connection
        self._in_flight: deque[Call] = deque()  # in the order sent
        self._being_written: set[str] = set()  # by the calls in flight
        self._lost: deque[Call] = deque()  # in the order sent
        self._alone: Call | None = None  # the call whose steps are being made

    @property
    def deadline(self) -> float | None:
        """When `give_up` has something to do."""
        if self._line.is_connected:
            return None
        heads = [calls[0].deadline for calls in (self._lost, self._waiting) if calls]
        return min(heads, default=None)

    def submit(self, call: Call) -> None:
        call.deadline = self._clock.monotonic() + self._session_timeout_s
        self._waiting.append(call)
        self._send_waiting()

    def connected(self) -> None:
        assert not self._has_sent(), "it is lost before the connection is"
        self._waiting.extendleft(reversed(self._lost))
        self._lost.clear()
        self._send_waiting()

    def disconnected(self) -> None:
        assert not self._has_sent(), "it is lost before the connection is"
        deadline = self._clock.monotonic() + self._session_timeout_s
        for call in (*self._lost, *self._waiting):
            if call.losses < 2:
                call.deadline = deadline

    def expired(self) -> None:
        """The session is over: with it all that the loop asked of it."""
        self._end(call for call in self._all_unsent() if _is_of_the_loop(call))

    def closed(self) -> None:
        """Nothing is sent any more; what is in flight may be answered still."""
        self._end(self._all_unsent())

    def give_up(self) -> None:
        now = self._clock.monotonic()
        if self._line.is_connected:
            return
        for calls in (self._lost, self._waiting):
            while calls and calls[0].deadline <= now:
                call = calls.popleft()
                _fail(call, call.unavailable())

    def _has_sent(self) -> bool:
        return bool(self._in_flight) or self._alone is not None

    def _all_unsent(self) -> list[Call]:
        return [*self._lost, *self._waiting]

    def _end(self, calls: Iterable[Call]) -> None:
        ended = dict.fromkeys(calls)
        self._lost = deque(call for call in self._lost if call not in ended)
        self._waiting = deque(call for call in self._waiting if call not in ended)
        for call in ended:
            _fail(call, StoreClosed(call.path))

    def _send_waiting(self) -> None:
        while self._waiting and self._line.is_connected and self._alone is None:
            call = self._waiting[0]
            steps = call.steps_or_none(self._line)
            if steps is not None:
                if self._in_flight:
                    return
                self._alone = self._waiting.popleft()
                self._advance(steps, None, None)
            elif not self._has_room_for(call):
                return
            else:
                self._send(self._waiting.popleft())

    def _has_room_for(self, call: Call) -> bool:
        return len(self._in_flight) < self._in_flight_max and self._being_written.isdisjoint(
            call.written
        )

    def _send(self, call: Call) -> None:
        self._in_flight.append(call)
        self._being_written |= call.written
        self._line.send(call.request(self._line), partial(self._answered, call), call.watcher)

    def _answered(self, call: Call, answer: Any, code: int) -> None:
        assert call is self._in_flight[0], "answers come in the order of the requests"
        self._in_flight.popleft()
        self._being_written -= call.written
        if code in jute.LOST:
            self._lose(call)
        elif code != Code.OK:
            _fail(call, jute.store_error(code, call.path))
        else:
            _settle(call, answer)
        self._send_waiting()

    def _advance(self, steps: Steps[Any], answer: Any, error: StoreError | None) -> None:
        call = self._alone
        assert call is not None
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as stop:
            self._alone = None
            _succeed(call, stop.value)
        except StoreError as refused:
            self._alone = None
            _fail(call, refused)
        else:
            self._line.send(request, partial(self._step_answered, steps))

    def _step_answered(self, steps: Steps[Any], answer: Any, code: int) -> None:
        call = self._alone
        assert call is not None
        if code in jute.LOST or code == Code.SESSION_EXPIRED:
            steps.close()
            self._alone = None
            if code in jute.LOST:
                self._lose(call)
            else:
                _fail(call, jute.store_error(code, call.path))
        else:
            error = None if code == Code.OK else jute.store_error(code, call.path)
            self._advance(steps, answer, error)
        self._send_waiting()

    def _lose(self, call: Call) -> None:
        call.losses += 1
        self._lost.append(call)
        if self._line.is_connected:  # where only the session has moved, it goes with that
            self._line.drop("the session is served elsewhere")


def _is_of_the_loop(call: Call) -> bool:
    return isinstance(call.future, asyncio.Future)


def _settle(call: Call, answer: Any) -> None:
    try:
        result = call.result(answer)
    except StoreError as refused:
        _fail(call, refused)
    else:
        _succeed(call, result)


def _succeed(call: Call, result: Any) -> None:
    if not call.future.done():  # the caller may have gone
        call.future.set_result(result)


def _fail(call: Call, error: StoreError) -> None:
    if not call.future.done():
        call.future.set_exception(error)
