"""The socket half of a connection: receives, queues and sends, mutes and unmutes, closes.

A channel belongs to one processor and is touched on its loop only. It receives into its frame
reader, lends the reader to the request half (connection.py explains how) and gets it back, with
answers, by `take_answers`.

Muting is lazy: the socket stays watched, and is unwatched only when it turns readable while it
may not be read. The processor's sweep finds out whether a peer has gone meanwhile. A peer that only
ends its stream gets its answers.

Answers that are ready together leave in one write. A file part leaves by the transport's
`send_file`, its header held back so that both share a segment; if all that is to be sent is small,
file parts are read and leave with the rest in one write. Sending is tried at once; only when the
socket is full is it watched for room. While unsent answers exceed `connection_bytes_in_flight_max`
the reader is not lent: a client that reads slowly is not read.

A client over a quota is not read for a time (`mute`), while its answers go on leaving.

Some answers are timed (`SendTime`): from the handler's answer until the transport has taken their
last byte. With TLS that byte may still wait in the transport.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from tidelog.network.framing import FrameReader
from tidelog.network.session import Principal
from tidelog.network.settings import KIB, MIB
from tidelog.tls.handshake import HandshakeFailed
from tidelog.transport import Memory, Want

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from tidelog.network.connection import Connection
    from tidelog.network.processor import Processor
    from tidelog.transport import Transport

logger = logging.getLogger(__name__)

SEND_BYTES_PER_TURN: Final = 4 * MIB  # then other connections have theirs
JOIN_BYTES_MAX: Final = 64 * KIB  # up to this, copying the parts together beats a call for each
LONE_FILE_BYTES_MAX: Final = 8 * KIB  # likewise where only one of the parts lies in a file
VECTOR_PARTS_MAX: Final = 1024  # IOV_MAX


class CloseReason(StrEnum):
    PEER_CLOSED = "peer closed"
    PEER_RESET = "peer reset"
    INVALID_FRAME = "invalid frame length"
    BAD_REQUEST = "bad request"
    AUTHENTICATION_FAILED = "authentication failed"
    HANDLER_ERROR = "handler error"
    INTERNAL_ERROR = "internal error"
    FILE_TRUNCATED = "file truncated"
    IDLE = "idle"
    MEMORY_STALL = "stalled while memory is short"
    OUT_OF_MEMORY = "out of memory"
    TOO_MANY_PER_IP = "too many connections of one address"
    TOO_FAST_PER_IP = "connections of one address come too fast"
    TOO_MANY = "too many connections"
    SHUTDOWN = "shutdown"
    HANDSHAKE_TIMEOUT = "TLS handshake took too long"
    # What a HandshakeProblem says.
    NOT_TLS = "peer does not speak TLS"
    NO_COMMON_VERSION = "no TLS version in common"
    NO_COMMON_CIPHER = "no cipher in common"
    CERTIFICATE_REFUSED = "certificate of the peer refused"
    CERTIFICATE_MISSING = "peer has no certificate"
    REFUSED_BY_PEER = "TLS refused by the peer"
    TLS_FAILED = "TLS failed"


class FileSlice(Protocol):
    """Part of a file that is sent without being read, such as record.file_records.FileRecords."""

    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def fileno(self) -> int: ...
    def __len__(self) -> int: ...


Part: TypeAlias = "Memory | FileSlice"


class FileSend:
    """What is left of a file part; holds the part, and so its file open, until it is sent."""

    __slots__ = ("part", "position", "remaining")

    def __init__(self, part: FileSlice) -> None:
        self.part = part
        self.position = part.position
        self.remaining = part.length


Outgoing: TypeAlias = "Memory | FileSend"


class SendTime:
    """Of one answer. `tell` is called on the broker loop, unless the channel closes before."""

    __slots__ = ("bytes_left", "handed_at", "tell")

    def __init__(self, tell: Callable[[float], None], handed_at: float) -> None:
        self.tell = tell
        self.handed_at = handed_at  # clock.monotonic()
        self.bytes_left = 0  # until its last byte has left, those before it included


class FileTruncated(Exception):
    """A file part is shorter than it was when the answer was made."""


class Channel:
    """Made by the processor that owns it until it closes, and then given to its connection."""

    __deletable__ = ("connection",)  # compiled classes must say so
    connection: Connection  # set by it, until the channel is closed

    def __init__(self, transport: Transport, processor: Processor, channel_id: str) -> None:
        self.id = channel_id
        self.open = True
        self.reader = FrameReader(processor.buffers, processor.settings.request_max_bytes)
        self.received_at = 0.0
        self.held_bytes = 0  # as the memory pool knows it
        self.last_active = processor.clock.monotonic()

        self._processor = processor
        self._transport = transport
        self._fd = transport.fileno()
        self._recv_into = transport.recv_into
        self._send = transport.send
        self._is_shaking_hands = False
        self._has_reader = True  # this half may touch the reader and lend it
        self._owes = False  # an answer will come, whoever has the reader
        self._frames_wait = False  # _lend_reader_again will be called; nothing is received before
        self._reader_watched = False
        self._writer_watched = False
        self._out: list[Outgoing] = []
        self._out_bytes = 0
        self._out_file_bytes = 0  # part of _out_bytes that is not memory
        self._timed: list[SendTime] = []  # of answers in _out, in their order
        self._out_bytes_max = processor.settings.connection_bytes_in_flight_max
        self._parked = False  # the memory pool does not let it read
        self._muted: TimerHandle | None = None  # until then nothing is received or lent
        self._closing: CloseReason | None = None  # close when all is sent

    def __repr__(self) -> str:
        return f"<Channel {self.id}>"

    def start(self) -> None:
        if self.open:
            self._shake_hands()

    def take_handshake_turn(self) -> None:
        try:
            self._shake_hands()
        except Exception:
            logger.exception("closing %s: unexpected error", self.id)
            self.close(CloseReason.INTERNAL_ERROR)

    def _shake_hands(self) -> None:
        """One step. Requests come once the transport is through with its handshake."""
        try:
            want = self._transport.handshake()
            name = self._transport.peer_name() if want is Want.NOTHING else None
        except OSError as error:
            self._close_on_error(error)
            return
        if want is Want.NOTHING:
            if self._is_shaking_hands:
                self._is_shaking_hands = False
                self._processor.handshakes.leave(self)
            if name is not None:
                self.connection.session.principal = Principal("User", name)
            self._go_on()
            return
        if not self._is_shaking_hands:
            self._is_shaking_hands = True
            self._processor.handshakes.join(self)
        if want is Want.READ:
            self._reader_watched = True
            self._processor.loop.add_reader(self._fd, self._on_handshake_ready)
        else:
            self._writer_watched = True
            self._processor.loop.add_writer(self._fd, self._on_handshake_ready)

    def _on_handshake_ready(self) -> None:
        self._unwatch_reader()
        self._unwatch_writer()
        self._processor.handshakes.has_turn(self)

    def _on_readable(self) -> None:
        try:
            self._receive()
        except Exception:
            logger.exception("closing %s: unexpected error", self.id)
            self.close(CloseReason.INTERNAL_ERROR)

    def _receive(self) -> None:
        if (
            not self._has_reader
            or self._frames_wait
            or self._muted is not None
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
        reader = self.reader
        try:
            space = reader.space()
            count = self._recv_into(space if most is None else space[:most])
        except (BlockingIOError, InterruptedError):
            reader.leave_shared_buffer()
            if self._transport.unsent:
                self._watch_writer()
            return
        except OSError as error:
            self._close_on_error(error)
            return
        if not count:
            reader.leave_shared_buffer()
            self._close_when_sent(CloseReason.PEER_CLOSED)
            return
        reader.received(count)
        processor.counters.bytes_in += count
        self.last_active = self.received_at = now
        self._lend_reader()

    def _lend_reader(self) -> None:
        self._has_reader = False
        self.connection.serve()

    def send_ahead(
        self, answers: list[Outgoing], answer_bytes: int, timed: list[SendTime] | None
    ) -> bool:
        """From the request half while it has the reader: sends answers from memory first.

        False: earlier ones have not left yet, and these have to wait behind them.
        """
        if self._out:
            return False
        if timed is not None:
            self._time(timed)
        self._out, self._out_bytes = answers, answer_bytes
        if answers:
            self._send_queued()
        return True

    def take_answers(
        self,
        answers: list[Outgoing],
        answer_bytes: int,
        file_bytes: int,
        reader_returns: bool,
        owes: bool,
        close_reason: CloseReason | None,
        timed: list[SendTime] | None,
    ) -> None:
        """From the request half: answers to send and, if `reader_returns`, the reader."""
        self._owes = owes
        if reader_returns:
            self._has_reader = True
        if not self.open:
            if self._has_reader:
                self.reader.clear()
            return
        if self._has_reader:
            self.reader.leave_shared_buffer()
        if close_reason is not None:
            self._closing = close_reason
        if answers:
            if timed is not None:
                self._time(timed)
            self._out += answers
            self._out_bytes += answer_bytes
            self._out_file_bytes += file_bytes
            if not self._writer_watched:
                self._send_queued()
        self._go_on()

    def _time(self, timed: list[SendTime]) -> None:
        """Their answers are queued next; they know their places among these answers."""
        for each in timed:
            each.bytes_left += self._out_bytes
        self._timed += timed

    def _go_on(self) -> None:
        """After any change: close if it is time, account, and see to it that reading goes on."""
        if not self.open:
            return
        if self._transport.unsent:
            self._watch_writer()
        elif self._closing is not None and self._has_reader and not self._owes and not self._out:
            self.close(self._closing)
            return
        self._account()
        if self._muted is not None:
            return
        if self._has_reader and self._closing is None and self._out_bytes <= self._out_bytes_max:
            if self.reader.end and self.reader.has_frame():
                if not self._frames_wait:
                    self._frames_wait = True
                    self._processor.loop.call_soon(self._lend_reader_again)
                return
            if not self._reader_watched:
                self._watch_reader()
            if self._transport.buffered:
                self._processor.loop.call_soon(self._receive_buffered)

    def _account(self) -> None:
        held_bytes = self.reader.held_bytes + self._out_bytes - self._out_file_bytes
        if held_bytes != self.held_bytes:
            self._processor.pool.hold(self, held_bytes, self._processor.clock.monotonic())

    def _lend_reader_again(self) -> None:
        self._frames_wait = False
        if self.open and self._has_reader and self._closing is None and self._muted is None:
            self._lend_reader()

    def _receive_buffered(self) -> None:
        if self.open:
            self._on_readable()

    def _on_writable(self) -> None:
        try:
            self._send_queued()
            self._go_on()
        except Exception:
            logger.exception("closing %s: unexpected error", self.id)
            self.close(CloseReason.INTERNAL_ERROR)

    def _send_queued(self) -> None:
        """Sends until all is gone or the socket is full, and then watches it for room."""
        transport = self._transport
        try:
            if transport.unsent:
                transport.flush()
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
        if self._out or transport.unsent:
            self._watch_writer()
        elif self._writer_watched:
            self._unwatch_writer()

    def _is_worth_joining(self) -> bool:
        """A file part takes a call of its own, and mostly one more for what follows it. Reading it
        costs less than those two as long as the copy is small.
        """
        if self._out_file_bytes <= LONE_FILE_BYTES_MAX:
            return True
        return sum(1 for part in self._out if part.__class__ is FileSend) > 1

    def _send_joined(self) -> None:
        if self._out_file_bytes:
            self._out = [
                _must_read(part) if isinstance(part, FileSend) else part for part in self._out
            ]
            self._out_file_bytes = 0
        data = b"".join(cast("list[bytes]", self._out))
        if not data:
            return  # the transport alone had something to send
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
        transport = self._transport
        sent = transport.send_file(head.part.fileno(), head.position, head.remaining)
        if not sent:
            raise FileTruncated
        if transport.sends_files:
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
        vector: list[Memory] = []
        more = False
        for part in self._out:
            if isinstance(part, FileSend):
                more = True
                break
            if len(vector) == VECTOR_PARTS_MAX:
                break
            vector.append(part)
        sent = self._transport.send_parts(vector, more=more)
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
        if self._timed:
            self._tell_send_times(sent)

    def _tell_send_times(self, sent: int) -> None:
        waiting: list[SendTime] = []
        now = self._processor.clock.monotonic()
        for each in self._timed:
            each.bytes_left -= sent
            if each.bytes_left > 0:
                waiting.append(each)
            else:
                self._processor.call_broker(partial(each.tell, now - each.handed_at))
        self._timed = waiting

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

    def mute(self, seconds: float) -> None:
        """Nothing is received for this long, nor is a frame lent that is here already. A mute that
        lasts longer stays.
        """
        if not self.open:
            return
        loop = self._processor.loop
        until = loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.last_active = self._processor.clock.monotonic()
        self._go_on()

    # What the processor and the memory pool ask.

    def wake(self) -> None:
        self._parked = False
        self.last_active = self._processor.clock.monotonic()
        self._go_on()

    def waits_for_peer(self) -> bool:
        return bool(self._out) or (
            self._has_reader
            and not self._owes
            and not self._frames_wait
            and not self._parked
            and self._muted is None
        )

    def evict(self) -> None:
        self._processor.log_closing(
            self.id, "it holds memory and does not move while memory is short"
        )
        self.close(CloseReason.MEMORY_STALL)

    def fileno(self) -> int:
        return self._fd

    def is_unread(self) -> bool:
        """It may not be received from, so only the sweep can see that the peer ends its stream."""
        return not self._has_reader or self._parked or self._muted is not None

    def is_beyond_completion(self) -> bool:
        """Of a connection whose peer has ended its stream: no request is left to be answered.

        A parked one holds a part of a frame. The rest may lie in the socket, or nowhere. A muted
        one may hold whole frames.
        """
        return (
            self._has_reader
            and (self._parked or (self._muted is not None and not self.reader.has_frame()))
            and not self._owes
            and not self._transport.has_arrived()
        )

    def is_idle(self, since: float) -> bool:
        """No byte has moved since then, and none was due from the broker."""
        return self.last_active < since and self.waits_for_peer()

    def drain(self) -> None:
        """Takes no further request; closes when what is in hand is answered and sent."""
        if not self.open:
            return
        self.connection.stop_serving(CloseReason.SHUTDOWN)
        self._close_when_sent(CloseReason.SHUTDOWN)

    def _close_when_sent(self, reason: CloseReason) -> None:
        if self._closing is None:
            self._closing = reason
        self._unwatch_reader()
        self._go_on()

    def _close_on_error(self, error: OSError) -> None:
        if error.errno == errno.ENOMEM:
            self._processor.log_closing(self.id, f"no memory for its bytes: {error}")
            self.close(CloseReason.OUT_OF_MEMORY)
        elif isinstance(error, HandshakeFailed):
            session = self.connection.session
            self._processor.log_refused(session.listener_name, session.client_host, str(error))
            self.close(CloseReason(error.problem.value))
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
        self.connection.stop_serving(reason)
        self._unwatch_reader()
        self._unwatch_writer()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        if self._is_shaking_hands:
            self._processor.handshakes.leave(self)
        self._transport.close()
        if self._has_reader:
            self.reader.clear()
        self._out.clear()
        self._out_bytes = self._out_file_bytes = 0
        self._timed.clear()
        self._processor.pool.leave(self, self._processor.clock.monotonic())
        self._processor.forget(self, reason)
        del self.connection  # else both halves stay until the garbage collector finds the cycle


def _must_read(part: FileSend) -> bytes:
    data = os.pread(part.part.fileno(), part.remaining, part.position)
    if len(data) < part.remaining:
        raise FileTruncated
    return data
