"""One connection to one broker, on the event loop: requests out, answers in, in the same order.

`open_connection` connects, negotiates versions and logs in (`sasl`); from then on `send` may be
called at any time, also before earlier requests are answered, because a broker answers in order. A
large answer arrives in memory of its own, and the `records` in the message are views of it
(`frames.py`). Records in a request leave as they are, without being joined with the rest; nobody
may change them until the answer is there.

Every failure closes the connection and fails everything that waits for an answer: with
ConnectionFailed, RequestTimedOut or UnreadableAnswer. The broker may or may not have done what was
asked. A request whose future was cancelled stays in the order, and its answer is dropped.

A broker whose quota is exceeded says how long it will not listen (KIP-219). Requests wait here for
that time, so that their own time does not begin before; at most for request.timeout.ms, because a
broker may say anything.

A broker may end sessions after a time (KIP-368). Before that, the first request that comes waits
until the client has authenticated again, on the same connection and behind what is in flight.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from tidelog import __version__
from tidelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    Closed,
    ConnectionFailed,
    RequestTimedOut,
    TlsFailed,
    UnreadableAnswer,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.frames import FrameReader, InvalidFrame
from tidelog.client.network.versions import BrokerVersions
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError, EncodeError
from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message, RecordsMessage
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.primitives import skip_tags
from tidelog.protocol.registry import response_class
from tidelog.sasl.client_authenticator import (
    AuthenticationRefused,
    LoginUnavailable,
    SaslLogin,
    renewal_time,
)
from tidelog.supervisor import report
from tidelog.tls.handshake import HandshakeFailed, HandshakeProblem
from tidelog.tls.transport import TlsTransport
from tidelog.transport import PlainTransport, Want

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from tidelog.client.network.frames import FrameMemory
    from tidelog.clock import Clock, Timer, TimerHandle
    from tidelog.config.client import Address, KafkaConfig
    from tidelog.transport import Memory, Transport

SocketAddress: TypeAlias = "tuple[str, int] | tuple[str, int, int, int]"

API_VERSIONS_FIRST_TRY: Final = 3
CORRELATION_ID_MAX: Final = (1 << 31) - 1
# A broker gives the first batch of an answer whole, however small the limit of the fetch is.
FRAME_SLACK_BYTES: Final = 256 << 20

# A turn of the event loop receives so much at most from one connection.
_TURN_BYTES: Final = 4 << 20
_PIECE_WAIT_MS: Final = 5
# The kernel refuses longer vectors (UIO_MAXIOV).
_SEND_PARTS_MAX: Final = 1024
_JOINED_BYTES: Final = 16 * 1024
_MUTUAL_QUOTAS_VERSION: Final = 2  # of ApiVersions, which 2.0 brought together with KIP-219
_pack_length: Final = Struct(">i").pack
_unpack_correlation_id: Final = Struct(">i").unpack_from
_CORRELATION_ID_BYTES: Final = 4


class Surroundings(NamedTuple):
    """What all connections of a client share."""

    config: KafkaConfig
    loop: asyncio.AbstractEventLoop
    clock: Clock
    timer: Timer
    memory: FrameMemory
    tls: ssl.SSLContext | None = None  # where security.protocol says so
    login: SaslLogin | None = None

    @property
    def frame_bytes_max(self) -> int:
        values = self.config.values
        wanted = max(
            value
            for key in ("fetch.max.bytes", "max.partition.fetch.bytes")
            if isinstance(value := values.get(key, 0), int)
        )
        return wanted + FRAME_SLACK_BYTES


class _Held(NamedTuple):
    """A request that waits for a quota."""

    request: Message
    version: int
    timeout_s: float | None
    expects_answer: bool
    future: asyncio.Future[Message]


_TOKEN_KEY: Final = (
    -1
)  # in the place of an api key: a frame without a header, as old brokers exchange


class _InFlight:
    __slots__ = ("api_key", "correlation_id", "deadline", "future", "timeout_s", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        timeout_s: float,
        deadline: float,
        future: asyncio.Future[Message] | asyncio.Future[bytes],
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.future = future


class Connection:
    """Open from its making until `close` or a failure; it is not opened again.

    `on_closed` is called once, with the reason, after it has closed.
    """

    def __init__(self, transport: Transport, broker: str, around: Surroundings) -> None:
        self.broker = broker  # its name in errors
        self.versions = BrokerVersions(broker, {})
        self.on_closed: Callable[[ClientError], object] = _nobody_listens
        self.is_open = True
        self.last_used = around.clock.monotonic()
        self._transport = transport
        self._fd = transport.fileno()
        self._loop = around.loop
        self._clock = around.clock
        self._timer = around.timer
        self._login = around.login
        self._reauthenticate_at: float | None = None  # of a session that has an end
        self._authenticating: asyncio.Task[None] | None = None  # anew; requests wait for it
        self._client_id = around.config.text("client.id")
        self._request_timeout_s = around.config.seconds("request.timeout.ms")
        self._reader = FrameReader(around.frame_bytes_max, around.memory)
        self._waiting: deque[_InFlight] = deque()
        self._unsent: list[memoryview] = []
        self._next_correlation_id = 0
        self._throttled_until = 0.0
        self._held: list[_Held] = []  # in their order; empty unless `_release` is set
        self._release: TimerHandle | None = None
        self._timeout: TimerHandle | None = None
        self._timeout_at = 0.0  # not after the earliest deadline, while `_timeout` is set
        self._is_in_loop = True  # whether it waits for bytes
        self._loop.add_reader(self._fd, self._on_readable)

    def __repr__(self) -> str:
        return f"<Connection {self.broker}, {self.in_flight} in flight>"

    @property
    def in_flight(self) -> int:
        return len(self._waiting) + len(self._held)

    # Sending

    def send(
        self,
        request: Message,
        version: int,
        *,
        timeout_s: float | None = None,
        expects_answer: bool = True,
        future: asyncio.Future[Message] | None = None,
    ) -> asyncio.Future[Message]:
        """Returns the future of the answer, or of `request` itself if no answer is expected.
        `timeout_s` counts from now and is request.timeout.ms by default."""
        future = self._loop.create_future() if future is None else future
        if not self.is_open:
            _fail(future, ConnectionFailed(f"broker {self.broker}: the connection is closed"))
        elif self._reauthenticate_at is not None and self._must_reauthenticate():
            self._held.append(_Held(request, version, timeout_s, expects_answer, future))
        elif self._held or self._throttled_until > self._clock.monotonic():
            self._hold(_Held(request, version, timeout_s, expects_answer, future))
        else:
            self._put_on_wire(_Held(request, version, timeout_s, expects_answer, future))
        return future

    def _put_on_wire(self, asked: _Held) -> None:
        request, version, timeout_s, expects_answer, future = asked
        correlation_id = self._next_correlation_id
        try:
            parts = _encode(request, version, correlation_id, self._client_id)
        except EncodeError as problem:
            _fail(future, UnsupportedByBroker(f"broker {self.broker}: {problem}"))
            return
        self._next_correlation_id = (correlation_id + 1) & CORRELATION_ID_MAX
        self.last_used = now = self._clock.monotonic()
        if expects_answer:
            timeout_s = self._request_timeout_s if timeout_s is None else timeout_s
            self._waiting.append(
                _InFlight(
                    request.API_KEY, version, correlation_id, timeout_s, now + timeout_s, future
                )
            )
            self._watch_deadline(now, now + timeout_s)
        self._write(parts)
        if not expects_answer and not future.done():
            future.set_result(request)

    def _hold(self, asked: _Held) -> None:
        self._held.append(asked)
        if self._release is None:
            wait_s = max(0.0, self._throttled_until - self._clock.monotonic())
            self._release = self._timer.call_later(wait_s, self._let_go)

    def _let_go(self) -> None:
        self._release = None
        if self._authenticating is not None:
            return
        held, self._held = self._held, []
        for asked in held:
            if self.is_open and not asked.future.done():
                self._put_on_wire(asked)

    # Authentication

    async def authenticate(self) -> None:
        """Logs in, at first or anew; nothing else is sent meanwhile."""
        assert self._login is not None
        versions = self.versions
        handshake_version = versions.version(ApiKey.SASL_HANDSHAKE)
        authenticate_version = 0
        if handshake_version > 0:
            authenticate_version = versions.version(ApiKey.SASL_AUTHENTICATE)
        began_at = self._clock.monotonic()
        try:
            lifetime_ms = await self._login.authenticate(
                self,
                handshake_version=handshake_version,
                authenticate_version=authenticate_version,
            )
        except AuthenticationRefused as refusal:
            raise AuthenticationFailed(f"broker {self.broker}: {refusal}", refusal.code) from None
        except LoginUnavailable as problem:
            raise ConnectionFailed(
                f"broker {self.broker}: nothing to log in with: {problem}"
            ) from problem
        except ConnectionFailed as problem:
            if handshake_version > 0:
                raise
            raise ConnectionFailed(
                f"{problem} (while authenticating with {self._login.mechanism}; brokers before 1.0 "
                "hang up on wrong credentials)"
            ) from problem
        self._reauthenticate_at = renewal_time(began_at, lifetime_ms)

    def ask(self, request: Message, version: int) -> asyncio.Future[Message]:
        """For `SaslLogin`: past what waits."""
        future: asyncio.Future[Message] = self._loop.create_future()
        if self.is_open:
            self._put_on_wire(_Held(request, version, None, True, future))
        else:
            _fail(future, ConnectionFailed(f"broker {self.broker}: the connection is closed"))
        return future

    def exchange(self, token: bytes) -> asyncio.Future[bytes]:
        """For `SaslLogin`: a frame without a header, answered by such a one."""
        future: asyncio.Future[bytes] = self._loop.create_future()
        if not self.is_open:
            _fail(future, ConnectionFailed(f"broker {self.broker}: the connection is closed"))
            return future
        now = self._clock.monotonic()
        deadline = now + self._request_timeout_s
        self._waiting.append(_InFlight(_TOKEN_KEY, 0, 0, self._request_timeout_s, deadline, future))
        self._watch_deadline(now, deadline)
        self._write([_pack_length(len(token)) + token])
        return future

    def _must_reauthenticate(self) -> bool:
        """Whether requests have to wait for that."""
        if self._authenticating is not None:
            return True
        assert self._reauthenticate_at is not None
        if self._clock.monotonic() < self._reauthenticate_at:
            return False
        self._authenticating = self._loop.create_task(self._reauthenticate())
        report("authenticating anew", self._authenticating)
        return True

    async def _reauthenticate(self) -> None:
        try:
            await self.authenticate()
        except ClientError as problem:
            self._fail(problem)
            return
        finally:
            self._authenticating = None
        if self._release is None:
            self._let_go()

    async def call(
        self,
        request: Message,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        timeout_s: float | None = None,
    ) -> Message:
        """The answer in the highest version that both know."""
        version = self.versions.version(ApiKey(request.API_KEY), at_most, at_least)
        return await self.send(request, version, timeout_s=timeout_s)

    def _write(self, parts: list[Memory]) -> None:
        if self._unsent:
            self._unsent += [memoryview(part) for part in parts]
            return
        try:
            sent = self._transport.send_parts(parts[:_SEND_PARTS_MAX])
        except BlockingIOError:
            sent = 0
        except OSError as problem:
            self._lost(problem)
            return
        self._unsent = _after(parts, sent)
        if self._unsent or self._transport.unsent:
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            if self._transport.unsent:
                self._transport.flush()
            while self._unsent:
                sent = self._transport.send_parts(self._unsent[:_SEND_PARTS_MAX])
                self._unsent = _after(self._unsent, sent)
        except BlockingIOError:
            return
        except OSError as problem:
            self._lost(problem)
            return
        if not self._transport.unsent:
            self._loop.remove_writer(self._fd)

    # Receiving

    def receive_here(self, answer: asyncio.Future[Message], limit_s: float) -> None:
        """Receives in the caller's turn of the loop until the answer is there, `limit_s` seconds
        pass, or nothing comes for a moment. From then on the loop leaves the socket alone, until
        `receive_in_loop`.

        A large answer comes in many pieces, and this spares a turn of the loop for each. Only for a
        caller who has the loop to himself, because everything else waits.
        """
        if self.is_open and self._is_in_loop:
            self._is_in_loop = False
            self._loop.remove_reader(self._fd)
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        until = time.monotonic() + limit_s
        while self.is_open and not answer.done() and poll.poll(_PIECE_WAIT_MS):
            if self._reader.is_within_large_frame:
                self._receive_large(poll, until)
            else:
                self._on_readable()
            if time.monotonic() >= until:
                return

    def _receive_large(self, poll: select.poll, until: float) -> None:
        """The rest of a large frame, as far as it comes without a pause."""
        rest = self._reader.buffer()
        receive_into, wait, clock = self._transport.recv_into, poll.poll, time.monotonic
        size, have = len(rest), 0
        try:
            while True:
                count = receive_into(rest[have:])
                if count == 0:
                    raise ConnectionResetError("closed by the broker")
                have += count
                if have == size or not wait(_PIECE_WAIT_MS) or clock() >= until:
                    break
        except BlockingIOError:
            pass
        except OSError as problem:
            self._lost(problem)
            return
        for frame in self._reader.received(have):
            self._take(frame)

    def receive_in_loop(self) -> None:
        if self.is_open and not self._is_in_loop:
            self._is_in_loop = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        received = 0
        try:
            while self.is_open and received < _TURN_BYTES:
                buffer = self._reader.buffer()
                count = self._transport.recv_into(buffer)
                if count == 0:
                    raise ConnectionResetError("closed by the broker")
                received += count
                for frame in self._reader.received(count):
                    self._take(frame)
                if count < len(buffer) and not self._transport.buffered:
                    break
        except BlockingIOError:
            pass
        except InvalidFrame as problem:
            self._fail(UnreadableAnswer(f"broker {self.broker} began an answer with {problem}"))
        except OSError as problem:
            self._lost(problem)
        except BaseException as problem:
            self._fail(UnreadableAnswer(f"broker {self.broker}: {problem!r}"))
            raise

    def _take(self, frame: memoryview) -> None:
        if not self.is_open:
            return
        expected = self._waiting[0] if self._waiting else None
        if expected is not None and expected.api_key == _TOKEN_KEY:
            self._waiting.popleft()
            if not expected.future.done():
                cast("asyncio.Future[bytes]", expected.future).set_result(bytes(frame))
            return
        if len(frame) < _CORRELATION_ID_BYTES:
            self._fail(
                UnreadableAnswer(f"broker {self.broker} sent an answer of {len(frame)} bytes")
            )
            return
        (correlation_id,) = _unpack_correlation_id(frame)
        if expected is None or correlation_id != expected.correlation_id:
            wanted = "none" if expected is None else expected.correlation_id
            self._fail(
                UnreadableAnswer(
                    f"broker {self.broker} sent an answer with correlation id {correlation_id}, "
                    f"expected was {wanted}"
                )
            )
            return
        try:
            message = _decode(expected, frame)
        except (DecodeError, IndexError) as problem:
            name = ApiKey(expected.api_key).name
            self._fail(
                UnreadableAnswer(
                    f"broker {self.broker} answered {name} v{expected.version} with bytes that "
                    f"are no such answer: {problem}"
                )
            )
            return
        self._waiting.popleft()
        self.last_used = now = self._clock.monotonic()
        throttle_s: float = getattr(message, "throttle_time_ms", 0) / 1000
        if throttle_s > 0 and self._is_mutual:
            self._throttled_until = now + min(throttle_s, self._request_timeout_s)
        if not expected.future.done():
            cast("asyncio.Future[Message]", expected.future).set_result(message)

    @property
    def _is_mutual(self) -> bool:
        """Whether the client has to pause by itself (KIP-219). Brokers before 2.0 delay the answer
        instead."""
        return self.versions.ranges.get(ApiKey.API_VERSIONS, (0, 0))[1] >= _MUTUAL_QUOTAS_VERSION

    # Time

    def _watch_deadline(self, now: float, deadline: float) -> None:
        if self._timeout is not None:
            if self._timeout_at <= deadline:
                return
            self._timeout.cancel()
        self._timeout_at = deadline
        self._timeout = self._timer.call_later(max(0.0, deadline - now), self._on_timeout)

    def _on_timeout(self) -> None:
        self._timeout = None
        if not self.is_open or not self._waiting:
            return
        # The answer may lie in the socket when this process was busy, or stopped, for long.
        self._on_readable()
        if not self.is_open or not self._waiting:
            return
        now = self._clock.monotonic()
        first = min(self._waiting, key=lambda each: each.deadline)
        if first.deadline > now:
            self._watch_deadline(now, first.deadline)
            return
        name = "a SASL token" if first.api_key == _TOKEN_KEY else ApiKey(first.api_key).name
        problem = RequestTimedOut(
            f"broker {self.broker}: no answer to {name} within {round(first.timeout_s * 1000)} ms "
            "(request.timeout.ms)"
        )
        self._waiting.remove(first)
        _fail(first.future, problem)
        self._fail(
            ConnectionFailed(
                f"broker {self.broker}: the connection was given up, because {name} was not "
                "answered in time"
            )
        )

    # The end

    def close(self, problem: ClientError | None = None) -> None:
        self._fail(problem or Closed(f"broker {self.broker}: the client is closed"))

    def _lost(self, problem: OSError) -> None:
        within = " in the middle of an answer" if self._reader.is_within_frame else ""
        text = f"broker {self.broker}: the connection was lost{within}: {problem}"
        self._fail(TlsFailed(text) if _is_final(problem) else ConnectionFailed(text))

    def _fail(self, problem: ClientError) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._transport.close()
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if self._release is not None:
            self._release.cancel()
            self._release = None
        self._unsent = []
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held, []
        for future in (*(each.future for each in waiting), *(asked.future for asked in held)):
            _fail(future, problem)
        self.on_closed(problem)


def _is_final(problem: OSError) -> bool:
    """Whether another try would end in the same way."""
    return isinstance(problem, HandshakeFailed) and problem.problem is not HandshakeProblem.OTHER


def _nobody_listens(_: ClientError) -> None:
    pass


def _fail(future: asyncio.Future[Message] | asyncio.Future[bytes], problem: ClientError) -> None:
    if not future.done():
        future.set_exception(problem)
        future.exception()  # whoever lost interest in it need not be told by a log line


def _encode(request: Message, version: int, correlation_id: int, client_id: str) -> list[Memory]:
    header = encode_request_header(request.API_KEY, version, correlation_id, client_id)
    body: list[Memory]
    if isinstance(request, RecordsMessage):
        body = request.encode_parts(version)
    else:
        body = [request.encode(version)]
    size = len(header) + sum(map(len, body))
    if size <= _JOINED_BYTES:
        return [b"".join([_pack_length(size), header, *body])]
    return [_pack_length(size) + header, *body]


def _decode(expected: _InFlight, frame: memoryview) -> Message:
    position = 4
    if response_header_version(expected.api_key, expected.version):
        position = skip_tags(frame, position)
    version = expected.version
    if expected.api_key == ApiKey.API_VERSIONS and _is_version_refusal(frame[position:]):
        version = 0
    return response_class(expected.api_key).decode(frame, position, version)


def _is_version_refusal(body: memoryview) -> bool:
    return bytes(body[:2]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def _after(parts: list[Memory] | list[memoryview], sent: int) -> list[memoryview]:
    """What is left of `parts` once `sent` bytes are gone."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *(memoryview(each) for each in parts[index + 1 :])]
        sent -= len(part)
    return []


# Opening


async def open_connection(
    name: str, address: Address, around: Surroundings, setup_s: float
) -> Connection:
    """Connected, with versions negotiated and logged in. Each address of the host gets `setup_s`
    seconds."""
    try:
        return await _open(name, address, around, setup_s, API_VERSIONS_FIRST_TRY)
    except _HungUp:
        # Some old brokers hang up on a version they do not know.
        return await _open(name, address, around, setup_s, 0)


class _HungUp(ConnectionFailed):
    """The broker closed the connection instead of saying which versions it has."""


async def _open(
    name: str, address: Address, around: Surroundings, setup_s: float, api_versions_version: int
) -> Connection:
    transport = await _connect(name, address, around, setup_s)
    connection = Connection(transport, name, around)
    try:
        await _negotiate(connection, api_versions_version)
    except ConnectionFailed as problem:
        if api_versions_version == 0:
            raise ConnectionFailed(f"{problem}{_hint(around)}") from problem
        raise _HungUp(str(problem)) from problem
    except BaseException:
        connection.close()
        raise
    if around.login is not None:
        try:
            await connection.authenticate()
        except BaseException:
            connection.close()
            raise
    return connection


def _hint(around: Surroundings) -> str:
    if around.config.is_encrypted:
        return ""
    return " (a broker that speaks TLS on this port hangs up so: is it security.protocol=SSL?)"


async def _negotiate(connection: Connection, version: int) -> None:
    response = await _ask_versions(connection, version)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
        told = BrokerVersions.of_response(connection.broker, response)
        offered = told.ranges.get(ApiKey.API_VERSIONS, (0, 0))[1]
        response = await _ask_versions(connection, max(0, min(offered, version - 1)))
    if response.error_code:
        raise refused(f"ApiVersions of broker {connection.broker}", response.error_code)
    if not response.api_keys:
        raise UnsupportedByBroker(f"broker {connection.broker} does not say what it offers")
    connection.versions = BrokerVersions.of_response(connection.broker, response)


async def _ask_versions(connection: Connection, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name="tidelog", client_software_version=__version__
    )
    response = await connection.send(request, version)
    assert isinstance(response, ApiVersionsResponse), response
    return response


async def _connect(name: str, address: Address, around: Surroundings, setup_s: float) -> Transport:
    problem: ClientError = ConnectionFailed(f"broker {name}: {address.host} has no addresses")
    for family, where in await addresses_of(name, address, around.loop):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(setup_s):
                return await _connect_to(sock, where, address.host, around)
        except TimeoutError:
            problem = ConnectionFailed(
                f"broker {name}: no connection to {where[0]} port {where[1]} within "
                f"{round(setup_s * 1000)} ms (socket.connection.setup.timeout.ms)"
            )
            sock.close()
        except HandshakeFailed as failure:
            text = f"broker {name}: no TLS with {where[0]} port {where[1]}: {failure}"
            problem = TlsFailed(text) if _is_final(failure) else ConnectionFailed(text)
        except OSError as failure:
            problem = ConnectionFailed(
                f"broker {name}: cannot connect to {where[0]} port {where[1]}: "
                f"{os.strerror(failure.errno) if failure.errno else failure}"
            )
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise problem


async def _connect_to(
    sock: socket.socket, where: SocketAddress, host: str, around: Surroundings
) -> Transport:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, key in (
        (socket.SO_SNDBUF, "send.buffer.bytes"),
        (socket.SO_RCVBUF, "receive.buffer.bytes"),
    ):
        if around.config.integer(key) >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, around.config.integer(key))
    await around.loop.sock_connect(sock, where)
    if not around.config.is_encrypted:
        return PlainTransport(sock)
    assert around.tls is not None, "security.protocol"
    transport = TlsTransport(sock, around.tls, server_side=False, server_hostname=host)
    try:
        while (want := transport.handshake()) is not Want.NOTHING:
            await _ready(transport.fileno(), want, around.loop)
    except BaseException:
        transport.close()
        raise
    return transport


async def _ready(fd: int, want: Want, loop: asyncio.AbstractEventLoop) -> None:
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (
        (loop.add_reader, loop.remove_reader)
        if want is Want.READ
        else (loop.add_writer, loop.remove_writer)
    )
    add(fd, wake)
    try:
        await ready
    finally:
        remove(fd)


async def addresses_of(
    name: str, address: Address, loop: asyncio.AbstractEventLoop
) -> list[tuple[socket.AddressFamily, SocketAddress]]:
    """All that the name resolves to, in the resolver's order."""
    if not address.host or not 0 < address.port < 1 << 16:
        raise ConnectionFailed(f"broker {name}: {address} is no address")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.host)
        except (OSError, ValueError):
            continue
        return [(family, (address.host, address.port))]
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as problem:
        raise ConnectionFailed(
            f"broker {name}: cannot resolve {address.host}: {problem}"
        ) from problem
    rows: list[tuple[socket.AddressFamily, SocketAddress]] = [
        (family, cast("SocketAddress", where)) for family, _, _, _, where in found
    ]
    return list(dict.fromkeys(rows))
