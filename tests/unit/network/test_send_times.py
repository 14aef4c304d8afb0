"""From the answer to its last byte in the socket, for the answers that are timed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.network import Network, frame, running_network
from tidelog.network.channel import SendTime

MIB = 1024 * 1024


@pytest.fixture(params=[1, 3], ids=["broker-loop", "three-threads"])
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    with running_network(network_threads=request.param) as running:
        yield running


def test_an_answer_that_fits_the_socket_is_sent_at_once(network: Network) -> None:
    client = network.client()
    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)
    times: list[float] = []

    network.handler.waiting[0].respond([b"answer"], SendTime(times.append, 0.0))

    assert client.receive() == b"answer"
    network.until(lambda: times)
    assert times == [network.clock.monotonic()]


def test_the_time_of_an_answer_ends_when_the_slow_client_took_it(network: Network) -> None:
    client = network.client(receive_buffer_bytes=20_000)
    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)
    times: list[float] = []
    began = network.clock.monotonic()

    network.handler.waiting[0].respond([bytes(8 * MIB)], SendTime(times.append, began))
    network.until(lambda: network.server.counters.bytes_out > 0)
    network.turns(20)
    assert times == []
    network.clock.advance(ms=5_000)

    assert len(client.receive()) == 8 * MIB
    network.until(lambda: times)
    assert times == [5.0]


def test_an_answer_kept_for_earlier_ones_is_timed_from_its_own_begin(network: Network) -> None:
    client = network.client()
    client.send(frame(b"pass 1") + frame(b"pass 2"))
    network.until(lambda: len(network.handler.waiting) == 2)
    first, second = network.handler.waiting
    times: list[tuple[str, float]] = []
    began = network.clock.monotonic()

    second.respond([b"two"], SendTime(lambda s: times.append(("two", s)), began))
    network.clock.advance(ms=2_000)
    first.respond([b"one"], SendTime(lambda s: times.append(("one", s)), began + 2))

    assert [client.receive(), client.receive()] == [b"one", b"two"]
    network.until(lambda: len(times) == 2)
    assert times == [("one", 0.0), ("two", 2.0)]


def test_only_the_timed_answer_of_many_is_told(network: Network) -> None:
    times: list[float] = []
    client = network.client()
    client.send(b"".join(frame(b"pass %d" % number) for number in range(20)))
    network.until(lambda: len(network.handler.waiting) == 20)

    for number, request in enumerate(network.handler.waiting):
        timed = SendTime(times.append, network.clock.monotonic()) if number == 7 else None
        request.respond([b"%d" % number], timed)

    assert [client.receive() for _ in range(20)] == [b"%d" % number for number in range(20)]
    network.until(lambda: times)
    assert times == [0.0]


def test_an_answer_that_is_never_sent_has_no_time(network: Network) -> None:
    client = network.client(receive_buffer_bytes=20_000)
    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)
    times: list[float] = []

    network.handler.waiting[0].respond([bytes(8 * MIB)], SendTime(times.append, 0.0))
    network.until(lambda: network.server.counters.bytes_out > 0)
    client.reset()

    network.until(lambda: network.server.counters.connections == 0)
    network.turns(5)
    assert times == []
