"""Accepting, connection limits, and stopping."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.eventually import eventually
from tests.support.network import EchoHandler, Network, frame, running_network
from tidelog.config.listeners import Endpoint
from tidelog.errors import StartupError
from tidelog.network.channel import CloseReason
from tidelog.network.settings import NetworkSettings
from tidelog.network.socket_server import PortTaken, SocketServer

THREADS = pytest.mark.parametrize("network_threads", [1, 3])


def server_on(
    loop: asyncio.AbstractEventLoop, *endpoints: Endpoint, **settings: Any
) -> SocketServer:
    return SocketServer(
        endpoints,
        EchoHandler(),
        loop=loop,
        settings=NetworkSettings(**settings),
        clock=FakeClock(),
    )


def drain(network: Network, grace_seconds: float = 5.0) -> asyncio.Task[bool]:
    return network.loop.create_task(network.server.drain(grace_seconds))


def test_port_0_binds_a_free_port_of_each_listener() -> None:
    with running_network(listener_names=("A", "B")) as network:
        assert len({0, *network.ports.values()}) == 3
        for name in ("A", "B"):
            client = network.client(name)
            client.send(frame(b"hello"))
            assert client.receive() == b"hello"


def test_a_taken_port_is_told_as_such() -> None:
    with running_network() as network:
        taken = network.ports["PLAINTEXT"]
        server = server_on(
            network.loop,
            Endpoint("A", "127.0.0.1", 0, "PLAINTEXT"),
            Endpoint("B", "127.0.0.1", taken, "PLAINTEXT"),
        )

        with pytest.raises(PortTaken, match=f"127.0.0.1:{taken}"):
            server.start()


def test_an_unknown_host_is_told_as_such() -> None:
    with running_network() as network:
        server = server_on(network.loop, Endpoint("A", "no-such-host.invalid", 0, "PLAINTEXT"))

        with pytest.raises(StartupError, match=r"no-such-host\.invalid"):
            server.start()


def test_an_empty_host_listens_on_all_interfaces_and_knows_ipv4_clients_by_their_address() -> None:
    with running_network() as network:
        handler = EchoHandler()
        server = SocketServer(
            [Endpoint("ALL", "", 0, "PLAINTEXT")],
            handler,
            loop=network.loop,
            settings=NetworkSettings(),
            clock=network.clock,
        )
        network.ports |= server.start()
        client = network.client("ALL")

        client.send(frame(b"hello"))
        client.receive()

        assert handler.connections[0].session.client_host == "127.0.0.1"
        server.close()


@THREADS
def test_connections_go_to_the_processors_in_turn(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        for _ in range(2 * network_threads):
            network.accepted_client()

        counts = [processor.counters.connections for processor in network.server.processors]

        assert counts == [2] * network_threads
        assert network.server.counters.connections == 2 * network_threads


@THREADS
def test_one_address_too_often_is_closed_at_once(network_threads: int) -> None:
    with running_network(network_threads=network_threads, max_connections_per_ip=2) as network:
        first = network.accepted_client()
        network.accepted_client()

        third = network.client()

        network.until(third.is_closed)
        assert network.server.counters.closed_by[CloseReason.TOO_MANY_PER_IP] == 1
        first.close()
        network.until(lambda: len(network.server.connections) == 1)
        network.accepted_client().send(frame(b"x"))


def test_an_address_has_the_limit_of_its_override() -> None:
    overrides = {"127.0.0.1": 1}
    with running_network(max_connections_per_ip_overrides=overrides) as network:
        network.accepted_client()

        network.until(network.client().is_closed)


@THREADS
def test_above_the_total_nothing_is_accepted_until_a_connection_closes(
    network_threads: int,
) -> None:
    with running_network(network_threads=network_threads, max_connections=2) as network:
        first = network.accepted_client()
        network.accepted_client()
        third = network.client()
        third.send(frame(b"patient"))
        network.turns(20)
        assert network.server.counters.accepted == 2
        assert not third.is_closed()

        first.close()

        assert third.receive() == b"patient"


def test_a_raised_limit_counts_at_once() -> None:
    with running_network(max_connections=1) as network:
        network.accepted_client()
        second = network.client()
        second.send(frame(b"patient"))
        network.turns(20)

        network.server.configure(NetworkSettings(max_connections=2))

        assert second.receive() == b"patient"


def test_a_name_is_looked_up_elsewhere_while_the_broker_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []

    def slow(host: str) -> frozenset[str]:
        threads.append(threading.current_thread().name)
        if host == "nobody.example":
            raise OSError(-2, "unknown")
        return frozenset(("127.0.0.1",))

    monkeypatch.setattr("tidelog.network.socket_server.look_up", slow)
    with running_network() as network:
        overrides = {"nobody.example": 5, "us.example": 0}
        network.server.configure(NetworkSettings(max_connections_per_ip_overrides=overrides))

        def is_learnt() -> bool:
            network.turns(1)
            return not network.server.quotas.address_available("127.0.0.1")

        eventually(is_learnt)
    assert threads
    assert threading.main_thread().name not in threads


def test_connections_that_come_too_fast_wait() -> None:
    with running_network(max_connection_creation_rate=1) as network:
        network.accepted_client()
        second = network.client()
        second.send(frame(b"patient"))
        network.turns(20)
        assert network.server.quotas.total == 1

        network.server.configure(NetworkSettings())

        assert second.receive() == b"patient"


@THREADS
def test_a_connection_of_another_broker_displaces_the_one_idle_longest(
    network_threads: int,
) -> None:
    with running_network(
        listener_names=("INTERNAL", "EXTERNAL"),
        network_threads=network_threads,
        max_connections=2,
        inter_broker_listener_name="INTERNAL",
    ) as network:
        oldest = network.accepted_client("EXTERNAL")
        network.clock.advance(ms=1000)
        newer = network.accepted_client("EXTERNAL")

        internal = network.accepted_client("INTERNAL")

        network.until(oldest.is_closed)
        internal.send(frame(b"a"))
        newer.send(frame(b"b"))
        assert [internal.receive(), newer.receive()] == [b"a", b"b"]


def test_out_of_file_descriptors_accepting_pauses_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = [OSError(errno.EMFILE, "too many open files")]
    accept = socket.socket.accept

    def failing_accept(listening: socket.socket) -> tuple[socket.socket, Any]:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr("tidelog.network.socket_server.ACCEPT_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(socket.socket, "accept", failing_accept)
    with running_network() as network:
        client = network.client()
        client.send(frame(b"hello"))

        assert client.receive() == b"hello"
        assert not failures


@THREADS
def test_stop_accepting_leaves_open_connections_alone(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.accepted_client()

        network.server.stop_accepting()

        with pytest.raises(ConnectionRefusedError):
            network.client()
        client.send(frame(b"still here"))
        assert client.receive() == b"still here"


@THREADS
def test_draining_closes_idle_connections_and_waits_for_answers(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        idle, busy = network.accepted_client(), network.accepted_client()
        busy.send(frame(b"wait") + frame(b"never"))
        network.until(lambda: network.handler.waiting)
        network.server.stop_accepting()

        draining = drain(network)
        network.until(idle.is_closed)
        network.turns(5)
        assert not draining.done()
        network.handler.waiting.pop().respond([b"answer"])

        network.until(draining.done)
        assert draining.result()
        assert busy.receive() == b"answer"
        network.until(busy.is_closed)
        assert network.handler.frames == [b"wait"]


@THREADS
def test_draining_sends_what_a_slow_reader_is_owed(network_threads: int) -> None:
    with running_network(network_threads=network_threads, send_buffer_bytes=20_000) as network:
        network.handler.answers[b"big"] = lambda: [b"x" * 3_000_000]
        slow = network.client(receive_buffer_bytes=20_000)
        slow.send(frame(b"big"))
        network.until(lambda: network.used_bytes() > 1_000_000)

        draining = drain(network)
        network.turns(5)
        assert not draining.done()

        assert len(slow.receive()) == 3_000_000
        network.until(draining.done)
        assert draining.result()


def test_draining_gives_up_when_its_time_is_over_and_close_cuts_off() -> None:
    with running_network() as network:
        client = network.accepted_client()
        client.send(frame(b"wait"))
        network.until(lambda: network.handler.waiting)

        draining = drain(network, grace_seconds=0.0)

        network.until(draining.done)
        assert not draining.result()
        network.server.close()
        network.until(client.is_closed)
        assert network.server.counters.closed_by[CloseReason.SHUTDOWN] == 1


def test_draining_without_connections_is_done_at_once() -> None:
    with running_network() as network:
        draining = drain(network)

        network.until(draining.done)

        assert draining.result()


@THREADS
def test_close_closes_everything_and_tells_the_owners(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.client()
        client.send(frame(b"hello"))
        client.receive()
        closed: list[object] = []
        network.handler.connections[0].add_close_callback(closed.append)

        network.server.close()

        assert len(closed) == 1
        assert network.server.quotas.total == 0
        network.until(client.is_closed)


def test_a_connection_over_the_quota_of_its_address_is_held_and_then_closed() -> None:
    with running_network(quota_window_num=2) as network:
        network.server.configure_ip_rates({"127.0.0.1": 2.0})
        served = [network.accepted_client() for _ in range(2)]
        late = network.client()
        began = network.loop.time()
        refused = network.server.counters.closed_by
        network.until(lambda: network.server.counters.closed_by[CloseReason.TOO_FAST_PER_IP])
        assert refused[CloseReason.TOO_FAST_PER_IP] == 0
        assert not late.is_closed()
        network.until(late.is_closed)
        assert network.loop.time() - began >= 0.4
        served[0].send(frame(b"served"))
        assert served[0].receive() == b"served"
        assert network.server.quotas.total == 2


def test_connections_that_are_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.network.socket_server.HELD_BACK_MAX", 2)
    with running_network(quota_window_num=2, quota_window_size_seconds=3600) as network:
        network.server.configure_ip_rates({None: 0.0001})
        first, *others = [network.client() for _ in range(3)]
        network.until(first.is_closed)
        assert not any(client.is_closed() for client in others)
        network.server.stop_accepting()
        network.until(lambda: all(client.is_closed() for client in others))
