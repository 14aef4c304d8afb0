"""The plain transport. That of TLS is tried in tests/unit/tls."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from tidelog.transport import PlainTransport, Want

MIB = 1024 * 1024

# Plain


@pytest.fixture
def pair() -> Iterator[tuple[PlainTransport, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield PlainTransport(near), far


def test_a_plain_transport_needs_no_handshake_and_keeps_nothing(
    pair: tuple[PlainTransport, socket.socket],
) -> None:
    transport, _ = pair
    assert transport.handshake() is Want.NOTHING
    assert (transport.unsent, transport.buffered, transport.sends_files) == (False, False, True)


def test_bytes_go_both_ways(pair: tuple[PlainTransport, socket.socket], tmp_path: Path) -> None:
    transport, far = pair
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    transport.send(b"one ")
    transport.send_parts([b"two ", memoryview(b"three ")], more=True)
    with FileIO(path) as file:
        assert transport.send_file(file.fileno(), 4, 3) == 3
        assert transport.send_file(file.fileno(), 10, 3) == 0
    assert far.recv(100) == b"one two three 456"

    buffer = memoryview(bytearray(10))
    with pytest.raises(BlockingIOError):
        transport.recv_into(buffer)
    far.sendall(b"answer")
    assert transport.recv_into(buffer) == 6
    assert bytes(buffer[:6]) == b"answer"


def test_what_has_arrived_stays_to_be_received(pair: tuple[PlainTransport, socket.socket]) -> None:
    transport, far = pair
    assert not transport.has_arrived()
    far.sendall(b"x")
    assert transport.has_arrived()
    assert transport.recv_into(memoryview(bytearray(10))) == 1
    far.close()
    assert not transport.has_arrived()
    assert transport.recv_into(memoryview(bytearray(10))) == 0


def test_a_reset_is_told_by_the_transport() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        transport = PlainTransport(near)
        assert transport.failure() is None
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        select_readable(near)
        assert isinstance(transport.failure(), ConnectionResetError)
        transport.close()


def select_readable(sock: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    assert poll.poll(10_000)
