"""The request half of a connection: takes frames, calls the handler, collects answers in order.

A connection has two halves. This one runs on the broker loop. The channel (channel.py) runs on its
processor's loop, which is the broker loop too when there is one processor.

One half at a time has the frame reader, and only that one may touch it. The channel receives, then
lends the reader (`Channel._lend_reader`, `Connection.serve`); this half handles complete frames one
after another and returns it with the answers collected (`Connection._deliver`,
`Channel.take_answers`):

| the request half stops because            | reader is with | what happens next                   |
|-------------------------------------------|----------------|-------------------------------------|
| no complete frame is left                 | channel        | receive                             |
| a request is not answered yet (muted)     | request half   | its answer returns the reader       |
| a frame may not pass one that is in hand  | request half   | the last answer owed returns it     |
| REQUESTS_AT_ONCE, or enough answer bytes  | channel        | send, then lend the reader again    |
| the connection was muted (a quota)        | channel        | lend the reader when that is over   |
| the connection is to close                | channel        | send what is queued, then close     |

An answer that comes later is sent at once, but further frames are handled from the loop and not
from inside that call: handlers that complete each other's requests would nest without end.

So one request is in hand at a time and nothing is received until it is answered, as in Kafka. There
is one exception: a request that only waits to be answered, its place in the order being certain (a
Produce, for the log or for other replicas), may let others of its api key pass. They are handled,
up to OWED_MAX of them, and their answers kept: answers leave in the order of the requests, those
that became ready in one turn of the loop together. The first answer of a `serve` leaves at once if
more frames wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from tidelog.network.channel import (
    Channel,
    CloseReason,
    FileSend,
    FileSlice,
    Outgoing,
    Part,
    SendTime,
)
from tidelog.network.framing import LENGTH_BYTES, InvalidFrame
from tidelog.network.settings import KIB
from tidelog.supervisor import tell_each

if TYPE_CHECKING:
    from tidelog.network.processor import Processor
    from tidelog.network.session import Principal, Session
    from tidelog.sasl.server_authenticator import SaslServerAuthenticator

logger = logging.getLogger(__name__)

REQUESTS_AT_ONCE: Final = 128
ANSWER_BYTES_AT_ONCE: Final = 64 * KIB  # then answers are sent before more is handled
OWED_MAX: Final = 128  # requests in hand that let others pass
API_KEY_BYTES: Final = 2  # a frame begins with the api key of its request

_MEMORY_TYPES: Final = frozenset((bytes, bytearray, memoryview))
_pack_length: Final = Struct(">i").pack
_NO_FRAME: Final = memoryview(b"")


class Outcome(NamedTuple):
    """An answer as it is sent, its length in front; or nothing, or the end of the connection."""

    parts: list[Outgoing]
    size_bytes: int
    file_bytes: int
    closes: bool = False
    send_time: SendTime | None = None


NOTHING: Final = Outcome([], 0, 0)
CLOSE: Final = Outcome([], 0, 0, closes=True)


class IncomingRequest:
    """Must be answered exactly once, inside `handle` or later on the broker loop, by `respond`,
    `respond_nothing` or `close`. Answers after the connection has closed go nowhere.
    """

    __slots__ = ("connection", "frame", "outcome", "passed_by", "received_at")

    def __init__(self, connection: Connection, frame: memoryview, received_at: float) -> None:
        self.connection = connection
        self.frame = frame  # writable, without its length; emptied when `handle` returns
        self.received_at = received_at  # clock.monotonic()
        self.outcome: Outcome | None = None  # kept while an earlier request is not answered
        self.passed_by: bytes | None = None  # the api key of requests that need not wait for it

    def let_others_pass(self) -> None:
        """Called inside `handle`: its place in the order is certain and its answer comes later, so
        further requests of this connection with the same api key may be handled before that.
        """
        self.passed_by = bytes(self.frame[:API_KEY_BYTES])

    def respond(self, parts: Sequence[Part], send_time: SendTime | None = None) -> None:
        """The parts in turn are the answer; its frame length is put before them."""
        self.connection.answer(self, parts, send_time)

    def respond_nothing(self) -> None:
        """For requests without an answer (Produce with acks=0): the next one may come."""
        self.connection.answer_nothing(self)

    def close(self, reason: str) -> None:
        """Closes the connection once earlier answers are sent: the request cannot be answered."""
        self.connection.answer_by_closing(self, reason)

    def refuse_client(self, parts: Sequence[Part]) -> None:
        """Closes the connection after this answer, if there are parts of one: the client has
        failed to authenticate.
        """
        self.connection.answer_and_close(self, parts, CloseReason.AUTHENTICATION_FAILED)


class RequestHandler(Protocol):
    def handle(self, request: IncomingRequest) -> None:
        """Called on the broker loop. An exception closes the connection."""

    def half_closed(self, connection: Connection) -> None:
        """Called on the broker loop: the peer has ended its stream while requests of it wait.

        It may have gone, or wait for its answers: those that can be had early should come now.
        """


class Connection:
    """Made by the processor for a client that was accepted. Its end is told on the broker loop."""

    def __init__(self, channel: Channel, processor: Processor, session: Session) -> None:
        self.id = channel.id
        self.session = session
        self.half_closed = False  # the peer has ended its stream while a request of it waited
        self.channel = channel
        channel.connection = self
        self._processor = processor
        self._handle = processor.handler.handle
        self._close_callbacks: list[Callable[[Connection], object]] = []

        self._has_reader = False  # this half may touch the reader, and returns it
        self._request: IncomingRequest | None = None  # in hand, and nothing passes it
        self._owed: deque[IncomingRequest] = deque()  # handled, not answered; or behind such
        self._is_blocked = False  # the next frame waits until nothing is owed
        self._is_muted = False  # no frame is handled until the channel lends the reader again
        self._delivers_soon = False
        self._serving = False  # inside `serve`, which will notice an answer by itself
        self._answers: list[Outgoing] = []  # not handed over yet, each after its length
        self._answer_bytes = 0
        self._answer_file_bytes = 0
        self._timed: list[SendTime] | None = None  # of answers collected
        self._close_after_answers: CloseReason | None = None

    def __repr__(self) -> str:
        return f"<Connection {self.id}>"

    @property
    def open(self) -> bool:
        return self.channel.open

    def must_authenticate(self, authenticator: SaslServerAuthenticator) -> None:
        """Called before the first byte is received."""
        self.session.authenticator = authenticator
        self.channel.reader.size_max = authenticator.max_receive_size

    def authenticated(self, principal: Principal) -> None:
        """Called inside `handle`: this half has the reader."""
        self.session.principal = principal
        self.channel.reader.size_max = self._processor.settings.request_max_bytes

    def log_closing(self, why: str) -> None:
        self._processor.log_closing(self.id, why)

    def mute(self, seconds: float) -> None:
        """No further request is read for this long, but for those in hand (KIP-219)."""
        self._is_muted = True
        self._processor.call(partial(self.channel.mute, seconds))

    def add_close_callback(self, callback: Callable[[Connection], object]) -> None:
        """Called once on the broker loop when the connection has closed."""
        self._close_callbacks.append(callback)

    def answer(
        self,
        request: IncomingRequest,
        parts: Sequence[Part],
        send_time: SendTime | None = None,
    ) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
            return
        answer: list[Outgoing] = [b""]
        size = file_bytes = 0
        for part in parts:
            part_bytes = len(part)
            size += part_bytes
            if part.__class__ in _MEMORY_TYPES:
                answer.append(part)
            elif part_bytes:
                answer.append(FileSend(cast("FileSlice", part)))
                file_bytes += part_bytes
        answer[0] = _pack_length(size)
        # Nothing has changed up to here, so parts that cannot be sent leave no half answer.
        size += LENGTH_BYTES
        owed = self._owed
        if owed and owed[0] is not request:
            self._answer_in_order(request, Outcome(answer, size, file_bytes, False, send_time))
            return
        if self._request is request:
            self._request = None
        self._answers += answer
        self._answer_bytes += size
        self._answer_file_bytes += file_bytes
        if send_time is not None:
            self._time(send_time)
        if owed:
            owed.popleft()
            self._release()

    def _time(self, send_time: SendTime) -> None:
        """Of the last answer collected."""
        send_time.bytes_left = self._answer_bytes
        if self._timed is None:
            self._timed = []
        self._timed.append(send_time)

    def answer_nothing(self, request: IncomingRequest) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
        elif self._owed:
            self._answer_in_order(request, NOTHING)
        else:
            self._request = None

    def answer_by_closing(self, request: IncomingRequest, reason: str) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
            return
        self._processor.log_closing(self.id, reason)
        self._close_after_answers = CloseReason.BAD_REQUEST
        if self._owed:
            self._answer_in_order(request, CLOSE)
        else:
            self._request = None

    def answer_and_close(
        self, request: IncomingRequest, parts: Sequence[Part], reason: CloseReason
    ) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
            return
        self._close_after_answers = reason
        if parts:
            self.answer(request, parts)
        elif self._owed:
            self._answer_in_order(request, CLOSE)
        else:
            self._request = None

    def _answer_in_order(self, request: IncomingRequest, outcome: Outcome) -> None:
        """Others may have to be answered before it."""
        owed = self._owed
        if self._request is request:
            self._request = None
            if owed[-1] is not request:
                owed.append(request)
        request.outcome = outcome
        if owed[0] is request:
            self._release()

    def _release(self) -> None:
        """Collect the answers that are ready, up to the first that is still owed."""
        owed = self._owed
        while owed and (outcome := owed[0].outcome) is not None:
            owed.popleft()
            self._answers += outcome.parts
            self._answer_bytes += outcome.size_bytes
            self._answer_file_bytes += outcome.file_bytes
            if outcome.send_time is not None:
                self._time(outcome.send_time)
            if outcome.closes:
                owed.clear()
        if self._serving:
            return
        if owed:
            self._deliver_soon()
        else:
            self._deliver()

    def _deliver_soon(self) -> None:
        """Answers that wait for the same often become ready one right after the other."""
        if not self._delivers_soon:
            self._delivers_soon = True
            self._processor.loop.call_soon(self._deliver_what_is_left)

    def _deliver_what_is_left(self) -> None:
        if self._delivers_soon:  # the last one owed may have taken all with it
            self._deliver()

    def _refuse_answer(self) -> None:
        assert not self.open, f"a request of {self.id} was answered twice"

    def serve(self) -> None:
        """The channel has lent the reader. A handler may close this very connection."""
        channel = self.channel
        reader = channel.reader
        handle = self._handle
        received_at = channel.received_at
        owed = self._owed
        count = 0
        self._serving = self._has_reader = True
        self._is_blocked = self._is_muted = False
        try:
            while self._close_after_answers is None:
                if owed and not self._may_pass():
                    self._is_blocked = True
                    break
                frame = reader.next_frame()
                if frame is None:
                    break
                count += 1
                self._request = request = IncomingRequest(self, frame, received_at)
                handle(request)
                if self._is_in_hand(request):
                    request.frame = _NO_FRAME
                    owed.append(request)
                    if request.passed_by is None:
                        break
                    self._request = None
                if self._is_muted:
                    break
                if count >= REQUESTS_AT_ONCE or self._answer_bytes > ANSWER_BYTES_AT_ONCE:
                    break
                if count == 1 and reader.has_frame():
                    self._send_first()
        except InvalidFrame as error:
            self._processor.log_closing(self.id, str(error))
            self._close_after_answers = CloseReason.INVALID_FRAME
        except Exception:
            logger.exception("closing %s: its request could not be handled", self.id)
            self._request = None
            self._close_after_answers = CloseReason.HANDLER_ERROR
        self._serving = False
        self._processor.request_counters.requests += count
        self._deliver()

    def _is_in_hand(self, request: IncomingRequest) -> bool:
        return self._request is request

    def _may_pass(self) -> bool:
        """Whether the next frame need not wait for what is owed."""
        passed_by = self._owed[0].passed_by
        return (
            passed_by is not None
            and len(self._owed) < OWED_MAX
            and self.channel.reader.next_starts_with(passed_by)
        )

    def _send_first(self) -> None:
        """More frames wait: send the first answer now, and the peer works while we do.

        If all answers left together, a client with a few requests in flight and the broker would
        sleep in turn, and each wake-up of an idle processor costs more than a small request.
        """
        if self._answer_file_bytes:
            return
        if self.channel.send_ahead(self._answers, self._answer_bytes, self._timed):
            self._answers, self._answer_bytes, self._timed = [], 0, None

    def _deliver(self) -> None:
        """Hands the answers to the channel, and the reader if it is here and may go."""
        # The list itself is handed over; this half must not keep it, empty or not.
        answers, self._answers = self._answers, []
        answer_bytes = self._answer_bytes
        file_bytes = self._answer_file_bytes
        self._answer_bytes = self._answer_file_bytes = 0
        timed, self._timed = self._timed, None
        self._delivers_soon = False
        owes = bool(self._owed)
        waits = self._request is not None or (self._is_blocked and owes)
        returns_reader = self._has_reader and not waits
        if returns_reader:
            self._has_reader = False
        close_reason = None if owes else self._close_after_answers
        self._hand_over(
            answers, answer_bytes, file_bytes, returns_reader, owes, close_reason, timed
        )

    def _hand_over(
        self,
        answers: list[Outgoing],
        answer_bytes: int,
        file_bytes: int,
        reader_returns: bool,
        owes: bool,
        close_reason: CloseReason | None,
        timed: list[SendTime] | None,
    ) -> None:
        channel = self.channel
        if channel.open:
            channel.reader.leave_shared_buffer()  # others receive while this one waits
        channel.take_answers(
            answers, answer_bytes, file_bytes, reader_returns, owes, close_reason, timed
        )

    # What the channel and the socket server say.

    def stop_serving(self, reason: CloseReason) -> None:
        """No further frame is handled; may be called at any time, also from a handler."""
        self._close_after_answers = reason

    def run_close_callbacks(self) -> None:
        """From the socket server, on the broker loop, once the connection has closed."""
        self._owed.clear()
        if self._has_reader and not self._serving:
            self._request = None
            self._deliver()  # returns the reader, so that it lets its memory go
        callbacks, self._close_callbacks = self._close_callbacks, []
        tell_each(f"telling that {self.id} has closed", callbacks, self)
