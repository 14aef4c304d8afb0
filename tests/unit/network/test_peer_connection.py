"""An outgoing connection: answers by order, failures once each, timeouts close it."""

from __future__ import annotations

import asyncio
import importlib
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from tests.support.clock import FakeClock
from tests.support.peer import PeerStage
from tidelog.clock import SystemClock
from tidelog.network.peer_connection import PeerConnection, connect
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

Story = Callable[[PeerStage, PeerConnection], Awaitable[None]]


def play(story: Story, clock: FakeClock | None = None) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        stage = await PeerStage().start()
        connection = await connect(
            stage.host,
            stage.port,
            loop=loop,
            clock=clock or SystemClock(),
            timer=clock or loop,
            client_id="broker-1",
            timeout_s=60,
        )
        try:
            await story(stage, connection)
        finally:
            connection.close()
            await stage.stop()

    asyncio.run(run())


def test_a_call_is_answered() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        call = asyncio.ensure_future(connection.call(ControlledShutdownRequest(broker_id=3), 3, 60))
        header, request = await stage.take()
        assert (header.client_id, request.broker_id) == ("broker-1", 3)
        stage.answer(header, ControlledShutdownResponse(error_code=41))
        assert (await call).error_code == 41

    play(story)


def test_calls_are_pipelined_and_answered_in_order() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        calls = [
            asyncio.ensure_future(connection.call(ControlledShutdownRequest(broker_id=n), 3, 60))
            for n in range(3)
        ]
        taken = [await stage.take() for _ in calls]
        for header, request in taken:
            stage.answer(header, ControlledShutdownResponse(error_code=request.broker_id))
        assert [(await call).error_code for call in calls] == [0, 1, 2]

    play(story)


def test_a_large_answer_is_handed_over_as_a_view_of_the_receive_buffer() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        records = bytes(range(256)) * 20_000
        seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(response: FetchResponse) -> None:
            found = response.responses[0].partitions[0].records
            assert isinstance(found, memoryview)
            seen.set_result(bytes(found))

        connection.send(FetchRequest(), 12, 5, answered, seen.set_exception)
        header, _ = await stage.take()
        row = PartitionData(partition_index=0, records=records)
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])
        stage.answer(header, answer)
        assert await seen == records

    play(story)


def test_when_the_peer_hangs_up_everything_that_waits_fails() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        calls = [
            asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 60))
            for _ in range(2)
        ]
        await stage.take()
        stage.hang_up()
        for call in calls:
            with pytest.raises(ConnectionError):
                await call
        assert not connection.open
        with pytest.raises(ConnectionError):
            await connection.call(ControlledShutdownRequest(), 3, 60)

    play(story)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_peer_that_dies_in_mid_answer_fails_what_waits_at_once(loop: str) -> None:
    """uvloop reports an error of a socket once; a reader that finds bytes then sees no error."""

    async def story() -> None:
        running = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        connection = await connect(
            "127.0.0.1",
            listening.getsockname()[1],
            loop=running,
            clock=SystemClock(),
            timer=running,
            client_id="broker-1",
            timeout_s=60,
        )
        peer, _ = listening.accept()
        call = running.create_task(connection.call(ControlledShutdownRequest(broker_id=3), 3, 60))
        await asyncio.sleep(0)  # the request leaves
        peer.sendall(b"\0\0\1\0 half an answer")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # with a reset, as a process that dies with unread requests does
        listening.close()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(call, 30)
        assert not connection.open

    pytest.importorskip(loop)
    with asyncio.Runner(loop_factory=importlib.import_module(loop).new_event_loop) as runner:
        runner.run(story())


def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    clock = FakeClock()

    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        slow = asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 30))
        quick = asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 31))
        await stage.take()
        clock.advance(ms=29_000)
        assert connection.open
        clock.advance(ms=1_500)
        for call in (slow, quick):
            with pytest.raises(TimeoutError):
                await call
        assert not connection.open

    play(story, clock)


def test_a_timeout_is_counted_from_each_request() -> None:
    clock = FakeClock()

    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        for _ in range(3):
            call = asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 30))
            header, _ = await stage.take()
            clock.advance(ms=20_000)
            stage.answer(header, ControlledShutdownResponse())
            await call
        assert connection.open

    play(story, clock)


def test_an_answer_that_cannot_be_read_closes_the_connection() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        call = asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 60))
        header, _ = await stage.take()
        stage.send_frame(header.correlation_id.to_bytes(4, "big") + b"\0\0")
        with pytest.raises(ConnectionError):
            await call

    play(story)


def test_an_answer_of_another_request_closes_the_connection() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        call = asyncio.ensure_future(connection.call(ControlledShutdownRequest(), 3, 60))
        header, _ = await stage.take()
        header.correlation_id += 1
        row = RemainingPartition(topic_name="t", partition_index=1)
        stage.answer(header, ControlledShutdownResponse(remaining_partitions=[row]))
        with pytest.raises(ConnectionError):
            await call

    play(story)


def test_requests_that_the_socket_does_not_take_at_once_are_sent_later() -> None:
    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        from tidelog.protocol.messages.fetch import FetchPartition, FetchTopic

        rows = [FetchPartition(partition=n) for n in range(200_000)]
        seen: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=rows)])
        connection.send(request, 12, 5, seen.set_result, seen.set_exception)
        header, taken = await stage.take()
        assert len(taken.topics[0].partitions) == 200_000
        stage.answer(header, FetchResponse())
        await seen

    play(story)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError()], ids=repr)
def test_an_asker_that_fails_is_no_failure_of_the_connection(error: Exception) -> None:
    """An error of a disk would pass for one of the socket, and nobody would ask again."""

    def fail(_: object) -> None:
        raise error

    async def story(stage: PeerStage, connection: PeerConnection) -> None:
        failures: list[OSError] = []
        connection.send(ControlledShutdownRequest(broker_id=1), 3, 5, fail, failures.append)
        header, _ = await stage.take()
        stage.answer(header, ControlledShutdownResponse())
        call = asyncio.ensure_future(connection.call(ControlledShutdownRequest(broker_id=2), 3, 60))
        header, _ = await stage.take()
        stage.answer(header, ControlledShutdownResponse(error_code=41))
        assert (await call).error_code == 41
        assert failures == []

    play(story)
