"""The client's network against brokers that are slow, gone, old, or lie."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import pytest

from tests.support.clock import FakeClock
from tests.support.scripted_broker import (
    HangUp,
    Late,
    Misnumbered,
    NoAnswer,
    Raw,
    ScriptedCluster,
    Torn,
    run,
)
from tidelog.client.errors import (
    ClientError,
    Closed,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    UnreadableAnswer,
    UnsupportedByBroker,
)
from tidelog.client.network.cluster import Cluster, Purpose
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.client.network.metadata import LeaderAndEpoch
from tidelog.config.client import ConsumerConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import encode_response_header
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tidelog.types import TopicPartition

OLD_KAFKA = {
    ApiKey.PRODUCE: (0, 2),
    ApiKey.FETCH: (0, 2),
    ApiKey.LIST_OFFSETS: (0, 0),
    ApiKey.METADATA: (0, 1),
    ApiKey.OFFSET_COMMIT: (0, 2),
    ApiKey.OFFSET_FETCH: (0, 1),
    ApiKey.FIND_COORDINATOR: (0, 0),
    ApiKey.LIST_GROUPS: (0, 0),
    ApiKey.API_VERSIONS: (0, 0),
}

HURRIED = {
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 5,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
}


def client_of(
    cluster: ScriptedCluster | str,
    options: Mapping[str, object] | None = None,
    clock: FakeClock | None = None,
) -> Cluster:
    bootstrap = cluster if isinstance(cluster, str) else cluster.bootstrap
    config = ConsumerConfig({"bootstrap.servers": bootstrap, **HURRIED, **(options or {})})
    return Cluster(config, clock=clock, timer=clock)


def fetch_answer(records: bytes) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t", partitions=[PartitionData(partition_index=0, records=records)]
            )
        ]
    )


def refused_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# Finding brokers


def test_the_first_bootstrap_server_that_answers_tells_of_the_others() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=3, topics={"t": 3}) as brokers:
            bootstrap = f"127.0.0.1:{refused_port()},{brokers.broker(1).address}"
            client = client_of(bootstrap)
            view = await client.topic("t")
            assert set(client.metadata.brokers) == {0, 1, 2}
            assert [view.partitions[index].leader_id for index in range(3)] == [0, 1, 2]
            await client.close()

    run(story)


def test_without_any_broker_the_error_names_one_and_the_reason() -> None:
    async def story() -> None:
        port = refused_port()
        client = client_of(f"127.0.0.1:{port}")
        with pytest.raises(ConnectionFailed, match=rf"127\.0\.0\.1:{port}.*refused") as raised:
            await client.refresh()
        assert raised.value.__cause__ is not raised.value, "who looks for causes would not end"
        await client.close()

    run(story)


def test_a_name_that_does_not_resolve_is_named() -> None:
    async def story() -> None:
        client = client_of("no-such-host.invalid:9092")
        with pytest.raises(ConnectionFailed, match=r"cannot resolve no-such-host\.invalid"):
            await client.refresh()
        await client.close()

    run(story)


def test_an_unreachable_listener_is_named_with_its_broker() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            await brokers.broker(1).stop()
            client = client_of(brokers.broker(0).address)
            await client.refresh()
            with pytest.raises(ConnectionFailed) as failed:
                await client.call(1, ListGroupsRequest())
            message = str(failed.value)
            assert f"broker 1 ({brokers.broker(1).address})" in message
            assert "advertised.listeners" in message
            await client.close()

    run(story)


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("h", -1), ("h", 0), ("h", 1 << 20), ("a\0b", 9092), ("x" * 300, 9092)],
)
def test_an_address_that_is_none_is_refused(host: str, port: int) -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            odd = MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=0, host="127.0.0.1", port=brokers.broker().port),
                    MetadataResponseBroker(node_id=9, host=host, port=port),
                ]
            )
            brokers.broker().on(MetadataRequest, odd)
            client = client_of(brokers)
            await client.refresh()
            with pytest.raises(ConnectionFailed, match="broker 9"):
                await client.call(9, ListGroupsRequest())
            await client.close()

    run(story)


def test_a_broker_that_metadata_does_not_name_is_refused_without_a_try() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            client = client_of(brokers)
            await client.refresh()
            with pytest.raises(ConnectionFailed, match="broker 77 is not among those"):
                await client.call(77, ListGroupsRequest())
            await client.close()

    run(story)


def test_when_all_known_brokers_are_gone_the_bootstrap_servers_are_asked_again() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.named = [1]
            client = client_of(brokers.broker(0).address)
            await client.refresh()
            assert set(client.metadata.brokers) == {1}
            await brokers.broker(1).stop()
            brokers.named = [0]
            await client.refresh()
            assert set(client.metadata.brokers) == {0}
            await client.close()

    run(story)


def test_without_rebootstrap_only_known_brokers_are_asked() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.named = [1]
            client = client_of(brokers.broker(0).address, {"metadata.recovery.strategy": "none"})
            await client.refresh()
            await brokers.broker(1).stop()
            with pytest.raises(ConnectionFailed, match="broker 1"):
                await client.refresh()
            await client.close()

    run(story)


def test_a_broker_may_send_its_clients_back_to_the_bootstrap_servers() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.named = [1]
            client = client_of(brokers.broker(0).address)
            await client.refresh()
            told = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            brokers.broker(1).on(MetadataRequest, told)
            with pytest.raises(Exception, match="REBOOTSTRAP_REQUIRED"):
                await client.refresh()
            brokers.named = [0]
            await client.refresh()
            assert set(client.metadata.brokers) == {0}
            await client.close()

    run(story)


def test_a_broker_that_came_back_at_the_same_place_is_reached_again() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            broker = brokers.broker()
            broker.on(ListGroupsRequest, ListGroupsResponse())
            client = client_of(brokers)
            await client.refresh()
            await client.call(0, ListGroupsRequest())
            await broker.stop()
            with pytest.raises(ConnectionFailed):
                await client.call(0, ListGroupsRequest())
            await broker.start()
            await client.call(0, ListGroupsRequest())
            await client.close()

    run(story)


def test_the_connection_to_a_bootstrap_server_serves_its_broker_from_then_on() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.broker().on(ListGroupsRequest, ListGroupsResponse())
            client = client_of(brokers)
            await client.refresh()
            await client.call(0, ListGroupsRequest())
            assert brokers.broker().connections == 1
            await brokers.broker().stop()
            with pytest.raises(ConnectionFailed, match=r"broker 0 \("):
                await client.call(0, ListGroupsRequest())
            await client.close()

    run(story)


# Versions


def test_an_old_broker_is_asked_for_its_versions_again_at_version_0() -> None:
    async def story() -> None:
        async with ScriptedCluster(topics={"t": 1, "u": 1}, versions=OLD_KAFKA) as brokers:
            client = client_of(brokers)
            view = await client.topic("t")
            assert view.partitions[0].leader_id == 0
            asked = [each.version for each in brokers.broker().received]
            assert asked[:2] == [3, 0]
            # An old broker creates what is asked for by name, so all topics are asked for.
            assert brokers.broker().requests(MetadataRequest)[0].topics is None
            await client.close()

    run(story)


def test_a_broker_that_hangs_up_on_version_3_is_asked_with_version_0() -> None:
    async def story() -> None:
        async with ScriptedCluster(versions=OLD_KAFKA) as brokers:
            broker = brokers.broker()

            def answer(_: ApiVersionsRequest, version: int) -> object:
                return HangUp() if version > 0 else broker.offered(version)

            broker.on(ApiVersionsRequest, answer)  # type: ignore[arg-type]
            client = client_of(brokers)
            await client.refresh()
            assert (await client.versions(0)).version(ApiKey.FETCH) == 2
            await client.close()

    run(story)


def test_a_broker_that_offers_nothing_does_not_hide_the_others() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.broker(0).on(ApiVersionsRequest, ApiVersionsResponse())
            client = client_of(brokers)
            for _ in range(5):
                await client.refresh()
            with pytest.raises(UnsupportedByBroker, match="does not say what it offers"):
                await client.connect(0)
            await client.close()

    run(story)


def test_what_a_broker_does_not_offer_is_refused_before_it_is_sent() -> None:
    async def story() -> None:
        async with ScriptedCluster(versions=OLD_KAFKA) as brokers:
            client = client_of(brokers)
            await client.refresh()
            with pytest.raises(UnsupportedByBroker, match="LIST_GROUPS in versions 0 to 0"):
                await client.call(0, ListGroupsRequest(), at_least=4)
            with pytest.raises(UnsupportedByBroker, match="does not offer HEARTBEAT"):
                await client.call(0, HeartbeatRequest())
            await client.close()

    run(story)


def test_features_that_the_cluster_agreed_on_are_known() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.features = {"transaction.version": 2}
            client = client_of(brokers)
            await client.refresh()
            assert (await client.versions(0)).features == {"transaction.version": 2}
            await client.close()

    run(story)


# Requests and answers


def test_requests_go_out_in_the_order_of_the_calls_and_are_pipelined() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            broker = brokers.broker()
            go = asyncio.Event()
            first = ListGroupsResponse(error_code=1)
            broker.on(ListGroupsRequest, Late(go, first), ListGroupsResponse(error_code=2))
            client = client_of(brokers)
            await client.refresh()
            futures = [client.send(0, ListGroupsRequest()) for _ in range(3)]
            await asyncio.sleep(0)
            go.set()
            answers = await asyncio.gather(*futures)
            assert [getattr(each, "error_code", None) for each in answers] == [1, 2, 2]
            await client.close()

    run(story)


def test_requests_sent_before_there_is_a_connection_keep_their_order() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            client = client_of(brokers.broker(0).address)
            await client.refresh()
            brokers.broker(1).on(ListGroupsRequest, ListGroupsResponse())
            names = [f"state-{number}" for number in range(20)]
            await asyncio.gather(
                *(client.send(1, ListGroupsRequest(states_filter=[name])) for name in names)
            )
            asked = brokers.broker(1).requests(ListGroupsRequest)
            assert [request.states_filter for request in asked] == [[name] for name in names]
            assert brokers.broker(1).connections == 1
            await client.close()

    run(story)


def test_heartbeats_do_not_wait_behind_a_fetch() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            broker = brokers.broker()
            go = asyncio.Event()
            broker.on(FetchRequest, Late(go, FetchResponse()))
            broker.on(HeartbeatRequest, HeartbeatResponse())
            client = client_of(brokers)
            await client.refresh()
            fetch = client.send(0, FetchRequest(), at_most=12)
            await client.call(0, HeartbeatRequest(), purpose=Purpose.COORDINATION)
            assert not fetch.done()
            go.set()
            await fetch
            await client.close()

    run(story)


def test_a_large_answer_arrives_whole() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            records = bytes(range(256)) * 40_000
            brokers.broker().on(FetchRequest, fetch_answer(records))
            client = client_of(brokers)
            await client.refresh()
            for _ in range(3):
                answer = await client.call(0, FetchRequest(), at_most=12)
                assert isinstance(answer, FetchResponse)
                assert bytes(answer.responses[0].partitions[0].records or b"") == records
            await client.close()

    run(story)


def test_a_large_request_arrives_whole() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.broker().on(ListGroupsRequest, ListGroupsResponse())
            client = client_of(brokers, {"send.buffer.bytes": 4096})
            await client.refresh()
            states = ["x" * 30_000] * 30
            await client.call(0, ListGroupsRequest(states_filter=states))
            (asked,) = brokers.broker().requests(ListGroupsRequest)
            assert asked.states_filter == states
            await client.close()

    run(story)


def test_an_answer_to_a_request_nobody_waits_for_any_more_is_dropped() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            go = asyncio.Event()
            broker = brokers.broker()
            broker.on(
                ListGroupsRequest,
                Late(go, ListGroupsResponse(error_code=1)),
                ListGroupsResponse(error_code=2),
            )
            client = client_of(brokers)
            await client.refresh()
            connection = await client.connect(0)
            given_up = client.send(0, ListGroupsRequest())
            given_up.cancel()
            next_one = client.send(0, ListGroupsRequest())
            go.set()
            assert getattr(await next_one, "error_code", None) == 2
            assert connection.is_open
            await client.close()

    run(story)


@pytest.mark.parametrize(
    ("lie", "kind", "match"),
    [
        (Misnumbered(ListGroupsResponse()), UnreadableAnswer, "correlation id"),
        (Torn(ListGroupsResponse(), 7), ConnectionFailed, "middle of an answer"),
        (Torn(ListGroupsResponse(), 2), ConnectionFailed, "lost"),
        (HangUp(), ConnectionFailed, "closed by the broker|reset"),
        (Raw(struct.pack(">i", -5)), UnreadableAnswer, "-5 bytes"),
        (Raw(struct.pack(">i", 0)), UnreadableAnswer, "an answer of 0 bytes"),
        (Raw(struct.pack(">i", 3) + b"abc"), UnreadableAnswer, "an answer of 3 bytes"),
        (Raw(struct.pack(">i", 2_000_000_000)), UnreadableAnswer, "2000000000 bytes"),
        (Raw(struct.pack(">iib", 5, 1, 0)), UnreadableAnswer, "no such answer"),
        (Raw(struct.pack(">iib", 9, 1, 0) + b"\xff\xff\xff\xff"), UnreadableAnswer, "no such"),
    ],
)
def test_a_broker_that_lies_is_hung_up_on(
    lie: Torn | Misnumbered | Raw | HangUp, kind: type[Exception], match: str
) -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.broker(0).on(ListGroupsRequest, lie, ListGroupsResponse())
            brokers.broker(1).on(ListGroupsRequest, ListGroupsResponse())
            client = client_of(brokers.broker(1).address)
            await client.refresh()
            connection = await client.connect(0)
            with pytest.raises(kind, match=match):
                await client.call(0, ListGroupsRequest())
            assert not connection.is_open
            await client.call(1, ListGroupsRequest())
            await client.call(0, ListGroupsRequest())
            await client.close()

    run(story)


def test_mutated_answers_are_refused_or_read_and_never_waited_for() -> None:
    async def story() -> None:
        chance = random.Random(7)
        async with ScriptedCluster(topics={"t": 3}) as brokers:
            broker = brokers.broker()

            def mutated(request: MetadataRequest, version: int) -> Raw:
                body = bytearray(brokers.metadata(request).encode(version))
                for _ in range(chance.randint(1, 8)):
                    body[chance.randrange(len(body))] = chance.randrange(256)
                header = encode_response_header(1, request.API_KEY, version)
                data = header + bytes(
                    body[: chance.choice([len(body), chance.randrange(len(body))])]
                )
                return Raw(struct.pack(">i", len(data)) + data)

            outcomes = Counter[str]()
            for _ in range(200):
                broker.on(MetadataRequest, mutated)
                client = client_of(brokers)
                try:
                    await client.refresh(None)
                    outcomes["read"] += 1
                except ClientError as problem:
                    outcomes[type(problem).__name__] += 1
                await client.close()
            assert outcomes["UnreadableAnswer"] > 20, outcomes
            assert outcomes["RequestTimedOut"] == 0, outcomes

    run(story)


def test_an_answer_that_nobody_asked_for_closes_the_connection() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            extra = struct.pack(">ii", 4, 99)
            broker = brokers.broker()
            client = client_of(brokers)
            await client.refresh()
            connection = await client.connect(0)
            broker.on(HeartbeatRequest, Raw(extra))
            with pytest.raises(UnreadableAnswer, match="correlation id 99"):
                await connection.call(HeartbeatRequest())
            await client.close()

    run(story)


def test_a_request_that_is_not_answered_in_time_closes_the_connection() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.broker().on(ListGroupsRequest, NoAnswer())
            client = client_of(brokers)
            await client.refresh()
            connection = await client.connect(0)
            first = client.send(0, ListGroupsRequest(), timeout_s=0.05)
            second = client.send(0, ListGroupsRequest(), timeout_s=30)
            with pytest.raises(RequestTimedOut, match="LIST_GROUPS within 50 ms"):
                await first
            with pytest.raises(ConnectionFailed, match="given up"):
                await second
            assert not connection.is_open
            await client.close()

    run(story)


def test_request_timeouts_follow_the_monotonic_clock_alone() -> None:
    async def story() -> None:
        clock = FakeClock()
        async with ScriptedCluster() as brokers:
            brokers.broker().on(ListGroupsRequest, NoAnswer())
            client = client_of(brokers, {"request.timeout.ms": 1_000}, clock)
            await client.refresh()
            future = client.send(0, ListGroupsRequest())
            while not brokers.broker().requests(ListGroupsRequest):
                await asyncio.sleep(0.001)
            clock.advance(ms=999)
            assert not future.done()
            clock.advance(ms=1)
            with pytest.raises(RequestTimedOut):
                await future
            await client.close()

    run(story)


@pytest.mark.parametrize(("said_ms", "held_ms"), [(500, 500), (2_000_000_000, 1_000)])
def test_a_broker_whose_quota_is_exceeded_is_left_alone_for_a_while(
    said_ms: int, held_ms: int
) -> None:
    async def story() -> None:
        clock = FakeClock()
        async with ScriptedCluster() as brokers:
            broker = brokers.broker()
            broker.on(
                ListGroupsRequest,
                ListGroupsResponse(throttle_time_ms=said_ms),
                ListGroupsResponse(error_code=1),
                ListGroupsResponse(error_code=2),
            )
            client = client_of(brokers, {"request.timeout.ms": 1_000}, clock)
            await client.refresh()
            await client.call(0, ListGroupsRequest())
            held = [client.send(0, ListGroupsRequest()) for _ in range(2)]
            clock.advance(ms=held_ms - 1)
            await asyncio.sleep(0.01)
            assert len(broker.requests(ListGroupsRequest)) == 1
            clock.advance(ms=1)
            answers = await asyncio.gather(*held)
            assert [getattr(answer, "error_code", None) for answer in answers] == [1, 2]
            await client.close()

    run(story)


def test_closing_ends_what_waits_for_a_quota() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            answer = ListGroupsResponse(throttle_time_ms=30_000)
            brokers.broker().on(ListGroupsRequest, answer)
            client = client_of(brokers)
            await client.refresh()
            await client.call(0, ListGroupsRequest())
            held = client.send(0, ListGroupsRequest())
            await client.close()
            with pytest.raises(Closed):
                await held

    run(story)


def test_an_unused_connection_is_closed() -> None:
    async def story() -> None:
        clock = FakeClock()
        async with ScriptedCluster() as brokers:
            client = client_of(brokers, {"connections.max.idle.ms": 10_000}, clock)
            await client.refresh()
            connection = await client.connect(0)
            clock.advance(ms=9_000)
            assert connection.is_open
            clock.advance(ms=1_001)
            assert not connection.is_open
            await client.close()

    run(story)


# Connecting


def test_tries_to_connect_wait_longer_and_longer() -> None:
    async def story() -> None:
        clock = FakeClock()
        options = {"reconnect.backoff.ms": 1_000, "reconnect.backoff.max.ms": 4_000}
        client = client_of(f"127.0.0.1:{refused_port()}", options, clock)
        waits = []
        for _ in range(4):
            attempt = asyncio.ensure_future(client.any_node())
            waited = 0
            while not attempt.done():
                await asyncio.sleep(0.001)
                if clock.pending_timers():
                    clock.advance(ms=100)
                    waited += 100
            assert isinstance(attempt.exception(), ConnectionFailed)
            waits.append(waited)
        assert waits[0] == 0
        assert 700 <= waits[1] <= 1_400
        assert 1_500 <= waits[2] <= 2_600
        assert 3_100 <= waits[3] <= 5_000
        await client.close()

    run(story)


def test_a_connection_that_is_not_made_in_time_fails() -> None:
    async def story() -> None:
        # A listener whose backlog is full drops what comes after.
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            fillers = [socket.socket() for _ in range(8)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            options = {
                "socket.connection.setup.timeout.ms": 100,
                "request.timeout.ms": 100,
            }
            client = client_of(f"127.0.0.1:{address[1]}", options)
            with pytest.raises((ConnectionFailed, RequestTimedOut), match="within"):
                await client.refresh()
            await client.close()
            for filler in fillers:
                filler.close()

    run(story)


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            port = brokers.broker().port
            loop = asyncio.get_running_loop()

            async def resolve(*_: object, **__: object) -> list[object]:
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
                    for host in ("127.0.0.2", "127.0.0.1")
                ]

            monkeypatch.setattr(loop, "getaddrinfo", resolve)
            client = client_of(f"brokers.test:{port}")
            await client.refresh()
            assert set(client.metadata.brokers) == {0}
            await client.close()

    run(story)


def test_bootstrap_names_may_stand_for_canonical_names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            port = brokers.broker().port
            loop = asyncio.get_running_loop()
            asked: list[object] = []

            async def resolve(host: object, *_: object, **__: object) -> list[object]:
                asked.append(host)
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

            async def name_of(*_: object) -> tuple[str, str]:
                return "canonical.test", str(port)

            monkeypatch.setattr(loop, "getaddrinfo", resolve)
            monkeypatch.setattr(loop, "getnameinfo", name_of)
            lookup = {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}
            client = client_of(f"alias.test:{port}", lookup)
            await client.refresh()
            assert asked == ["alias.test", "canonical.test"]
            await client.close()

    run(story)


# Metadata


def test_callers_who_want_metadata_at_once_share_a_request() -> None:
    async def story() -> None:
        async with ScriptedCluster(topics={f"t{number}": 1 for number in range(10)}) as brokers:
            client = client_of(brokers)
            await client.refresh()
            before = len(brokers.broker().requests(MetadataRequest))
            views = await asyncio.gather(*(client.topic(f"t{number}") for number in range(10)))
            assert [view.name for view in views] == [f"t{number}" for number in range(10)]
            assert len(brokers.broker().requests(MetadataRequest)) - before <= 2
            await client.close()

    run(story)


def test_a_topic_that_does_not_exist_is_said_so_at_once() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            client = client_of(brokers)
            with pytest.raises(UnknownTopic, match="topic nope: UNKNOWN_TOPIC_OR_PARTITION"):
                await client.topic("nope")
            await client.close()

    run(story)


def test_a_topic_that_may_be_created_is_waited_for() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.creates_topics = True
            brokers.topic_errors["new"] = ErrorCode.LEADER_NOT_AVAILABLE
            client = client_of(brokers)
            wait = asyncio.ensure_future(client.topic("new", may_create=True))
            while len(brokers.broker().requests(MetadataRequest)) < 3:
                await asyncio.sleep(0.001)
            del brokers.topic_errors["new"]
            assert (await wait).partitions[0].leader_id == 0
            await client.close()

    run(story)


def test_waiting_for_a_topic_ends_with_its_time() -> None:
    async def story() -> None:
        async with ScriptedCluster() as brokers:
            brokers.topic_errors["new"] = ErrorCode.LEADER_NOT_AVAILABLE
            client = client_of(brokers)
            with pytest.raises(RequestTimedOut, match=r"topic new: gave up after 50 ms"):
                await client.topic("new", timeout_s=0.05)
            await client.close()

    run(story)


def test_a_watched_topic_is_asked_for_again_when_it_is_old() -> None:
    async def story() -> None:
        async with ScriptedCluster(topics={"t": 1}) as brokers:
            client = client_of(brokers, {"metadata.max.age.ms": 20})
            client.watch({"t"})
            while client.metadata.leader_or_none(TopicPartition("t", 0)) is None:
                await asyncio.sleep(0.001)
            brokers.lead(TopicPartition("t", 0), 0, 9)
            while client.metadata.leader_or_none(TopicPartition("t", 0)) != LeaderAndEpoch(0, 9):
                await asyncio.sleep(0.001)
            await client.close()

    run(story)


def test_metadata_is_asked_for_soon_until_an_answer_comes() -> None:
    async def story() -> None:
        async with ScriptedCluster(topics={"t": 1}) as brokers:
            client = client_of(brokers)
            client.watch({"t"})
            await client.topic("t")
            await brokers.broker().stop()
            brokers.lead(TopicPartition("t", 0), 0, 3)
            client.refresh_soon()
            await asyncio.sleep(0.02)
            await brokers.broker().start()
            while client.metadata.leader_or_none(TopicPartition("t", 0)) != LeaderAndEpoch(0, 3):
                await asyncio.sleep(0.001)
            await client.close()

    run(story)


# Coordinators and the controller


def test_a_coordinator_is_looked_up_once_and_again_when_forgotten() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.coordinator_id = 1
            client = client_of(brokers.broker(0).address)
            found = await asyncio.gather(
                *(client.coordinator(CoordinatorKind.GROUP, "g") for _ in range(5))
            )
            assert found == [1] * 5
            lookups = [
                request
                for broker in brokers.brokers.values()
                for request in broker.requests(FindCoordinatorRequest)
            ]
            assert len(lookups) == 1
            brokers.coordinator_id = 0
            assert await client.coordinator(CoordinatorKind.GROUP, "g") == 1
            client.forget_coordinator(CoordinatorKind.GROUP, "g")
            assert await client.coordinator(CoordinatorKind.GROUP, "g") == 0
            await client.close()

    run(story)


def test_a_coordinator_that_went_away_is_looked_up_again() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.coordinator_id = 1
            brokers.broker(1).on(HeartbeatRequest, HeartbeatResponse())
            brokers.broker(0).on(HeartbeatRequest, HeartbeatResponse(error_code=7))
            client = client_of(brokers.broker(0).address)
            node_id = await client.coordinator(CoordinatorKind.GROUP, "g")
            await client.call(node_id, HeartbeatRequest(), purpose=Purpose.COORDINATION)
            brokers.coordinator_id = 0
            await brokers.broker(1).stop()
            while node_id == 1:
                with suppress(ConnectionFailed):
                    node_id = await client.coordinator(CoordinatorKind.GROUP, "g")
                await asyncio.sleep(0)
            answer = await client.call(node_id, HeartbeatRequest(), purpose=Purpose.COORDINATION)
            assert getattr(answer, "error_code", None) == 7
            await client.close()

    run(story)


def test_an_old_broker_is_asked_for_coordinators_one_by_one() -> None:
    async def story() -> None:
        async with ScriptedCluster(versions=OLD_KAFKA) as brokers:
            client = client_of(brokers)
            found = await client.coordinators(CoordinatorKind.GROUP, ["a", "b"])
            assert {key: row.node.id for key, row in found.items()} == {"a": 0, "b": 0}
            with pytest.raises(UnsupportedByBroker, match="transactional id x"):
                await client.coordinator(CoordinatorKind.TRANSACTION, "x")
            await client.close()

    run(story)


def test_a_request_for_the_controller_goes_where_metadata_says() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2) as brokers:
            brokers.controller_id = 1
            brokers.broker(1).on(ListGroupsRequest, ListGroupsResponse(error_code=4))
            client = client_of(brokers.broker(0).address)
            answer = await client.call_controller(ListGroupsRequest())
            assert getattr(answer, "error_code", None) == 4
            await client.close()

    run(story)


# Closing


def test_closing_ends_everything_that_waits() -> None:
    async def story() -> None:
        async with ScriptedCluster(brokers=2, topics={"t": 1}) as brokers:
            brokers.broker(0).on(ListGroupsRequest, NoAnswer())
            brokers.broker(1).on(ApiVersionsRequest, NoAnswer())
            brokers.broker(0).on(FindCoordinatorRequest, NoAnswer())
            client = client_of(brokers.broker(0).address)
            client.watch(None)
            await client.refresh()
            answered = client.send(0, ListGroupsRequest())
            connecting = client.send(1, ListGroupsRequest())
            looked_up = asyncio.ensure_future(client.coordinator(CoordinatorKind.GROUP, "g"))
            waiting = asyncio.ensure_future(client.refresh())
            await asyncio.sleep(0.01)
            await client.close()
            for each in (answered, connecting, looked_up, waiting):
                assert isinstance((await asyncio.wait([each]))[0].pop().exception(), Closed)
            with pytest.raises(Closed):
                await client.refresh()
            with pytest.raises(Closed):
                await client.topic("other")

    run(story)
