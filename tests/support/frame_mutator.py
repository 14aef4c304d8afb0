"""Hostile frames made from good ones, and a barrage of them against a broker.

`Mutator` turns valid request frames into damaged ones: flipped bits, extreme integers, cuts, lying
lengths, spliced and repeated parts, plain garbage. It is seeded, so a frame that hurts can be made
again. `Barrage` sends such frames over many short connections without ever waiting politely for
answers.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.support.raw_client import RawClient
from tests.support.request_samples import sample_requests

EXTREME_INT8 = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
EXTREME_INT16 = (0, 1, -1, -2, 32_767, -32_768, 1000)
EXTREME_INT32 = (0, 1, -1, -2, 2**31 - 1, -(2**31), 65_536, 104_857_600, 104_857_601)
EXTREME_INT64 = (0, -1, -2, 2**63 - 1, -(2**63), 2**32)
FRAME_HEADER = struct.Struct(">i")
HIGHEST_KEY_TRIED = 95
SERVED_WEIGHT = 20


def valid_frames(bootstrap: str, topic: str, tls: ssl.SSLContext | None = None) -> list[bytes]:
    """Frames of every served API in every version, several times over, and of all other keys."""
    served = []
    with RawClient(bootstrap, tls=tls) as client:
        for request_class, fields in sample_requests(topic):
            for version in range(request_class.max_version + 1):
                with contextlib.suppress(TypeError, ValueError, AttributeError, KeyError):
                    served.append(
                        client.frame_of(request_class(version=version, **fields(version)))
                    )
    other = [_bare_frame(key, version) for key in range(HIGHEST_KEY_TRIED) for version in (0, 3)]
    other += _frames_of_the_own_codec()
    return served * SERVED_WEIGHT + other


def _bare_frame(api_key: int, version: int) -> bytes:
    body = struct.pack(">hhihs", api_key, version, 1, 1, b"m") + bytes(16)
    return FRAME_HEADER.pack(len(body)) + body


def _frames_of_the_own_codec() -> Iterator[bytes]:
    """Default requests of all keys and versions, as tidelog's own encoder writes them."""
    from tests.support.messages import request_of
    from tidelog.protocol.api_keys import VERSIONS
    from tidelog.protocol.errors import EncodeError
    from tidelog.protocol.header import encode_request_header

    for api_key, versions in VERSIONS.items():
        request = request_of(api_key)
        for version in range(versions.min_version, versions.max_version + 1):
            with contextlib.suppress(EncodeError):
                body = encode_request_header(api_key, version, 1, "m") + request().encode(version)
                yield FRAME_HEADER.pack(len(body)) + body


def login_frames(bootstrap: str, user: str, password: str) -> tuple[bytes, bytes]:
    """The handshake and the token of a login with PLAIN."""
    token = f"\0{user}\0{password}".encode()
    with RawClient(bootstrap) as client:
        return (
            client.frame_of(SaslHandshakeRequest(version=1, mechanism="PLAIN")),
            client.frame_of(SaslAuthenticateRequest(version=1, auth_bytes=token)),
        )


def frames_of_logins(bootstrap: str, tokens: list[bytes]) -> list[bytes]:
    """Handshakes for all mechanisms and all tokens, in every version; tokens also bare."""
    found = [reframed(token) for token in tokens]
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
    with RawClient(bootstrap) as client:
        for version in (0, 1):
            found += [
                client.frame_of(SaslHandshakeRequest(version=version, mechanism=mechanism))
                for mechanism in mechanisms
            ]
            found += [
                client.frame_of(SaslAuthenticateRequest(version=version, auth_bytes=token))
                for token in tokens
            ]
    return found


class Mutator:
    def __init__(self, frames: list[bytes], seed: int) -> None:
        self.frames = frames
        self.random = random.Random(seed)
        self.ways: tuple[Callable[[bytes], bytes], ...] = (
            self._flip_bits,
            self._flip_bits,
            self._set_extreme_integer,
            self._set_extreme_integer,
            self._cut_and_reframe,
            self._cut,
            self._lie_about_length,
            self._remove_part,
            self._repeat_part,
            self._insert_garbage,
            self._splice,
            self._garbage,
        )

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.random.choice(self.ways)(self.random.choice(self.frames))

    def _flip_bits(self, frame: bytes) -> bytes:
        out = bytearray(frame)
        for _ in range(self.random.choice((1, 1, 2, 4, 16))):
            out[self.random.randrange(4, len(out))] ^= 1 << self.random.randrange(8)
        return bytes(out)

    def _set_extreme_integer(self, frame: bytes) -> bytes:
        values, layout = self.random.choice(
            (
                (EXTREME_INT8, ">B"),
                (EXTREME_INT16, ">h"),
                (EXTREME_INT32, ">i"),
                (EXTREME_INT64, ">q"),
            )
        )
        out = bytearray(frame)
        position = self.random.randrange(4, max(5, len(out) - struct.calcsize(layout) + 1))
        packed = struct.pack(layout, self.random.choice(values))
        out[position : position + len(packed)] = packed
        return reframed(bytes(out[4:]))

    def _cut(self, frame: bytes) -> bytes:
        return frame[: self.random.randrange(1, len(frame))]

    def _cut_and_reframe(self, frame: bytes) -> bytes:
        return reframed(frame[4 : self.random.randrange(4, len(frame))])

    def _lie_about_length(self, frame: bytes) -> bytes:
        length = self.random.choice((*EXTREME_INT32, len(frame), len(frame) - 5, 20, 3))
        return FRAME_HEADER.pack(length) + frame[4:]

    def _remove_part(self, frame: bytes) -> bytes:
        start = self.random.randrange(4, len(frame))
        return reframed(frame[4:start] + frame[start + self.random.randint(1, 8) :])

    def _repeat_part(self, frame: bytes) -> bytes:
        start = self.random.randrange(4, len(frame))
        part = frame[start : start + self.random.randint(1, 40)]
        return reframed(frame[4:start] + part * self.random.choice((2, 3, 200)) + frame[start:])

    def _insert_garbage(self, frame: bytes) -> bytes:
        at = self.random.randrange(4, len(frame))
        junk = self.random.randbytes(self.random.choice((1, 4, 64, 3000)))
        return reframed(frame[4:at] + junk + frame[at:])

    def _splice(self, frame: bytes) -> bytes:
        other = self.random.choice(self.frames)
        tail = other[self.random.randrange(4, len(other)) :]
        return reframed(frame[4 : self.random.randrange(4, len(frame))] + tail)

    def _garbage(self, frame: bytes) -> bytes:
        return self.random.randbytes(self.random.choice((1, 5, 50, 500)))


def reframed(body: bytes) -> bytes:
    return FRAME_HEADER.pack(len(body)) + body


class Barrage:
    """Sends mutated frames from several threads; `sent` counts them.

    Each connection begins with the frames of `opening` as they are, and their answers.
    """

    FRAMES_PER_CONNECTION = 8
    ANSWER_WAIT_S = 0.02
    THREADS = 4

    def __init__(
        self,
        bootstrap: str,
        frames: list[bytes],
        seed: int,
        tls: ssl.SSLContext | None = None,
        opening: tuple[bytes, ...] = (),
    ) -> None:
        self.tls = tls
        self.opening = opening
        self.host, _, port = bootstrap.rpartition(":")
        self.port = int(port)
        self.frames = frames
        self.seed = seed
        self.sent = 0
        self.refused_connections = 0

    def run(self, count: int) -> None:
        share = count // self.THREADS
        threads = [
            threading.Thread(target=self._run_share, args=(number, share))
            for number in range(self.THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_share(self, number: int, count: int) -> None:
        mutated = iter(Mutator(self.frames, self.seed * 1000 + number))
        for _ in range(0, count, self.FRAMES_PER_CONNECTION):
            self._one_connection([next(mutated) for _ in range(self.FRAMES_PER_CONNECTION)])
            self.sent += self.FRAMES_PER_CONNECTION

    def _one_connection(self, frames: list[bytes]) -> None:
        """Each frame alone where the broker closes on it: the rest goes over a new connection."""
        while frames:
            try:
                with socket.create_connection((self.host, self.port), timeout=30.0) as connection:
                    if self.tls is None:
                        frames = self._send(connection, frames)
                        continue
                    with self.tls.wrap_socket(connection, server_hostname=self.host) as secured:
                        frames = self._send(secured, frames)
            except OSError:
                self.refused_connections += 1
                return

    def _send(self, connection: socket.socket, frames: list[bytes]) -> list[bytes]:
        for frame in self.opening:
            connection.sendall(frame)
            read_answer(connection)
        connection.settimeout(self.ANSWER_WAIT_S)
        for position, frame in enumerate(frames):
            try:
                connection.sendall(frame)
                if not connection.recv(65_536):
                    return frames[position + 1 :]
            except TimeoutError:
                if position % 3 == 2:
                    return frames[position + 1 :]
            except OSError:
                return frames[position + 1 :]
        return []


def read_answer(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        size = FRAME_HEADER.unpack(stream.read(FRAME_HEADER.size))[0]
        return stream.read(size)


@dataclass
class GoodClient:
    """Writes and reads back one record at a time while others misbehave; remembers how long each
    took. It begins with the frames of `opening`."""

    bootstrap: str
    topic: str
    latencies_s: list[float] = field(default_factory=list)
    failure: BaseException | None = None
    pause_s: float = 0.005
    tls: ssl.SSLContext | None = None
    opening: tuple[bytes, ...] = ()

    def __enter__(self) -> GoodClient:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self.failure is None, f"the good client was disturbed: {self.failure!r}"

    def p99_s(self) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[int(len(ordered) * 0.99)]

    def _run(self) -> None:
        try:
            self._round_trips()
        except (AssertionError, OSError) as failure:
            self.failure = failure

    def _round_trips(self) -> None:
        from tests.support.raw_batch import batch, read_batches
        from tests.support.raw_client import fetch, produce

        with RawClient(self.bootstrap, client_id="good", tls=self.tls) as client:
            for frame in self.opening:
                client.send_bytes(frame)
                client.read_frame()
            number = 0
            while not self._stop.is_set():
                value = b"good %d" % number
                started = time.monotonic()
                row = produce(client, self.topic, batch(value))
                assert (row.error_code, row.base_offset) == (0, number)
                records = fetch(client, self.topic, number).records
                self.latencies_s.append(time.monotonic() - started)
                (stored,) = read_batches(records)
                assert [r.value for r in stored.records()] == [value]
                number += 1
                time.sleep(self.pause_s)
