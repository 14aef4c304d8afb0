"""ACLs of a cluster over ZooKeeper, changed through whichever broker."""

from __future__ import annotations

import time

import pytest
from kafka.protocol.metadata import MetadataRequest

from tests.cluster.conftest import StartCluster
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tidelog.acls import AclBinding, AclBindingFilter, AclOperation, AclPermission, ResourceType
from tidelog.client import Admin, NewTopic

pytestmark = pytest.mark.integration

# On PLAINTEXT listeners brokers are User:ANONYMOUS, as clients are: a rule for the cluster would
# keep them from each other, one for a topic keeps clients out of it.
OPEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
DENIED = 29
# It takes some milliseconds; a busy machine may take longer.
WITHIN_S = 1.0


def code_of(client: RawClient, topic: str) -> int:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    answer = client.call(MetadataRequest(version=9, topics=topics))
    return int(answer.topics[0].error_code)


def test_a_change_holds_on_all_brokers_within_a_second_and_for_those_that_start(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(OPEN, 3)
    cluster.create_topic("secret")
    denial = AclBinding(
        ResourceType.TOPIC, "secret", "User:ANONYMOUS", AclOperation.ALL, AclPermission.DENY
    )
    clients = [RawClient(broker.bootstrap) for broker in cluster.brokers.values()]
    for client in clients:
        eventually(lambda client=client: code_of(client, "secret") == 0)  # type: ignore[misc]
    with Admin({"bootstrap.servers": cluster.brokers[1].bootstrap}) as admin:
        admin.create_acls([denial])[denial].get()
        began = time.monotonic()
        eventually(lambda: all(code_of(client, "secret") == DENIED for client in clients))
        took_s = time.monotonic() - began
    assert took_s < WITHIN_S
    cluster.brokers[3].restart()
    with RawClient(cluster.brokers[3].bootstrap) as restarted:
        assert code_of(restarted, "secret") == DENIED
    with Admin({"bootstrap.servers": cluster.brokers[2].bootstrap}) as admin:
        assert admin.delete_acls([AclBindingFilter()])[AclBindingFilter()].get() == [denial]
        eventually(lambda: all(code_of(client, "secret") == 0 for client in clients[:2]))
    for client in clients:
        client.close()


def test_brokers_that_may_not_act_for_the_cluster_do_not_obey_each_other(
    start_cluster: StartCluster,
) -> None:
    """A rule that denies CLUSTER_ACTION keeps orders of the controller out, and the log says so."""
    cluster = start_cluster(OPEN, 2)
    denial = AclBinding(
        ResourceType.CLUSTER,
        "kafka-cluster",
        "User:ANONYMOUS",
        AclOperation.CLUSTER_ACTION,
        AclPermission.DENY,
    )
    everything = AclBinding(
        ResourceType.CLUSTER, "kafka-cluster", "User:ANONYMOUS", AclOperation.ALL
    )
    with Admin({"bootstrap.servers": cluster.brokers[1].bootstrap}) as admin:
        for result in admin.create_acls([everything, denial]).values():
            result.get()
        admin.create_topics([NewTopic("t", 1, 2)], timeout=10)
        eventually(
            lambda: any(
                "operation=CLUSTER_ACTION" in broker.log_text()
                for broker in cluster.brokers.values()
            )
        )
        for deleted in admin.delete_acls([AclBindingFilter()]).values():
            deleted.get()
