"""Three brokers that speak TLS among themselves and to clients, each with its own certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.certificates import Authority
from tests.support.cluster import CALL_TIMEOUT_S, ClusterProcess
from tests.support.eventually import eventually
from tidelog.client import (
    Admin,
    AlterConfig,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def cluster(tmp_path: Path, authority: Authority) -> Any:
    process = ClusterProcess(
        tmp_path,
        3,
        {
            "listeners": "INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "INTERNAL:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.path),
            "ssl.client.auth": "required",
        },
    )
    for number, broker in process.brokers.items():
        broker.overrides["listener.name.internal.ssl.keystore.location"] = str(
            authority.issue(f"broker-{number}")
        )
    yield process
    process.close()


def write(keys: Mapping[str, Any], topic: str, values: list[bytes]) -> None:
    with Producer({**keys, "acks": "all"}) as producer:
        for delivery in [producer.send(topic, value, partition=0) for value in values]:
            delivery.result(CALL_TIMEOUT_S)


def read(keys: Mapping[str, Any], topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with Consumer(keys) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)

        def is_read() -> bool:
            found.extend(record.value for record in consumer.poll(0.5))
            return len(found) >= count

        eventually(is_read, CALL_TIMEOUT_S)
    return found


def test_followers_fetch_over_tls_and_take_over_from_a_leader_that_is_killed(
    cluster: ClusterProcess, authority: Authority
) -> None:
    cluster.start()
    client = authority.issue("client", hosts=())
    keys = {"bootstrap.servers": cluster.bootstrap, **authority.client_keys(client)}
    values = [b"%d" % number * 100 for number in range(500)]
    with Admin(keys) as admin:
        (made,) = admin.create_topics([NewTopic("t", 1, 3)]).values()
        assert made.error is None
        write(keys, "t", values)

        def isr() -> list[int]:
            described = admin.describe_topics(["t"])["t"].value
            assert described is not None
            return sorted(described.partitions[0].isr)

        eventually(lambda: isr() == [1, 2, 3], CALL_TIMEOUT_S)
        described = admin.describe_topics(["t"])["t"].value
        assert described is not None
        cluster.brokers[described.partitions[0].leader_id].kill()
        write(keys, "t", [b"after"])
    assert read(keys, "t", 501) == [*values, b"after"]
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log_text()


def test_the_registration_of_a_broker_names_its_protocols_as_kafka_does(
    cluster: ClusterProcess, authority: Authority
) -> None:
    cluster.start()
    kazoo = KazooClient(f"127.0.0.1:{cluster.zookeeper.port}")
    kazoo.start()
    try:
        registration = json.loads(kazoo.get("/brokers/ids/1")[0])
    finally:
        kazoo.stop()
        kazoo.close()
    port = cluster.brokers[1].port
    assert registration["listener_security_protocol_map"] == {"INTERNAL": "SSL"}
    assert registration["endpoints"] == [f"INTERNAL://127.0.0.1:{port}"]
    assert (registration["host"], registration["port"]) == (None, -1)

    store = authority.issue("broker-1", file="next.pem")
    client = authority.issue("client", hosts=())
    keys = {"bootstrap.servers": cluster.bootstrap, **authority.client_keys(client)}
    name = "listener.name.internal.ssl.keystore.location"
    resource = ConfigResource(ConfigResourceType.BROKER, "1")
    with Admin(keys) as admin:
        (result,) = admin.incremental_alter_configs(
            {resource: [AlterConfig(name, str(store))]}
        ).values()
        assert result.error is None
        stranger = Authority(authority.directory / "elsewhere", "another CA").issue("broker-1")
        (result,) = admin.incremental_alter_configs(
            {resource: [AlterConfig(name, str(stranger))]}
        ).values()
        assert "brokers could not connect to each other" in str(result.error)


def test_a_broker_that_others_would_not_trust_does_not_start(
    cluster: ClusterProcess, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "elsewhere", "another CA").issue("broker-1")
    broker = cluster.brokers[1]
    broker.overrides["listener.name.internal.ssl.keystore.location"] = str(stranger)
    broker.spawn()
    assert broker.process is not None
    assert broker.process.wait(CALL_TIMEOUT_S) == 1
    assert "brokers could not connect to each other with these stores" in broker.log_text()
