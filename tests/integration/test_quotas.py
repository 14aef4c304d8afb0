"""Client quotas of a real broker: rates that are held, and clients that are told."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from statistics import fmean, median
from urllib.request import urlopen

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from tests.conftest import StartBroker
from tests.support.broker_process import READY_LINE, BrokerProcess
from tests.support.command_line import User
from tests.support.eventually import eventually
from tests.support.foreign_clients import Aiokafka, ConfluentKafka, KafkaPython, Message
from tests.support.paced_client import measured_rate
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    ClosedByBroker,
    RawClient,
    api_versions,
    create_topic,
    fetch_request,
    produce,
    produce_request,
)
from tests.support.sasl_broker import PASSWORD, start_sasl_broker
from tidelog.client import Admin, Producer, QuotaEntity

pytestmark = pytest.mark.integration

SHORT = {
    "quota.window.num": "2",
    "controller.quota.window.num": "2",
    "tidelog.loop.stall.warn.ms": "200",
}
MEASURED_S = float(os.environ.get("TIDELOG_TEST_QUOTA_SECONDS", "8"))
TOLERANCE = 0.1
# Of time. A request that the machine interrupts counts with the interruption, and the broker tells
# an average over two seconds that goes up and down with every sample.
TIME_TOLERANCE = 0.25
METRICS_S = 0.25  # between two looks at the metrics
TOPIC = "t"
EVERYBODY = QuotaEntity.of({"client-id": None})


def name_of(library: ConfluentKafka | KafkaPython | Aiokafka) -> str:
    return library.name


def set_quota(broker: BrokerProcess, entity: QuotaEntity, **quotas: float | None) -> None:
    with Admin({"bootstrap.servers": broker.bootstrap, "client.id": "administrator"}) as admin:
        admin.alter_client_quotas({entity: quotas})[entity].get()


def start(start_broker: StartBroker, **overrides: str) -> BrokerProcess:
    more = {key.replace("_", "."): value for key, value in overrides.items()}
    broker = start_broker({**SHORT, **more})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, TOPIC)
    return broker


def test_a_producer_is_held_to_its_rate(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    set_quota(broker, EVERYBODY, producer_byte_rate=200_000)
    request = produce_request(TOPIC, batch(b"x" * 20_000))
    with RawClient(broker.bootstrap) as client:
        size = len(client.frame_of(request))
        throttles: list[int] = []

        def call() -> float:
            throttles.append(client.call(request).throttle_time_ms)
            return size

        rate = measured_rate(call, MEASURED_S)
    assert rate == pytest.approx(200_000, rel=TOLERANCE)
    assert max(throttles) > 100


def test_a_producer_that_wants_no_answers_is_held_too(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    set_quota(broker, EVERYBODY, producer_byte_rate=200_000)
    request = produce_request(TOPIC, batch(b"x" * 20_000), acks=0)
    with RawClient(broker.bootstrap) as client:
        size = len(client.frame_of(request))

        def call() -> float:
            client.send(request)
            api_versions(client)
            return size

        rate = measured_rate(call, MEASURED_S)
    assert rate == pytest.approx(200_000, rel=TOLERANCE)


def test_a_consumer_is_held_to_its_rate(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    with RawClient(broker.bootstrap) as client:
        for _ in range(20):
            produce(client, TOPIC, batch(b"x" * 4_000))
        set_quota(broker, EVERYBODY, consumer_byte_rate=200_000)
        request = fetch_request(TOPIC, partition_max_bytes=10_000)
        empty_ones: list[int] = []

        def call() -> float:
            answer = client.call(request)
            if not answer.responses:
                empty_ones.append(answer.throttle_time_ms)
                return 0.0
            return float(len(answer.responses[0].partitions[0].records))

        rate = measured_rate(call, MEASURED_S)
    assert rate == pytest.approx(200_000, rel=TOLERANCE)
    assert empty_ones
    assert min(empty_ones) > 0


def test_a_client_is_held_to_its_share_of_time(start_broker: StartBroker) -> None:
    """Of the same client, without a quota and with one; what it uses is the broker's to know."""
    broker = start(start_broker)
    request = MetadataRequest(version=9, topics=None)
    with RawClient(broker.bootstrap) as client:
        throttles: list[int] = []

        def asked_in(seconds: float) -> int:
            until, count = time.monotonic() + seconds, 0
            while time.monotonic() < until:
                throttles.append(client.call(request).throttle_time_ms)
                count += 1
            return count

        free = asked_in(2)
        assert max(throttles) == 0
        # So little that a client which a busy machine lets run only now and then is above it too.
        set_quota(broker, EVERYBODY, request_percentage=0.01)
        asked_in(2)
        held = asked_in(4)
    assert 0 < max(throttles) <= 1000, "never longer than a sample"
    assert held / 4 < free / 2 / 3


def test_a_client_uses_the_share_of_time_that_it_has(start_broker: StartBroker) -> None:
    """By the broker's own measure, which is the average of two seconds."""
    broker = start(start_broker, tidelog_metrics_listener="http://127.0.0.1:0")
    set_quota(broker, EVERYBODY, request_percentage=5)
    request = MetadataRequest(version=9, topics=None)
    shares: list[float] = []
    with RawClient(broker.bootstrap, client_id="busy") as client:
        is_over, frame = threading.Event(), client.frame_of(request)

        def ask() -> None:
            """Without reading the answers, which would take longer than they took the broker."""
            while not is_over.is_set():
                client.send_bytes(frame)
                client.read_frame()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            time.sleep(3)
            until = time.monotonic() + MEASURED_S
            while time.monotonic() < until:
                shares.append(share_of_time(broker, "busy"))
                time.sleep(METRICS_S)
        finally:
            is_over.set()
            asking.join()
    assert fmean(shares) == pytest.approx(5, rel=TIME_TOLERANCE)


def share_of_time(broker: BrokerProcess, client_id: str) -> float:
    """In per cent."""
    ready = READY_LINE.search(broker.stdout_path.read_text())
    assert ready is not None
    with urlopen(ready["metrics"], timeout=60) as answer:
        page = answer.read().decode()
    name = rf'kafka_server_request_request_time{{.*client_id="{client_id}".*}}'
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_topics_are_made_no_faster_than_the_rate(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    set_quota(broker, EVERYBODY, controller_mutation_rate=5)
    made, refused, number = 0, 0, 0
    with RawClient(broker.bootstrap) as client:
        began = time.monotonic()
        while time.monotonic() - began < MEASURED_S:
            number += 1
            topic = CreateTopicsRequest.CreatableTopic(
                name=f"made-{number}", num_partitions=1, replication_factor=1, assignments=[]
            )
            answer = client.call(CreateTopicsRequest(version=6, topics=[topic], timeout_ms=30_000))
            code = answer.topics[0].error_code
            assert code in (0, 89)
            made, refused = made + (code == 0), refused + (code == 89)
            assert (answer.throttle_time_ms > 0) == (code == 89)
        took_s = time.monotonic() - began
    assert refused
    # Two seconds' worth may come at once, and one more before it is noticed.
    assert made == pytest.approx(5 * (took_s + 2) + 1, rel=TOLERANCE)


def test_an_address_connects_no_faster_than_its_rate(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    address = QuotaEntity.of({"ip": "127.0.0.1"})
    set_quota(broker, address, connection_creation_rate=10)
    served: list[float] = []

    def call() -> float:
        with RawClient(broker.bootstrap) as client:
            try:
                api_versions(client)
                served.append(1.0)
            except ClosedByBroker:
                served.append(0.0)
        return served[-1]

    rate = measured_rate(call, MEASURED_S)
    assert rate == pytest.approx(10, rel=TOLERANCE)
    assert 0.0 in served
    kept = RawClient(broker.bootstrap)
    kept.close()


def test_a_client_that_is_held_back_does_not_slow_others(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    set_quota(broker, QuotaEntity.of({"client-id": "greedy"}), producer_byte_rate=1_000)
    request = produce_request(TOPIC, batch(b"x" * 100_000))
    with (
        RawClient(broker.bootstrap, client_id="greedy") as greedy,
        RawClient(broker.bootstrap, client_id="other") as other,
    ):

        def waits_s() -> list[float]:
            """How long the other client waits for each answer."""
            found = []
            for _ in range(200):
                began = time.monotonic()
                answer = other.call(request)
                found.append(time.monotonic() - began)
                assert answer.responses[0].partition_responses[0].error_code == 0
                assert answer.throttle_time_ms == 0
            return found

        waits_s()
        alone = waits_s()
        held_ms = greedy.call(request).throttle_time_ms
        assert held_ms > 50_000
        for _ in range(20):
            greedy.send(request)
        beside = waits_s()
    assert median(beside) < 2 * median(alone)
    assert max(beside) < held_ms / 1000 / 20, "it waited with the other one"
    with RawClient(broker.bootstrap) as admin:
        assert api_versions(admin)


def test_quotas_outlive_a_restart_and_go_when_they_are_removed(start_broker: StartBroker) -> None:
    broker = start(start_broker)
    entity = QuotaEntity.of({"client-id": "app"})
    set_quota(broker, entity, producer_byte_rate=1000)
    broker.restart()
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        assert admin.describe_client_quotas() == {entity: {"producer_byte_rate": 1000.0}}
    request = produce_request(TOPIC, batch(b"x" * 10_000))
    with RawClient(broker.bootstrap, client_id="app") as client:
        assert client.call(request).throttle_time_ms > 5000
    set_quota(broker, entity, producer_byte_rate=None)
    with RawClient(broker.bootstrap, client_id="app") as client:
        assert client.call(request).throttle_time_ms == 0


def test_a_user_has_a_quota_whatever_its_clients_are_called(start_broker: StartBroker) -> None:
    sasl = start_sasl_broker(start_broker, SHORT)
    with RawClient(sasl.plain_bootstrap) as client:
        create_topic(client, TOPIC)
    alice = QuotaEntity.of({"user": "alice"})
    set_quota(sasl.process, alice, producer_byte_rate=50_000)

    def seconds_for(user: str, password: str, client_id: str) -> float:
        config = sasl.config("PLAIN", user, password, client_id=client_id, acks="1")
        began = time.monotonic()
        with Producer(config) as producer:
            for _ in range(10):
                producer.send(TOPIC, b"x" * 20_000).result(60)
        return time.monotonic() - began

    assert seconds_for("bob", "bob-secret", "one") < 2
    assert seconds_for("alice", PASSWORD, "one") > 1.5
    assert seconds_for("alice", PASSWORD, "two") > 2


@pytest.mark.parametrize("library", [ConfluentKafka(), KafkaPython(), Aiokafka()], ids=name_of)
def test_records_of_clients_that_are_held_back_arrive(
    start_broker: StartBroker, library: ConfluentKafka | KafkaPython | Aiokafka
) -> None:
    broker = start(start_broker)
    with RawClient(broker.bootstrap, client_id="loader") as loader:
        for _ in range(40):
            loader.call(produce_request(TOPIC, batch(b"x" * 10_000)))
    set_quota(broker, EVERYBODY, producer_byte_rate=100_000, consumer_byte_rate=100_000)
    began = time.monotonic()
    messages = [Message(b"y" * 10_000, b"%d" % number) for number in range(10)]
    library.produce(broker.bootstrap, TOPIC, 0, "none", messages)
    found = library.consume(broker.bootstrap, TOPIC, {0: 50})
    assert time.monotonic() - began > 2
    assert [each.value for each in found[0][40:]] == [each.value for each in messages]


def test_confluent_kafka_is_told_of_the_throttle(start_broker: StartBroker) -> None:
    import confluent_kafka

    broker = start(start_broker)
    set_quota(broker, EVERYBODY, producer_byte_rate=50_000)
    told: list[float] = []
    stats: list[int] = []

    def note_stats(text: str) -> None:
        brokers = json.loads(text)["brokers"].values()
        stats.append(max(each["throttle"]["max"] for each in brokers))

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "stats_cb": note_stats,
            "statistics.interval.ms": 200,
            "linger.ms": 0,
        }
    )
    for _ in range(10):
        producer.produce(TOPIC, b"x" * 20_000)
        producer.poll(0.1)
    assert producer.flush(60) == 0
    eventually(lambda: producer.poll(0.2) >= 0 and bool(told) and max(stats, default=0) > 0)
    assert max(told) > 0.1


def test_the_commands_set_show_and_remove_quotas(
    start_broker: StartBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = start(start_broker)
    user = User(broker.bootstrap, capsys, monkeypatch)
    user.types("config", "set", "user", "alice", "--client", "app", "producer_byte_rate=1048576")
    user.types("config", "set", "user", "alice", "--client-default", "request_percentage=12.5")
    user.types("config", "set", "client", "--default", "consumer_byte_rate=20971520")
    user.types("config", "set", "ip", "127.0.0.1", "connection_creation_rate=1000")
    rows = user.rows("config", "get", "user", "alice", "--client", "app")
    assert [(row["key"], row["value"]) for row in rows] == [("producer_byte_rate", 1048576.0)]
    both = ("--entity-type", "users", "--entity-type", "clients")
    pair = "Quota configs for user-principal 'alice'"
    assert sorted(user.kafka("configs", "--describe", *both)) == [
        f"{pair}, client-id 'app' are producer_byte_rate=1048576.0",
        f"{pair}, the default client-id are request_percentage=12.5",
    ]
    assert user.kafka("configs", "--describe", "--client-defaults") == [
        "Quota configs for the default client-id are consumer_byte_rate=2.097152E7"
    ]
    change = ("--delete-config", "consumer_byte_rate", "--add-config", "producer_byte_rate=7")
    user.kafka("configs", "--alter", "--client-defaults", *change)
    shown = user.rows("config", "get", "client", "--default")
    assert [row["key"] for row in shown if row["entity"] == "client-id=(default)"] == [
        "producer_byte_rate"
    ]
    user.kafka("configs", "--alter", "--user", "bob", "--add-config", "nonsense=1", code=1)
    assert "Only quota and SCRAM credential configs can be added for 'users'" in user.errors
    user.types("config", "unset", "ip", "127.0.0.1", "connection_creation_rate")
    assert user.rows("config", "get", "ip", "127.0.0.1") == []
    user.types("config", "set", "topic", "t", "--client", "x", "retention.ms=1", code=2)


def test_aiokafka_waits_no_longer_than_it_must(start_broker: StartBroker) -> None:
    """The broker answers at once, so a client that passes over the time is not cut off."""
    broker = start(start_broker)
    set_quota(broker, EVERYBODY, request_percentage=0.1)

    async def story() -> int:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(5):
                await producer.send_and_wait(TOPIC, b"%d" % number)
        return 5

    assert asyncio.run(asyncio.wait_for(story(), 120)) == 5
