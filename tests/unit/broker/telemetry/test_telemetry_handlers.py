"""GetTelemetrySubscriptions and PushTelemetry: every error, and what becomes of a push."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.dispatch import ClosableConnection
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tests.support.otlp import counter, gauge, metrics_data, point
from tidelog.broker.handlers import get_telemetry_subscriptions, push_telemetry
from tidelog.broker.observation.exposition import Page
from tidelog.broker.telemetry import client_metrics_manager, pushed_metrics
from tidelog.broker.telemetry.client_metrics_manager import (
    ClientMetricsManager,
    requested_metrics,
    subscription_id,
)
from tidelog.config.client_metrics import Subscription, pattern, subscription
from tidelog.config.definition import ConfigError
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.protocol.messages.push_telemetry import PushTelemetryRequest
from tidelog.types import ZERO_UUID, Uuid

GZIP = 1
PUSHED = metrics_data(counter("org.apache.kafka.producer.record.send.total", point(5)))
LISTENER = "http://127.0.0.1:0"


class Client:
    """One client of the stage, on a connection of its own."""

    def __init__(self, stage: HandlerStage, client_id: str = "c") -> None:
        self._stage = stage
        self._client_id = client_id
        self.connection = ClosableConnection()
        self.instance_id = ZERO_UUID
        self.subscription_id = 0

    def get(self) -> GetTelemetrySubscriptionsResponse:
        self._stage.connection = self.connection
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        context = self._stage.context(0, self._client_id)
        answer = get_telemetry_subscriptions.handle(context, request)
        if answer.error_code == 0:
            self.instance_id = answer.client_instance_id
            self.subscription_id = answer.subscription_id
        return answer

    async def push(
        self, metrics: bytes = PUSHED, *, terminating: bool = False, codec: int = 0
    ) -> ErrorCode:
        self._stage.connection = self.connection
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=self.subscription_id,
            terminating=terminating,
            compression_type=codec,
            metrics=metrics,
        )
        context = self._stage.context(0, self._client_id)
        return ErrorCode.of((await push_telemetry.handle(context, request)).error_code)


@asynccontextmanager
async def telemetry_stage(directory: Path, **overrides: str) -> AsyncIterator[HandlerStage]:
    async with handler_stage(directory, tidelog_metrics_listener=LISTENER, **overrides) as stage:
        await subscribe(stage, metrics="*", interval_ms="1000")
        yield stage


async def subscribe(stage: HandlerStage, name: str = "all", /, **settings: str) -> None:
    texts = {key.replace("_", "."): text for key, text in settings.items()}
    await stage.broker.dynamic_config.alter_subscription(name, lambda before: texts)


def manager_of(stage: HandlerStage) -> ClientMetricsManager:
    assert stage.broker.client_metrics is not None
    return stage.broker.client_metrics


def page_of(stage: HandlerStage) -> str:
    page = Page()
    for _ in manager_of(stage).pushed.add_to(page):
        pass
    return "".join(page.pieces())


@in_loop
async def test_without_a_listener_nothing_is_served(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        client = Client(stage)
        assert client.get().error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await client.push() is ErrorCode.UNSUPPORTED_VERSION


@in_loop
async def test_a_client_gets_an_id_and_what_matches_it(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        await subscribe(stage, metrics="a.,b.", interval_ms="500", match="client_id=c")
        await subscribe(stage, "other", metrics="x.", interval_ms="100", match="client_id=d")
        await subscribe(stage, "third", metrics="a.", match="client_source_address=127[.].*")
        answer = Client(stage).get()
        assert answer.error_code == 0
        assert answer.client_instance_id != ZERO_UUID
        assert set(answer.requested_metrics) == {"a.", "b."}
        assert answer.push_interval_ms == 500
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        assert answer.telemetry_max_bytes == 1_048_576
        assert answer.delta_temporality
        assert Client(stage, "d").get().push_interval_ms == 100


@in_loop
async def test_a_client_without_a_match_is_asked_for_nothing(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        await subscribe(stage, metrics="*", match="client_software_name=other")
        answer = Client(stage).get()
        assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)


@in_loop
async def test_requests_before_the_interval_are_throttled(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        client = Client(stage)
        assert client.get().error_code == 0
        assert client.get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await client.push() is ErrorCode.NONE  # the first after a Get
        assert await client.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        stage.clock.advance(ms=999)
        assert await client.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        stage.clock.advance(ms=1)
        assert await client.push() is ErrorCode.NONE
        assert manager_of(stage).throttled == 3


@in_loop
async def test_the_last_push_may_come_early_and_is_the_last(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        client = Client(stage)
        client.get()
        assert await client.push() is ErrorCode.NONE
        assert await client.push(terminating=True) is ErrorCode.NONE
        stage.clock.advance(ms=1000)
        assert await client.push(terminating=True) is ErrorCode.INVALID_REQUEST


@in_loop
async def test_a_changed_subscription_is_asked_for_at_once(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        client = Client(stage)
        client.get()
        assert await client.push() is ErrorCode.NONE
        await subscribe(stage, metrics="a.", interval_ms="2000")
        assert await client.push() is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        answer = client.get()
        assert (answer.error_code, answer.requested_metrics) == (0, ["a."])
        stage.clock.advance(ms=2000)
        assert await client.push() is ErrorCode.NONE
        assert manager_of(stage).unknown_subscriptions == 1


@pytest.mark.parametrize(
    ("metrics", "codec", "error"),
    [
        (PUSHED, 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"x" * 1_001, 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (gzip.compress(bytes(1_000_000)), GZIP, ErrorCode.TELEMETRY_TOO_LARGE),  # a bomb
        (b"no gzip", GZIP, ErrorCode.INVALID_RECORD),
        (b"\xff\xff", 0, ErrorCode.INVALID_RECORD),
        (b"", 0, ErrorCode.NONE),
        (gzip.compress(PUSHED), GZIP, ErrorCode.NONE),
    ],
    ids=["codec", "large", "bomb", "not gzip", "not metrics", "empty", "gzip"],
)
def test_a_push_is_checked(metrics: bytes, codec: int, error: ErrorCode, tmp_path: Path) -> None:
    @in_loop
    async def story() -> None:
        async with telemetry_stage(tmp_path, telemetry_max_bytes="1000") as stage:
            client = Client(stage)
            client.get()
            assert await client.push(metrics, codec=codec) is error

    story()


@pytest.mark.parametrize("instance_id", [ZERO_UUID, Uuid(bytes(15) + b"\x01")], ids=str)
def test_a_reserved_id_is_refused(instance_id: Uuid, tmp_path: Path) -> None:
    @in_loop
    async def story() -> None:
        async with telemetry_stage(tmp_path) as stage:
            client = Client(stage)
            client.instance_id = instance_id
            assert await client.push() is ErrorCode.INVALID_REQUEST
            assert manager_of(stage).instance_count == 0

    story()


@in_loop
async def test_changes_are_added_up_and_other_values_replaced(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        client = Client(stage, 'odd"\n')
        client.get()
        for value in (5, 7):
            pushed = metrics_data(
                counter("org.apache.kafka.a.b", point(value, topic="orders")),
                gauge("my.own-metric", point(value / 2)),
                counter("whole", point(value), delta=False),
                client_rack="r1",
            )
            assert await client.push(pushed) is ErrorCode.NONE
            stage.clock.advance(ms=1000)
        page = page_of(stage)
        mine = f'client_instance_id="{client.instance_id}",client_id="odd\\"\\n"'
        assert f'\nkafka_client_a_b{{{mine},topic="orders"}} 12\n' in page
        assert f"\nkafka_client_my_own_metric{{{mine}}} 3.5\n" in page
        assert f"\nkafka_client_whole{{{mine}}} 7\n" in page
        assert "# TYPE kafka_client_a_b counter" in page
        assert ',client_rack="r1"} 1\n' in page
        assert 'principal="User:ANONYMOUS"' in page


@in_loop
async def test_no_attribute_hides_who_the_client_is(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        client = Client(stage)
        client.get()
        names = {"client_id": "forged", "Client.Id": "forged", "__name__": "up", "1": "x"}
        points = [point(1), point(2, **names), point(3, client_id="forged")]
        await client.push(metrics_data(gauge("info", *points), client_id="forged"))
        page = page_of(stage)
        assert "forged" not in page
        mine = f'client_instance_id="{client.instance_id}",client_id="c"'
        assert f'kafka_client_info_{{{mine},name="up"}} 2' in page
        assert page.count(f"kafka_client_info_{{{mine}}}") == 1  # a series stands once on a page


@in_loop
async def test_each_client_and_all_together_have_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushed_metrics, "SERIES_OF_CLIENT_MAX", 3)
    settings = {"tidelog_client_metrics_series_max": "6"}
    async with telemetry_stage(tmp_path, **settings) as stage:
        clients = [Client(stage, name) for name in "abc"]
        for client in clients:
            client.get()
            many = metrics_data(gauge("g", *(point(1, number=str(n)) for n in range(5))))
            assert await client.push(many) is ErrorCode.NONE
        page = page_of(stage)
        assert page.count('client_id="a"') == 4  # one is kafka_client_info
        assert page.count('client_id="b"') == 2
        assert page.count('client_id="c"') == 0
        assert manager_of(stage).pushed.left_out == 2 + 4 + 5
        long = metrics_data(gauge("x" * 5_000, point(1)), gauge("y", point(1, a="z" * 5_000)))
        stage.clock.advance(ms=1000)
        await clients[0].push(long)
        assert "x" * 300 not in page_of(stage)


@in_loop
async def test_a_silent_client_is_forgotten(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        manager, client = manager_of(stage), Client(stage)
        client.get()
        await client.push()
        stage.clock.advance(ms=59_000)
        list(manager.expire())
        assert (manager.instance_count, "record_send" in page_of(stage)) == (1, True)
        stage.clock.advance(ms=1_000)
        list(manager.expire())
        assert (manager.instance_count, "record_send" in page_of(stage)) == (0, False)


@in_loop
async def test_the_series_of_a_client_that_leaves_stay_for_a_scrape(tmp_path: Path) -> None:
    async with telemetry_stage(tmp_path) as stage:
        await subscribe(stage, metrics="*", interval_ms="3600000")
        manager, client = manager_of(stage), Client(stage)
        client.get()
        await client.push(terminating=True)
        client.connection.vanish()
        assert (manager.instance_count, "record_send" in page_of(stage)) == (0, True)
        stage.clock.advance(ms=60_000)
        list(manager.expire())
        assert "record_send" not in page_of(stage)


@in_loop
async def test_only_so_many_clients_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics_manager, "INSTANCES_MAX", 2)
    async with telemetry_stage(tmp_path) as stage:
        clients = [Client(stage) for _ in range(3)]
        for client in clients:
            client.get()
        assert manager_of(stage).instance_count == 2
        assert clients[0].get().error_code == 0  # forgotten, so it is not early
        assert clients[2].get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("metrics", "interval_ms", "expected"),
    [
        ((), 300_000, -725132322),
        (("*", "a"), 100, 899611809),
        (
            ("org.apache.kafka.producer.", "org.apache.kafka.consumer.", "a", "é", "zz.top"),
            500,
            10264749,
        ),
        (tuple(f"org.apache.kafka.metric.{n}." for n in range(40)), 1_000, 720544364),
    ],
)
def test_the_subscription_id_is_the_one_that_java_computes(
    metrics: tuple[str, ...], interval_ms: int, expected: int
) -> None:
    """The numbers are of a Java program with HashSet, CRC32C and the hash code of Kafka's Uuid."""
    instance_id = Uuid(bytes.fromhex("0102030405060708f1f2f3f4f5f6f7f8"))
    requested = requested_metrics([Subscription(metrics, interval_ms, {})])
    assert subscription_id(requested, interval_ms, instance_id) == expected


@pytest.mark.parametrize("text", ["a.*b", "x{3}", "(ab)+", "a|b|c", "[*+?|]{2}", r"\(\*", "(?:a)?"])
def test_usual_patterns_are_taken(text: str) -> None:
    assert pattern(text).pattern == text


@pytest.mark.parametrize(
    "text",
    ["(a+)+", "(a|a)*", "(a?){30}", ".*" * 4, "a?" * 19, r"(a)\1", "(?=a)", "(?P<x>a)(?P=x)", "("],
)
def test_a_pattern_that_may_take_long_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        pattern(text)


def test_a_value_longer_than_any_name_matches_nothing() -> None:
    all_ids = subscription({"match": "client_id=.*"})
    assert all_ids.matches({"client_id": "x" * 256})
    assert not all_ids.matches({"client_id": "x" * 257})
    assert not all_ids.matches({})
