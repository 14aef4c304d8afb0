"""TLS below a connection, for tests: the proof that the Transport interface has room for it.

No keys or certificates: the suite is anonymous, which no real server would offer.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from tidelog.transport import Memory, Want

TAKE_BYTES_MAX: Final = 64 * 1024
READ_BYTES: Final = 64 * 1024


def anonymous_context(*, server_side: bool) -> ssl.SSLContext:
    protocol = ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    return context


class TlsTransport:
    sends_files: Final = False

    def __init__(self, sock: socket.socket, *, server_side: bool) -> None:
        self._socket = sock
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._tls = anonymous_context(server_side=server_side).wrap_bio(
            self._arrived, self._leaving, server_side=server_side
        )
        self._left = memoryview(b"")  # encrypted, and the socket had no room
        self.wants: list[Want] = []  # of the handshake, for tests
        self.is_throttled = False  # a socket without room, for tests

    @property
    def unsent(self) -> bool:
        return bool(self._left) or self._leaving.pending > 0

    @property
    def buffered(self) -> bool:
        return self._tls.pending() > 0 or self._arrived.pending > 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def handshake(self) -> Want:
        want = self._go_on_with_handshake()
        self.wants.append(want)
        return want

    def _go_on_with_handshake(self) -> Want:
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            try:
                self.flush()
            except BlockingIOError:
                if not is_done:
                    return Want.WRITE
            if is_done:
                return Want.NOTHING
            try:
                self._fill()
            except BlockingIOError:
                return Want.READ

    def recv_into(self, buffer: memoryview, /) -> int:
        while True:
            try:
                # Into a buffer it returns how many bytes there were, which its stub does not know.
                return cast("int", self._tls.read(len(buffer), cast("bytearray", buffer)))
            except ssl.SSLWantReadError:
                self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0

    def _fill(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()

    def send(self, data: Memory, /) -> int:
        if self.unsent:
            self.flush()
        taken = self._tls.write(memoryview(data)[:TAKE_BYTES_MAX])
        with suppress(BlockingIOError):
            self.flush()
        return taken

    def send_parts(self, parts: Sequence[Memory], *, more: bool = False) -> int:
        return self.send(b"".join(parts))

    def send_file(self, file: int, position: int, count: int) -> int:
        data = os.pread(file, min(count, TAKE_BYTES_MAX), position)
        return self.send(data) if data else 0

    def flush(self) -> None:
        if self.is_throttled:
            raise BlockingIOError
        while self.unsent:
            if not self._left:
                self._left = memoryview(self._leaving.read())
            self._left = self._left[self._socket.send(self._left) :]

    def has_arrived(self) -> bool:
        if self.buffered:
            return True
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def failure(self) -> OSError | None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(code, os.strerror(code)) if code else None

    def close(self) -> None:
        self._socket.close()
