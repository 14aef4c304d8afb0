"""The HTTP server before clients that behave, and before others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tidelog.broker.observation import http_server
from tidelog.broker.observation.health import Health
from tidelog.broker.observation.http_server import BadRequest, HttpServer, parse_head

GET_METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"kafka_brokers 1\n"


class Stage:
    """The server, and a loop on another thread in the place of the broker's."""

    def __init__(self, timeout_s: float) -> None:
        self.health = Health(FakeClock(), 30_000)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.page = PAGE
        self.server = HttpServer(
            "127.0.0.1", 0, self.health, self._collect, self.loop, timeout_s=timeout_s
        )
        self.server.start()

    async def _collect(self) -> list[str]:
        return [self.page.decode()]

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.server.port))
        connection.settimeout(60)
        return connection

    def ask(self, request: bytes) -> bytes:
        """Everything that comes back until the server closes, or has nothing more to say."""
        with self.connect() as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def run_a_turn(self) -> None:
        """What was given to the loop before is done, also if it was given up."""
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), self.loop).result(60)

    def close(self) -> None:
        self.server.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def read_all(connection: socket.socket) -> bytes:
    text = b""
    while piece := connection.recv(65_536):
        text += piece
    return text


@contextmanager
def serving(timeout_s: float = 60.0) -> Iterator[Stage]:
    stage = Stage(timeout_s)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with serving() as stage:
        yield stage


def test_metrics_health_and_readiness_are_told(stage: Stage) -> None:
    stage.health.serves()
    answer = stage.ask(GET_METRICS)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in answer
    assert answer.endswith(b"\r\n\r\n" + PAGE)
    assert stage.ask(b"GET /healthz HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nlive\n")
    assert stage.ask(b"GET /readyz?verbose HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nready\n")
    head = stage.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 16\r\n" in head
    assert head.endswith(b"\r\n\r\n")


def test_before_the_broker_serves_there_are_no_metrics_and_it_is_not_ready(stage: Stage) -> None:
    assert stage.ask(GET_METRICS).startswith(b"HTTP/1.1 503 ")
    answer = stage.ask(b"GET /readyz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b"not ready: starting\n")
    assert stage.ask(b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_their_order(stage: Stage) -> None:
    stage.health.serves()
    answers = stage.ask(b"GET /healthz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n" + GET_METRICS)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.index(b"live") < answers.index(b"ready") < answers.index(b"kafka_brokers")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 hello of TLS\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_not_served_is_refused(stage: Stage, request_text: bytes, status: int) -> None:
    stage.health.serves()
    with stage.connect() as connection:
        connection.sendall(request_text)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = read_all(connection)
        except ConnectionResetError:  # it was closed before all that was sent was read
            assert status == 431
            return
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer


def test_a_client_that_sends_no_request_is_cut_off() -> None:
    with serving(timeout_s=0.2) as stage, stage.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert read_all(connection) == b""


def test_a_client_that_does_not_read_is_cut_off_and_its_page_let_go() -> None:
    with serving(timeout_s=0.5) as stage:
        stage.health.serves()
        stage.page = b"x" * 30_000_000
        slow = [stage.connect() for _ in range(http_server.PAGES_MAX)]
        for connection in slow:
            connection.sendall(GET_METRICS)
        eventually(lambda: stage.server._pages == http_server.PAGES_MAX)
        eventually(lambda: stage.server._pages == 0)
        stage.page = PAGE
        assert stage.ask(GET_METRICS).startswith(b"HTTP/1.1 200 ")
        for connection in slow:
            connection.close()


def test_connections_beyond_the_limit_are_closed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 2)
    stage.health.serves()
    first, second, third = (stage.connect() for _ in range(3))
    try:
        for connection in (first, second):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert read_all(third) == b""
    finally:
        for connection in (first, second, third):
            connection.close()
    eventually(lambda: stage.ask(b"GET /healthz HTTP/1.1\r\n\r\n") != b"")


def test_a_broker_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "COLLECT_TIMEOUT_S", 0.1)
    with serving() as stage:
        stage.health.serves()
        held = threading.Event()
        stage.loop.call_soon_threadsafe(held.wait)
        assert stage.ask(GET_METRICS).startswith(b"HTTP/1.1 503 ")
        assert stage.ask(b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        held.set()
        stage.run_a_turn()


def test_a_server_may_be_closed_right_after_its_start() -> None:
    for _ in range(5):
        loop = asyncio.new_event_loop()

        async def collect() -> list[str]:
            return []

        server = HttpServer("127.0.0.1", 0, Health(FakeClock(), 30_000), collect, loop)
        server.start()
        server.close()
        assert not server._thread.is_alive()
        loop.close()


@pytest.mark.parametrize("mutate", [bytes.lower, bytes.swapcase, lambda text: text[::-1]])
def test_any_bytes_are_a_head_or_a_bad_request(mutate: Callable[[bytes], bytes]) -> None:
    for end in range(len(GET_METRICS) - 4):
        try:
            parse_head(mutate(GET_METRICS[:end]) + b"\r\n\r\n")
        except BadRequest:
            continue
