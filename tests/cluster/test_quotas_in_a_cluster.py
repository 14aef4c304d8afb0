"""Quotas of a cluster over ZooKeeper, changed through whichever broker."""

from __future__ import annotations

import time

import pytest
from kafka.protocol.metadata import MetadataRequest

from tests.cluster.conftest import StartCluster
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tidelog.client import Admin, Producer, QuotaEntity

pytestmark = pytest.mark.integration

# It takes some milliseconds; a busy machine may take longer.
WITHIN_S = 1.0


def is_held(bootstrap: str) -> bool:
    """Whether the broker tells a client of this name to wait."""
    request = MetadataRequest(version=9, topics=None)
    with RawClient(bootstrap, client_id="held") as client:
        return bool(client.call(request).throttle_time_ms > 0)


def test_a_change_holds_on_all_brokers_within_a_second_and_for_those_that_start(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster({"quota.window.num": "2"}, 3)
    brokers = [broker.bootstrap for broker in cluster.brokers.values()]
    entity = QuotaEntity.of({"client-id": "held"})
    assert not any(map(is_held, brokers))
    for writer in (1, 2):
        with Admin({"bootstrap.servers": cluster.brokers[writer].bootstrap}) as admin:
            admin.alter_client_quotas({entity: {"request_percentage": 1e-6}})[entity].get()
            began = time.monotonic()
            eventually(lambda: all(map(is_held, brokers)))
            assert time.monotonic() - began < WITHIN_S
            admin.alter_client_quotas({entity: {"request_percentage": None}})[entity].get()
            eventually(lambda: not any(map(is_held, brokers)))
    with Admin({"bootstrap.servers": cluster.brokers[1].bootstrap}) as admin:
        admin.alter_client_quotas({entity: {"request_percentage": 1e-6}})[entity].get()
    cluster.brokers[3].restart()
    assert is_held(cluster.brokers[3].bootstrap)


def test_quotas_of_everybody_do_not_hold_brokers_back(start_cluster: StartCluster) -> None:
    """Followers fetch as User:ANONYMOUS, as clients do, and stay in sync all the same."""
    cluster = start_cluster({}, 3)
    cluster.create_topic("t", factor=3)
    everybody = QuotaEntity.of({"user": None})
    with Admin({"bootstrap.servers": cluster.brokers[1].bootstrap}) as admin:
        wanted = {"consumer_byte_rate": 100.0, "request_percentage": 0.01}
        admin.alter_client_quotas({everybody: wanted})[everybody].get()
    config = {"bootstrap.servers": cluster.brokers[1].bootstrap, "acks": "all"}
    with Producer(config) as producer:
        sent = [producer.send("t", b"x" * 10_000) for _ in range(100)]
        for each in sent:
            each.result(60)
