"""A socket server with a scripted handler, and clients of it, all driven from one thread.

Nothing here sleeps: `until` turns the loop over until a condition holds, and fails the test after
DEADLINE_SECONDS.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any

from tests.support.clock import FakeClock
from tidelog.config.listeners import Endpoint
from tidelog.network.connection import Connection, IncomingRequest
from tidelog.network.settings import NetworkSettings
from tidelog.network.socket_server import SocketServer

DEADLINE_SECONDS = 10.0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def length(size: int) -> bytes:
    return struct.pack(">i", size)


class FileSlice:
    """Stands for record.file_records.FileRecords."""

    def __init__(self, file: FileIO, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        return self.file.fileno()


class EchoHandler:
    """Answers a frame with itself, unless its first word says otherwise.

    wait, park: kept in `waiting` until the test answers it. pass: likewise, and lets others pass
    that begin with the same two letters. nothing: no answer. close: refused.
    raise: an exception. mute: answered, and the connection is muted for so many seconds.
    Other words can be given an answer of their own in `answers`.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.waiting: list[IncomingRequest] = []
        self.half_closed_ones: list[Connection] = []
        self.received_at: list[float] = []
        self.connections: list[Connection] = []
        self.answers: dict[bytes, Callable[[], list[Any]]] = {}

    def half_closed(self, connection: Connection) -> None:
        self.half_closed_ones.append(connection)

    def handle(self, request: IncomingRequest) -> None:
        body = bytes(request.frame)
        self.frames.append(body)
        self.received_at.append(request.received_at)
        if request.connection not in self.connections:
            self.connections.append(request.connection)
        word = body.split(b" ")[0]
        if word in (b"wait", b"park"):
            self.waiting.append(request)
        elif word == b"pass":
            request.let_others_pass()
            self.waiting.append(request)
        elif word == b"nothing":
            request.respond_nothing()
        elif word == b"close":
            request.close("the test says so")
        elif word == b"raise":
            raise ValueError("the test says so")
        elif word == b"mute":
            request.connection.mute(float(body.split(b" ")[1]))
            request.respond([body])
        elif word in self.answers:
            request.respond(self.answers[word]())
        else:
            request.respond([body])


class Client:
    """A client socket that is read and written while the server's loop turns."""

    def __init__(self, network: Network, port: int, receive_buffer_bytes: int | None) -> None:
        self._network = network
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._received = bytearray()
        self._ended = False

    def send(self, data: bytes) -> None:
        """All of it, turning the loop while the socket is full."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send_some(rest) :]
            if rest:
                self._network.turn()

    def send_some(self, data: bytes | memoryview) -> int:
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0

    def receive(self) -> bytes:
        """The next answer."""
        self._network.until(lambda: self._has_answer() or self._ended)
        assert self._has_answer(), "the server closed the connection"
        end = 4 + int.from_bytes(self._received[:4], "big")
        answer = bytes(self._received[4:end])
        del self._received[:end]
        return answer

    def has_answer(self) -> bool:
        """Whether an answer is there already."""
        return self._has_answer()

    def received_bytes(self) -> int:
        """Bytes that are there and belong to no answer taken so far."""
        self._read()
        return len(self._received)

    def is_closed(self) -> bool:
        """By the server."""
        self._read()
        return self._ended

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _has_answer(self) -> bool:
        self._read()
        have = len(self._received)
        return have >= 4 and have >= 4 + int.from_bytes(self._received[:4], "big")

    def _read(self) -> None:
        while not self._ended:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            self._received += data
            self._ended = not data


class Network:
    """A running SocketServer, its handler, its clock and its clients."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: NetworkSettings,
        listener_names: tuple[str, ...],
    ) -> None:
        self.loop = loop
        self.clock = FakeClock()
        self.handler = EchoHandler()
        self.server = SocketServer(
            [
                Endpoint(name, "127.0.0.1", 0, "SSL" if name in settings.tls else "PLAINTEXT")
                for name in listener_names
            ],
            self.handler,
            loop=loop,
            settings=settings,
            clock=self.clock,
        )
        self.ports = self.server.start()
        self.clients: list[Client] = []

    def client(
        self, listener_name: str = "PLAINTEXT", *, receive_buffer_bytes: int | None = None
    ) -> Client:
        """Connected, though perhaps not accepted yet."""
        client = Client(self, self.ports[listener_name], receive_buffer_bytes)
        self.clients.append(client)
        return client

    def accepted_client(self, listener_name: str = "PLAINTEXT") -> Client:
        before = self.server.counters.accepted
        client = self.client(listener_name)
        self.until(lambda: self.server.counters.accepted > before)
        return client

    def turn(self) -> None:
        """One turn of the loop."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            self.turn()

    def sweep(self) -> None:
        for processor in self.server.processors:
            processor.call(processor.sweep)

    def used_bytes(self) -> int:
        return sum(processor.pool.used for processor in self.server.processors)

    def close(self) -> None:
        self.server.close()
        for client in self.clients:
            client.close()


@contextmanager
def running_network(
    *,
    listener_names: tuple[str, ...] = ("PLAINTEXT",),
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    **settings: Any,
) -> Iterator[Network]:
    loop = new_loop()
    network = Network(loop, NetworkSettings(**settings), listener_names)
    try:
        yield network
    finally:
        network.close()
        loop.close()
