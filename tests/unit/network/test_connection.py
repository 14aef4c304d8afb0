"""Frames in, answers out: on the broker loop (1 network thread) and on threads of their own (3)."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator, Sized
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from tests.support.network import Client, FileSlice, Network, frame, length, running_network
from tidelog.network.channel import LONE_FILE_BYTES_MAX, CloseReason
from tidelog.network.connection import OWED_MAX, Connection, IncomingRequest

MIB = 1024 * 1024


@pytest.fixture(params=[1, 3], ids=["broker-loop", "three-threads"])
def network_threads(request: pytest.FixtureRequest) -> int:
    threads: int = request.param
    return threads


@pytest.fixture(params=["asyncio", "uvloop"])
def network(request: pytest.FixtureRequest, network_threads: int) -> Iterator[Network]:
    new_loop = pytest.importorskip(request.param).new_event_loop
    with running_network(network_threads=network_threads, new_loop=new_loop) as running:
        yield running


def expect_closed_by(network: Network, reason: CloseReason) -> None:
    network.until(lambda: network.server.counters.closed_by[reason] == 1)


def expect_bytes_in(network: Network, count: int) -> None:
    network.until(lambda: network.server.counters.bytes_in == count)


def segment(tmp_path: Path, data: bytes) -> FileIO:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    return FileIO(path, "r+")


def test_a_request_is_answered(network: Network) -> None:
    client = network.client()

    client.send(frame(b"hello"))

    assert client.receive() == b"hello"


def test_a_request_sent_byte_by_byte_is_answered(network: Network) -> None:
    client = network.accepted_client()

    for byte in frame(b"trickle") + frame(b"again"):
        before = network.server.counters.bytes_in
        client.send(bytes([byte]))
        expect_bytes_in(network, before + 1)

    assert [client.receive(), client.receive()] == [b"trickle", b"again"]


def test_pipelined_requests_are_answered_in_order(network: Network) -> None:
    client = network.client()
    bodies = [b"%d" % number for number in range(3000)]

    client.send(b"".join(map(frame, bodies)))

    assert [client.receive() for _ in bodies] == bodies
    assert network.server.counters.requests == 3000


def test_answers_of_pipelined_requests_leave_together(network: Network) -> None:
    client = network.accepted_client()
    client.send(b"".join(frame(b"%d" % number) for number in range(50)))
    network.until(lambda: network.server.counters.bytes_out)

    assert network.server.counters.bytes_out == network.server.counters.bytes_in


def test_the_parts_of_an_answer_are_one_frame(network: Network) -> None:
    network.handler.answers[b"parts"] = lambda: [b"a", bytearray(b"bc"), memoryview(b"d"), b""]
    client = network.client()

    client.send(frame(b"parts"))

    assert client.receive() == b"abcd"


def test_an_answer_may_be_empty(network: Network) -> None:
    network.handler.answers[b"empty"] = lambda: []
    client = network.client()

    client.send(frame(b"empty") + frame(b"next"))

    assert [client.receive(), client.receive()] == [b"", b"next"]


def test_an_answer_that_cannot_be_sent_leaves_nothing_on_the_wire(network: Network) -> None:
    network.handler.answers[b"broken"] = lambda: [b"head", "text is neither bytes nor a file"]
    client = network.client()

    client.send(frame(b"good") + frame(b"broken"))

    assert client.receive() == b"good"
    network.until(client.is_closed)
    assert client.received_bytes() == 0
    expect_closed_by(network, CloseReason.HANDLER_ERROR)


def test_a_large_request_is_answered_with_a_large_answer(network: Network) -> None:
    client = network.client()
    body = bytes(range(256)) * (12 * MIB // 256)

    client.send(frame(b"before") + frame(body) + frame(b"after"))

    assert client.receive() == b"before"
    assert client.receive() == body
    assert client.receive() == b"after"
    network.until(lambda: network.used_bytes() == 0)


def test_the_next_request_waits_for_the_answer_of_the_one_before(network: Network) -> None:
    client = network.client()
    client.send(frame(b"wait") + frame(b"second"))
    network.until(lambda: network.handler.waiting)
    client.send(frame(b"third"))
    network.turns(20)
    assert network.handler.frames == [b"wait"]

    network.handler.waiting.pop().respond([b"late"])

    assert [client.receive() for _ in range(3)] == [b"late", b"second", b"third"]


def test_many_requests_each_answered_later_keep_their_order(network: Network) -> None:
    client = network.client()
    client.send(b"".join(frame(b"wait %d" % number) for number in range(200)))

    for number in range(200):
        network.until(lambda: network.handler.waiting)
        network.handler.waiting.pop().respond([b"%d" % number])

    assert [client.receive() for _ in range(200)] == [b"%d" % number for number in range(200)]


def passing(network: Network, *bodies: bytes) -> tuple[Client, list[IncomingRequest]]:
    """A client whose requests are all in hand at once."""
    client = network.client()
    client.send(b"".join(map(frame, bodies)))
    network.until(lambda: len(network.handler.waiting) == len(bodies))
    return client, network.handler.waiting


def test_requests_that_let_others_pass_are_in_hand_together(network: Network) -> None:
    client, _ = passing(network, b"pass 0", b"pass 1")
    client.send(frame(b"pass 2"))  # also what arrives later
    network.until(lambda: len(network.handler.waiting) == 3)

    for number in range(3):
        network.handler.waiting[number].respond([b"%d" % number])

    assert [client.receive() for _ in range(3)] == [b"0", b"1", b"2"]


def test_their_answers_leave_in_the_order_of_the_requests(network: Network) -> None:
    client, waiting = passing(network, *(b"pass %d" % number for number in range(5)))
    for number in (3, 1, 4):
        waiting[number].respond([b"%d" % number])
    network.turns(20)
    assert client.received_bytes() == 0

    waiting[0].respond([b"0"])
    assert [client.receive(), client.receive()] == [b"0", b"1"]

    waiting[2].respond_nothing()
    assert [client.receive(), client.receive()] == [b"3", b"4"]


def test_an_answer_at_once_waits_for_those_before_it(network: Network) -> None:
    network.handler.answers[b"pa"] = lambda: [b"at once"]
    client, waiting = passing(network, b"pass")
    client.send(frame(b"pa") + frame(b"pa"))
    network.until(lambda: len(network.handler.frames) == 3)
    network.turns(20)
    assert client.received_bytes() == 0

    waiting[0].respond([b"first"])

    assert [client.receive() for _ in range(3)] == [b"first", b"at once", b"at once"]


def test_a_request_of_another_kind_does_not_pass(network: Network) -> None:
    client, waiting = passing(network, b"pass 0", b"pass 1")
    client.send(frame(b"other") + frame(b"pass 2"))
    network.turns(20)
    waiting[0].respond([b"0"])
    assert client.receive() == b"0"
    assert network.handler.frames == [b"pass 0", b"pass 1"]

    waiting[1].respond([b"1"])

    assert [client.receive(), client.receive()] == [b"1", b"other"]
    network.until(lambda: len(network.handler.waiting) == 3)


def test_a_request_that_nothing_passes_may_be_behind_others(network: Network) -> None:
    network.handler.answers[b"pa"] = lambda: [b"never passes"]
    client, waiting = passing(network, b"pass")
    client.send(frame(b"park") + frame(b"pa"))
    network.until(lambda: len(waiting) == 2)
    network.turns(20)
    waiting[1].respond([b"second"])
    network.turns(20)
    assert len(network.handler.frames) == 2

    waiting[0].respond([b"first"])

    assert [client.receive() for _ in range(3)] == [b"first", b"second", b"never passes"]


def holds_more_than(waiting: Sized, count: int) -> bool:
    return len(waiting) > count


def test_only_so_many_are_in_hand(network: Network) -> None:
    client = network.client()
    client.send(b"".join(frame(b"pass %d" % number) for number in range(OWED_MAX + 10)))
    network.until(lambda: len(network.handler.waiting) == OWED_MAX)
    network.turns(20)
    assert len(network.handler.frames) == OWED_MAX

    waiting = network.handler.waiting
    for number in range(OWED_MAX + 10):
        network.until(partial(holds_more_than, waiting, number))
        waiting[number].respond([b"%d" % number])

    expected = [b"%d" % number for number in range(OWED_MAX + 10)]
    assert [client.receive() for _ in expected] == expected


def test_a_refusal_among_them_closes_after_the_answers_before_it(network: Network) -> None:
    client, waiting = passing(network, b"pass 0", b"pass 1", b"pass 2")
    waiting[1].close("the test says so")
    waiting[2].respond([b"never sent"])
    network.turns(20)
    assert not client.is_closed()

    waiting[0].respond([b"0"])

    assert client.receive() == b"0"
    network.until(client.is_closed)
    assert client.received_bytes() == 0
    expect_closed_by(network, CloseReason.BAD_REQUEST)


def test_a_peer_that_stops_sending_gets_what_it_is_owed(network: Network) -> None:
    client, waiting = passing(network, b"pass 0", b"pass 1")
    client.socket.shutdown(socket.SHUT_WR)
    network.turns(20)

    waiting[1].respond([b"1"])
    waiting[0].respond([b"0"])

    assert [client.receive(), client.receive()] == [b"0", b"1"]
    network.until(client.is_closed)


def test_a_connection_that_is_owed_answers_is_not_idle(network: Network) -> None:
    client, waiting = passing(network, b"pass")
    network.clock.advance(ms=3_600_000)
    network.sweep()
    network.turns(20)

    waiting[0].respond([b"late"])

    assert client.receive() == b"late"


def test_owed_answers_of_a_closed_connection_go_nowhere(network: Network) -> None:
    _, waiting = passing(network, b"pass 0", b"pass 1")
    network.handler.connections[0].channel.close_soon(CloseReason.IDLE)
    network.until(lambda: not network.server.connections)

    for request in waiting:
        request.respond([b"too late"])

    network.until(lambda: network.used_bytes() == 0)


def test_the_frame_is_gone_once_handle_has_returned(network: Network) -> None:
    client = network.client()

    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)

    assert len(network.handler.waiting[0].frame) == 0


def test_a_waiting_connection_does_not_hold_up_another(network: Network) -> None:
    waiting, other = network.client(), network.client()
    waiting.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)

    other.send(frame(b"quick"))

    assert other.receive() == b"quick"


def test_answering_from_inside_another_request_does_not_nest(network: Network) -> None:
    """A handler that completes other connections' requests must not run their next ones."""
    clients = [network.client() for _ in range(3)]
    for client in clients:
        client.send(frame(b"wait") + frame(b"release"))
    network.until(lambda: len(network.handler.waiting) == 3)
    depths: list[int] = []
    depth = 0

    def release() -> list[Any]:
        nonlocal depth
        depth += 1
        depths.append(depth)
        while network.handler.waiting:
            network.handler.waiting.pop().respond([b"released"])
        depth -= 1
        return [b"done"]

    network.handler.answers[b"release"] = release
    network.handler.waiting.pop(0).respond([b"released"])

    for client in clients:
        assert [client.receive(), client.receive()] == [b"released", b"done"]
    assert depths == [1, 1, 1]


def test_a_request_without_answer_lets_the_next_one_come(network: Network) -> None:
    client = network.client()

    client.send(frame(b"nothing") + frame(b"nothing") + frame(b"something"))

    assert client.receive() == b"something"
    assert not client.has_answer()


def test_no_answer_may_also_come_later(network: Network) -> None:
    client = network.client()
    client.send(frame(b"wait") + frame(b"next"))
    network.until(lambda: network.handler.waiting)

    network.handler.waiting.pop().respond_nothing()

    assert client.receive() == b"next"


def test_a_refused_request_closes_after_earlier_answers_are_sent(network: Network) -> None:
    client = network.client()

    client.send(frame(b"good") + frame(b"close") + frame(b"never"))

    assert client.receive() == b"good"
    network.until(client.is_closed)
    assert network.handler.frames == [b"good", b"close"]
    expect_closed_by(network, CloseReason.BAD_REQUEST)


def test_an_exception_in_the_handler_closes_only_its_connection(network: Network) -> None:
    bad, good = network.client(), network.client()

    bad.send(frame(b"fine") + frame(b"raise") + frame(b"never"))

    assert bad.receive() == b"fine"
    network.until(bad.is_closed)
    good.send(frame(b"still here"))
    assert good.receive() == b"still here"
    expect_closed_by(network, CloseReason.HANDLER_ERROR)


@pytest.mark.parametrize("size", [-1, -(2**31), 100 * MIB + 1, 2**31 - 1])
def test_an_invalid_length_closes_only_its_connection(network: Network, size: int) -> None:
    bad, good = network.client(), network.client()

    bad.send(frame(b"first") + length(size))

    assert bad.receive() == b"first"
    network.until(bad.is_closed)
    good.send(frame(b"still here"))
    assert good.receive() == b"still here"
    expect_closed_by(network, CloseReason.INVALID_FRAME)


def test_a_peer_that_vanishes_in_mid_frame_is_forgotten(network: Network) -> None:
    client = network.accepted_client()
    client.send(length(1000) + b"only this")
    network.until(lambda: network.used_bytes())

    client.close()

    network.until(lambda: not network.server.connections)
    assert network.used_bytes() == 0
    expect_closed_by(network, CloseReason.PEER_CLOSED)


def test_a_peer_that_resets_is_forgotten(network: Network) -> None:
    client = network.accepted_client()

    client.reset()

    network.until(lambda: not network.server.connections)
    expect_closed_by(network, CloseReason.PEER_RESET)


def test_a_peer_that_only_stops_sending_gets_its_answers(network: Network) -> None:
    client = network.client()
    client.send(frame(b"a") + frame(b"wait"))
    client.socket.shutdown(socket.SHUT_WR)
    network.until(lambda: network.handler.waiting)

    network.handler.waiting.pop().respond([b"b"])

    assert [client.receive(), client.receive()] == [b"a", b"b"]
    network.until(client.is_closed)


def test_an_answer_to_a_closed_connection_goes_nowhere(network: Network) -> None:
    client = network.client()
    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)
    connection = network.handler.connections[0]
    connection.channel.close_soon(CloseReason.IDLE)
    network.until(lambda: not network.server.connections)

    network.handler.waiting[0].respond([b"too late"])

    assert not connection.open


def test_answering_twice_is_a_bug(network: Network) -> None:
    client = network.client()
    client.send(frame(b"wait"))
    network.until(lambda: network.handler.waiting)
    network.handler.waiting[0].respond([b"once"])

    with pytest.raises(AssertionError, match="answered twice"):
        network.handler.waiting[0].respond([b"twice"])

    assert client.receive() == b"once"


def test_close_callbacks_are_called_once(network: Network) -> None:
    client = network.client()
    client.send(frame(b"hello"))
    client.receive()
    closed: list[object] = []
    network.handler.connections[0].add_close_callback(closed.append)

    client.close()

    network.until(lambda: closed)
    assert closed == [network.handler.connections[0]]


def test_a_close_callback_that_fails_stops_no_other(network: Network) -> None:
    client = network.client()
    client.send(frame(b"hello"))
    client.receive()
    closed: list[object] = []
    connection = network.handler.connections[0]

    def fail(_: object) -> None:
        raise ZeroDivisionError

    connection.add_close_callback(fail)
    connection.add_close_callback(closed.append)

    client.close()

    network.until(lambda: closed)
    assert closed == [connection]


def test_a_connection_knows_its_ends(network: Network) -> None:
    client = network.client()
    client.send(frame(b"hello"))
    client.receive()

    connection = network.handler.connections[0]

    host, port = client.socket.getsockname()
    server_port = network.ports["PLAINTEXT"]
    assert connection.id == f"127.0.0.1:{server_port}-{host}:{port}-0"
    session = connection.session
    assert (session.client_host, session.client_port) == (host, port)
    assert session.listener_name == "PLAINTEXT"


def test_a_closed_connection_is_freed_without_the_garbage_collector(network: Network) -> None:
    client = network.client()
    client.send(frame(b"hello"))
    client.receive()
    name = network.handler.connections.pop().id

    def is_there() -> bool:
        return any(isinstance(each, Connection) and each.id == name for each in gc.get_objects())

    gc.disable()
    try:
        assert is_there()
        client.close()
        network.until(lambda: not is_there())
    finally:
        gc.enable()


def test_file_parts_are_sent_from_the_file(network: Network, tmp_path: Path) -> None:
    data = bytes(range(256)) * (8 * MIB // 256)
    with segment(tmp_path, data) as file:
        network.handler.answers[b"fetch"] = lambda: [
            b"head",
            FileSlice(file, 1000, 3 * MIB),
            b"middle",
            FileSlice(file, 0, 0),
            FileSlice(file, 5 * MIB, 2 * MIB),
            b"tail",
        ]
        client = network.client()

        client.send(frame(b"fetch") + frame(b"next"))

        expected = data[1000 : 1000 + 3 * MIB], data[5 * MIB : 7 * MIB]
        assert client.receive() == b"head" + expected[0] + b"middle" + expected[1] + b"tail"
        assert client.receive() == b"next"
        network.until(lambda: network.server.counters.sendfile_bytes == 5 * MIB)
        assert network.server.counters.sendfile_calls >= 2


def test_small_file_parts_leave_with_the_rest_in_one_write(
    network: Network, tmp_path: Path
) -> None:
    with segment(tmp_path, bytes(range(256))) as file:
        parts = [b"head", FileSlice(file, 10, 20), b"middle", FileSlice(file, 0, 5), b"tail"]
        network.handler.answers[b"fetch"] = lambda: parts
        client = network.client()

        client.send(frame(b"fetch"))

        assert client.receive() == b"head" + bytes(range(10, 30)) + b"middle\0\1\2\3\4tail"
        assert network.server.counters.sendfile_calls == 0


@pytest.mark.parametrize(("excess_bytes", "sendfile_calls"), [(0, 0), (1, 1)])
def test_a_lone_file_part_is_sent_from_the_file_unless_it_is_small(
    network: Network, tmp_path: Path, excess_bytes: int, sendfile_calls: int
) -> None:
    data = bytes(LONE_FILE_BYTES_MAX + excess_bytes)
    with segment(tmp_path, data) as file:
        part = FileSlice(file, 0, len(data))
        network.handler.answers[b"fetch"] = lambda: [b"head", part, b"tail"]
        client = network.client()

        client.send(frame(b"fetch"))

        assert client.receive() == b"head" + data + b"tail"
        assert network.server.counters.sendfile_calls == sendfile_calls


def test_an_answer_with_an_empty_file_part_only_is_sent(network: Network, tmp_path: Path) -> None:
    with segment(tmp_path, b"") as file:
        network.handler.answers[b"fetch"] = lambda: [b"head", FileSlice(file, 0, 0)]
        client = network.client()

        client.send(frame(b"fetch"))

        assert client.receive() == b"head"


def test_a_file_that_became_shorter_closes_the_connection(network: Network, tmp_path: Path) -> None:
    with segment(tmp_path, b"x" * 1000) as file:
        network.handler.answers[b"fetch"] = lambda: [b"head", FileSlice(file, 0, 5000)]
        client = network.client()

        client.send(frame(b"fetch"))

        network.until(client.is_closed)
        expect_closed_by(network, CloseReason.FILE_TRUNCATED)


def test_a_slow_reader_is_not_read(network_threads: int) -> None:
    with running_network(
        network_threads=network_threads,
        connection_bytes_in_flight_max=100_000,
        send_buffer_bytes=20_000,
    ) as network:
        network.handler.answers[b"big"] = lambda: [b"x" * 50_000]
        client = network.client(receive_buffer_bytes=20_000)
        client.send(frame(b"big") * 200)
        network.until(lambda: network.used_bytes() > 100_000)
        network.turns(50)

        handled = len(network.handler.frames)
        network.turns(50)

        assert len(network.handler.frames) == handled < 100
        assert network.used_bytes() < 400_000
        assert [len(client.receive()) for _ in range(200)] == [50_000] * 200
        network.until(lambda: network.used_bytes() == 0)


def test_a_slow_reader_does_not_hold_up_another(network_threads: int) -> None:
    with running_network(network_threads=network_threads, send_buffer_bytes=20_000) as network:
        network.handler.answers[b"big"] = lambda: [b"x" * 5 * MIB]
        slow, quick = network.client(receive_buffer_bytes=20_000), network.client()
        slow.send(frame(b"big"))
        network.until(lambda: network.used_bytes() > MIB)

        quick.send(frame(b"quick"))

        assert quick.receive() == b"quick"


def test_the_time_of_receipt_is_that_of_the_clock() -> None:
    with running_network() as network:
        client = network.client()
        network.clock.advance(ms=1500)

        client.send(frame(b"hello"))
        client.receive()

        assert network.handler.received_at == [1.5]
