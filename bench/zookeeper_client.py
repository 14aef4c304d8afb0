"""One connection with a session of ZooKeeper's protocol, which sends prebuilt requests.

It sends no pings, so a session has to be in use or end within its timeout. Layout of a request:
length 4, xid 4, type 4, body; of an answer: length 4, xid 4, zxid 8, error 4, body. A server gives
back the xid that a request had, so the same bytes may be sent again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bench.raw_client import RawClient, Run
from bench.wire import BadAnswer

CREATE, EXISTS, GET_DATA, SET_DATA, MULTI, CLOSE = 1, 3, 4, 5, 14, -11
PERSISTENT, SEQUENCE = 0, 2
ERROR_POSITION, BODY_POSITION = 16, 20
SESSION_TIMEOUT_MS = 30_000
PASSWORD_BYTES = 16
STAT_BYTES = 68
VERSION_POSITION, CHILDREN_POSITION = 32, 56  # in a stat
ANY_VERSION = -1


def text(value: str) -> bytes:
    return buffer(value.encode())


def buffer(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def request(kind: int, body: bytes) -> bytes:
    return struct.pack(">iii", len(body) + 8, 1, kind) + body


def creation(path: str, data: bytes, flags: int) -> bytes:
    """Open to all."""
    entry = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
    return text(path) + buffer(data) + entry + struct.pack(">i", flags)


def create(path: str, data: bytes, flags: int = PERSISTENT) -> bytes:
    return request(CREATE, creation(path, data, flags))


def multi(creations: Sequence[bytes]) -> bytes:
    parts = [struct.pack(">i?i", CREATE, False, -1) + each for each in creations]
    return request(MULTI, b"".join(parts) + struct.pack(">i?i", -1, True, -1))


def get_and_watch(path: str) -> bytes:
    return request(GET_DATA, text(path) + b"\1")


def set_data(path: str, data: bytes) -> bytes:
    return request(SET_DATA, text(path) + buffer(data) + struct.pack(">i", ANY_VERSION))


class ZooKeeperConnection:
    """With a session of its own."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port)
        body = struct.pack(">iqiq", 0, 0, SESSION_TIMEOUT_MS, 0) + buffer(bytes(PASSWORD_BYTES))
        self._client.ask(struct.pack(">i", len(body) + 1) + body + b"\0")

    def __enter__(self) -> ZooKeeperConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def close_session(self) -> None:
        self.ask(request(CLOSE, b""))

    def ask(self, frame: bytes) -> bytes:
        """The whole answer."""
        return checked(self._client.ask(frame))

    def pump(self, frames: bytes, answers_bytes: int, count: int, in_flight: int) -> Run:
        """Sends them count times; each time they are answered by so many bytes."""
        run, tail = self._client.pump(frames, answers_bytes, count, in_flight, len(frames))
        checked(tail)
        return run

    def take(self, frames: int) -> bytes:
        """The next frames, answers or events."""
        return b"".join(self._client.receive_answer() for _ in range(frames))

    def send(self, frames: bytes) -> None:
        self._client.socket.sendall(frames)

    def stat(self, path: str) -> bytes:
        return self.ask(request(EXISTS, text(path) + b"\0"))[BODY_POSITION:]

    def children_count(self, path: str) -> int:
        return int(struct.unpack_from(">i", self.stat(path), CHILDREN_POSITION)[0])

    def version(self, path: str) -> int:
        return int(struct.unpack_from(">i", self.stat(path), VERSION_POSITION)[0])


def checked(answer: bytes) -> bytes:
    (error,) = struct.unpack_from(">i", answer, ERROR_POSITION)
    if error:
        raise BadAnswer(f"the server answered error code {error}")
    return answer
