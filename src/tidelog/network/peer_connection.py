"""An outgoing connection to another broker, on the broker loop.

Requests may be sent before earlier ones are answered; the peer answers in order. An answer is
decoded and handed over in the turn it arrived in: records in it are views of the receive buffer
and must be used, or copied, before `answered` returns.

A request that is not answered in time closes the connection, as in Kafka: what comes after it
could not be told apart. When the connection closes, everything that waits fails, each request once.

Where brokers authenticate to each other, `connect` does so. A session that has an end (KIP-368) is
renewed before it: the first request after that is due waits, with those behind it, until this side
has authenticated again.

Not here: finding and reconnecting peers (`peer_directory`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from tidelog.clock import Clock, Timer, TimerHandle
from tidelog.network.framing import AnswerBuffer, InvalidFrame
from tidelog.network.settings import MIB
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.protocol.primitives import skip_tags
from tidelog.protocol.registry import response_class
from tidelog.sasl.client_authenticator import (
    AuthenticationRefused,
    LoginUnavailable,
    SaslLogin,
    renewal_time,
)
from tidelog.supervisor import attempt, report
from tidelog.tls.handshake import HandshakeFailed
from tidelog.transport import PlainTransport, Transport, Want

logger = logging.getLogger(__name__)

ANSWER_BYTES_MAX: Final = 1024 * MIB
CORRELATION_ID_MAX: Final = 2**31 - 1
AUTHENTICATION_TIMEOUT_S: Final = 10.0  # for each message of it

_pack_length = Struct(">i").pack
_unpack_correlation_id = Struct(">i").unpack_from

Answered = Callable[[Any], object]
Failed = Callable[[OSError], object]  # ConnectionError, or TimeoutError
TransportTo = Callable[[str, socket.socket], Transport]  # of a host, and a socket connected to it


class _Waiting:
    """A request that has been sent."""

    __slots__ = ("answered", "api_key", "correlation_id", "deadline", "failed", "version")

    def __init__(
        self,
        correlation_id: int,
        api_key: int,
        version: int,
        deadline: float,
        answered: Answered,
        failed: Failed,
    ) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.version = version
        self.deadline = deadline
        self.answered = answered
        self.failed = failed


class _Held(NamedTuple):
    """A request that has not been sent."""

    request: Message
    version: int
    timeout_s: float
    answered: Answered
    failed: Failed


class PeerConnection:
    """Open from its making until `close`, a failure or a timeout; it is not opened again."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: Timer,
        client_id: str,
        login: SaslLogin | None = None,
    ) -> None:
        self.name = name
        self._login = login
        self._authenticate_at: float | None = None  # anew, of a session that has an end
        self._authenticating: asyncio.Task[None] | None = None
        self._held: list[_Held] = []  # until that is done
        self.open = True
        self._transport = transport
        self._fd = transport.fileno()
        self._loop = loop
        self._clock = clock
        self._timer = timer
        self._client_id = client_id
        self._buffer = AnswerBuffer(ANSWER_BYTES_MAX)
        self._waiting: deque[_Waiting] = deque()
        self._next_correlation_id = 0
        self._out = bytearray()  # what the socket did not take yet
        self._timeout: TimerHandle | None = None  # fires at the earliest deadline or before it
        loop.add_reader(self._fd, self._on_readable)

    def __repr__(self) -> str:
        return f"<PeerConnection {self.name}>"

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def send(
        self,
        request: Message,
        version: int,
        timeout_s: float,
        answered: Answered,
        failed: Failed,
    ) -> None:
        """Exactly one of `answered` and `failed` is called, and not before this returns."""
        if not self.open:
            raise ConnectionError(f"{self.name} is closed")
        if self._authenticate_at is not None and self._must_authenticate():
            self._held.append(_Held(request, version, timeout_s, answered, failed))
            return
        self._put_on_wire(_Held(request, version, timeout_s, answered, failed))

    def _put_on_wire(self, asked: _Held) -> None:
        request, version, timeout_s, answered, failed = asked
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        api_key = request.API_KEY
        frame = encode_request_header(api_key, version, correlation_id, self._client_id)
        frame += request.encode(version)
        deadline = self._clock.monotonic() + timeout_s
        self._waiting.append(_Waiting(correlation_id, api_key, version, deadline, answered, failed))
        if self._timeout is None:
            self._timeout = self._timer.call_later(timeout_s, self._look_for_timeouts)
        self._write(_pack_length(len(frame)) + frame)

    async def call(self, request: Message, version: int, timeout_s: float) -> Any:
        """For answers without records: the response, or ConnectionError or TimeoutError."""
        future: asyncio.Future[Any] = self._loop.create_future()
        answered, failed = partial(_settle, future), partial(_settle_failed, future)
        self.send(request, version, timeout_s, answered, failed)
        return await future

    async def authenticate(self) -> None:
        """ConnectionError if the peer refuses, or has not proved who it is."""
        assert self._login is not None
        began_at = self._clock.monotonic()
        try:
            lifetime_ms = await self._login.authenticate(
                self,
                handshake_version=SaslHandshakeRequest.MAX_VERSION,
                authenticate_version=SaslAuthenticateRequest.MAX_VERSION,
            )
        except AuthenticationRefused as refusal:
            raise ConnectionError(f"{self.name}: {refusal}") from None
        except LoginUnavailable as problem:
            raise ConnectionError(f"{self.name}: nothing to log in with: {problem}") from problem
        self._authenticate_at = renewal_time(began_at, lifetime_ms)

    async def ask(self, request: Message, version: int) -> Any:
        """For `SaslLogin`: past what waits."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self.open:
            raise ConnectionError(f"{self.name} is closed")
        answered, failed = partial(_settle, future), partial(_settle_failed, future)
        self._put_on_wire(_Held(request, version, AUTHENTICATION_TIMEOUT_S, answered, failed))
        return await future

    async def exchange(self, token: bytes) -> bytes:
        raise AssertionError("only brokers before 1.0 exchange tokens without a header")

    def _must_authenticate(self) -> bool:
        """Whether requests have to wait for that."""
        if self._authenticating is not None:
            return True
        assert self._authenticate_at is not None
        if self._clock.monotonic() < self._authenticate_at:
            return False
        self._authenticating = self._loop.create_task(self._authenticate_anew())
        report(f"authenticating {self.name} anew", self._authenticating)
        return True

    async def _authenticate_anew(self) -> None:
        try:
            await self.authenticate()
        except OSError as error:
            self._fail(error)
            return
        finally:
            self._authenticating = None
        held, self._held = self._held, []
        for asked in held:
            if self.open:
                self._put_on_wire(asked)
            else:
                self._tell_failure(asked.failed, ConnectionError(f"{self.name} is closed"))

    def close(self, reason: str = "closed here") -> None:
        self._fail(ConnectionError(f"{self.name}: {reason}"))

    # Sending

    def _write(self, frame: bytes) -> None:
        if self._out:
            self._out += frame
            return
        try:
            sent = self._transport.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._fail_soon(error)
            return
        self._out += frame[sent:]
        self._watch_what_is_unsent()

    def _watch_what_is_unsent(self) -> None:
        if self._out or self._transport.unsent:
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        transport = self._transport
        try:
            transport.flush()
            sent = transport.send(self._out) if self._out else 0
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(_as_connection_error(self.name, error))
            return
        del self._out[:sent]
        if not self._out and not transport.unsent:
            self._loop.remove_writer(self._fd)

    # Receiving

    def _on_readable(self) -> None:
        transport = self._transport
        try:
            self._receive()
            while self.open and transport.buffered:
                self._receive()
            # uvloop reports an error once, and these bytes may have been what there was before it.
            if self.open and (failure := transport.failure()) is not None:
                raise failure
        except (BlockingIOError, InterruptedError):
            self._watch_what_is_unsent()
        except OSError as error:
            self._fail(_as_connection_error(self.name, error))
        except (InvalidFrame, DecodeError) as error:
            logger.error("closing %s: %s", self.name, error)
            self._fail(ConnectionError(f"{self.name} sent what cannot be read: {error}"))

    def _receive(self) -> None:
        buffer = self._buffer
        count = self._transport.recv_into(buffer.space())
        if not count:
            self._fail(ConnectionResetError(f"{self.name} was closed by the peer"))
            return
        buffer.received(count)
        while self.open and (frame := buffer.next_frame()) is not None:
            self._answer(frame)

    def _answer(self, frame: memoryview) -> None:
        if not self._waiting:
            raise DecodeError("an answer that nobody asked for")
        if len(frame) < 4 or _unpack_correlation_id(frame)[0] != self._waiting[0].correlation_id:
            raise DecodeError("an answer with another correlation id than the request's")
        waiting = self._waiting[0]
        position = 4
        if response_header_version(waiting.api_key, waiting.version):
            position = skip_tags(frame, position)
        response = response_class(waiting.api_key).decode(frame, position, waiting.version)
        self._waiting.popleft()
        # What whoever asked makes of it is no failure of the connection.
        attempt(f"taking an answer of {self.name}", lambda: waiting.answered(response))

    # Ending

    def _look_for_timeouts(self) -> None:
        self._timeout = None
        if not self._waiting:
            return
        remaining = min(each.deadline for each in self._waiting) - self._clock.monotonic()
        if remaining > 0.001:
            self._timeout = self._timer.call_later(remaining, self._look_for_timeouts)
        else:
            self._fail(TimeoutError(f"{self.name} has not answered in time"))

    def _fail_soon(self, error: OSError) -> None:
        """Not from inside `send`, whose caller does not expect to be called back yet."""
        wrapped = _as_connection_error(self.name, error)
        self._timer.call_later(0.0, lambda: self._fail(wrapped))

    def _fail(self, error: OSError) -> None:
        if not self.open:
            return
        self.open = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._transport.close()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held, []
        for failed in [*(each.failed for each in waiting), *(each.failed for each in held)]:
            self._tell_failure(failed, error)

    def _tell_failure(self, failed: Failed, error: OSError) -> None:
        attempt(f"telling of the end of {self.name}", partial(failed, error))


def _settle(future: asyncio.Future[Any], response: Any) -> None:
    if not future.done():
        future.set_result(response)


def _settle_failed(future: asyncio.Future[Any], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


def plain_transport(_: str, sock: socket.socket) -> Transport:
    return PlainTransport(sock)


async def connect(
    host: str,
    port: int,
    *,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    timer: Timer,
    client_id: str,
    timeout_s: float,
    receive_buffer_bytes: int = -1,
    transport_to: TransportTo = plain_transport,
    login: SaslLogin | None = None,
) -> PeerConnection:
    """A connection to the peer; ConnectionError or TimeoutError if there is none to be had."""
    name = f"{client_id} to {host}:{port}"
    sock = None
    transport = None
    try:
        async with asyncio.timeout(timeout_s):
            family, address = await _resolve(loop, host, port)
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            await loop.sock_connect(sock, address)
            transport = transport_to(host, sock)
            await _shake_hands(loop, transport)
    except BaseException as error:
        if transport is not None:
            transport.close()
        elif sock is not None:
            sock.close()
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            raise _as_connection_error(name, error) from error
        raise
    connection = PeerConnection(
        transport, name, loop=loop, clock=clock, timer=timer, client_id=client_id, login=login
    )
    if login is not None:
        try:
            await connection.authenticate()
        except BaseException:
            connection.close()
            raise
    return connection


async def _shake_hands(loop: asyncio.AbstractEventLoop, transport: Transport) -> None:
    descriptor = transport.fileno()
    while (want := transport.handshake()) is not Want.NOTHING:
        ready: asyncio.Future[None] = loop.create_future()
        wake = partial(_set_unless_done, ready)
        try:
            if want is Want.READ:
                loop.add_reader(descriptor, wake)
            else:
                loop.add_writer(descriptor, wake)
            await ready
        finally:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)


def _set_unless_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _resolve(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> tuple[socket.AddressFamily, Any]:
    """Numbers are not looked up: that would start a thread."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return family, (host, port)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return socket.AddressFamily(found[0][0]), found[0][4]


def _as_connection_error(name: str, error: OSError) -> ConnectionError:
    if isinstance(error, HandshakeFailed):
        return ConnectionError(f"{name}: no TLS with the peer: {error}")
    if isinstance(error, ConnectionError):
        return error
    return ConnectionError(f"{name}: {error.strerror or error}")
