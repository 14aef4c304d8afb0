"""Sweeps: idle connections, and memory that runs short."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.support.network import Client, Network, frame, length, running_network
from tidelog.network.channel import CloseReason
from tidelog.network.connection import Connection

KIB = 1024
MIB = 1024 * KIB

THREADS = pytest.mark.parametrize("network_threads", [1, 3])
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def sweep_after(network: Network, ms: int) -> None:
    network.clock.advance(ms=ms)
    network.sweep()


def sweep_until(network: Network, condition: Callable[[], object]) -> None:
    """One sweep makes the condition true, though the network may need some turns."""
    network.turns(20)
    sweep_after(network, 1_001)
    network.until(condition)


def send_part(network: Network, client: Client, announced: int, sent: int) -> None:
    """The start of a frame; returns when it has arrived, or as much as is let in."""
    before = network.used_bytes()
    client.send(length(announced) + b"x" * (sent - 4))
    network.until(lambda: network.used_bytes() == before + sent)


@THREADS
def test_an_idle_connection_is_closed(network_threads: int) -> None:
    with running_network(
        network_threads=network_threads, connections_max_idle_ms=10_000
    ) as network:
        idle, busy = network.accepted_client(), network.accepted_client()
        network.clock.advance(ms=5_000)
        busy.send(frame(b"hello"))
        busy.receive()

        sweep_after(network, 5_001)

        network.until(idle.is_closed)
        network.until(lambda: network.server.counters.closed_by[CloseReason.IDLE] == 1)
        busy.send(frame(b"again"))
        assert busy.receive() == b"again"


def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    with running_network(connections_max_idle_ms=10_000) as network:
        client = network.client()
        client.send(frame(b"wait"))
        network.until(lambda: network.handler.waiting)

        sweep_after(network, 60_000)
        network.handler.waiting.pop().respond([b"at last"])

        assert client.receive() == b"at last"


@THREADS
@pytest.mark.parametrize("rest", [b"", b"\x00\x00"], ids=["nothing more", "a partial frame"])
@LOOPS
def test_clients_that_reset_while_their_requests_wait_are_closed(
    loop: str, network_threads: int, rest: bytes
) -> None:
    new_loop = pytest.importorskip(loop).new_event_loop
    with running_network(network_threads=network_threads, new_loop=new_loop) as network:
        clients = [network.client() for _ in range(40)]
        for client in clients:
            client.send(frame(b"wait") + rest)
        network.until(lambda: len(network.handler.waiting) == 40)
        closed: list[Connection] = []
        for connection in network.handler.connections:
            connection.add_close_callback(closed.append)

        for client in clients[1:]:
            client.reset()

        sweep_until(network, lambda: len(closed) == 39)
        assert list(network.server.connections) == [
            each for each in network.handler.connections if each not in closed
        ]
        network.until(lambda: network.used_bytes() <= len(rest))
        for request in network.handler.waiting:
            request.respond([b"late"])
        assert clients[0].receive() == b"late"


@LOOPS
@pytest.mark.parametrize("sent", [length(1_000) + b"part", frame(b"hello")])
def test_a_client_that_resets_behind_its_last_bytes_is_closed(loop: str, sent: bytes) -> None:
    """uvloop reports an error of a socket once; a reader that finds bytes then sees no error."""
    with running_network(new_loop=pytest.importorskip(loop).new_event_loop) as network:
        clients = [network.accepted_client() for _ in range(20)]
        for client in clients:
            client.send(sent)
            client.reset()

        sweep_until(network, lambda: not network.server.connections)

        assert network.used_bytes() == 0


@THREADS
def test_a_client_that_ends_its_stream_is_answered_early_or_late(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.client()
        client.send(frame(b"wait") + frame(b"wait again"))
        network.until(lambda: network.handler.waiting)
        client.socket.shutdown(socket.SHUT_WR)

        sweep_until(network, lambda: network.handler.half_closed_ones)
        for _ in range(3):
            sweep_after(network, 1_001)
            network.turns(20)
        network.handler.waiting.pop().respond([b"early"])
        network.until(lambda: network.handler.waiting)
        network.handler.waiting.pop().respond([b"late"])

        assert [client.receive(), client.receive()] == [b"early", b"late"]
        network.until(client.is_closed)
        assert network.handler.half_closed_ones == network.handler.connections


@THREADS
def test_a_client_that_sends_on_while_its_request_waits_is_kept(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.client()
        client.send(frame(b"wait"))
        network.until(lambda: network.handler.waiting)
        client.send(frame(b"next"))
        network.turns(3)

        for _ in range(3):
            sweep_after(network, 1_001)
            network.turns(3)
        network.handler.waiting.pop().respond([b"first"])

        assert [client.receive(), client.receive()] == [b"first", b"next"]


def test_a_reader_that_has_stopped_is_idle() -> None:
    with running_network(connections_max_idle_ms=10_000, send_buffer_bytes=20_000) as network:
        network.handler.answers[b"big"] = lambda: [b"x" * 5 * MIB]
        client = network.client(receive_buffer_bytes=20_000)
        client.send(frame(b"big"))
        network.until(lambda: network.used_bytes() > MIB)
        network.turns(20)

        sweep_after(network, 10_001)

        assert network.used_bytes() == 0
        assert network.server.counters.closed_by[CloseReason.IDLE] == 1


def test_idle_connections_stay_when_the_limit_is_off() -> None:
    with running_network(connections_max_idle_ms=-1) as network:
        network.accepted_client()

        sweep_after(network, 10**9)

        assert len(network.server.connections) == 1


def test_sixty_announcements_of_100_mb_cost_nothing_and_harm_nobody() -> None:
    with running_network() as network:
        hostile = [network.accepted_client() for _ in range(60)]
        for client in hostile:
            client.send(length(100 * MIB) + b"x" * 96)
        network.until(lambda: network.used_bytes() == 60 * 100)
        good = network.client()

        for _ in range(100):
            good.send(frame(b"hello"))
            assert good.receive() == b"hello"
        good.send(frame(b"y" * 5 * MIB))
        assert len(good.receive()) == 5 * MIB
        assert network.used_bytes() == 60 * 100


@THREADS
def test_memory_stays_near_the_bound_whatever_is_sent(network_threads: int) -> None:
    with running_network(network_threads=network_threads, bytes_in_flight_max=3 * MIB) as network:
        clients = [network.accepted_client() for _ in range(12)]
        rests = [memoryview(length(2 * MIB) + b"x" * (2 * MIB - 1)) for _ in clients]
        peak = 0
        for _ in range(200):
            for index, client in enumerate(clients):
                rests[index] = rests[index][client.send_some(rests[index]) :]
            network.turn()
            peak = max(peak, network.used_bytes())

        one_frame, small_shares = 2 * MIB + 4, 12 * 16 * KIB
        a_read_each = network_threads * 2 * MIB
        assert peak <= 3 * MIB + network_threads * one_frame + small_shares + a_read_each


@THREADS
def test_all_large_requests_finish_although_together_they_exceed_the_bound(
    network_threads: int,
) -> None:
    with running_network(network_threads=network_threads, bytes_in_flight_max=3 * MIB) as network:
        clients = [network.accepted_client() for _ in range(12)]
        data = frame(b"z" * 2 * MIB)
        rests = [memoryview(data) for _ in clients]

        def send_all() -> bool:
            for index, client in enumerate(clients):
                rests[index] = rests[index][client.send_some(rests[index]) :]
            return not any(rests)

        network.until(send_all)

        for client in clients:
            assert len(client.receive()) == 2 * MIB
        network.until(lambda: network.used_bytes() == 0)


def test_small_requests_are_served_while_memory_is_short() -> None:
    with running_network(bytes_in_flight_max=MIB) as network:
        hog, good = network.accepted_client(), network.accepted_client()
        send_part(network, hog, 50 * MIB, 2 * MIB)

        for _ in range(100):
            good.send(frame(b"hello"))
            assert good.receive() == b"hello"


def test_a_hog_that_stands_still_makes_room_for_large_requests() -> None:
    with running_network(bytes_in_flight_max=MIB, memory_stall_ms=2_000) as network:
        hogs = [network.accepted_client() for _ in range(2)]
        send_part(network, hogs[0], 50 * MIB, 2 * MIB)
        hogs[1].send(length(50 * MIB) + b"x" * 100 * KIB)
        good = network.accepted_client()
        body = b"y" * MIB
        sent = good.send_some(frame(body))
        network.turns(50)

        for _ in range(3):
            sweep_after(network, 2_001)
            network.turns(20)
        good.send(frame(body)[sent:])

        assert good.receive() == body
        assert network.server.counters.closed_by[CloseReason.MEMORY_STALL] >= 1


def test_a_reader_that_has_stopped_is_closed_while_memory_is_short() -> None:
    with running_network(bytes_in_flight_max=MIB, send_buffer_bytes=20_000) as network:
        network.handler.answers[b"big"] = lambda: [b"x" * 5 * MIB]
        stopped = network.client(receive_buffer_bytes=20_000)
        stopped.send(frame(b"big"))
        network.until(lambda: network.used_bytes() > MIB)
        network.turns(20)

        sweep_after(network, 2_001)

        assert network.server.counters.closed_by[CloseReason.MEMORY_STALL] == 1
        assert network.used_bytes() == 0


def test_a_connection_whose_answer_is_due_is_not_closed_when_memory_is_short() -> None:
    with running_network(bytes_in_flight_max=50 * KIB) as network:
        client = network.client()
        client.send(frame(b"wait") + frame(b"x" * 1000) * 100)
        network.until(lambda: network.handler.waiting)
        assert network.used_bytes() > 50 * KIB

        sweep_after(network, 60_000)
        network.handler.waiting.pop().respond([b"first"])

        assert client.receive() == b"first"
        assert [len(client.receive()) for _ in range(100)] == [1000] * 100


def test_a_flood_of_bad_requests_is_logged_with_moderation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running_network() as network:
        for _ in range(50):
            client = network.client()
            client.send(length(-1))
            network.until(client.is_closed)

        network.sweep()

        lines = [record.getMessage() for record in caplog.records]
        assert sum(line.startswith("closing ") for line in lines) == 20
        assert lines[-1] == "30 more connections closed"
