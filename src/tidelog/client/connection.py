"""One TCP connection to one broker: requests out, answers in, in the same order.

Opening connects and negotiates versions by ApiVersions. `send` may be called again before the
answer to an earlier request was taken by `receive`: a broker answers in order, so the oldest
unanswered request is what the next answer belongs to. A large answer is received into one buffer,
and the `records` in it are views of that buffer; `give_back` lends it to a later answer once
nothing refers to it any more.

Every failure closes the connection and is raised as ConnectionFailed, RequestTimedOut or
UnreadableAnswer; what was unanswered then may or may not have been done by the broker.

Blocking, for one thread. Frames: int32 length, then header and body.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog import __version__
from tidelog.client.errors import (
    ConnectionFailed,
    RequestTimedOut,
    UnreadableAnswer,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.versions import BrokerVersions
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message, RecordsMessage
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.primitives import skip_tags
from tidelog.protocol.registry import response_class
from tidelog.transport import PlainTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.client.network.versions import _Range
    from tidelog.clock import Clock
    from tidelog.config.client import Address, ClientConfig
    from tidelog.transport import Transport

API_VERSIONS_FIRST_TRY: Final = 3

# The kernel refuses longer vectors (UIO_MAXIOV).
_SEND_PARTS_MAX = 1024
_SPARE_BUFFERS_MAX = 2
_BUFFER_STEP = 1 << 20
_LENGTH = Struct(">i")
_LENGTH_AND_CORRELATION_ID = Struct(">ii")


class InFlight(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    deadline: float


class Answer(NamedTuple):
    """`frame` is what views in the response look into."""

    response: Message
    frame: bytearray


class Connection:
    __slots__ = (
        "_client_id",
        "_clock",
        "_next_correlation_id",
        "_request_timeout_s",
        "_spares",
        "_transport",
        "address",
        "broker",
        "in_flight",
        "versions",
    )

    def __init__(
        self, transport: Transport, address: Address, config: ClientConfig, clock: Clock
    ) -> None:
        self._transport: Transport | None = transport
        self._client_id = config.text("client.id")
        self._clock = clock
        self._request_timeout_s = config.integer("request.timeout.ms") / 1000
        self._next_correlation_id = 0
        self._spares: list[bytearray] = []
        self.address = address
        self.broker = str(address)
        self.in_flight: deque[InFlight] = deque()
        self.versions = BrokerVersions(self.broker, {})

    @classmethod
    def open(cls, address: Address, config: ClientConfig, clock: Clock) -> Connection:
        try:
            return cls._open(address, config, clock, API_VERSIONS_FIRST_TRY)
        except ConnectionFailed:
            # Some old brokers hang up on a version they do not know.
            return cls._open(address, config, clock, 0)

    @classmethod
    def _open(
        cls, address: Address, config: ClientConfig, clock: Clock, api_versions_version: int
    ) -> Connection:
        connection = cls(connect(address, config), address, config, clock)
        try:
            connection.negotiate(api_versions_version)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def fileno(self) -> int:
        return self._must_be_open().fileno()

    def _must_be_open(self) -> Transport:
        assert self._transport is not None, "the connection is closed"
        return self._transport

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def negotiate(self, version: int) -> None:
        rows = self._ask_versions(version)
        if not rows and version > 0:
            rows = self._ask_versions(0)
        if not rows:
            raise UnsupportedByBroker(f"broker {self.broker} does not say what it offers")
        self.versions = BrokerVersions.of_answer(self.broker, rows)

    def _ask_versions(self, version: int) -> Sequence[_Range]:
        request = ApiVersionsRequest(
            client_software_name="tidelog", client_software_version=__version__
        )
        response = self.call(request, version)
        assert isinstance(response, ApiVersionsResponse), response
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            raise refused(f"ApiVersions of broker {self.broker}", response.error_code)
        return response.api_keys

    def call(self, request: Message, version: int) -> Message:
        """Sends and waits; nothing else may be in flight."""
        assert not self.in_flight, self.in_flight
        try:
            self.send(request, version)
        except (ConnectionFailed, RequestTimedOut):
            self.close()
            raise
        return self.receive().response

    def send(self, request: Message, version: int, *, has_answer: bool = True) -> None:
        """If it fails the connection stays open: answers that came before can still be received."""
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFFFFFF
        correlation_id = self._next_correlation_id
        header = encode_request_header(request.API_KEY, version, correlation_id, self._client_id)
        body: list[bytearray | memoryview]
        if isinstance(request, RecordsMessage):
            body = request.encode_parts(version)
        else:
            body = [request.encode(version)]
        size = len(header) + sum(map(len, body))
        deadline = self._clock.monotonic() + self._request_timeout_s
        if has_answer:
            self.in_flight.append(InFlight(request.API_KEY, version, correlation_id, deadline))
        self._send_all([bytearray(_LENGTH.pack(size)), header, *body], deadline)

    def _send_all(self, parts: list[bytearray | memoryview], deadline: float) -> None:
        transport = self._must_be_open()
        rest = [memoryview(part) for part in parts]
        try:
            while rest:
                sent = transport.send_parts(rest[:_SEND_PARTS_MAX])
                rest = _after(rest, sent)
                if rest and self._clock.monotonic() > deadline:
                    raise TimeoutError
        except OSError as problem:
            raise self._problem(problem, "sending a request") from problem

    def is_readable(self, timeout_s: float) -> bool:
        """Whether an answer, or the end of the connection, has begun to arrive."""
        transport = self._must_be_open()
        if transport.buffered:
            return True
        poll = select.poll()
        poll.register(transport.fileno(), select.POLLIN)
        return bool(poll.poll(max(0, round(timeout_s * 1000))))

    def receive(self) -> Answer:
        """Waits for the answer to the oldest unanswered request.

        An answer may have lain in the socket for long while the caller was busy, so the time
        allowed counts from here.
        """
        expected = self.in_flight[0]
        name = ApiKey(expected.api_key).name
        deadline = self._clock.monotonic() + self._request_timeout_s
        lead = bytearray(8)
        self._receive_into(memoryview(lead), deadline, name)
        length, correlation_id = _LENGTH_AND_CORRELATION_ID.unpack(lead)
        if length < 4 or correlation_id != expected.correlation_id:
            self.close()
            raise UnreadableAnswer(
                f"broker {self.broker} answered {name} with length {length} and correlation id "
                f"{correlation_id}, expected was {expected.correlation_id}"
            )
        frame = self._buffer_of(length - 4)
        body = memoryview(frame)[: length - 4]
        self._receive_into(body, deadline, name)
        self.in_flight.popleft()
        return Answer(self._decode(expected, body, name), frame)

    def give_back(self, frame: bytearray) -> None:
        """Lends the buffer of an answer to a later one; nobody may hold a view of it."""
        if len(self._spares) < _SPARE_BUFFERS_MAX:
            self._spares.append(frame)

    def _buffer_of(self, size: int) -> bytearray:
        for index, spare in enumerate(self._spares):
            if len(spare) >= size:
                return self._spares.pop(index)
        self._spares.clear()
        # Answers differ a little in size; so the first buffer suits the next ones too.
        return bytearray(size if size < _BUFFER_STEP else -(-size // _BUFFER_STEP) * _BUFFER_STEP)

    def _decode(self, expected: InFlight, body: memoryview, name: str) -> Message:
        try:
            position = 0
            if response_header_version(expected.api_key, expected.version):
                position = skip_tags(body, 0)
            version = expected.version
            if expected.api_key == ApiKey.API_VERSIONS and _is_version_refusal(body):
                version = 0
            return response_class(expected.api_key).decode(body, position, version)
        except (DecodeError, IndexError) as problem:
            self.close()
            raise UnreadableAnswer(
                f"broker {self.broker} answered {name} v{expected.version} with bytes that are no "
                f"such answer: {problem}"
            ) from problem

    def _receive_into(self, view: memoryview, deadline: float, name: str) -> None:
        transport = self._must_be_open()
        try:
            while view:
                received = transport.recv_into(view)
                if received == 0:
                    raise ConnectionResetError("closed by the broker")
                view = view[received:]
                if view and self._clock.monotonic() > deadline:
                    raise TimeoutError
        except OSError as problem:
            raise self._failed(problem, f"waiting for the answer to {name}") from problem

    def _failed(self, problem: OSError, doing: str) -> ConnectionFailed | RequestTimedOut:
        self.close()
        return self._problem(problem, doing)

    def _problem(self, problem: OSError, doing: str) -> ConnectionFailed | RequestTimedOut:
        if isinstance(problem, TimeoutError):
            after_ms = round(self._request_timeout_s * 1000)
            return RequestTimedOut(
                f"broker {self.broker}: timed out after {after_ms} ms (request.timeout.ms) {doing}"
            )
        return ConnectionFailed(f"broker {self.broker}: connection lost {doing}: {problem}")


def connect(address: Address, config: ClientConfig) -> Transport:
    """Ready to carry requests, each of whose sends and receives may take request.timeout.ms."""
    timeout_ms = config.integer("socket.connection.setup.timeout.ms")
    try:
        sock = socket.create_connection(address, timeout_ms / 1000)
    except TimeoutError as problem:
        raise ConnectionFailed(
            f"broker {address}: no connection within {timeout_ms} ms "
            "(socket.connection.setup.timeout.ms)"
        ) from problem
    except OSError as problem:
        raise ConnectionFailed(f"broker {address}: cannot connect: {problem}") from problem
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, key in (
            (socket.SO_SNDBUF, "send.buffer.bytes"),
            (socket.SO_RCVBUF, "receive.buffer.bytes"),
        ):
            if config.integer(key) >= 0:
                sock.setsockopt(socket.SOL_SOCKET, option, config.integer(key))
        transport = PlainTransport(sock)
        transport.handshake()
        sock.settimeout(config.integer("request.timeout.ms") / 1000)
    except OSError as problem:
        sock.close()
        raise ConnectionFailed(f"broker {address}: cannot connect: {problem}") from problem
    return transport


def _after(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of `parts` once `sent` bytes are gone."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def _is_version_refusal(body: memoryview) -> bool:
    return bytes(body[:2]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
