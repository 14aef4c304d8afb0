"""The byte stream below a connection.

Three modules carry Kafka's protocol over TCP and none of them touches a socket: network/channel.py
(clients of this broker), network/peer_connection.py (this broker as a client of another) and
client/network/connection.py. Each is given a transport. `PlainTransport` is the socket itself, and
`tls/transport.py` has the other. The interface has the needs of TLS, which a plain socket does not
have:

- `handshake` is called until it wants nothing more, before anything else is sent or received.
- Encryption has state: bytes that it has taken cannot be offered again in another shape. So a
  transport may keep bytes that the socket had no room for. While `unsent` is true the owner watches
  for room and calls `flush`. Receiving may leave bytes to send too (answers of the protocol below).
- It may have taken more from the socket than was asked for. While `buffered` is true `recv_into`
  may have bytes, although no poll of the descriptor says so.
- Files leave by `sendfile` if `sends_files`, otherwise `send_file` reads and sends.

Whether calls wait is up to the socket. In the broker they do not: what cannot go on raises
BlockingIOError, and the owner watches the descriptor, for reading after `recv_into`, for room after
the others. In the client library they wait, and raise TimeoutError when it takes too long.
Every other failure is an OSError, after which the owner closes the transport.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeAlias

Memory: TypeAlias = "bytes | bytearray | memoryview"

_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)


class Want(Enum):
    """What a handshake waits for; watch the descriptor for it, and call `handshake` again."""

    NOTHING = "nothing"
    READ = "read"
    WRITE = "write"


class Transport(Protocol):
    @property
    def sends_files(self) -> bool:
        """`send_file` goes from the file to the socket without a copy."""

    @property
    def unsent(self) -> bool:
        """It keeps bytes that the socket had no room for."""

    @property
    def buffered(self) -> bool:
        """It keeps bytes that `recv_into` may give without asking the socket."""

    def fileno(self) -> int: ...

    def handshake(self) -> Want:
        """A HandshakeFailed of `tidelog.tls` says what the peers did not agree on."""

    def peer_name(self) -> str | None:
        """After the handshake: the name that the peer has proved by a certificate, if it has."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """How many bytes were received; 0 if the peer has ended its stream."""

    def send(self, data: Memory, /) -> int:
        """How many bytes were taken."""

    def send_parts(self, parts: Sequence[Memory], *, more: bool = False) -> int:
        """How many bytes of all parts together were taken. `more` will follow at once."""

    def send_file(self, file: int, position: int, count: int) -> int:
        """How many bytes of the file were taken; 0 if it ends before `position`."""

    def flush(self) -> None:
        """Sends what is unsent; BlockingIOError if the socket has no room for all of it."""

    def has_arrived(self) -> bool:
        """Whether bytes have arrived that were not received."""

    def failure(self) -> OSError | None:
        """What has become of the connection, if the socket knows and has not told yet."""

    def close(self) -> None: ...


class PlainTransport:
    """A connected socket. Its calls are the socket's own, so they cost nothing more."""

    __slots__ = ("_descriptor", "_socket", "fileno", "recv_into", "send")

    sends_files: Final = True
    unsent: Final = False
    buffered: Final = False

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self.fileno: Callable[[], int] = sock.fileno
        self.recv_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[Memory], int] = sock.send

    def handshake(self) -> Want:
        return Want.NOTHING

    def peer_name(self) -> None:
        return None

    def send_parts(self, parts: Sequence[Memory], *, more: bool = False) -> int:
        return self._socket.sendmsg(parts, (), _MSG_MORE if more else 0)

    def send_file(self, file: int, position: int, count: int) -> int:
        return os.sendfile(self._descriptor, file, position, count)

    def flush(self) -> None:
        pass

    def has_arrived(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def failure(self) -> OSError | None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(code, os.strerror(code)) if code else None

    def close(self) -> None:
        self._socket.close()
