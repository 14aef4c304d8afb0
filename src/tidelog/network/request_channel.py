"""What stands between the broker loop and processors that run on threads of their own.

    processor thread                            broker loop
    receive, frame  --RequestChannel.offer-->   handle
                    (at most queued.max.requests readers wait)
    queue, send     <--Mailbox.post----------   answers, reader

`Mailbox` carries calls to another loop, and wakes that loop once for all calls that are waiting.
`RequestChannel` is the bounded way to the broker loop: a connection that finds it full waits on
its processor, unread, until the broker loop has caught up; the processor goes on sending
meanwhile, so the two cannot wait for each other. `QueuedChannel` and `QueuedConnection` are the two
halves of a connection on two threads; what goes between them is the reader (see connection.py), not
single requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from tidelog.network.channel import Channel, CloseReason, Outgoing, SendTime
from tidelog.network.connection import Connection

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tidelog.network.processor import ProcessorThread
    from tidelog.network.session import Session
    from tidelog.transport import Transport


class Mailbox:
    """Calls for one loop, posted from other threads and made in order."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._awake = False  # the loop will look; may be set twice, never missed
        self._closed = False

    def post(self, call: Callable[[], object]) -> None:
        if self._closed:
            return
        self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self.run)

    def run(self) -> None:
        # Cleared before looking: a call appended after len() was taken wakes the loop again.
        self._awake = False
        try:
            for _ in range(len(self._calls)):
                self._calls.popleft()()
        finally:
            if self._calls:  # one has raised, or others have come meanwhile
                self._wake()

    def close(self) -> None:
        """The loop has ended: what is posted from now on goes nowhere."""
        self._closed = True


class RequestChannel:
    """Connections that wait to be served on the broker loop."""

    def __init__(self, mailbox: Mailbox, queued_max_requests: int) -> None:
        self._mailbox = mailbox
        self._queued_max = queued_max_requests
        self._lock = Lock()  # guards the two below
        self._queued = 0
        self._refused: list[Callable[[], object]] = []

    def offer(self, serve: Callable[[], object], retry: Callable[[], object]) -> bool:
        """False if the channel is full; `retry` is then called, once, on the broker loop."""
        with self._lock:
            if self._queued >= self._queued_max:
                self._refused.append(retry)
                return False
            self._queued += 1
        self._mailbox.post(partial(self._serve, serve))
        return True

    def post(self, call: Callable[[], object]) -> None:
        """Does it on the broker loop, however many wait to be served."""
        self._mailbox.post(call)

    def _serve(self, serve: Callable[[], object]) -> None:
        try:
            serve()
        finally:
            self._give_place_back()

    def _give_place_back(self) -> None:
        with self._lock:
            self._queued -= 1
            if not self._refused:
                return
            refused, self._refused = self._refused, []
        for retry in refused:
            retry()


class QueuedChannel(Channel):
    """The socket half, on its processor's thread; lends its reader through the request channel."""

    def __init__(self, transport: Transport, processor: ProcessorThread, channel_id: str) -> None:
        super().__init__(transport, processor, channel_id)
        self._request_channel = processor.channel
        self._mailbox = processor.mailbox

    def _lend_reader(self) -> None:
        self.reader.leave_shared_buffer()
        if not self.reader.has_frame():
            self._go_on()
            return
        self._account()
        self._has_reader = False
        retry = partial(self._mailbox.post, self._lend_reader_again)
        if not self._request_channel.offer(self.connection.serve, retry):
            self._has_reader = True
            self._frames_wait = True


class QueuedConnection(Connection):
    """The request half on the broker loop; what it hands over is posted to the other thread."""

    def __init__(
        self, channel: QueuedChannel, processor: ProcessorThread, session: Session
    ) -> None:
        super().__init__(channel, processor, session)
        self._mailbox = processor.mailbox

    def serve(self) -> None:
        """The reader has come, perhaps after the end."""
        if self.open:
            super().serve()
        else:
            self._has_reader = True
            self._deliver()

    def _send_first(self) -> None:
        """The socket belongs to another thread: answers go there together."""

    def _deliver_soon(self) -> None:
        """The mailbox wakes the other thread once for what is posted in a row."""
        self._deliver()

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
        self._mailbox.post(
            partial(
                self.channel.take_answers,
                answers,
                answer_bytes,
                file_bytes,
                reader_returns,
                owes,
                close_reason,
                timed,
            )
        )
