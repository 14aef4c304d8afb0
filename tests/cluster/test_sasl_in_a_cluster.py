"""Brokers that log in to each other, and users that all brokers of a cluster know."""

from __future__ import annotations

import time

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import ClusterProcess
from tests.support.eventually import eventually
from tests.support.sasl_broker import SaslBroker
from tidelog.client import Admin, AuthenticationFailed, Producer, ScramDeletion, ScramMechanism
from tidelog.config.jaas import MODULES

pytestmark = pytest.mark.integration

OWN = "listener.name.sasl_plaintext."
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "connections.max.reauth.ms": "3000",
    "min.insync.replicas": "2",
    f"{OWN}plain.sasl.jaas.config": (
        f'{MODULES["PLAIN"]} required username="broker" password="hush" user_broker="hush";'
    ),
}


def write_for_a_while(cluster: ClusterProcess, seconds: float) -> None:
    """Each record needs both brokers."""
    config = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0}
    with Producer(config) as producer:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            producer.send("t", value=b"x").result(60)


def closing_lines(cluster: ClusterProcess) -> list[str]:
    lines = [line for b in cluster.brokers.values() for line in b.log_text().splitlines()]
    return [line for line in lines if "authentication" in line]


def test_brokers_log_in_to_each_other_and_again_before_their_sessions_end(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster({**SETTINGS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, 2)
    cluster.create_topic("t", factor=2)
    write_for_a_while(cluster, 8)
    assert closing_lines(cluster) == []

    # The same with SCRAM, whose user all brokers know once one was told.
    SaslBroker(cluster.brokers[1]).add_user("broker", "hush")
    cluster.stop_all()
    for broker in cluster.brokers.values():
        broker.overrides["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-512"
        broker.overrides[f"{OWN}scram-sha-512.sasl.jaas.config"] = (
            f'{MODULES["SCRAM-SHA-512"]} required username="broker" password="hush";'
        )
    cluster.start()
    write_for_a_while(cluster, 5)
    assert closing_lines(cluster) == []
    assert not any("hush" in broker.log_text() for broker in cluster.brokers.values())


def test_a_user_made_through_one_broker_is_known_to_all_and_so_is_its_end(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster({**SETTINGS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, 2)
    one, two = (SaslBroker(broker) for broker in cluster.brokers.values())
    one.add_user()

    def can_log_in(broker: SaslBroker) -> bool:
        try:
            with Admin(broker.config("SCRAM-SHA-512")) as admin:
                admin.list_topics()
        except AuthenticationFailed:
            return False
        return True

    eventually(lambda: can_log_in(one) and can_log_in(two))
    with Admin({"bootstrap.servers": two.plain_bootstrap}) as admin:
        gone = [ScramDeletion("alice", ScramMechanism.SCRAM_SHA_512)]
        admin.alter_user_scram_credentials(gone)["alice"].get()
    eventually(lambda: not can_log_in(one) and not can_log_in(two))


def test_a_broker_with_the_wrong_password_cannot_follow(start_cluster: StartCluster) -> None:
    cluster = start_cluster({**SETTINGS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, 2)
    cluster.create_topic("t", factor=2)
    stranger = cluster.brokers[2]
    stranger.stop()
    stranger.overrides[f"{OWN}plain.sasl.jaas.config"] = (
        f'{MODULES["PLAIN"]} required username="broker" password="wrong" user_broker="hush";'
    )
    stranger.spawn()
    eventually(lambda: "Invalid username or password" in cluster.brokers[1].log_text())
