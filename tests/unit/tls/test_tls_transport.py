"""TLS below each kind of connection: a client's, one to another broker, one of the client library.

The network tests run as the broker does, with one processor on its loop and with three threads.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import timedelta
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import DAY, REQUIRED, Authority
from tests.support.network import Client, FileSlice, Network, frame, running_network
from tests.support.peer import PeerStage
from tidelog.client.errors import ConnectionFailed, TlsFailed
from tidelog.client.network.connection import Surroundings, open_connection
from tidelog.client.network.frames import FrameMemory
from tidelog.clock import SystemClock
from tidelog.config.client import Address, ConsumerConfig
from tidelog.network.channel import CloseReason
from tidelog.network.peer_connection import connect
from tidelog.network.session import ANONYMOUS
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.tls.contexts import client_context, server_contexts
from tidelog.tls.handshake import HandshakeFailed, HandshakeProblem
from tidelog.tls.settings import TLS_1_2, TLS_1_3, TlsSettings
from tidelog.tls.transport import TlsTransport
from tidelog.transport import Want

MIB = 1024 * 1024
HOST = "localhost"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


class TlsClient(Client):
    def __init__(
        self,
        network: Network,
        context: ssl.SSLContext,
        *,
        receive_buffer_bytes: int | None = None,
        shakes_hands: bool = True,
    ) -> None:
        super().__init__(network, network.ports["SSL"], receive_buffer_bytes)
        network.clients.append(self)
        self.transport = TlsTransport(self.socket, context, server_side=False, server_hostname=HOST)
        if shakes_hands:
            network.until(self.is_through)

    def is_through(self) -> bool:
        return self.transport.handshake() is Want.NOTHING

    def send(self, data: bytes) -> None:
        super().send(data)
        self._network.until(self._is_flushed)

    def send_some(self, data: bytes | memoryview) -> int:
        try:
            return self.transport.send(data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.transport.close()

    def _is_flushed(self) -> bool:
        try:
            self.transport.flush()
        except BlockingIOError:
            return False
        return True

    def _read(self) -> None:
        buffer = memoryview(bytearray(MIB))
        while not self._ended:
            try:
                count = self.transport.recv_into(buffer)
            except BlockingIOError:
                return
            except ConnectionError:
                count = 0
            self._received += buffer[:count]
            self._ended = not count


def tls_network(settings: TlsSettings, **others: Any) -> Any:
    return running_network(listener_names=("SSL",), tls={"SSL": settings}, **others)


@pytest.fixture(params=[1, 3], ids=["broker-loop", "three-threads"])
def network(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Network]:
    settings = authority.settings(authority.issue("broker"))
    with tls_network(settings, network_threads=request.param) as running:
        yield running


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    return client_context(authority.settings())


# Requests and answers


def test_requests_over_tls_are_answered_in_order(network: Network, context: ssl.SSLContext) -> None:
    client = TlsClient(network, context)
    bodies = [b"%d" % number for number in range(3000)]
    client.send(b"".join(map(frame, bodies)))
    assert [client.receive() for _ in bodies] == bodies
    assert network.handler.connections[0].session.principal == ANONYMOUS


def test_large_requests_and_answers_over_tls(network: Network, context: ssl.SSLContext) -> None:
    client = TlsClient(network, context)
    body = bytes(range(256)) * (3 * MIB // 256)
    client.send(frame(b"before") + frame(body) + frame(b"after"))
    assert client.receive() == b"before"
    assert client.receive() == body
    assert client.receive() == b"after"
    network.until(lambda: network.used_bytes() == 0)


def test_files_are_read_and_sent_over_tls(
    network: Network, context: ssl.SSLContext, tmp_path: Path
) -> None:
    data = bytes(range(256)) * (2 * MIB // 256)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    with FileIO(path) as file:
        network.handler.answers[b"fetch"] = lambda: [
            b"head",
            FileSlice(file, 100, MIB),
            b"between",
            FileSlice(file, 0, 50),
        ]
        client = TlsClient(network, context)
        client.send(frame(b"fetch") + frame(b"next"))
        assert client.receive() == b"head" + data[100 : 100 + MIB] + b"between" + data[:50]
        assert client.receive() == b"next"
    assert network.server.counters.sendfile_bytes == 0


def test_a_slow_reader_over_tls_gets_everything(network: Network, context: ssl.SSLContext) -> None:
    network.handler.answers[b"much"] = lambda: [b"x" * MIB]
    client = TlsClient(network, context, receive_buffer_bytes=64 * 1024)
    client.send(frame(b"much") * 20)
    network.turns(50)
    assert [len(client.receive()) for _ in range(20)] == [MIB] * 20


def test_parts_of_all_sizes_arrive_as_they_are(network: Network, context: ssl.SSLContext) -> None:
    chance = random.Random(5)
    sizes = [0, 1, 100, 16_000, 16_384, 16_385, 40_000, 5, 900_000, 3, 3, 32_768, 2 * MIB, 1]
    parts = [chance.randbytes(size) for size in sizes]
    network.handler.answers[b"parts"] = lambda: list(parts)
    client = TlsClient(network, context, receive_buffer_bytes=32 * 1024)
    client.send(frame(b"parts") * 3)
    for _ in range(3):
        assert client.receive() == b"".join(parts)


def test_bytes_that_were_decrypted_are_received_though_no_poll_tells_of_them(
    network: Network, context: ssl.SSLContext
) -> None:
    """Small records in one TCP segment, of which OpenSSL takes one at a time."""
    client = TlsClient(network, context)
    bodies = [b"%d" % number + b"." * 5000 for number in range(40)]
    client.send(b"".join(map(frame, bodies)))
    assert [client.receive() for _ in bodies] == bodies


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_both_versions_of_tls_are_served(authority: Authority, version: str) -> None:
    with tls_network(authority.settings(authority.issue("broker", kind="rsa"))) as network:
        context = client_context(authority.settings(enabled_protocols=(version,)))
        client = TlsClient(network, context)
        client.send(frame(b"hello"))
        assert client.receive() == b"hello"


def test_a_tls_stream_that_ends_closes_the_connection(
    network: Network, context: ssl.SSLContext
) -> None:
    client = TlsClient(network, context)
    client.send(frame(b"hello"))
    assert client.receive() == b"hello"
    client.close()
    network.until(lambda: not network.server.connections)
    assert network.server.counters.closed_by[CloseReason.PEER_CLOSED] == 1


def test_a_connection_that_drains_sends_what_is_left(
    authority: Authority, context: ssl.SSLContext
) -> None:
    settings = authority.settings(authority.issue("broker"))
    with tls_network(settings, send_buffer_bytes=16 * 1024) as network:
        client = TlsClient(network, context, receive_buffer_bytes=16 * 1024)
        client.send(frame(b"wait"))
        network.until(lambda: network.handler.waiting)
        network.handler.waiting.pop().respond([b"x" * 4 * MIB])
        for processor in network.server.processors:
            processor.drain()
        network.turns(5)
        assert network.server.connections
        assert len(client.receive()) == 4 * MIB
        network.until(client.is_closed)


# Records that are cut


def test_records_may_be_cut_at_every_byte(authority: Authority) -> None:
    """A relay between client and broker passes single bytes on, the handshake's too."""
    with tls_network(authority.settings(authority.issue("broker"), **REQUIRED)) as network:
        context = client_context(authority.settings(authority.issue("alice", hosts=())))
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(to_client, to_server, server_hostname=HOST)
        raw = network.client("SSL")
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def pass_on() -> None:
            for byte in to_server.read():
                raw.send(bytes([byte]))
                network.turn()
            try:
                while data := raw.socket.recv(1):
                    to_client.write(data)
            except BlockingIOError:
                pass

        def try_on(step: Any) -> Any:
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    pass_on()
                    network.turn()

        try_on(tls.do_handshake)
        for body in (b"hello", b"wide " * 2000):
            tls.write(frame(body))
            pass_on()
            answer = b""
            while len(answer) < len(frame(body)):
                answer += try_on(lambda: tls.read(MIB))
            assert answer == frame(body)
        assert str(network.handler.connections[0].session.principal) == "User:CN=alice"


# Handshakes


def test_who_does_not_speak_tls_is_closed_and_the_log_says_why(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(5):
        client = network.client("SSL")
        client.send(frame(b"hello, in the clear"))
        network.until(client.is_closed)
    network.until(lambda: network.server.counters.closed_by[CloseReason.NOT_TLS] == 5)
    assert network.handler.frames == []
    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert len(lines) <= len(network.server.processors)  # once for each address and reason
    assert "127.0.0.1 on SSL: what it sends is not TLS" in lines[0]


def test_the_log_counts_the_refusals_that_it_does_not_tell(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with tls_network(authority.settings(authority.issue("broker"))) as network:
        for _ in range(3):
            client = network.client("SSL")
            client.send(frame(b"hello, in the clear"))
            network.until(client.is_closed)
        network.clock.advance(ms=60_001)
        network.sweep()
    assert caplog.messages[-1] == "2 more connections were refused for such reasons"


def test_a_peer_that_only_looks_whether_the_port_is_open_is_no_failure(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    client = network.accepted_client("SSL")
    client.close()
    network.until(lambda: not network.server.connections)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def refused_by(network: Network, context: ssl.SSLContext) -> HandshakeFailed | None:
    """What the client learns, in the handshake or from its first answer."""
    client = TlsClient(network, context, shakes_hands=False)
    try:
        network.until(client.is_through)
        client.transport.send(frame(b"hello"))
        for _ in range(10_000):
            network.turn()
            try:
                client.transport.recv_into(memoryview(bytearray(100)))
                return None
            except BlockingIOError:
                continue
    except HandshakeFailed as error:
        return error
    except ConnectionError:
        return None
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("client_versions", "cipher_suites", "reason", "text"),
    [
        ((TLS_1_2,), (), CloseReason.NO_COMMON_VERSION, "no TLS version in common"),
        (
            (TLS_1_3,),
            ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
            CloseReason.NO_COMMON_VERSION,
            "no TLS version in common",
        ),
    ],
)
def test_versions_must_meet(
    authority: Authority,
    client_versions: tuple[str, ...],
    cipher_suites: tuple[str, ...],
    reason: CloseReason,
    text: str,
) -> None:
    settings = authority.settings(
        authority.issue("broker"),
        enabled_protocols=(TLS_1_2, TLS_1_3) if cipher_suites else (TLS_1_3,),
        cipher_suites=cipher_suites,
    )
    with tls_network(settings) as network:
        context = client_context(authority.settings(enabled_protocols=client_versions))
        failed = refused_by(network, context)
        assert failed is not None
        assert text in str(failed)
        network.until(lambda: network.server.counters.closed_by[reason] == 1)


def test_ciphers_must_meet(authority: Authority) -> None:
    def only(suite: str) -> dict[str, Any]:
        return {"cipher_suites": (suite,), "enabled_protocols": (TLS_1_2,)}

    settings = authority.settings(
        authority.issue("broker"), **only("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    )
    with tls_network(settings) as network:
        other = authority.settings(**only("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))
        failed = refused_by(network, client_context(other))
        assert failed is not None
        assert "no cipher in common" in str(failed)
        network.until(lambda: network.server.counters.closed_by[CloseReason.NO_COMMON_CIPHER] == 1)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    authority: Authority, version: str
) -> None:
    with tls_network(authority.settings(authority.issue("broker"), **REQUIRED)) as network:
        context = client_context(authority.settings(enabled_protocols=(version,)))
        failed = refused_by(network, context)
        assert failed is not None
        assert "wants a certificate of this side" in str(failed)
        network.until(
            lambda: network.server.counters.closed_by[CloseReason.CERTIFICATE_MISSING] == 1
        )
        assert network.handler.frames == []


@pytest.mark.parametrize(
    ("valid_from", "valid_to", "text"),
    [
        (-2 * DAY, -DAY, "certificate has expired"),
        (DAY, 2 * DAY, "certificate is not yet valid"),
    ],
)
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
def test_a_client_whose_certificate_is_not_valid_now_is_refused(
    authority: Authority,
    valid_from: timedelta,
    valid_to: timedelta,
    text: str,
    version: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = authority.issue("alice", hosts=(), valid_from=valid_from, valid_to=valid_to)
    with tls_network(authority.settings(authority.issue("broker"), **REQUIRED)) as network:
        context = client_context(authority.settings(store, enabled_protocols=(version,)))
        failed = refused_by(network, context)
        assert failed is not None
        assert failed.problem is HandshakeProblem.REFUSED_BY_PEER
        network.until(
            lambda: network.server.counters.closed_by[CloseReason.CERTIFICATE_REFUSED] == 1
        )
        assert f"certificate verify failed: {text}" in caplog.text
        assert network.handler.frames == []


def test_a_client_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "elsewhere", "another CA").issue("mallory", hosts=())
    with tls_network(authority.settings(authority.issue("broker"), **REQUIRED)) as network:
        failed = refused_by(network, client_context(authority.settings(stranger)))
        assert failed is not None
        assert "does not trust" in str(failed)
        assert network.handler.frames == []


@pytest.mark.parametrize("threads", [1, 3])
def test_the_principal_is_the_subject_of_the_certificate(
    authority: Authority, threads: int
) -> None:
    settings = authority.settings(authority.issue("broker"), **REQUIRED)
    with tls_network(settings, network_threads=threads) as network:
        context = client_context(authority.settings(authority.issue("alice", hosts=())))
        client = TlsClient(network, context)
        client.send(frame(b"hello"))
        assert client.receive() == b"hello"
        assert str(network.handler.connections[0].session.principal) == "User:CN=alice"


def test_a_certificate_that_no_rule_applies_to_is_refused(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {**REQUIRED, "principal_mapping_rules": "RULE:^CN=(svc-.*)$/$1/"}
    with tls_network(authority.settings(authority.issue("broker"), **rules)) as network:
        context = client_context(authority.settings(authority.issue("svc-a", hosts=())))
        client = TlsClient(network, context)
        client.send(frame(b"hello"))
        assert client.receive() == b"hello"
        assert str(network.handler.connections[0].session.principal) == "User:svc-a"

        refused_by(network, client_context(authority.settings(authority.issue("alice", hosts=()))))

        network.until(
            lambda: network.server.counters.closed_by[CloseReason.CERTIFICATE_REFUSED] == 1
        )
        assert "no rule of ssl.principal.mapping.rules applies to CN=alice" in caplog.text
        assert len(network.handler.frames) == 1


def test_an_error_that_nobody_expects_closes_the_connection_alone(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tls_network(authority.settings(authority.issue("broker"), **REQUIRED)) as network:

        def broken(_: bytes) -> str:
            raise RuntimeError("the test says so")

        listeners = network.server.tls
        contexts = listeners._contexts["SSL"]
        monkeypatch.setitem(listeners._contexts, "SSL", contexts._replace(name_of=broken))
        context = client_context(authority.settings(authority.issue("alice", hosts=())))
        refused_by(network, context)
        network.until(lambda: network.server.counters.closed_by[CloseReason.INTERNAL_ERROR] == 1)
        assert "the test says so" in caplog.text

        monkeypatch.setitem(listeners._contexts, "SSL", contexts)
        client = TlsClient(network, context)
        client.send(frame(b"hello"))
        assert client.receive() == b"hello"


def test_a_handshake_has_a_deadline_that_single_bytes_do_not_move(
    authority: Authority, context: ssl.SSLContext
) -> None:
    settings = authority.settings(authority.issue("broker"))
    with tls_network(settings, handshake_timeout_ms=10_000) as network:
        hello = ssl.MemoryBIO()
        half = context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST)
        with pytest.raises(ssl.SSLWantReadError):
            half.do_handshake()
        silent, slow = network.accepted_client("SSL"), network.accepted_client("SSL")
        quick = TlsClient(network, context)
        for byte in hello.read()[:11]:
            slow.send(bytes([byte]))
            network.turns(3)
            network.clock.advance(ms=1_000)
            network.sweep()
        assert silent.is_closed()
        assert slow.is_closed()
        assert network.server.counters.closed_by[CloseReason.HANDSHAKE_TIMEOUT] == 2
        quick.send(frame(b"still here"))
        assert quick.receive() == b"still here"


def test_handshakes_that_come_together_take_a_turn_of_the_loop_each(
    authority: Authority, context: ssl.SSLContext
) -> None:
    with tls_network(authority.settings(authority.issue("broker"))) as network:
        clients = [TlsClient(network, context, shakes_hands=False) for _ in range(20)]
        network.until(lambda: network.server.counters.accepted == 20)
        for client in clients:
            client.transport.handshake()
        (processor,) = network.server.processors
        network.turns(2)
        begun = [each for each in clients if each.transport.has_arrived()]
        assert len(begun) <= 2
        assert len(processor.handshakes) == 20
        network.until(lambda: all([each.is_through() for each in clients]))
        network.until(lambda: len(processor.handshakes) == 0)


def test_half_open_handshakes_are_forgotten_when_they_close(
    authority: Authority, context: ssl.SSLContext
) -> None:
    with tls_network(authority.settings(authority.issue("broker"))) as network:
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST).do_handshake()
        beginning = hello.read()[:50]
        clients = [network.accepted_client("SSL") for _ in range(50)]
        for client in clients:
            client.send(beginning)
        network.turns(60)
        (processor,) = network.server.processors
        assert len(processor.handshakes) == 50
        for client in clients:
            client.reset()
        network.until(lambda: not network.server.connections)
        assert len(processor.handshakes) == 0


def test_renegotiation_is_off(authority: Authority) -> None:
    contexts = server_contexts(authority.settings(authority.issue("broker")))
    assert contexts.server.options & ssl.OP_NO_RENEGOTIATION
    assert contexts.server.minimum_version is ssl.TLSVersion.TLSv1_2
    assert contexts.server.num_tickets == 0


def test_garbage_after_the_handshake_closes_the_connection(
    network: Network, context: ssl.SSLContext
) -> None:
    client = TlsClient(network, context)
    client.send(frame(b"hello"))
    assert client.receive() == b"hello"
    socket.socket.send(client.transport._tls, b"\x17\x03\x03\x00\x20" + b"?" * 32)  # type: ignore[arg-type]
    network.until(client.is_closed)
    network.until(lambda: network.server.counters.closed_by[CloseReason.TLS_FAILED] == 1)


# Another broker


def test_calls_of_another_broker_over_tls(authority: Authority) -> None:
    rows = [
        RemainingPartition(topic_name="t" * 200, partition_index=number) for number in range(5000)
    ]  # a megabyte
    contexts = server_contexts(authority.settings(authority.issue("broker")), among_brokers=True)
    client = contexts.client
    assert client is not None

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = await PeerStage().start(contexts.server)
        connection = await connect(
            stage.host,
            stage.port,
            loop=loop,
            clock=SystemClock(),
            timer=loop,
            client_id="broker-1",
            timeout_s=60,
            transport_to=lambda host, sock: TlsTransport(
                sock, client, server_side=False, server_hostname=host
            ),
        )
        calls = [
            asyncio.ensure_future(connection.call(ControlledShutdownRequest(broker_id=n), 3, 60))
            for n in range(3)
        ]
        for _ in calls:
            header, request = await stage.take()
            answer = ControlledShutdownResponse(
                error_code=request.broker_id, remaining_partitions=rows
            )
            stage.answer(header, answer)
        answers = [await call for call in calls]
        assert [each.error_code for each in answers] == [0, 1, 2]
        assert all(each.remaining_partitions == rows for each in answers)
        connection.close()
        await stage.stop()

    asyncio.run(run())


def test_another_broker_whose_certificate_has_another_name_is_not_called(
    authority: Authority,
) -> None:
    settings = authority.settings(authority.issue("broker", hosts=("elsewhere.example",)))
    contexts = server_contexts(settings, among_brokers=True)
    client = contexts.client
    assert client is not None

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = await PeerStage().start(contexts.server)
        with pytest.raises(ConnectionError, match=r"no TLS with the peer: .*127\.0\.0\.1"):
            await connect(
                stage.host,
                stage.port,
                loop=loop,
                clock=SystemClock(),
                timer=loop,
                client_id="broker-1",
                timeout_s=60,
                transport_to=lambda host, sock: TlsTransport(
                    sock, client, server_side=False, server_hostname=host
                ),
            )
        await stage.stop()

    asyncio.run(run())


# The client library


def ask_once(address: Address, options: dict[str, str], context: ssl.SSLContext | None) -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        config = ConsumerConfig({"bootstrap.servers": str(address), **options})
        around = Surroundings(config, loop, SystemClock(), loop, FrameMemory(), context)
        connection = await open_connection("b", address, around, 60)
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answers = [connection.send(request, 3) for _ in range(2)]
        for answer in answers:
            assert isinstance(await answer, ApiVersionsResponse)
        connection.close()

    asyncio.run(ask())


class ScriptedServer:
    """Serves `count` connections, each in a thread of its own, over TLS if it has a context."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._server.getsockname()[1])

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            with sock:
                self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        rows = [ApiVersion(api_key=key, min_version=0, max_version=4) for key in ApiKey]
        try:
            stream = sock
            if self._context is not None:
                stream = self._context.wrap_socket(sock, server_side=True)
            with stream:
                while (length := stream.recv(4)) and length[0] == 0:
                    request = stream.recv(int.from_bytes(length, "big"))
                    answer = ApiVersionsResponse(api_keys=rows).encode(3)
                    stream.sendall(frame(request[4:8] + bytes(answer)))
        except OSError:
            return


def test_a_client_over_tls(authority: Authority) -> None:
    contexts = server_contexts(authority.settings(authority.issue("broker")))
    with ScriptedServer(contexts.server) as server:
        ask_once(server.address, authority.client_keys(), client_context(authority.settings()))


def test_a_client_says_which_certificate_it_does_not_trust(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other", "another CA")
    contexts = server_contexts(other.settings(other.issue("broker")))
    with (
        ScriptedServer(contexts.server) as server,
        pytest.raises(TlsFailed, match="certificate verify failed: unable to get local issuer"),
    ):
        ask_once(server.address, authority.client_keys(), client_context(authority.settings()))


def test_a_client_looks_at_the_host_name_unless_told_not_to(authority: Authority) -> None:
    contexts = server_contexts(
        authority.settings(authority.issue("broker", hosts=("elsewhere.example",)))
    )
    with ScriptedServer(contexts.server) as server:
        with pytest.raises(TlsFailed, match=r"IP address mismatch.*127\.0\.0\.1"):
            ask_once(server.address, authority.client_keys(), client_context(authority.settings()))
        lenient = client_context(authority.settings(checks_host_name=False))
        ask_once(server.address, authority.client_keys(), lenient)


@pytest.mark.parametrize(
    ("valid_from", "valid_to", "text"),
    [(-2 * DAY, -DAY, "has expired"), (DAY, 2 * DAY, "is not yet valid")],
)
def test_a_client_refuses_a_broker_whose_certificate_is_not_valid_now(
    authority: Authority, valid_from: timedelta, valid_to: timedelta, text: str
) -> None:
    store = authority.issue("broker", valid_from=valid_from, valid_to=valid_to)
    contexts = server_contexts(authority.settings(store))
    with (
        ScriptedServer(contexts.server) as server,
        pytest.raises(TlsFailed, match=f"certificate verify failed: certificate {text}"),
    ):
        ask_once(server.address, authority.client_keys(), client_context(authority.settings()))


def test_a_client_learns_that_the_broker_wants_its_certificate(authority: Authority) -> None:
    contexts = server_contexts(authority.settings(authority.issue("broker"), **REQUIRED))
    with (
        ScriptedServer(contexts.server) as server,
        pytest.raises(TlsFailed, match="it wants a certificate of this side"),
    ):
        ask_once(server.address, authority.client_keys(), client_context(authority.settings()))


def test_a_client_with_tls_on_a_plain_port_says_so(authority: Authority) -> None:
    with (
        ScriptedServer(None) as server,
        pytest.raises(ConnectionFailed, match="may speak plain text on this port"),
    ):
        ask_once(server.address, authority.client_keys(), client_context(authority.settings()))


def test_a_plain_client_on_a_tls_port_is_told_of_security_protocol(authority: Authority) -> None:
    with tls_network(authority.settings(authority.issue("broker"))) as network:
        address = Address("127.0.0.1", network.ports["SSL"])
        failures: list[Exception] = []

        def ask() -> None:
            try:
                ask_once(address, {}, None)
            except ConnectionFailed as error:
                failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        network.until(lambda: failures)
        thread.join()
        assert "is it security.protocol=SSL?" in str(failures[0])


def test_a_client_with_tls_never_speaks_plain_text(authority: Authority) -> None:
    with ScriptedServer(None) as server, pytest.raises(AssertionError, match=r"security\.protocol"):
        ask_once(server.address, authority.client_keys(), None)


def test_a_plain_listener_that_gets_a_tls_handshake_says_so(
    context: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    with running_network() as network:
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HOST).do_handshake()
        client = network.client()
        client.send(hello.read())
        network.until(client.is_closed)
    assert "a TLS handshake begins so, but this listener does not speak TLS" in caplog.text


def test_a_frame_length_has_no_hint_of_tls_unless_it_looks_like_it() -> None:
    from tidelog.network.framing import InvalidFrame

    assert "TLS" in str(InvalidFrame(struct.unpack(">i", b"\x16\x03\x01\x02")[0], 100))
    assert "TLS" not in str(InvalidFrame(-1, 100))
