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
- With one: for its answer. If the oldest has none after two thirds of the session timeout, the
  connection is dropped, since the server is silent.
When the session has expired, all calls made in it fail with StoreClosed.

Touched only on the broker's loop. It learns of a loss after it happened, and so names the
connection that it means: the session refuses requests that are meant for an earlier one. All that
it took is answered, or failed, before the loss is told.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from tidelog.clock import Clock, Timer, TimerHandle
from tidelog.controller.metadata_store import (
    Check,
    Create,
    Operation,
    Outcome,
    OutcomeUnknown,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from tidelog.controller.zookeeper import requests, write_steps
from tidelog.controller.zookeeper.requests import Chroot
from tidelog.controller.zookeeper.session import Connection, Read
from tidelog.controller.zookeeper.write_steps import LostAnswer, Steps

SILENCE_SHARE: Final = 2 / 3  # of the session timeout, as ZooKeeper's clients have it

Answered = Callable[[Any, Exception | None], None]


class Line(Protocol):
    """The session, with answers brought to the loop."""

    @property
    def zxid_seen(self) -> int: ...

    def send(self, request: Any, answered: Answered, connection_number: int) -> bool:
        """False if that connection is gone: then nothing was sent."""

    def drop_connection(self, connection_number: int) -> None: ...


class ReadCall:
    """One request; decode makes the result of its answer."""

    def __init__(
        self, future: Future[Any], read: Read, path: str, decode: Callable[[Any], Any]
    ) -> None:
        self.future = future
        self.path = path
        self.deadline = 0.0
        self.sent_at = 0.0
        self.losses = 0
        self._read = read
        self._decode = decode

    @property
    def written(self) -> frozenset[str]:
        return frozenset()

    def request(self, line: Line) -> Any:
        return self._read

    def steps_or_none(self, line: Line, session_id: int) -> None:
        return None

    def result(self, answer: Any) -> Any:
        return self._decode(answer)

    def unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(self.path)


class WriteCall:
    """A multi."""

    def __init__(
        self, future: Future[Any], operations: Sequence[Operation], chroot: Chroot
    ) -> None:
        self.future = future
        self.path = operations[0].path if operations else "/"
        self.deadline = 0.0
        self.sent_at = 0.0
        self.losses = 0
        self._operations = operations
        self._chroot = chroot
        self._zxid_before: int | None = None  # None until it has been sent
        self._makes_parents = any(isinstance(o, Create) and o.make_parents for o in operations)
        self.written = frozenset(o.path for o in operations if not isinstance(o, Check))

    def request(self, line: Line) -> Any:
        self._remember(line)
        return requests.transaction(self._operations, self._chroot.full)

    def steps_or_none(self, line: Line, session_id: int) -> Steps[list[Outcome]] | None:
        if not self.losses and not self._makes_parents:
            return None
        self._remember(line)
        assert self._zxid_before is not None
        lost = LostAnswer(session_id, self._zxid_before) if self.losses else None
        return write_steps.write(self._operations, self._chroot, lost)

    def result(self, answer: Any) -> list[Outcome]:
        refused = requests.failure(answer)
        if refused is not None:
            index, error = refused
            raise requests.store_error(error, self._operations[index].path, index)
        return requests.outcomes(answer, self._chroot.below)

    def unavailable(self) -> StoreUnavailable:
        return OutcomeUnknown(self.path) if self.losses else StoreUnavailable(self.path)

    def _remember(self, line: Line) -> None:
        if self._zxid_before is None:
            self._zxid_before = line.zxid_seen


Call = ReadCall | WriteCall


class CallQueue:
    def __init__(
        self,
        line: Line,
        *,
        session_timeout_s: float,
        in_flight_max: int,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._line = line
        self._session_timeout_s = session_timeout_s
        self._in_flight_max = in_flight_max
        self._clock = clock
        self._timer = timer
        self._connection: Connection | None = None
        self._waiting: deque[Call] = deque()  # deadlines do not fall while there is no connection
        self._in_flight: deque[Call] = deque()  # in the order sent
        self._being_written: set[str] = set()  # by the calls in flight
        self._lost: deque[Call] = deque()  # in the order sent
        self._alone: Call | None = None  # the call whose steps are being made
        self._give_up_timer: TimerHandle | None = None
        self._silence_timer: TimerHandle | None = None

    def submit(self, call: Call) -> None:
        call.deadline = self._clock.monotonic() + self._session_timeout_s
        self._waiting.append(call)
        if self._connection is None:
            self._watch_deadlines()
        else:
            self._send_waiting()

    def connected(self, connection: Connection) -> None:
        assert self._oldest_unanswered() is None, "it is lost before the connection is"
        self._connection = connection
        self._waiting.extendleft(reversed(self._lost))
        self._lost.clear()
        self._stop_give_up_timer()
        self._send_waiting()

    def disconnected(self) -> None:
        assert self._oldest_unanswered() is None, "it is lost before the connection is"
        self._connection = None
        self._stop_silence_timer()
        deadline = self._clock.monotonic() + self._session_timeout_s
        for call in (*self._lost, *self._waiting):
            if call.losses < 2:
                call.deadline = deadline
        self._watch_deadlines()

    def ended(self) -> None:
        """The session is over: with it all that was asked of it."""
        self._connection = None
        self._stop_silence_timer()
        self._stop_give_up_timer()
        calls = [*self._lost, *self._waiting]
        self._lost.clear()
        self._waiting.clear()
        for call in calls:
            _fail(call, StoreClosed(call.path))

    def _send_waiting(self) -> None:
        while self._waiting and self._connection is not None and self._alone is None:
            call = self._waiting[0]
            steps = call.steps_or_none(self._line, self._connection.session_id)
            if steps is not None:
                if self._in_flight:
                    return
                self._alone = self._waiting.popleft()
                self._advance(steps, None, None)
            elif not self._has_room_for(call):
                return
            else:
                self._send(self._waiting.popleft(), self._connection)

    def _has_room_for(self, call: Call) -> bool:
        return len(self._in_flight) < self._in_flight_max and self._being_written.isdisjoint(
            call.written
        )

    def _send(self, call: Call, connection: Connection) -> None:
        request = call.request(self._line)
        if not self._line.send(request, partial(self._answered, call), connection.number):
            self._back_to_the_head(call)
            return
        call.sent_at = self._clock.monotonic()
        self._in_flight.append(call)
        self._being_written |= call.written
        self._watch_for_silence()

    def _answered(self, call: Call, answer: Any, error: Exception | None) -> None:
        self._in_flight.remove(call)
        self._being_written -= call.written
        if isinstance(error, requests.LOST):
            self._lose(call)
        elif error is not None:
            _fail(call, requests.store_error(error, call.path))
        else:
            _settle(call, answer)
        self._send_waiting()

    def _advance(self, steps: Steps[Any], answer: Any, error: Exception | None) -> None:
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
        except requests.ZOOKEEPER_ERROR as unexpected:
            self._alone = None
            _fail(call, requests.store_error(unexpected, call.path))
        else:
            self._send_step(call, steps, request)
            return
        self._send_waiting()

    def _send_step(self, call: Call, steps: Steps[Any], request: Any) -> None:
        assert self._connection is not None
        if not self._line.send(
            request, partial(self._step_answered, steps), self._connection.number
        ):
            steps.close()
            self._alone = None
            self._back_to_the_head(call)
            return
        call.sent_at = self._clock.monotonic()
        self._watch_for_silence()

    def _step_answered(self, steps: Steps[Any], answer: Any, error: Exception | None) -> None:
        call = self._alone
        assert call is not None
        if isinstance(error, requests.LOST + requests.ENDED):
            steps.close()
            self._alone = None
            if isinstance(error, requests.LOST):
                self._lose(call)
            else:
                _fail(call, requests.store_error(error, call.path))
        else:
            self._advance(steps, answer, error)

    def _lose(self, call: Call) -> None:
        call.losses += 1
        self._lost.append(call)
        if self._connection is not None:  # where only the session has moved, it goes with that
            self._line.drop_connection(self._connection.number)
            self._connection = None

    def _back_to_the_head(self, call: Call) -> None:
        """The connection is gone, as we are about to be told."""
        self._waiting.appendleft(call)
        self._connection = None

    def _watch_deadlines(self) -> None:
        if self._give_up_timer is None:
            head = (self._lost or self._waiting or (None,))[0]
            if head is not None:
                delay = head.deadline - self._clock.monotonic()
                self._give_up_timer = self._timer.call_later(max(delay, 0), self._give_up)

    def _give_up(self) -> None:
        self._give_up_timer = None
        now = self._clock.monotonic()
        for calls in (self._lost, self._waiting):
            while calls and calls[0].deadline <= now:
                call = calls.popleft()
                _fail(call, call.unavailable())
        self._watch_deadlines()

    def _watch_for_silence(self) -> None:
        if self._silence_timer is None:
            oldest = self._oldest_unanswered()
            if oldest is not None:
                silent_at = oldest.sent_at + self._session_timeout_s * SILENCE_SHARE
                delay = silent_at - self._clock.monotonic()
                self._silence_timer = self._timer.call_later(max(delay, 0), self._judge_silence)

    def _judge_silence(self) -> None:
        self._silence_timer = None
        oldest = self._oldest_unanswered()
        if oldest is None or self._connection is None:
            return
        silent_s = self._clock.monotonic() - oldest.sent_at
        if silent_s >= self._session_timeout_s * SILENCE_SHARE:
            self._line.drop_connection(self._connection.number)
        else:
            self._watch_for_silence()

    def _stop_give_up_timer(self) -> None:
        if self._give_up_timer is not None:
            self._give_up_timer.cancel()
            self._give_up_timer = None

    def _stop_silence_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    def _oldest_unanswered(self) -> Call | None:
        return self._in_flight[0] if self._in_flight else self._alone


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
