"""A connection that is not read for a time, while its answers leave (KIP-219)."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.network import Network, frame, running_network

LONG = b"mute 3600"
THREADS = pytest.mark.parametrize("network_threads", [1, 2])


def frames_after(network: Network, turns: int) -> list[bytes]:
    network.turns(turns)
    return network.handler.frames


@THREADS
def test_the_answer_leaves_at_once_and_the_next_request_waits(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.accepted_client()
        began = network.loop.time()
        client.send(frame(b"mute 0.3") + frame(b"next") + frame(b"last"))
        assert client.receive() == b"mute 0.3"
        assert network.handler.frames == [b"mute 0.3"]
        assert network.loop.time() - began < 0.3
        assert client.receive() == b"next"
        assert network.loop.time() - began >= 0.29
        assert client.receive() == b"last"


@THREADS
def test_what_comes_while_it_is_muted_is_not_read(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client, other = network.accepted_client(), network.accepted_client()
        client.send(frame(LONG))
        client.receive()
        client.send(frame(b"unread"))
        other.send(frame(b"other"))
        assert other.receive() == b"other"
        assert frames_after(network, 20) == [LONG, b"other"]


def test_a_shorter_mute_does_not_end_a_longer_one() -> None:
    with running_network() as network:
        client = network.accepted_client()
        client.send(frame(LONG))
        client.receive()
        connection = network.handler.connections[0]
        connection.mute(0.0)
        client.send(frame(b"unread"))
        assert frames_after(network, 20) == [LONG]


def test_an_answer_that_comes_later_mutes_too() -> None:
    with running_network() as network:
        client = network.accepted_client()
        client.send(frame(b"wait") + frame(b"next"))
        network.until(lambda: network.handler.waiting)
        network.handler.connections[0].mute(0.2)
        network.handler.waiting[0].respond([b"done"])
        assert client.receive() == b"done"
        assert frames_after(network, 5) == [b"wait"]
        assert client.receive() == b"next"


def test_requests_that_passed_are_answered_while_it_is_muted() -> None:
    with running_network() as network:
        client = network.accepted_client()
        client.send(frame(b"pass 1") + frame(b"pass 2"))
        network.until(lambda: len(network.handler.waiting) == 2)
        network.handler.connections[0].mute(3600)
        for request in network.handler.waiting:
            request.respond([b"done"])
        assert (client.receive(), client.receive()) == (b"done", b"done")
        client.send(frame(b"pass 3"))
        assert len(frames_after(network, 20)) == 2


def test_a_muted_connection_is_not_idle() -> None:
    with running_network(connections_max_idle_ms=1000) as network:
        client = network.accepted_client()
        client.send(frame(LONG))
        client.receive()
        network.clock.advance(ms=60_000)
        network.sweep()
        assert not client.is_closed()


@THREADS
def test_a_peer_that_goes_while_it_is_muted_is_noticed(network_threads: int) -> None:
    with running_network(network_threads=network_threads) as network:
        client = network.accepted_client()
        client.send(frame(LONG))
        client.receive()
        client.close()

        def is_gone() -> bool:
            network.sweep()
            return not network.server.connections

        network.until(is_gone)


def test_a_server_that_stops_does_not_wait_for_muted_connections() -> None:
    with running_network() as network:
        client = network.accepted_client()
        client.send(frame(LONG) + frame(b"unread"))
        client.receive()
        drained = asyncio.wait_for(network.server.drain(30), 10)
        assert network.loop.run_until_complete(drained)
