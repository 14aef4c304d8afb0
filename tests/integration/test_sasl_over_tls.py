"""A listener with TLS and SASL on top of it (SASL_SSL)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.raw_client import ClosedByBroker, RawClient, api_versions
from tests.support.sasl_broker import OVERRIDES, PASSWORD, USER, SaslBroker, jaas
from tidelog.client import Admin, AuthenticationFailed, Consumer, NewTopic, Producer, TlsFailed

pytestmark = pytest.mark.integration

MECHANISM = "SCRAM-SHA-512"
VALUES = [f"record {number}".encode() for number in range(20)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Its authorizer lets super users in, and the users of the plain listener, which is ours."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": OVERRIDES["sasl.enabled.mechanisms"],
            "listener.name.sasl_ssl.plain.sasl.jaas.config": OVERRIDES[
                "listener.name.sasl_plaintext.plain.sasl.jaas.config"
            ],
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{USER};User:ANONYMOUS",
            **authority.broker_keys(),
        },
    )
    process.start()
    SaslBroker(process).add_user()
    SaslBroker(process).add_user("bob", "bob-secret")
    yield process
    process.kill()
    assert not process.long_stalls()
    assert "Traceback" not in process.log_text()


@pytest.fixture
def secured(broker: BrokerProcess) -> str:
    found = re.search(r"SASL_SSL://([^,\s]+)", broker.stdout_path.read_text())
    assert found is not None
    return found[1]


def config(
    authority: Authority, bootstrap: str, user: str = USER, password: str = PASSWORD, **more: str
) -> dict[str, Any]:
    return {
        **authority.client_keys(),
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": jaas(MECHANISM, user, password),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_tidelogs_own_clients(authority: Authority, secured: str, topic_name: str) -> None:
    with Admin(config(authority, secured)) as admin:
        admin.create_topics([NewTopic(topic_name)])[topic_name].get()
    with Producer(config(authority, secured)) as producer:
        for value in VALUES:
            producer.send(topic_name, value)
        producer.flush()
    found: list[bytes | None] = []
    readers = config(authority, secured, group_id=topic_name, auto_offset_reset="earliest")
    with Consumer(readers) as consumer:
        consumer.subscribe([topic_name])

        def has_all() -> bool:
            found.extend(record.value for record in consumer.poll(1.0))
            return len(found) >= len(VALUES)

        eventually(has_all)
    assert found == VALUES


def test_confluent_kafka(authority: Authority, secured: str, topic_name: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": secured,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(authority.path),
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    admin = confluent_kafka.admin.AdminClient(settings)
    admin.create_topics([confluent_kafka.admin.NewTopic(topic_name, 1, 1)])[topic_name].result(60)
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic_name, value, partition=0)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic_name})
    consumer.assign([confluent_kafka.TopicPartition(topic_name, 0, 0)])
    found: list[bytes | None] = []

    def has_all() -> bool:
        message: Any = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) == len(VALUES)

    eventually(has_all)
    consumer.close()
    assert found == VALUES


def test_the_user_decides_what_the_client_may_do(
    authority: Authority, secured: str, topic_name: str
) -> None:
    with Admin(config(authority, secured, "bob", "bob-secret")) as admin:
        result = admin.create_topics([NewTopic(topic_name)])[topic_name]
    assert "AUTHORIZATION_FAILED" in str(result.error)


def test_strangers_are_refused(authority: Authority, secured: str) -> None:
    with (
        Admin(config(authority, secured, password="wrong")) as admin,
        pytest.raises(AuthenticationFailed),
    ):
        admin.list_topics()
    with RawClient(secured) as client, pytest.raises(ClosedByBroker):
        api_versions(client)


def test_a_broker_that_the_client_does_not_trust_gets_no_password(
    secured: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    another = Authority(tmp_path_factory.mktemp("another"))
    with Admin(config(another, secured)) as admin, pytest.raises(TlsFailed):
        admin.list_topics()
