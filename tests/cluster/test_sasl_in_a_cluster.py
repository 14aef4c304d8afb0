"""Brokers that log in to each other, and users that all brokers of a cluster know."""

from __future__ import annotations

import base64
import time

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import ClusterProcess
from tests.support.eventually import eventually
from tests.support.oauth_provider import AUDIENCE, CLIENT_ID, CLIENT_SECRET, OAuthProvider
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


def test_a_delegation_token_made_at_one_broker_is_good_at_the_other(
    start_cluster: StartCluster,
) -> None:
    secret = {"delegation.token.secret.key": "the secret of all brokers"}
    cluster = start_cluster(
        {**SETTINGS, **secret, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, 2
    )
    one, two = (SaslBroker(broker) for broker in cluster.brokers.values())
    broker_login = one.config("PLAIN", "broker", "hush")
    with Admin({**broker_login, "bootstrap.servers": one.bootstrap}) as admin:
        token = admin.create_delegation_token()
    password = base64.b64encode(token.hmac).decode()

    def can_log_in(broker: SaslBroker) -> bool:
        config = broker.config("SCRAM-SHA-512", token.token_id, password)
        config["sasl.jaas.config"] = config["sasl.jaas.config"].replace(
            "required", 'required tokenauth="true"'
        )
        try:
            with Admin(config) as admin:
                admin.list_topics()
        except AuthenticationFailed:
            return False
        return True

    eventually(lambda: can_log_in(one) and can_log_in(two))
    cluster.stop_all()
    cluster.start()
    assert can_log_in(one)
    assert can_log_in(two)
    with Admin({**broker_login, "bootstrap.servers": two.bootstrap}) as admin:
        admin.expire_delegation_token(token.hmac)
    eventually(lambda: not can_log_in(one) and not can_log_in(two))


def test_brokers_log_in_to_each_other_with_tokens_of_a_provider(
    start_cluster: StartCluster,
) -> None:
    with OAuthProvider() as provider:
        provider.lifetime_s = 20
        own = f"{OWN}oauthbearer."
        settings = {
            **SETTINGS,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            f"{own}sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
            f"{own}sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{own}sasl.oauthbearer.token.endpoint.url": provider.token_url,
            f"{own}sasl.jaas.config": (
                f'{MODULES["OAUTHBEARER"]} required clientId="{CLIENT_ID}" '
                f'clientSecret="{CLIENT_SECRET}";'
            ),
        }
        del settings[f"{OWN}plain.sasl.jaas.config"]
        cluster = start_cluster(settings, 2)
        cluster.create_topic("t", factor=2)
        deadline = time.monotonic() + 90
        while len(provider.asked_for_tokens) <= 2 and time.monotonic() < deadline:
            write_for_a_while(cluster, 2)
        assert len(provider.asked_for_tokens) > 2
        write_for_a_while(cluster, 8)  # past the end of the first sessions
        assert closing_lines(cluster) == []


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
