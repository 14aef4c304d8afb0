"""A broker with a TLS listener: other people's clients and tidelog's own, new certificates while it
runs, and clients that mean harm."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as NewAioTopic

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import DAY, Authority
from tests.support.eventually import eventually
from tests.support.frame_mutator import Barrage, GoodClient, valid_frames
from tests.support.raw_client import RawClient, create_topic
from tidelog.client import (
    Admin,
    AlterConfig,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TlsFailed,
    TopicPartition,
)
from tidelog.tls.certificate import read_certificate
from tidelog.tls.contexts import client_context

pytestmark = pytest.mark.integration

MEBIBYTE = 1024 * 1024
TIMEOUT_S = 60.0
VALUES = [
    b"small",
    random.Random(1).randbytes(16 * 1024),
    random.Random(2).randbytes(900_000),
    b"last",
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def tls_overrides(authority: Authority, client_auth: str) -> dict[str, str]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "message.max.bytes": "2000000",
        **authority.broker_keys(client_auth),
    }


@pytest.fixture(scope="module", params=["none", "required"])
def broker(
    request: pytest.FixtureRequest,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"), tls_overrides(authority, request.param)
    )
    process.start()
    yield process
    process.kill()
    assert not process.long_stalls()
    assert "Traceback" not in process.log_text()


class ClientFiles:
    """Where a client finds its certificate and whom it trusts."""

    def __init__(self, authority: Authority, needs_certificate: bool) -> None:
        self.ca = str(authority.path)
        self.own = str(authority.issue("alice", hosts=())) if needs_certificate else None


@pytest.fixture
def files(authority: Authority, broker: BrokerProcess) -> ClientFiles:
    return ClientFiles(authority, broker.overrides["ssl.client.auth"] == "required")


def through_confluent(bootstrap: str, topic: str, files: ClientFiles) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": files.ca,
        "message.max.bytes": 2_000_000,
    }
    if files.own is not None:
        settings |= {"ssl.certificate.location": files.own, "ssl.key.location": files.own}
    admin = confluent_kafka.admin.AdminClient(settings)
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < len(VALUES) and time.monotonic() < deadline:
        message: Any = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def through_kafka_python(bootstrap: str, topic: str, files: ClientFiles) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": files.ca,
        "ssl_certfile": files.own,
        "ssl_keyfile": files.own,
    }
    admin = kafka.KafkaAdminClient(**settings)
    admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
    admin.close()
    producer = kafka.KafkaProducer(**settings, max_request_size=2_000_000)
    for value in VALUES:
        producer.send(topic, value, partition=0).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=int(TIMEOUT_S * 1000))
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def through_aiokafka(bootstrap: str, topic: str, files: ClientFiles) -> list[bytes]:
    context = ssl.create_default_context(cafile=files.ca)
    if files.own is not None:
        context.load_cert_chain(files.own)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def run() -> list[bytes]:
        admin = AIOKafkaAdminClient(**settings)
        await admin.start()
        await admin.create_topics([NewAioTopic(topic, 1, 1)])
        await admin.close()
        producer = aiokafka.AIOKafkaProducer(**settings, max_request_size=2_000_000)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value, partition=0)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        found = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]
        await consumer.stop()
        return found

    return asyncio.run(run())


def through_kcat(bootstrap: str, topic: str, files: ClientFiles) -> list[bytes]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    command = ["kcat", "-b", bootstrap, "-X", "security.protocol=ssl"]
    command += ["-X", f"ssl.ca.location={files.ca}", "-X", "message.max.bytes=2000000"]
    if files.own is not None:
        command += ["-X", f"ssl.certificate.location={files.own}"]
        command += ["-X", f"ssl.key.location={files.own}"]
    value = b"x" * 900_000
    listed = subprocess.run([*command, "-L"], capture_output=True, check=True, timeout=TIMEOUT_S)
    assert b"1 brokers" in listed.stdout
    subprocess.run(
        [*command, "-P", "-t", topic, "-p", "0"],
        input=b"small\n" + value + b"\n",
        check=True,
        timeout=TIMEOUT_S,
    )
    done = subprocess.run(
        [*command, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "2", "-q"],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return VALUES if done.stdout.split(b"\n") == [b"small", value, b""] else []


def keys_of(files: ClientFiles, bootstrap: str) -> dict[str, Any]:
    keys = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
    }
    if files.own is not None:
        keys |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": files.own}
    return keys


def through_tidelog(bootstrap: str, topic: str, files: ClientFiles) -> list[bytes]:
    keys = keys_of(files, bootstrap)
    with Admin(keys) as admin:
        for outcome in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            assert outcome.error is None
    with Producer({**keys, "max.request.size": 2_000_000}) as producer:
        deliveries = [producer.send(topic, value, partition=0) for value in VALUES]
        for delivery in deliveries:
            delivery.result(TIMEOUT_S)
    found: list[bytes] = []
    with Consumer(keys) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < len(VALUES) and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(0.5) if record.value is not None]
    return found


CLIENTS = [
    through_confluent,
    through_kafka_python,
    through_aiokafka,
    through_kcat,
    through_tidelog,
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__[8:])
def test_every_client_writes_and_reads_over_tls(
    client: Callable[[str, str, ClientFiles], list[bytes]],
    broker: BrokerProcess,
    files: ClientFiles,
    topic_name: str,
) -> None:
    assert client(broker.bootstrap, topic_name, files) == VALUES


def test_metadata_names_the_tls_listener(
    broker: BrokerProcess, authority: Authority, files: ClientFiles
) -> None:
    with Admin(keys_of(files, broker.bootstrap)) as admin:
        (node,) = admin.describe_cluster().nodes
    assert (node.host, node.port) == ("127.0.0.1", broker.port)


def test_a_client_is_told_why_there_is_no_tls(
    broker: BrokerProcess, files: ClientFiles, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "another CA")
    keys = keys_of(files, broker.bootstrap)
    untrusting = {**keys, "ssl.truststore.location": str(stranger.path)}
    with Admin(untrusting) as admin, pytest.raises(TlsFailed, match="certificate verify failed"):
        admin.describe_cluster()
    plain = {"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": 3000}
    with Admin(plain) as admin, pytest.raises(Exception, match=r"security\.protocol=SSL\?"):
        admin.describe_cluster()
    if broker.overrides["ssl.client.auth"] == "required":
        del keys["ssl.keystore.location"]
        with Admin(keys) as admin, pytest.raises(TlsFailed, match="wants a certificate"):
            admin.describe_cluster()


def test_the_command_line_is_told_too(broker: BrokerProcess, authority: Authority) -> None:
    command = [*broker.program, "topic", "list", "-b", broker.bootstrap, "--timeout", "60s"]
    done = subprocess.run(
        [*command, "-X", "security.protocol=SSL"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "certificate verify failed" in done.stderr
    assert "-X and --config take the keys of TLS" in done.stderr


# New certificates


def served_certificate(broker: BrokerProcess, context: ssl.SSLContext) -> Any:
    with (
        socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as secured,
    ):
        der = secured.getpeercert(True)
    assert der is not None
    return read_certificate(der)


def test_a_new_certificate_is_used_without_a_restart(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    secrets = {"ssl.key.password": "hush-hush"}
    broker = start_broker({**tls_overrides(authority, "none"), **secrets})
    context = client_context(authority.settings())
    keys = {"bootstrap.servers": broker.bootstrap, **authority.client_keys()}
    resource = ConfigResource(ConfigResourceType.BROKER, "0")
    name = "listener.name.ssl.ssl.keystore.location"
    first = served_certificate(broker, context)
    with Admin(keys) as admin:

        def use(path: Path) -> Exception | None:
            (result,) = admin.incremental_alter_configs(
                {resource: [AlterConfig(name, str(path))]}
            ).values()
            return result.error

        # The same file, with something else in it.
        store = authority.issue("broker", valid_to=5 * DAY)
        assert use(store) is None
        second = served_certificate(broker, context)
        assert second.not_after > first.not_after
        # Another file.
        assert use(authority.issue("broker", valid_to=9 * DAY, file="next.pem")) is None
        third = served_certificate(broker, context)
        assert third.not_after > second.not_after
        # What Kafka refuses.
        for path, complaint in (
            (
                authority.issue("broker", valid_from=-2 * DAY, valid_to=-DAY, file="old.pem"),
                "valid",
            ),
            (authority.issue("other"), "ssl.allow.dn.changes"),
            (tmp_path / "none.pem", "No such file"),
        ):
            error = use(path)
            assert error is not None
            assert complaint in str(error)
        assert served_certificate(broker, context) == third
        (result,) = admin.incremental_alter_configs(
            {resource: [AlterConfig("listener.name.ssl.ssl.key.password", "hush-hush")]}
        ).values()
        assert "cannot be stored in dynamic configuration" in str(result.error)
        entries = admin.describe_configs([resource])[resource].value
        assert entries is not None
        assert entries["ssl.key.password"].value is None
        assert entries["ssl.key.password"].is_sensitive
        assert entries[name].value == str(authority.directory / "next.pem")
    assert "hush-hush" not in broker.log_text()
    broker.restart()
    assert served_certificate(broker, context) == third


# Harm


def test_mutated_frames_over_tls_leave_the_broker_alive_and_serving(
    start_broker: StartBroker, authority: Authority
) -> None:
    broker = start_broker({**tls_overrides(authority, "none"), "log.index.size.max.bytes": "4096"})
    context = client_context(authority.settings())
    with RawClient(broker.bootstrap, tls=context) as client:
        for topic in ("victim", "good"):
            create_topic(client, topic)
    frames = valid_frames(broker.bootstrap, "victim", context)
    Barrage(broker.bootstrap, frames, seed=0, tls=context).run(200)
    before = broker.resident_bytes()
    with GoodClient(broker.bootstrap, "good", tls=context) as good:
        Barrage(broker.bootstrap, frames, seed=3, tls=context).run(2000)
        Barrage(broker.bootstrap, frames, seed=4).run(2000)
        Barrage(broker.bootstrap, hellos(context), seed=5).run(2000)
    assert broker.is_alive(), broker.log_text()[-4000:]
    grown = broker.resident_bytes() - before
    assert grown < 64 * MEBIBYTE, f"grew by {grown // MEBIBYTE} MiB"
    assert len(good.latencies_s) > 50
    assert "Traceback" not in broker.log_text(), "an error nobody expected was logged"
    assert broker.stop() == 0


def hellos(context: ssl.SSLContext) -> list[bytes]:
    """The first message of a handshake; mutated, it looks like TLS and is not."""
    found = []
    for _ in range(8):
        leaving = ssl.MemoryBIO()
        half = context.wrap_bio(ssl.MemoryBIO(), leaving, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            half.do_handshake()
        found.append(leaving.read())
    return found


def test_thousands_of_half_open_handshakes_cost_bounded_memory_and_hold_up_nobody(
    start_broker: StartBroker, authority: Authority
) -> None:
    broker = start_broker(tls_overrides(authority, "none"))
    context = client_context(authority.settings())
    with RawClient(broker.bootstrap, tls=context) as client:
        create_topic(client, "good")
    (hello, *_) = hellos(context)
    before = broker.resident_bytes()
    connections = []
    try:
        with GoodClient(broker.bootstrap, "good", tls=context) as good:
            for number in range(2000):
                connection = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
                # Nothing, a part, or all of a client's first message; never its second.
                connection.sendall(hello[: (0, 1, 100, len(hello))[number % 4]])
                connections.append(connection)
            grown = broker.resident_bytes() - before
            # The broker gives them ten seconds, and then closes them.
            eventually(lambda: "for its handshake" in broker.log_text(), TIMEOUT_S)
    finally:
        for connection in connections:
            connection.close()
    assert grown < 160 * MEBIBYTE, f"grew by {grown // MEBIBYTE} MiB"
    assert good.p99_s() < 5.0
    assert not broker.long_stalls()


def test_a_broker_whose_listener_lacks_a_certificate_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *BrokerProcess(tmp_path).program,
            "serve",
            *("--data", str(tmp_path / "data"), "--override", "listeners=SSL://127.0.0.1:0"),
            *("--override", "security.inter.broker.protocol=SSL"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "listener SSL: a TLS listener needs a key and a certificate" in done.stderr


def test_a_listener_that_is_open_to_everybody_is_warned_of(
    start_broker: StartBroker, authority: Authority
) -> None:
    quiet = start_broker(tls_overrides(authority, "none"), name="quiet")
    assert "WARNING" not in quiet.log_text()
    overrides = tls_overrides(authority, "none")
    overrides |= {"listeners": "SSL://:0", "advertised.listeners": "SSL://127.0.0.1:0"}
    loud = start_broker(overrides, name="loud")
    assert "tidelog: WARNING: SSL://:0 is not on the loopback interface" in loud.log_text()
