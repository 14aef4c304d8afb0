"""One client connection: frames in, answers out, in order.

A connection has two halves, which run on one thread when the broker loop is its processor:

- the socket half, on the processor's loop: receives, queues and sends, mutes and unmutes, closes;
- the request half, on the broker loop: takes frames, calls the handler, collects answers.

The *turn* says which half may touch the frame reader. The socket half receives, then passes the
turn (`_pass_turn`); the request half handles complete frames one after another and gives the turn
back with the answers collected (`_deliver`):

| the request half stops because            | turn is then | what happens next                   |
|-------------------------------------------|--------------|-------------------------------------|
| no complete frame is left                 | socket half  | receive                             |
| a request is not answered yet (muted)     | request half | its answer brings the turn back     |
| a frame may not pass one that is in hand  | request half | the last answer owed brings it back |
| REQUESTS_PER_TURN, or enough answer bytes | socket half  | send, then the turn is passed again |
| the connection is to close                | socket half  | send what is queued, then close     |

An answer that comes later is sent at once, but further frames are handled from the loop and not
from inside that call: handlers that complete each other's requests would nest without end.

So one request is in hand at a time and nothing is received until it is answered, as in Kafka. There
is one exception: a request that has had its effect and only waits to be answered (a Produce, for
other replicas) may let others of its api key pass. They are handled, up to OWED_MAX of them, and
their answers kept: answers leave in the order of the requests, those that became ready in one turn
of the loop together.

Muting is lazy: the socket stays watched, and is unwatched only when it turns readable while it
may not be read. The processor's sweep finds out whether a peer has gone meanwhile. A peer that only
ends its stream gets its answers.

The first answer of a turn leaves at once if more frames wait, the others in one vectored write.
A file part leaves by sendfile, its header held back with MSG_MORE so that both share a segment;
if all that is to be sent is small, several file parts are read and leave with the rest in one
write.
Sending is tried at once; only when the socket is full is it watched for room. While unsent
answers exceed `connection_bytes_in_flight_max` the turn is not passed: a slow reader is not read.

Not here: TLS, SASL, quotas on bytes and requests.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, cast

from tidelog.network.counters import CloseReason
from tidelog.network.framing import LENGTH_BYTES, FrameReader, InvalidFrame
from tidelog.network.request import (
    CLOSE,
    NOTHING,
    FileSend,
    FileSlice,
    IncomingRequest,
    Outcome,
    Outgoing,
    Part,
)
from tidelog.network.settings import KIB, MIB
from tidelog.supervisor import tell_each

if TYPE_CHECKING:
    from tidelog.network.processor import Processor
    from tidelog.network.session import Session

logger = logging.getLogger(__name__)

REQUESTS_PER_TURN = 128
TURN_ANSWER_BYTES = 64 * KIB  # answers of a turn are sent when they reach this
SEND_BYTES_PER_TURN = 4 * MIB  # then other connections have theirs
JOIN_BYTES_MAX = 64 * KIB  # up to this, copying the parts together beats a call for each
VECTOR_PARTS_MAX = 1024  # IOV_MAX
OWED_MAX = 128  # requests in hand that let others pass

_MEMORY_TYPES = frozenset((bytes, bytearray, memoryview))
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_pack_length = Struct(">i").pack
_NO_FRAME = memoryview(b"")


class FileTruncated(Exception):
    """A file part is shorter than it was when the answer was made."""


class Connection:
    """Made by the acceptor, owned by one processor until it closes."""

    def __init__(
        self,
        sock: socket.socket,
        processor: Processor,
        connection_id: str,
        session: Session,
    ) -> None:
        self.id = connection_id
        self.session = session
        self.open = True
        self.half_closed = False  # the peer has ended its stream while a request of it waited
        self._close_callbacks: list[Callable[[Connection], object]] = []

        self._processor = processor
        self._handle = processor.handler.handle
        self._reader = FrameReader(processor.buffers, processor.settings.request_max_bytes)
        self._out_bytes_max = processor.settings.connection_bytes_in_flight_max

        # The request half.
        self._turn_here = False  # the request half may touch the reader and give the turn back
        self._request: IncomingRequest | None = None  # in hand, and nothing passes it
        self._owed: deque[IncomingRequest] = deque()  # handled, not answered; or behind such
        self._is_blocked = False  # the next frame waits until nothing is owed
        self._delivers_soon = False
        self._serving = False  # inside _serve, which will notice an answer by itself
        self._received_at = 0.0
        self._answers: list[Outgoing] = []  # of this turn, each after its length
        self._answer_bytes = 0
        self._answer_file_bytes = 0
        self._close_after_answers: CloseReason | None = None

        # The socket half.
        self._socket = sock
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._has_turn = True  # the socket half may touch the reader and pass the turn
        self._owes = False  # an answer will come, whoever has the turn
        self._frames_wait = False  # _pass_turn_again will be called; nothing is received before
        self._reader_watched = False
        self._writer_watched = False
        self._out: list[Outgoing] = []
        self._out_bytes = 0
        self._out_file_bytes = 0  # part of _out_bytes that is not memory
        self._parked = False  # the memory pool does not let it read
        self._closing: CloseReason | None = None  # close when all is sent
        self.held_bytes = 0  # as the memory pool knows it
        self.last_active = processor.clock.monotonic()

    def __repr__(self) -> str:
        return f"<Connection {self.id}>"

    def add_close_callback(self, callback: Callable[[Connection], object]) -> None:
        """Called once on the broker loop when the connection has closed."""
        self._close_callbacks.append(callback)

    # The request half.

    def answer(self, request: IncomingRequest, parts: Sequence[Part]) -> None:
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
        if self._owed:
            self._settle(request, Outcome(answer, size, file_bytes))
            return
        self._request = None
        self._answers += answer
        self._answer_bytes += size
        self._answer_file_bytes += file_bytes

    def answer_nothing(self, request: IncomingRequest) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
        elif self._owed:
            self._settle(request, NOTHING)
        else:
            self._request = None

    def answer_by_closing(self, request: IncomingRequest, reason: str) -> None:
        if self._request is not request and request not in self._owed:
            self._refuse_answer()
            return
        self._processor.log_closing(self, reason)
        self._close_after_answers = CloseReason.BAD_REQUEST
        if self._owed:
            self._settle(request, CLOSE)
        else:
            self._request = None

    def _settle(self, request: IncomingRequest, outcome: Outcome) -> None:
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
        """What is ready and has nothing owed before it may leave."""
        owed = self._owed
        while owed and (outcome := owed[0].outcome) is not None:
            owed.popleft()
            self._answers += outcome.parts
            self._answer_bytes += outcome.size_bytes
            self._answer_file_bytes += outcome.file_bytes
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
            self._processor.loop.call_soon(self._deliver)

    def _refuse_answer(self) -> None:
        assert not self.open, f"a request of {self.id} was answered twice"

    def _serve(self) -> None:
        """Handles frames while the turn lasts; a handler may close this very connection."""
        reader = self._reader
        handle = self._handle
        received_at = self._received_at
        owed = self._owed
        count = 0
        self._serving = self._turn_here = True
        self._is_blocked = False
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
                if self._request is not None:
                    request.frame = _NO_FRAME
                    owed.append(request)
                    if request.passed_by is None:
                        break
                    self._request = None
                if count >= REQUESTS_PER_TURN or self._answer_bytes > TURN_ANSWER_BYTES:
                    break
                if count == 1 and reader.has_frame():
                    self._send_first()
        except InvalidFrame as error:
            self._processor.log_closing(self, str(error))
            self._close_after_answers = CloseReason.INVALID_FRAME
        except Exception:
            logger.exception("closing %s: its request could not be handled", self.id)
            self._request = None
            self._close_after_answers = CloseReason.HANDLER_ERROR
        self._serving = False
        self._processor.request_counters.requests += count
        self._deliver()

    def _may_pass(self) -> bool:
        """Whether the next frame need not wait for what is owed."""
        passed_by = self._owed[0].passed_by
        return (
            passed_by is not None
            and len(self._owed) < OWED_MAX
            and self._reader.next_starts_with(passed_by)
        )

    def _send_first(self) -> None:
        """More frames wait: send the first answer now, and the peer works while we do.

        If all answers left together, a client with a few requests in flight and the broker would
        sleep in turn, and each wake-up of an idle processor costs more than a small request.
        """
        if self._out or self._answer_file_bytes:
            return
        self._out, self._answers = self._answers, []
        self._out_bytes, self._answer_bytes = self._answer_bytes, 0
        if self._out:
            self._send_queued()

    def _deliver(self) -> None:
        """Hands the answers, and the turn if it is here and may go, to the socket half."""
        if self.open:
            self._reader.settle()
        self._take_answers(*self._collect())

    def _collect(self) -> tuple[list[Outgoing], int, int, bool, bool, CloseReason | None]:
        # The list itself is handed over; the request half must not keep it, empty or not.
        answers, self._answers = self._answers, []
        answer_bytes = self._answer_bytes
        file_bytes = self._answer_file_bytes
        self._answer_bytes = self._answer_file_bytes = 0
        self._delivers_soon = False
        owes = bool(self._owed)
        waits = self._request is not None or (self._is_blocked and owes)
        gives_turn = self._turn_here and not waits
        if gives_turn:
            self._turn_here = False
        close_reason = None if owes else self._close_after_answers
        return answers, answer_bytes, file_bytes, gives_turn, owes, close_reason

    def run_close_callbacks(self) -> None:
        """From the socket server, on the broker loop, once the connection has closed."""
        self._owed.clear()
        if self._turn_here and not self._serving:
            self._request = None
            self._deliver()  # the turn, so that the reader lets its memory go
        callbacks, self._close_callbacks = self._close_callbacks, []
        tell_each(f"telling that {self.id} has closed", callbacks, self)

    # The socket half.

    def start(self) -> None:
        if self.open:
            self._watch_reader()

    def _on_readable(self) -> None:
        try:
            self._receive()
        except Exception:
            logger.exception("closing %s: unexpected error", self.id)
            self.close(CloseReason.INTERNAL_ERROR)

    def _receive(self) -> None:
        if (
            not self._has_turn
            or self._frames_wait
            or self._out_bytes > self._out_bytes_max
            or self._closing is not None
        ):
            self._unwatch_reader()
            return
        processor = self._processor
        now = processor.clock.monotonic()
        pool = processor.pool
        most: int | None = None
        if pool.used > pool.limit:
            most = pool.allowance(self, now)
            if most == 0:
                self._parked = True
                self._unwatch_reader()
                return
        reader = self._reader
        try:
            space = reader.space()
            count = self._recv_into(space if most is None else space[:most])
        except (BlockingIOError, InterruptedError):
            reader.settle()
            return
        except OSError as error:
            self._close_on_error(error)
            return
        if not count:
            reader.settle()
            self._close_when_sent(CloseReason.PEER_CLOSED)
            return
        reader.received(count)
        processor.counters.bytes_in += count
        self.last_active = self._received_at = now
        self._pass_turn()

    def _pass_turn(self) -> None:
        self._has_turn = False
        self._serve()

    def _take_answers(
        self,
        answers: list[Outgoing],
        answer_bytes: int,
        file_bytes: int,
        turn: bool,
        owes: bool,
        close_reason: CloseReason | None,
    ) -> None:
        """From the request half: answers to send and, if `turn`, the turn."""
        self._owes = owes
        if turn:
            self._has_turn = True
        if not self.open:
            if self._has_turn:
                self._reader.clear()
            return
        if self._has_turn:
            self._reader.settle()
        if close_reason is not None:
            self._closing = close_reason
        if answers:
            self._out += answers
            self._out_bytes += answer_bytes
            self._out_file_bytes += file_bytes
            if not self._writer_watched:
                self._send_queued()
        self._go_on()

    def _go_on(self) -> None:
        """After any change: close if it is time, account, and see to it that reading goes on."""
        if not self.open:
            return
        if self._closing is not None and self._has_turn and not self._owes and not self._out:
            self.close(self._closing)
            return
        self._account()
        if self._has_turn and self._closing is None and self._out_bytes <= self._out_bytes_max:
            if self._reader.end and self._reader.has_frame():
                if not self._frames_wait:
                    self._frames_wait = True
                    self._processor.loop.call_soon(self._pass_turn_again)
            elif not self._reader_watched:
                self._watch_reader()

    def _account(self) -> None:
        held_bytes = self._reader.held_bytes + self._out_bytes - self._out_file_bytes
        if held_bytes != self.held_bytes:
            self._processor.pool.hold(self, held_bytes, self._processor.clock.monotonic())

    def _pass_turn_again(self) -> None:
        self._frames_wait = False
        if self.open and self._has_turn and self._closing is None:
            self._pass_turn()

    def _on_writable(self) -> None:
        try:
            self._send_queued()
            self._go_on()
        except Exception:
            logger.exception("closing %s: unexpected error", self.id)
            self.close(CloseReason.INTERNAL_ERROR)

    def _send_queued(self) -> None:
        """Sends until all is gone or the socket is full, and then watches it for room."""
        try:
            if self._out_bytes <= JOIN_BYTES_MAX and self._is_worth_joining():
                self._send_joined()
            else:
                self._send_parts()
        except (BlockingIOError, InterruptedError):
            pass
        except FileTruncated:
            logger.error("closing %s: a file became shorter while it was being sent", self.id)
            self.close(CloseReason.FILE_TRUNCATED)
            return
        except OSError as error:
            self._close_on_error(error)
            return
        if self._out:
            self._watch_writer()
        elif self._writer_watched:
            self._unwatch_writer()

    def _is_worth_joining(self) -> bool:
        """One file part is two calls either way, and then the kernel need not copy it to us."""
        if not self._out_file_bytes:
            return True
        return sum(1 for part in self._out if part.__class__ is FileSend) > 1

    def _send_joined(self) -> None:
        if self._out_file_bytes:
            self._out = [
                _must_read(part) if isinstance(part, FileSend) else part for part in self._out
            ]
            self._out_file_bytes = 0
        data = b"".join(cast("list[bytes]", self._out))
        sent = self._send(data)
        self._note_sent(sent)
        if sent == len(data):
            self._out.clear()
        else:
            self._out = [memoryview(data)[sent:]]

    def _send_parts(self) -> None:
        budget = SEND_BYTES_PER_TURN
        while self._out and budget > 0:
            head = self._out[0]
            if isinstance(head, FileSend):
                budget -= self._send_file(head)
            else:
                budget -= self._send_vector()

    def _send_file(self, head: FileSend) -> int:
        sent = os.sendfile(self._fd, head.part.fileno(), head.position, head.remaining)
        if not sent:
            raise FileTruncated
        counters = self._processor.counters
        counters.sendfile_calls += 1
        counters.sendfile_bytes += sent
        self._out_file_bytes -= sent
        self._note_sent(sent)
        head.position += sent
        head.remaining -= sent
        if not head.remaining:
            del self._out[0]
        return sent

    def _send_vector(self) -> int:
        vector: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in self._out:
            if isinstance(part, FileSend):
                flags = _MSG_MORE
                break
            if len(vector) == VECTOR_PARTS_MAX:
                break
            vector.append(part)
        sent = self._socket.sendmsg(vector, (), flags)
        self._note_sent(sent)
        left = sent
        for index, part in enumerate(vector):
            if left < len(part):
                self._out[:index] = []
                self._out[0] = memoryview(part)[left:]
                return sent
            left -= len(part)
        self._out[: len(vector)] = []
        return sent

    def _note_sent(self, sent: int) -> None:
        self._out_bytes -= sent
        self._processor.counters.bytes_out += sent
        if self._writer_watched:
            self.last_active = self._processor.clock.monotonic()

    def _watch_reader(self) -> None:
        self._reader_watched = True
        self._processor.loop.add_reader(self._fd, self._on_readable)

    def _unwatch_reader(self) -> None:
        if self._reader_watched:
            self._reader_watched = False
            self._processor.loop.remove_reader(self._fd)

    def _watch_writer(self) -> None:
        if not self._writer_watched:
            self._writer_watched = True
            self._processor.loop.add_writer(self._fd, self._on_writable)

    def _unwatch_writer(self) -> None:
        if self._writer_watched:
            self._writer_watched = False
            self._processor.loop.remove_writer(self._fd)

    # What the processor and the memory pool ask.

    def wake(self) -> None:
        self._parked = False
        self.last_active = self._processor.clock.monotonic()
        self._go_on()

    def waits_for_peer(self) -> bool:
        return bool(self._out) or (
            self._has_turn and not self._owes and not self._frames_wait and not self._parked
        )

    def evict(self) -> None:
        self._processor.log_closing(self, "it holds memory and does not move while memory is short")
        self.close(CloseReason.MEMORY_STALL)

    def fileno(self) -> int:
        return self._fd

    def is_unread(self) -> bool:
        """It may not be received from, so only the sweep can see that the peer ends its stream."""
        return not self._has_turn or self._parked

    def is_beyond_completion(self) -> bool:
        """Of a connection whose peer has ended its stream: no request is left to be answered.

        A parked one holds a part of a frame. The rest may lie in the socket, or nowhere.
        """
        return self._parked and self._has_turn and not self._owes and not self._bytes_to_receive()

    def _bytes_to_receive(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def is_idle(self, since: float) -> bool:
        """No byte has moved since then, and none was due from the broker."""
        return self.last_active < since and self.waits_for_peer()

    def drain(self) -> None:
        """Takes no further request; closes when what is in hand is answered and sent."""
        self._close_after_answers = CloseReason.SHUTDOWN
        self._close_when_sent(CloseReason.SHUTDOWN)

    def _close_when_sent(self, reason: CloseReason) -> None:
        if self._closing is None:
            self._closing = reason
        self._unwatch_reader()
        self._go_on()

    def _close_on_error(self, error: OSError) -> None:
        if error.errno == errno.ENOMEM:
            self._processor.log_closing(self, f"no memory for its bytes: {error}")
            self.close(CloseReason.OUT_OF_MEMORY)
        else:
            self.close(CloseReason.PEER_RESET)

    def close_soon(self, reason: CloseReason) -> None:
        """From the broker loop: `close` on the processor's."""
        self._processor.call(partial(self.close, reason))

    def close(self, reason: CloseReason) -> None:
        """At once: queued answers are dropped."""
        if not self.open:
            return
        self.open = False
        self._close_after_answers = reason  # if inside _serve, no further frame is handled
        self._unwatch_reader()
        self._unwatch_writer()
        self._socket.close()
        if self._has_turn:
            self._reader.clear()
        self._out.clear()
        self._out_bytes = self._out_file_bytes = 0
        self._processor.pool.leave(self, self._processor.clock.monotonic())
        self._processor.forget(self, reason)


def _must_read(part: FileSend) -> bytes:
    data = os.pread(part.part.fileno(), part.remaining, part.position)
    if len(data) < part.remaining:
        raise FileTruncated
    return data
