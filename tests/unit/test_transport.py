"""The plain transport; and a TLS one below each kind of connection, to prove that it fits."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.support.network import Client, FileSlice, Network, frame, running_network
from tests.support.peer import PeerStage
from tests.support.tls_transport import TlsTransport, anonymous_context
from tidelog.client.network.connection import Surroundings, open_connection
from tidelog.client.network.frames import FrameMemory
from tidelog.clock import SystemClock
from tidelog.config.client import Address, ConsumerConfig
from tidelog.network.channel import CloseReason
from tidelog.network.peer_connection import connect
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


# TLS below a channel


class TlsClient(Client):
    def __init__(self, network: Network) -> None:
        super().__init__(network, network.ports["PLAINTEXT"], None)
        network.clients.append(self)
        self.transport = TlsTransport(self.socket, server_side=False)
        network.until(lambda: self.transport.handshake() is Want.NOTHING)

    def send(self, data: bytes) -> None:
        super().send(data)
        self._network.until(self._is_flushed)

    def send_some(self, data: bytes | memoryview) -> int:
        try:
            return self.transport.send(data)
        except BlockingIOError:
            return 0

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
            except ConnectionResetError:
                count = 0
            self._received += buffer[:count]
            self._ended = not count


@pytest.fixture
def server_transports(monkeypatch: pytest.MonkeyPatch) -> list[TlsTransport]:
    made: list[TlsTransport] = []

    def new_transport(sock: socket.socket) -> TlsTransport:
        made.append(TlsTransport(sock, server_side=True))
        return made[-1]

    monkeypatch.setattr("tidelog.network.socket_server.PlainTransport", new_transport)
    return made


@pytest.fixture(params=[1, 3], ids=["broker-loop", "three-threads"])
def network(
    request: pytest.FixtureRequest, server_transports: list[TlsTransport]
) -> Iterator[Network]:
    with running_network(network_threads=request.param) as running:
        yield running


def test_requests_over_tls_are_answered_in_order(
    network: Network, server_transports: list[TlsTransport]
) -> None:
    client = TlsClient(network)
    bodies = [b"%d" % number for number in range(3000)]
    client.send(b"".join(map(frame, bodies)))
    assert [client.receive() for _ in bodies] == bodies
    assert server_transports[0].wants[0] is Want.READ
    assert server_transports[0].wants[-1] is Want.NOTHING


def test_large_requests_and_answers_over_tls(network: Network) -> None:
    client = TlsClient(network)
    body = bytes(range(256)) * (3 * MIB // 256)
    client.send(frame(b"before") + frame(body) + frame(b"after"))
    assert client.receive() == b"before"
    assert client.receive() == body
    assert client.receive() == b"after"
    network.until(lambda: network.used_bytes() == 0)


def test_files_are_read_and_sent_over_tls(network: Network, tmp_path: Path) -> None:
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
        client = TlsClient(network)
        client.send(frame(b"fetch") + frame(b"next"))
        assert client.receive() == b"head" + data[100 : 100 + MIB] + b"between" + data[:50]
        assert client.receive() == b"next"
    assert network.server.counters.sendfile_bytes == 0


def test_a_slow_reader_over_tls_gets_everything(network: Network) -> None:
    network.handler.answers[b"much"] = lambda: [b"x" * MIB]
    client = TlsClient(network)
    client.send(frame(b"much") * 20)
    network.turns(50)
    assert [len(client.receive()) for _ in range(20)] == [MIB] * 20


def test_bytes_that_tls_has_decrypted_are_received_though_no_poll_tells_of_them(
    server_transports: list[TlsTransport],
) -> None:
    with running_network() as network:
        client = TlsClient(network)
        # A receive takes one TLS record, 16 KiB at most; this is 200 KB.
        bodies = [b"%d" % number + b"." * 5000 for number in range(40)]
        client.send(b"".join(map(frame, bodies)))
        assert [client.receive() for _ in bodies] == bodies


def test_encrypted_bytes_that_found_no_room_leave_when_there_is_some(
    server_transports: list[TlsTransport],
) -> None:
    with running_network() as network:
        client = TlsClient(network)
        client.send(frame(b"first"))
        assert client.receive() == b"first"
        server_transports[0].is_throttled = True
        client.send(frame(b"second"))
        network.until(lambda: len(network.handler.frames) == 2)
        network.turns(5)
        assert not client.has_answer()

        server_transports[0].is_throttled = False

        assert client.receive() == b"second"


def test_a_connection_drains_what_tls_has_not_sent(server_transports: list[TlsTransport]) -> None:
    with running_network() as network:
        client = TlsClient(network)
        client.send(frame(b"wait"))
        network.until(lambda: network.handler.waiting)
        server_transports[0].is_throttled = True
        network.handler.waiting.pop().respond([b"late"])
        for processor in network.server.processors:
            processor.drain()
        network.turns(5)
        assert network.server.connections

        server_transports[0].is_throttled = False

        assert client.receive() == b"late"
        network.until(client.is_closed)


def test_a_handshake_waits_for_room_too(server_transports: list[TlsTransport]) -> None:
    with running_network() as network:
        raw = network.accepted_client()
        network.until(lambda: server_transports)
        server_transports[0].is_throttled = True
        transport = TlsTransport(raw.socket, server_side=False)
        transport.handshake()
        network.until(lambda: Want.WRITE in server_transports[0].wants)
        server_transports[0].is_throttled = False
        network.until(lambda: transport.handshake() is Want.NOTHING)
        network.until(lambda: server_transports[0].wants[-1] is Want.NOTHING)


def test_who_does_not_speak_tls_is_closed(network: Network) -> None:
    client = network.client()
    client.send(frame(b"hello, in the clear"))
    network.until(client.is_closed)
    network.until(lambda: network.server.counters.closed_by[CloseReason.PEER_RESET] == 1)
    assert network.handler.frames == []


def test_the_end_of_a_tls_stream_closes_the_connection(network: Network) -> None:
    client = TlsClient(network)
    client.send(frame(b"hello"))
    assert client.receive() == b"hello"
    client.close()
    # TLS has an alert to send before that, which nobody may be there to take.
    network.until(lambda: not network.server.connections)


# TLS below a connection to another broker


def new_client_transport(sock: socket.socket) -> TlsTransport:
    return TlsTransport(sock, server_side=False)


def test_calls_of_another_broker_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.network.peer_connection.PlainTransport", new_client_transport)
    rows = [
        RemainingPartition(topic_name="t" * 200, partition_index=number) for number in range(5000)
    ]  # a megabyte

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = await PeerStage().start(anonymous_context(server_side=True))
        connection = await connect(
            stage.host,
            stage.port,
            loop=loop,
            clock=SystemClock(),
            timer=loop,
            client_id="broker-1",
            timeout_s=60,
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


# TLS below the client library


def test_a_client_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.network.connection.PlainTransport", new_client_transport)
    rows = [ApiVersion(api_key=key, min_version=0, max_version=4) for key in ApiKey]

    async def ask(address: Address) -> None:
        loop = asyncio.get_running_loop()
        config = ConsumerConfig({"bootstrap.servers": str(address)})
        around = Surroundings(config, loop, SystemClock(), loop, FrameMemory())
        connection = await open_connection("b", address, around, 60)
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answers = [connection.send(request, 3) for _ in range(2)]
        for answer in answers:
            assert await answer == ApiVersionsResponse(api_keys=rows)
        connection.close()

    def answer_of(correlation_id: int) -> bytes:
        body = ApiVersionsResponse(api_keys=rows).encode(3)
        return frame(struct.pack(">i", correlation_id) + bytes(body))

    def serve(server: socket.socket) -> None:
        sock, _ = server.accept()
        with anonymous_context(server_side=True).wrap_socket(sock, server_side=True) as tls:
            tls.recv(MIB)
            tls.sendall(answer_of(0))
            tls.recv(MIB)
            tls.recv(MIB)
            tls.sendall(answer_of(1) + answer_of(2))
            tls.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        address = Address("127.0.0.1", server.getsockname()[1])
        asyncio.run(ask(address))
        thread.join()
