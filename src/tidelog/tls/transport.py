"""The TLS byte stream below a connection: a Transport (`tidelog/transport.py`) on OpenSSL.

OpenSSL reads and writes the socket itself. That sends a third faster than moving its records
through memory, and a connection that has not begun its handshake holds nothing but its socket.

    state                      what `handshake` does
    no byte has come (server)  looks at the first byte, and waits for it
    shaking hands              one step of OpenSSL's; it costs about a millisecond of signing
    done                       nothing

Records hold 16 KiB at most. `recv_into` empties as many as have come and fit, `send` and
`send_file` fill as many as the socket has room for, up to `TAKE_BYTES_MAX` each. A chunk that was
encrypted and found no room must be offered again as it was: the transport keeps a copy and is
`unsent`.

What the peers do not agree on is a `HandshakeFailed` (`handshake.py`), also when it comes after the
handshake: a TLS 1.3 server learns of a client's certificate when the client believes itself
connected.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog.tls.handshake import NOT_TLS, HandshakeFailed, HandshakeProblem, explained
from tidelog.transport import Memory, Want

RECORD_BYTES: Final = 16 * 1024
CHUNK_BYTES: Final = 4 * RECORD_BYTES  # offered to OpenSSL in one call
TAKE_BYTES_MAX: Final = 1024 * 1024
FILE_BYTES: Final = 256 * 1024
_HANDSHAKE_RECORD: Final = b"\x16"
_DRAIN_BYTES: Final = 64 * 1024
_DRAINS_MAX: Final = 8


class TlsTransport:
    """Of a connected socket. `context` fits the side that it is for.

    `name_of` gives the peer's name from its certificate, or raises ValueError.
    """

    sends_files: Final = False

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        name_of: Callable[[bytes], str] | None = None,
    ) -> None:
        self._raw: socket.socket | None = sock  # until OpenSSL has it
        self._tls: ssl.SSLSocket | None = None
        self._descriptor = sock.fileno()
        self._context = context
        self._server_side = server_side
        self._server_hostname = server_hostname
        self._name_of = name_of
        self._is_done = False  # with the handshake
        self._failure: HandshakeFailed | None = None
        self._kept = b""  # a chunk that OpenSSL has begun to send and the socket had no room for
        self._owes = False  # an answer of the protocol itself, likewise

    @property
    def unsent(self) -> bool:
        return self._owes or len(self._kept) > 0

    @property
    def buffered(self) -> bool:
        tls = self._tls
        return tls is not None and self._is_done and tls.pending() > 0

    def fileno(self) -> int:
        return self._descriptor

    # The handshake

    def handshake(self) -> Want:
        if self._is_done:
            return Want.NOTHING
        if self._tls is None:
            if self._server_side and not self._has_begun():
                return Want.READ
            self._take_socket()
        tls = self._tls
        assert tls is not None
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return Want.READ
        except ssl.SSLWantWriteError:
            return Want.WRITE
        except (ssl.SSLEOFError, ConnectionResetError) as error:
            # Not for the log of a server: clients come and go.
            hint = "" if self._server_side else "; it may speak plain text on this port"
            raise ConnectionResetError(f"it hung up during the TLS handshake{hint}") from error
        except ssl.SSLError as error:
            raise self._failed(error) from error
        self._is_done = True
        return Want.NOTHING

    def _has_begun(self) -> bool:
        """Of a server: whether the client's first byte is there, and is one of TLS."""
        raw = self._raw
        assert raw is not None
        try:
            first = raw.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        if not first:
            raise ConnectionResetError("closed before the handshake")
        if first != _HANDSHAKE_RECORD:
            self._failure = HandshakeFailed(HandshakeProblem.NOT_TLS, NOT_TLS)
            raise self._failure
        return True

    def _take_socket(self) -> None:
        raw = self._raw
        assert raw is not None
        try:
            self._tls = self._context.wrap_socket(
                raw,
                server_side=self._server_side,
                do_handshake_on_connect=False,
                server_hostname=self._server_hostname,
            )
        except ssl.SSLError as error:
            raise self._failed(error) from error
        except ValueError as error:  # a host name that no certificate could have
            raise HandshakeFailed(HandshakeProblem.OTHER, str(error)) from error
        self._raw = None

    def _failed(self, error: ssl.SSLError) -> HandshakeFailed:
        self._failure = explained(error)
        return self._failure

    def peer_name(self) -> str | None:
        """After the handshake: what `name_of` makes of the peer's certificate, if it has one."""
        if self._name_of is None or self._tls is None:
            return None
        certificate = self._tls.getpeercert(True)
        if certificate is None:
            return None
        try:
            return self._name_of(certificate)
        except ValueError as error:
            self._failure = HandshakeFailed(HandshakeProblem.CERTIFICATE_REFUSED, str(error))
            raise self._failure from error

    # Receiving

    def recv_into(self, buffer: memoryview, /) -> int:
        if self._failure is not None:
            raise self._failure
        tls = self._tls
        assert tls is not None
        size = min(len(buffer), TAKE_BYTES_MAX)
        received = 0
        try:
            while True:
                rest = buffer[received:size]
                count = tls.recv_into(rest)
                received += count
                # OpenSSL takes one record at a time from the socket. Another follows a full one.
                if count == 0 or received == size or (count < RECORD_BYTES and not tls.pending()):
                    return received
        except ssl.SSLWantReadError:
            if received == 0:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self._owes = True
            if received == 0:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            failure = self._failed(error)
            if received == 0:
                raise failure from error
        return received

    def has_arrived(self) -> bool:
        if self.buffered:
            return True
        try:
            return bool(socket.socket.recv(self._either(), 1, socket.MSG_PEEK))
        except OSError:
            return False

    # Sending

    def send(self, data: Memory, /) -> int:
        if self.unsent:
            self.flush()
        tls = self._tls
        assert tls is not None
        view = memoryview(data)
        size = min(len(view), TAKE_BYTES_MAX)
        sent = 0
        while sent < size:
            end = min(size, sent + CHUNK_BYTES)
            chunk = view[sent:end]
            try:
                tls.send(chunk)  # all of it, or else a part that OpenSSL remembers
            except ssl.SSLWantWriteError:
                self._kept = bytes(chunk)
                return end
            except OSError as error:
                raise self._why(error) from error
            sent = end
        return sent

    def send_parts(self, parts: Sequence[Memory], *, more: bool = False) -> int:
        """Small parts share a record."""
        taken = 0
        small: list[Memory] = []
        small_bytes = 0
        for part in parts:
            room = RECORD_BYTES - small_bytes
            if len(part) <= room:
                small.append(part)
                small_bytes += len(part)
                continue
            whole = memoryview(part)
            if small:
                begin = whole[:room]
                taken += self.send(b"".join([*small, begin]))
                if self.unsent:
                    return taken
                whole = whole[room:]
            full_bytes = len(whole) // RECORD_BYTES * RECORD_BYTES
            if full_bytes:
                full = whole[:full_bytes]
                count = self.send(full)
                taken += count
                if count < full_bytes or self.unsent:
                    return taken
            tail = whole[full_bytes:]
            small = [tail]
            small_bytes = len(tail)
            if taken >= TAKE_BYTES_MAX:
                return taken
        return taken + self.send(b"".join(small)) if small_bytes else taken

    def send_file(self, file: int, position: int, count: int) -> int:
        if self.unsent:
            self.flush()
        data = os.pread(file, min(count, FILE_BYTES), position)
        return self.send(data) if data else 0

    def flush(self) -> None:
        tls = self._tls
        assert tls is not None
        try:
            if self._owes:
                tls.do_handshake()  # goes on with what the protocol has begun
                self._owes = False
            if self._kept:
                tls.send(self._kept)
                self._kept = b""
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except OSError as error:
            raise self._why(error) from error

    def _why(self, error: OSError) -> OSError:
        """A peer that has hung up may have said why, and a write does not look."""
        tls = self._tls
        if self._failure is None and tls is not None:
            try:
                tls.recv(1)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except ssl.SSLError as reason:
                return self._failed(reason)
            except OSError:
                pass
        return explained(error) if isinstance(error, ssl.SSLError) else error

    # The end

    def failure(self) -> OSError | None:
        code = self._either().getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return OSError(code, os.strerror(code)) if code else None

    def close(self) -> None:
        sock = self._either()
        if self._failure is not None:
            self._let_peer_read_why(sock)
        elif self._tls is not None and self._is_done and not self.unsent:
            with suppress(OSError, ValueError):
                self._tls.unwrap()  # says goodbye, and does not wait for the answer
        sock.close()

    def _let_peer_read_why(self, sock: socket.socket) -> None:
        """Bytes left unread would make the kernel reset the connection, and drop the alert."""
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_WR)
            for _ in range(_DRAINS_MAX):
                if not socket.socket.recv(sock, _DRAIN_BYTES):
                    break

    def _either(self) -> socket.socket:
        if self._tls is not None:
            return self._tls
        assert self._raw is not None
        return self._raw
