"""The way between processor threads and the broker loop."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest

from tests.support.network import frame, running_network
from tidelog.network.request_channel import Mailbox, RequestChannel


class StubConnection:
    def __init__(self) -> None:
        self.turns = 0

    def serve(self) -> None:
        self.turns += 1


def offer(channel: RequestChannel, connection: StubConnection, retries: list[str]) -> bool:
    return channel.offer(connection.serve, lambda: retries.append("retry"))


def test_calls_from_another_thread_are_made_in_order() -> None:
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    calls: list[int] = []

    def post_all() -> None:
        for number in range(1000):
            mailbox.post(partial(calls.append, number))
        mailbox.post(loop.stop)

    thread = threading.Thread(target=post_all)
    thread.start()
    loop.run_forever()
    thread.join()
    loop.close()

    assert calls == list(range(1000))


def test_a_call_that_raises_does_not_hold_up_those_behind_it() -> None:
    loop = asyncio.new_event_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    mailbox = Mailbox(loop)
    problem = ValueError("the test says so")
    calls: list[str] = []

    def fail() -> None:
        raise problem

    mailbox.post(fail)
    mailbox.post(lambda: calls.append("behind"))
    mailbox.post(loop.stop)
    loop.call_later(10, loop.stop)
    loop.run_forever()
    loop.close()

    assert (calls, raised) == (["behind"], [problem])


def test_a_turn_that_raises_gives_its_place_back() -> None:
    class Failing(StubConnection):
        def serve(self) -> None:
            raise ValueError("the test says so")

    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    channel = RequestChannel(mailbox, queued_max_requests=1)
    retries: list[str] = []
    assert offer(channel, Failing(), retries)
    assert not offer(channel, StubConnection(), retries)

    with pytest.raises(ValueError, match="the test says so"):
        mailbox.run()

    assert retries == ["retry"]
    assert offer(channel, StubConnection(), retries)
    loop.close()


def test_a_full_channel_refuses_until_the_broker_loop_has_caught_up() -> None:
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    channel = RequestChannel(mailbox, queued_max_requests=2)
    connections = [StubConnection() for _ in range(3)]
    retries: list[str] = []

    assert [offer(channel, each, retries) for each in connections] == [True, True, False]
    mailbox.run()

    assert [each.turns for each in connections] == [1, 1, 0]
    assert retries == ["retry"]
    assert offer(channel, connections[2], retries)
    loop.close()


def test_more_connections_than_the_channel_holds_are_all_served() -> None:
    with running_network(network_threads=3, queued_max_requests=1) as network:
        clients = [network.client() for _ in range(20)]
        for client in clients:
            client.send(frame(b"hello") * 10)

        for client in clients:
            assert [client.receive() for _ in range(10)] == [b"hello"] * 10


def test_requests_are_handled_on_the_broker_loop_only() -> None:
    with running_network(network_threads=3) as network:
        threads: set[int] = set()

        def note_thread() -> list[bytes]:
            threads.add(threading.get_ident())
            return [b"noted"]

        network.handler.answers[b"where"] = note_thread
        for _ in range(6):
            client = network.client()
            client.send(frame(b"where"))
            client.receive()

        assert threads == {threading.get_ident()}


def test_a_connection_closed_while_its_turn_is_queued_is_not_served() -> None:
    with running_network(network_threads=3) as network:
        client = network.client()
        client.send(frame(b"wait") + frame(b"never"))
        network.until(lambda: network.handler.waiting)
        client.reset()
        network.handler.waiting.pop().respond([b"to nobody"])

        network.until(lambda: not network.server.connections)

        network.until(lambda: network.used_bytes() == 0)


def test_requests_still_queued_when_the_server_closes_are_dropped() -> None:
    with running_network(network_threads=3) as network:
        client = network.accepted_client()
        client.send(frame(b"hello"))
        # The broker loop does not turn, so the turn stays in the channel.
        processor = network.server.processors[0]
        deadline = time.monotonic() + 10
        while not processor.counters.bytes_in and time.monotonic() < deadline:
            pass

        network.server.close()

        assert network.handler.frames == []
        network.until(client.is_closed)
