"""Brokers for tests of others: `tidelog.testing`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import pytest
from kafka.protocol.api_header import ResponseClassRegistry

from tests.support.eventually import eventually
from tests.support.raw_batch import batch
from tests.support.raw_client import ClosedByBroker, RawClient, api_versions, produce_request
from tests.support.request_samples import sample_requests
from tests.support.unused_ports import unused_ports
from tidelog.client import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    Producer,
    RebalanceListener,
)
from tidelog.errors import ErrorCode, StartupError
from tidelog.testing import Broker, NeedsProcess, NotWritten, Paused, expect
from tidelog.testing.containers import KafkaContainer
from tidelog.types import TopicPartition

pytestmark = pytest.mark.integration

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="tester" password="secret" user_tester="secret";'
)
SASL = {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
MODES = pytest.mark.parametrize("in_process", [False, True], ids=["process", "thread"])


@pytest.fixture(params=[False, True], ids=["process", "thread"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(in_process=request.param) as broker:
        yield broker


def configured(broker: Broker, **config: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        **{key.replace("_", "."): value for key, value in config.items()},
    }


def values(records: list[Any]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_record_goes_through_a_consumer_group(broker: Broker) -> None:
    topic = broker.create_topic("orders")
    topic.send("one", "two")
    config = configured(broker, group_id="g", auto_offset_reset="earliest")
    found: list[Any] = []
    with Consumer(config) as consumer:
        consumer.subscribe([topic])

        def has_all() -> bool:
            found.extend(consumer.poll(0.1))
            return len(found) == 2

        eventually(has_all)
    assert values(found) == values(topic.records()) == [b"one", b"two"]
    assert broker.topics() == ["orders"]


def test_its_data_and_its_process_go_with_it() -> None:
    with Broker() as broker:
        process, directory = psutil.Process(broker.pid), broker.data_directory
        assert directory.is_dir()
        assert process.is_running()
    assert not directory.parent.exists()
    assert not process.is_running()


def test_its_data_stays_where_the_test_wants_it(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "data") as broker:
        broker.create_topic("kept").send("x")
        broker.stop()
    with Broker(data=tmp_path / "data", in_process=True) as broker:
        assert values(broker.topic("kept").records()) == [b"x"]


@MODES
def test_a_wrong_setting_is_an_error_of_the_start(in_process: bool) -> None:
    with pytest.raises(StartupError, match=r"num\.partitions"):
        Broker({"num.partitions": "none"}, in_process=in_process).start()


@pytest.mark.parametrize("paused", [False, True])
def test_it_dies_with_the_test_even_by_kill_minus_nine(tmp_path: Path, paused: bool) -> None:
    program = (
        "import time\n"
        "from tidelog.testing import Broker\n"
        "broker = Broker().start()\n"
        f"if {paused}: broker.pause()\n"
        "print(broker.pid, broker.data_directory, flush=True)\n"
        "time.sleep(600)\n"
    )
    test = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert test.stdout is not None
        pid, directory = test.stdout.readline().split()
        process = psutil.Process(int(pid))
    finally:
        test.kill()
        test.wait()
        test.stdout.close()  # type: ignore[union-attr]
    eventually(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    eventually(lambda: not Path(directory).parent.exists())


def test_it_can_be_stopped_killed_and_started_at_the_same_address(broker: Broker) -> None:
    address = broker.bootstrap_servers
    topic = broker.create_topic("t")
    topic.send("1")
    broker.restart()
    topic.send("2")
    try:
        broker.kill()
        broker.start()
    except NeedsProcess:
        broker.restart()
    topic.send("3")
    assert broker.bootstrap_servers == address
    assert values(topic.records()) == [b"1", b"2", b"3"]


def test_a_paused_broker_answers_when_it_goes_on(broker: Broker) -> None:
    topic = broker.create_topic("t")
    producer = confluent_kafka.Producer(configured(broker))
    broker.pause()
    producer.produce(topic, b"x")
    assert producer.flush(0.5) == 1
    broker.resume()
    assert producer.flush(60) == 0
    topic.expect().count(1)


def test_a_paused_broker_can_be_restarted_and_refuses_what_it_cannot_do(broker: Broker) -> None:
    topic = broker.create_topic("t")
    taken = broker.snapshot()
    broker.pause()
    steps: list[Callable[[], object]] = [
        lambda: broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER"),
        broker.heal,
        broker.snapshot,
        lambda: broker.restore(taken),
        lambda: broker.clock.advance(seconds=1),
    ]
    for step in steps:
        with pytest.raises(Paused, match="resume it"):
            step()
    broker.restart()
    topic.send("x")
    broker.heal()
    topic.expect().count(1)


# Time


def test_the_clock_is_as_far_ahead_after_a_restart(broker: Broker) -> None:
    topic = broker.create_topic("t", retention_ms="3600000")
    broker.clock.advance(hours=2)
    topic.send("1")
    for again in (broker.restart, broker.restart if broker.pid == os.getpid() else broker.kill):
        again()
        if not broker.is_running:
            broker.start()
        topic.send("2")
    times = [record.timestamp for record in topic.records()]
    assert times == sorted(times)
    broker.clock.advance(minutes=61)
    assert topic.records() == []


def test_members_live_on_through_a_restart_after_a_jump(broker: Broker) -> None:
    topic = broker.create_topic("t")
    topic.send("1")
    broker.clock.advance(hours=2)
    fallen: list[object] = []

    class Losing(RebalanceListener):
        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            fallen.extend(partitions)

    config = configured(broker, group_id="g", auto_offset_reset="earliest")
    with Consumer(config) as consumer:
        consumer.subscribe([topic], listener=Losing())
        eventually(lambda: bool(consumer.poll(0.2)))
        broker.restart()
        topic.send("2")
        eventually(lambda: bool(consumer.poll(0.2)))
        consumer.commit()
    assert not fallen


def test_retention_takes_no_time(broker: Broker) -> None:
    topic = broker.create_topic("t", retention_ms="3600000")
    topic.send("old")
    broker.clock.advance(hours=2)
    topic.send("new")
    broker.clock.advance(minutes=30)
    assert values(topic.records()) == [b"new"]
    broker.clock.advance(hours=2)
    assert topic.records() == []


def test_compaction_takes_no_time(broker: Broker) -> None:
    topic = broker.create_topic(
        "t", cleanup_policy="compact", segment_ms="60000", min_cleanable_dirty_ratio="0.01"
    )
    for number in range(3):
        topic.send(str(number), key="k")
        broker.clock.advance(minutes=2)
    topic.send("end", key="other")
    broker.clock.advance(minutes=2)
    assert [(r.key, r.value) for r in topic.records()] == [(b"k", b"2"), (b"other", b"end")]


def test_a_transaction_times_out_in_no_time(broker: Broker) -> None:
    topic = broker.create_topic("t")
    producer = confluent_kafka.Producer(
        configured(broker, transactional_id="x", transaction_timeout_ms=60_000)
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(60)
    broker.clock.advance(minutes=2)
    topic.send("after")
    eventually(lambda: values(topic.records()) == [b"after"])
    assert len(topic.records(isolation="read_uncommitted")) == 2


def test_a_silent_member_leaves_its_group_in_no_time(broker: Broker) -> None:
    topic = broker.create_topic("t")
    topic.send("x")
    silent = confluent_kafka.Consumer(
        configured(broker, group_id="g", session_timeout_ms=45_000, auto_offset_reset="earliest")
    )
    silent.subscribe([topic])
    eventually(lambda: silent.poll(0.2) is not None)
    broker.pause()  # its heartbeats are not heard while the time jumps
    broker.resume()
    began = time.monotonic()
    broker.clock.advance(minutes=1)
    with Consumer(configured(broker, group_id="g", auto_offset_reset="earliest")) as other:
        other.subscribe([topic])
        eventually(lambda: bool(other.poll(0.2)))
    assert time.monotonic() - began < 40
    silent.close()


def test_time_does_not_go_back(broker: Broker) -> None:
    with pytest.raises(ValueError, match="backwards"):
        broker.clock.advance(seconds=-1)


# State


def test_a_snapshot_brings_back_topics_records_and_offsets(broker: Broker) -> None:
    topic = broker.create_topic("t", 2)
    topic.send("1", "2", "3", key="k")
    group = confluent_kafka.Consumer(configured(broker, group_id="g"))
    place = confluent_kafka.TopicPartition(topic, 0, 1)
    group.commit(offsets=[place], asynchronous=False)
    before = values(topic.records())
    taken = broker.snapshot()
    topic.send("4", key="k")
    broker.create_topic("other").send("x")
    group.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False)
    for _ in range(2):
        broker.restore(taken)
        assert values(topic.records()) == before
        assert broker.topics() == ["t"]
        (committed,) = group.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
        assert committed.offset == 1
        topic.send("5", key="k")
    group.close()


@MODES
def test_a_snapshot_has_every_log_directory(tmp_path: Path, in_process: bool) -> None:
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker({"log.dirs": directories}, in_process=in_process) as broker:
        topics = [broker.create_topic(f"t{number}") for number in range(4)]
        for topic in topics:
            topic.send("1")
        taken = broker.snapshot()
        for topic in topics:
            topic.send("2")
        broker.restore(taken)
        for topic in topics:
            topic.expect().exactly_once(values=[1])


@MODES
def test_a_snapshot_may_be_taken_while_the_cleaner_works(in_process: bool) -> None:
    with Broker({"log.cleaner.backoff.ms": "1"}, in_process=in_process) as broker:
        topic = broker.create_topic(
            "t",
            8,
            cleanup_policy="compact",
            segment_bytes="2000",
            min_cleanable_dirty_ratio="0.01",
        )
        with Producer(configured(broker)) as producer:
            for turn in range(12):
                for number in range(800):
                    producer.send(topic, b"%d" % turn, key=b"%d" % (number % 50))
                producer.flush()
                taken = broker.snapshot()
        broker.restore(taken)
        last = {record.key: record.value for record in topic.records()}
        assert len(last) == 50
        assert set(last.values()) == {b"11"}


# Faults


def test_a_producer_gets_over_errors(broker: Broker) -> None:
    topic = broker.create_topic("t")
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    producer = confluent_kafka.Producer(configured(broker, enable_idempotence=True))
    for number in range(20):
        producer.produce(topic, str(number), key="k")
    assert producer.flush(60) == 0
    topic.expect().ordered().exactly_once(values=range(20))


def test_an_error_that_is_final_reaches_the_producer(broker: Broker) -> None:
    topic = broker.create_topic("t")
    broker.fail("Produce", ErrorCode.MESSAGE_TOO_LARGE, topic=topic)
    with Producer(configured(broker)) as producer:
        with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, b"x").result(60)
        producer.send(topic, b"y").result(60)
    topic.expect().count(1)


def test_an_answer_that_is_lost_doubles_what_is_not_idempotent(broker: Broker) -> None:
    """And nothing else: this is what idempotence is for."""
    plain, idempotent = broker.create_topic("plain"), broker.create_topic("idempotent")
    for topic, setting in ((plain, False), (idempotent, True)):
        broker.drop_after("Produce", topic=topic)
        producer = confluent_kafka.Producer(
            configured(broker, enable_idempotence=setting, retry_backoff_ms=10)
        )
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
    assert len(plain.records()) == 2
    assert len(idempotent.records()) == 1


def test_a_fault_is_for_the_client_topic_and_times_it_names(broker: Broker) -> None:
    one, two = broker.create_topic("one"), broker.create_topic("two")
    broker.fail("Produce", "UNKNOWN_SERVER_ERROR", topic=one, client_id="c", times=None)

    def error_of(topic: str, client_id: str) -> int:
        with RawClient(broker.bootstrap_servers, client_id=client_id) as client:
            response = client.call(produce_request(topic, batch(b"x")))
        code: int = response.responses[0].partition_responses[0].error_code
        return code

    assert [error_of(one, "c"), error_of(one, "c")] == [-1, -1]
    assert [error_of(two, "c"), error_of(one, "d")] == [0, 0]
    broker.heal()
    assert error_of(one, "c") == 0


def test_a_delay_delays_only_what_it_is_for(broker: Broker) -> None:
    topic = broker.create_topic("t")
    broker.delay("Produce", 0.5)
    with RawClient(broker.bootstrap_servers) as slow, RawClient(broker.bootstrap_servers) as other:
        request = produce_request(topic, batch(b"x"))
        began = time.monotonic()
        slow.send(request)
        api_versions(other)
        assert slow.receive(request).responses[0].partition_responses[0].error_code == 0
        assert time.monotonic() - began >= 0.5
    topic.expect().count(1)


def test_a_disconnected_request_has_no_effect(broker: Broker) -> None:
    topic = broker.create_topic("t")
    broker.disconnect("Produce")
    with RawClient(broker.bootstrap_servers) as client, pytest.raises(ClosedByBroker):
        client.call(produce_request(topic, batch(b"x")))
    topic.expect().count(0)


FIRST_WITH_AN_ERROR = {"ElectLeaders": 1}


def test_other_peoples_codec_finds_the_planted_error_in_every_answer() -> None:
    planted = ErrorCode.REBALANCE_IN_PROGRESS
    checked = 0
    with Broker(in_process=True) as broker:
        topic = broker.create_topic("t")
        with RawClient(broker.bootstrap_servers) as client:
            advertised = api_versions(client)
            for request_class, fields in sample_requests(topic):
                low, high = advertised.get(request_class.API_KEY, (0, -1))
                name = request_class.__name__.removesuffix("Request")
                if name == "ApiVersions":  # kafka-python reads one with an error as version 0
                    continue
                low = max(low, FIRST_WITH_AN_ERROR.get(name, 0))
                for version in range(low, min(high, request_class.max_version) + 1):
                    try:
                        broker.fail(name, planted)
                    except ValueError:
                        break
                    request = request_class(version=version, **fields(version))
                    client.send(request)
                    frame = client.read_frame()
                    response_class = ResponseClassRegistry.get_response_class(request.header)
                    response = response_class.decode(frame, header=True)
                    broker.heal()
                    assert f"error_code={int(planted)}" in repr(response), (name, version, response)
                    checked += 1
    assert checked > 60


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda broker: broker.fail("Produse", "NONE"), "no API"),
        (lambda broker: broker.fail("Produce", "NOT_AN_ERROR"), "no error"),
        (lambda broker: broker.fail("Produce", "UNKNOWN_SERVER_ERROR", times=0), "at least once"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(call: Callable[[Broker], None], why: str) -> None:
    with Broker(in_process=True) as broker, pytest.raises(ValueError, match=why):
        call(broker)


# Other ways in


def test_async_with() -> None:
    async def story() -> None:
        async with Broker(in_process=True) as broker:
            topic = await asyncio.to_thread(broker.create_topic, "t")
            await asyncio.to_thread(topic.send, "x")
            assert values(await asyncio.to_thread(topic.records)) == [b"x"]

    asyncio.run(story())


def test_a_stand_in_for_the_container_of_testcontainers() -> None:
    with KafkaContainer("confluentinc/cp-kafka:7.6.0").with_env("KAFKA_NUM_PARTITIONS", "3") as k:
        host, port = k.get_bootstrap_server().split(":")
        assert (k.get_container_host_ip(), k.get_exposed_port(9093)) == (host, int(port))
        producer = confluent_kafka.Producer({"bootstrap.servers": k.get_bootstrap_server()})
        producer.produce("made-by-writing", b"x")
        assert producer.flush(60) == 0
        made = producer.list_topics("made-by-writing", timeout=60).topics["made-by-writing"]
        assert len(made.partitions) == 3


def test_what_belongs_to_a_container_does_not_keep_the_stand_in_from_starting(
    tmp_path: Path,
) -> None:
    (tmp_path / "kafka.env").write_text("# of the image\nKAFKA_LOG_RETENTION_MS='-1'\n\n")
    kafka = (
        KafkaContainer("confluentinc/cp-kafka:7.6.1", hostname="kafka", env={"KAFKA_NODE_ID": "7"})
        .with_env("KAFKA_PROCESS_ROLES", "controller,broker")
        .with_env("KAFKA_LISTENERS", "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:16001")
        .with_env("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://kafka:9092,EXTERNAL://127.0.0.1:16001")
        .with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT")
        .with_env("KAFKA_INTER_BROKER_LISTENER_NAME", "BROKER")
        .with_env("KAFKA_CONTROLLER_QUORUM_VOTERS", "0@kafka:9093")
        .with_env("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER")
        .with_env("KAFKA_ZOOKEEPER_CONNECT", "localhost:2181")
        .with_env("KAFKA_LOG_DIRS", "/var/lib/kafka/data")
        .with_envs(CLUSTER_ID="MkU3OEVBNTcwNTJENDM2Qk", KAFKA_NUM_PARTITIONS="2")
        .with_env_file(tmp_path / "kafka.env")
        .with_exposed_ports(9092, "9093/tcp")
        .with_network(None)
        .with_network_aliases("kafka")
        .with_volume_mapping("/host", "/container", "rw")
        .with_command("start")
        .with_kwargs(privileged=True)
        .with_name("kafka")
        .with_kraft()
        .with_cluster_id("x")
        .waiting_for(None)
        .maybe_emulate_amd64()
    )
    with kafka:
        with Admin({"bootstrap.servers": kafka.get_bootstrap_server()}) as admin:
            (node,) = admin.describe_cluster().nodes
            broker = ConfigResource(ConfigResourceType.BROKER, str(node.id))
            found = admin.describe_configs([broker])[broker].get()
        told = {name: found[name].value for name in ("num.partitions", "log.retention.ms")}
        assert (node.id, told) == (7, {"num.partitions": "2", "log.retention.ms": "-1"})
    kafka.stop()


def test_the_stand_in_listens_on_the_ports_that_are_bound() -> None:
    inner, outer = unused_ports(2)
    kafka = KafkaContainer(port=9093).with_bind_ports(9092, inner)
    with kafka.with_bind_ports("9093/tcp", str(outer)).with_bind_ports(9094):
        assert kafka.get_bootstrap_server() == f"127.0.0.1:{outer}"
        ports = [kafka.get_exposed_port(port) for port in (9092, 9093, 9094)]
        assert ports[:2] == [inner, outer]
        for port in ports:  # the broker sends clients back to the listener they came to
            with Admin({"bootstrap.servers": f"127.0.0.1:{port}"}) as admin:
                assert [node.port for node in admin.describe_cluster().nodes] == [port]


def test_fewer_records_than_waited_for_are_told(broker: Broker) -> None:
    topic = broker.create_topic("t")
    topic.send("x")
    assert len(topic.wait_for(1)) == 1
    with pytest.raises(NotWritten, match="1 of 2 records"):
        topic.wait_for(2, timeout=0.2)
    expect(topic).count(1)


@pytest.mark.parametrize("hindrance", ["fault", "pause"])
def test_records_that_cannot_be_read_are_not_waited_for_longer(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, hindrance: str
) -> None:
    monkeypatch.setattr("tidelog.testing.topic.LAST_LOOK_S", 0.2)
    topic = broker.create_topic("t")
    topic.send("1")
    if hindrance == "pause":
        broker.pause()
    else:
        broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None)
    with pytest.raises(NotWritten, match="t: cannot be read: "):
        topic.wait_for(1, timeout=0.3)


def test_topics_are_reached_by_the_listener_in_plain_text_wherever_it_stands() -> None:
    config = {
        **SASL,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    with Broker(config) as broker:
        topic = broker.create_topic("t")
        topic.send("1")
        topic.expect().count(1)
        assert topic.bootstrap_servers == broker.listeners["PLAINTEXT"] != broker.bootstrap_servers


def test_topics_log_in_where_no_listener_is_in_plain_text() -> None:
    config = {
        **SASL,
        "listeners": "INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
    }
    with (
        Broker(config) as broker,
        pytest.raises(ValueError, match=r"speaks PLAINTEXT.*has INSIDE; give Broker\(client="),
    ):
        broker.create_topic("t")
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
    }
    with Broker(config, client=client) as broker:
        topic = broker.create_topic("t")
        topic.send("1")
        assert values(topic.wait_for(1)) == [b"1"]
        assert broker.topics() == ["t"]


def test_a_failing_block_shows_the_log() -> None:
    def fails() -> None:
        with Broker() as broker:
            broker.create_topic("t")
            raise AssertionError("the test's own")

    with pytest.raises(AssertionError, match="the test's own") as failure:
        fails()
    assert "log of tidelog" in failure.value.__notes__[0]


def test_interrupts_are_for_the_test() -> None:
    with Broker() as broker:
        os.kill(broker.pid, signal.SIGINT)
        broker.create_topic("t").send("x")
