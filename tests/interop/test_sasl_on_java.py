"""Apache Kafka's own tools log in to tidelog, and tidelog's client to Apache Kafka, with each
mechanism."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from bench.peers import BrokerProcess as Peer
from tests.interop.apache_kafka import CACHE, SMALL, TOOL_TIMEOUT_S, kafka_or_skip
from tests.support.certificates import Authority
from tests.support.sasl_broker import (
    MECHANISMS,
    OVERRIDES,
    PASSWORD,
    USER,
    SaslBroker,
    jaas,
    running_sasl_broker,
)
from tidelog.client import (
    Admin,
    AuthenticationFailed,
    NewTopic,
    Producer,
    ScramMechanism,
    ScramUpsertion,
)
from tidelog.config.jaas import MODULES
from tidelog.tools.free_ports import free_port

EACH_MECHANISM = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture
def over_tls(tmp_path: Path) -> Iterator[SaslBroker]:
    authority = Authority(tmp_path / "certificates")
    with running_sasl_broker(tmp_path / "broker", authority=authority) as started:
        yield started


@pytest.fixture
def broker(over_tls: SaslBroker) -> SaslBroker:
    """The same one without TLS."""
    return over_tls._replace(authority=None)


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def listener(
    request: pytest.FixtureRequest, over_tls: SaslBroker, broker: SaslBroker
) -> SaslBroker:
    return over_tls if request.param == over_tls.protocol else broker


@pytest.fixture(params=[KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def libs(request: pytest.FixtureRequest) -> Path:
    CACHE.mkdir(exist_ok=True)
    found = jars_or_reason(CACHE, request.param)
    if isinstance(found, str):
        pytest.skip(f"Apache Kafka is not here: {found}")
    return found


def run(libs: Path, tool: str, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{libs}/*", tool, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def properties(path: Path, broker: SaslBroker, mechanism: str, password: str = PASSWORD) -> str:
    config = broker.config(mechanism, password=password)
    escaped = {key: str(value).replace("\\", "\\\\") for key, value in config.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()))
    return str(path)


def test_kafkas_tool_makes_describes_and_deletes_users(broker: SaslBroker, libs: Path) -> None:
    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "users", "--entity-name", "dave")
        where = ("--bootstrap-server", broker.plain_bootstrap)
        return run(libs, "kafka.admin.ConfigCommand", *where, *entity, *arguments)

    secret = "SCRAM-SHA-256=[iterations=8192,password=dave-secret],SCRAM-SHA-512=[password=other]"
    configs("--alter", "--add-config", secret)
    described = configs("--describe")
    assert re.search(r"SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096", described)
    with Admin(broker.config("SCRAM-SHA-256", "dave", "dave-secret")) as admin:
        admin.list_topics()
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in configs("--describe")
    with (
        pytest.raises(AuthenticationFailed),
        Admin(broker.config("SCRAM-SHA-256", "dave", "dave-secret")) as admin,
    ):
        admin.list_topics()


def test_kafkas_tool_sets_describes_and_removes_quotas(broker: SaslBroker, libs: Path) -> None:
    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", broker.plain_bootstrap)
        return run(libs, "kafka.admin.ConfigCommand", *where, *arguments)

    user = ("--entity-type", "users", "--entity-name", "dave")
    client = ("--entity-type", "clients", "--entity-default")
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    rates = "producer_byte_rate=1048576,request_percentage=50"
    configs("--alter", "--add-config", rates, *user, *client)
    described = configs("--describe", *user, *client)
    assert "user-principal 'dave', the default client-id" in described
    assert "producer_byte_rate=1048576.0" in described
    assert "request_percentage=50.0" in described
    configs("--alter", "--add-config", "connection_creation_rate=100", *address)
    assert "connection_creation_rate=100.0" in configs("--describe", *address)
    configs("--alter", "--delete-config", "producer_byte_rate", *user, *client)
    left = configs("--describe", *user, *client)
    assert "producer_byte_rate" not in left
    assert "request_percentage=50.0" in left


@EACH_MECHANISM
def test_javas_clients_administer_produce_and_consume(
    listener: SaslBroker, libs: Path, tmp_path: Path, mechanism: str
) -> None:
    login = properties(tmp_path / "login.properties", listener, mechanism)
    where = ("--bootstrap-server", listener.bootstrap, "--topic", "t")
    topics = "org.apache.kafka.tools.TopicCommand"
    run(libs, topics, *where, "--create", "--partitions", "2", "--command-config", login)
    described = run(libs, topics, *where, "--describe", "--command-config", login)
    assert "PartitionCount: 2" in described
    producer = ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer")
    tool = producer[0] if NEWEST_KAFKA_VERSION in str(libs) else producer[1]
    run(libs, tool, *where, "--producer.config", login, stdin="one\ntwo\n")
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    read = ("--from-beginning", "--max-messages", "2", "--consumer.config", login)
    assert run(libs, consumer, *where, *read).endswith("one\ntwo\n")


@contextmanager
def kafka_with_sasl(data: Path) -> Iterator[tuple[str, str]]:
    """The addresses of its two listeners: PLAINTEXT, and SASL_PLAINTEXT."""
    kafka = kafka_or_skip()
    own = "listener.name.sasl_plaintext."
    overrides = {
        **SMALL,
        **OVERRIDES,
        f"{own}scram-sha-256.sasl.jaas.config": f"{MODULES['SCRAM-SHA-256']} required;",
        f"{own}scram-sha-512.sasl.jaas.config": f"{MODULES['SCRAM-SHA-512']} required;",
        "connections.max.reauth.ms": "3000",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
    }
    # A properties file takes one backslash of each two.
    overrides = {name: value.replace("\\", "\\\\") for name, value in overrides.items()}
    process = Peer(kafka, data, overrides)
    addresses = [f"127.0.0.1:{port}" for port in (process.port, free_port(), free_port())]
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "CONTROLLER")
    overrides["listeners"] = ",".join(f"{n}://{a}" for n, a in zip(names, addresses, strict=True))
    overrides["controller.quorum.voters"] = f"1@{addresses[2]}"
    try:
        process.start()
        yield addresses[0], addresses[1]
        process.stop()
    finally:
        process.kill()


def test_tidelogs_client_logs_in_to_apache_kafka(tmp_path: Path) -> None:
    with kafka_with_sasl(tmp_path / "data") as (plain, secured):
        with Admin({"bootstrap.servers": plain}) as admin:
            for scram in map(ScramMechanism.named, MECHANISMS[1:]):
                made = [ScramUpsertion(USER, scram, PASSWORD)]
                admin.alter_user_scram_credentials(made)[USER].get()
            admin.create_topics([NewTopic("t")])["t"].get()
        for mechanism in MECHANISMS:
            config = {
                "bootstrap.servers": secured,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
            }
            with Producer({**config, "sasl.jaas.config": jaas(mechanism)}) as producer:
                until = time.monotonic() + 5  # longer than a session
                while time.monotonic() < until:
                    producer.send("t", value=b"x").result(60)
            wrong = {**config, "sasl.jaas.config": jaas(mechanism, USER, "wrong")}
            with pytest.raises(AuthenticationFailed, match=mechanism), Admin(wrong) as admin:
                admin.list_topics()
