"""Configuration of a cluster, changed and looked at through whichever broker."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.eventually import eventually
from tests.support.raw_admin import BROKER, SET, TOPIC, describe, incremental, value_of
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.integration


def test_a_change_through_a_broker_without_a_replica_keeps_what_it_does_not_know(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster({"min.insync.replicas": "1"}, 2)
    cluster.assign_topic("t", [[1]], cleanup_policy="compact")
    with (
        RawClient(cluster.brokers[1].bootstrap) as host,
        RawClient(cluster.brokers[2].bootstrap) as stranger,
    ):
        for client in (stranger, host):  # one may hear of the topic before the other
            eventually(lambda: describe(client, TOPIC, "t")[0] == 0)  # noqa: B023 called at once
        assert value_of(stranger, "t", "cleanup.policy") == "compact"
        assert incremental(stranger, TOPIC, "t", [("retention.ms", SET, "7000")]) == 0
        for client in (host, stranger):
            assert value_of(client, "t", "cleanup.policy") == "compact"
            assert value_of(client, "t", "retention.ms") == "7000"


def test_a_default_of_all_brokers_changed_through_any_of_them_reaches_the_others(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster({}, 2)
    with (
        RawClient(cluster.brokers[1].bootstrap) as one,
        RawClient(cluster.brokers[2].bootstrap) as two,
    ):
        assert incremental(one, BROKER, "", [("message.max.bytes", SET, "5000")]) == 0
        assert incremental(two, BROKER, "", [("log.retention.ms", SET, "7000")]) == 0
        both = {"message.max.bytes": "5000", "log.retention.ms": "7000"}
        eventually(lambda: defaults_told_by(one) == defaults_told_by(two) == both)
    cluster.brokers[2].restart()
    with RawClient(cluster.brokers[2].bootstrap) as two:
        assert describe(two, BROKER, "2")[1]["message.max.bytes"].value == "5000"


def defaults_told_by(client: RawClient) -> dict[str, str]:
    return {name: row.value for name, row in describe(client, BROKER, "")[1].items()}
