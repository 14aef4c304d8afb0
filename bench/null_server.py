"""A server that does nothing: a canned answer for every so many bytes received.

Against it the raw client runs the very loop it runs against a broker, which tells what client and
loopback cost by themselves. A broker's figure close to this one is the client's figure.
"""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager

RECEIVE_BYTES = 1 << 20


def _serve(listener: socket.socket, request_bytes: int, answer: bytes) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    pending = 0
    while got := connection.recv_into(buffer, 0, socket.MSG_TRUNC):
        whole, pending = divmod(pending + got, request_bytes)
        if whole:
            connection.sendall(answer * whole)


@contextmanager
def null_server(request_bytes: int, answer: bytes) -> Iterator[int]:
    """Serves one connection in a process of its own; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listener, request_bytes, answer), daemon=True
        )
        process.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            process.kill()
            process.join()
