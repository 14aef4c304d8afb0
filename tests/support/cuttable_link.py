"""A TCP link through this process that a test can cut, freeze, or make swallow one direction.

    OPEN       bytes go both ways
    CUT        connections are closed, new ones too
    FROZEN     connections stay and carry nothing
    ONE_WAY    requests reach the server, answers do not reach the client

Bytes held while FROZEN go on when the link opens again; those swallowed while ONE_WAY are gone, so
a link goes from there to CUT and not to OPEN.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from tests.support.eventually import eventually

CHUNK_BYTES = 65536
POLL_S = 0.01


class LinkState(Enum):
    OPEN = "open"
    CUT = "cut"
    FROZEN = "frozen"
    ONE_WAY = "one way"


class CuttableLink:
    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._state = LinkState.OPEN
        self._changed = threading.Event()
        self._closed = False
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.swallowed_bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [self._spawn(self._accept)]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_cut(self) -> bool:
        return self._state is LinkState.CUT

    def heal(self) -> None:
        assert self._state is not LinkState.ONE_WAY, "cut it first: bytes are missing"
        self._state = LinkState.OPEN

    def cut(self) -> None:
        self._state = LinkState.CUT
        self._close_connections()

    def freeze(self) -> None:
        self._state = LinkState.FROZEN

    def swallow_answers(self) -> None:
        self.swallowed_bytes = 0
        self._state = LinkState.ONE_WAY

    def wait_until_answers_are_swallowed(self) -> None:
        eventually(lambda: self.swallowed_bytes > 0)

    def close(self) -> None:
        self._closed = True
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)

    def __enter__(self) -> CuttableLink:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _spawn(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=30)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._threads.append(self._spawn(lambda c=client, s=server: self._connect(c, s)))  # type: ignore[misc]
            if self.is_cut:
                self._shut((client, server))

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        """Carries both ways. Only the end of both closes the sockets, because a new connection may
        get the number of a closed one, and whoever still reads from it would take its bytes."""
        answers = self._spawn(lambda: self._carry(server, client, False))
        self._carry(client, server, True)
        answers.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _carry(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        try:
            while data := source.recv(CHUNK_BYTES):
                while self._state is LinkState.FROZEN:
                    self._changed.wait(POLL_S)
                if self._state is LinkState.ONE_WAY and not is_request:
                    self.swallowed_bytes += len(data)
                else:
                    sink.sendall(data)
        except OSError:
            pass
        self._shut((source, sink))

    def _close_connections(self) -> None:
        with self._lock:
            sockets = tuple(self._sockets)
        self._shut(sockets)

    def _shut(self, sockets: tuple[socket.socket, ...]) -> None:
        with self._lock:
            for each in self._sockets & set(sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
