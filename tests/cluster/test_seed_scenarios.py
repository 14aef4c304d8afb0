"""Stories of replicated logs as the books tell them, each with real brokers and a real ZooKeeper.

Two more are in `test_replicated_cluster.py`: the tail that only acks=1 had is lost with its leader
while acks=all is kept, and the leader that returns truncates it by epoch.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.cluster.conftest import StartCluster
from tests.support.broker_process import BrokerProcess
from tests.support.cluster import QUIET, ClusterProcess, Writer, read_all, require_nothing_lost
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, metadata
from tests.support.replica_comparison import differences, log_bytes
from tests.support.zookeeper import zookeeper_client
from tidelog.controller import znodes
from tidelog.errors import ErrorCode
from tidelog.protocol.message import Message
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

pytestmark = pytest.mark.integration


def controller_and_epoch(zookeeper: KazooClient) -> tuple[int, int]:
    """(-1, epoch) while there is none."""
    epoch = znodes.decode_controller_epoch(zookeeper.get("/controller_epoch")[0])
    try:
        return znodes.decode_controller(zookeeper.get("/controller")[0]), epoch
    except NoNodeError:
        return -1, epoch


def leaders(zookeeper: KazooClient, topic: str) -> list[int]:
    return [
        znodes.decode_state(zookeeper.get(znodes.state_path(topic, int(partition)))[0]).leader
        for partition in zookeeper.get_children(znodes.partitions_path(topic))
    ]


def create_topic_anew(brokers: list[BrokerProcess], name: str) -> None:
    """By a client of its own, which knows of no former controller."""
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for made in admin.create_topics([NewTopic(name, 3, 2)]).values():
        made.result(60)


def order(broker: BrokerProcess, request: Message, version: int, response: type[Message]) -> int:
    """Say this to a broker as a controller would; the error it answers with."""
    with RawClient(broker.bootstrap) as client:
        return int(client.ask(request, version, response).error_code)  # type: ignore[attr-defined]


def test_split_brain_of_two_controllers_the_elder_is_not_heard(
    start_cluster: StartCluster,
) -> None:
    """A controller that was frozen wakes up in a cluster that has another one."""
    cluster = start_cluster()
    cluster.create_topic("before", 3)
    with zookeeper_client(cluster.zookeeper.address) as zookeeper:
        elder_id, elder_epoch = controller_and_epoch(zookeeper)
        elder = cluster.brokers[elder_id]
        elder.signal(signal.SIGSTOP)
        eventually(lambda: controller_and_epoch(zookeeper)[0] not in (elder_id, -1))
        younger_id, epoch = controller_and_epoch(zookeeper)
        assert epoch == elder_epoch + 1
        eventually(lambda: elder_id not in leaders(zookeeper, "before"))
        others = [broker for broker in cluster.brokers.values() if broker is not elder]
        eventually(lambda: all(controller_told_by(broker) == younger_id for broker in others))
        create_topic_anew(others, "meanwhile")
        elder.signal(signal.SIGCONT)
        for broker in others:
            require_zombies_refused(broker, elder_id, elder_epoch)
        cluster.wait_for_full_isr(["before"])
        assert controller_and_epoch(zookeeper) == (younger_id, epoch)
        eventually(lambda: controller_told_by(elder) == younger_id)
        require_zombies_refused(elder, elder_id, elder_epoch)
    create_topic_anew([elder], "after")
    writer = Writer(cluster, "after", 3).start()
    writer.stop()
    require_nothing_lost(writer.acks, read_all(cluster, "after", 3))


def controller_told_by(broker: BrokerProcess) -> int:
    with RawClient(broker.bootstrap) as client:
        return int(metadata(client, None).controller_id)


def require_zombies_refused(broker: BrokerProcess, elder_id: int, elder_epoch: int) -> None:
    """What a controller of the past still has to say: no brokers live, and a replica goes."""
    forget_all = UpdateMetadataRequest(
        controller_id=elder_id, controller_epoch=elder_epoch, broker_epoch=-1
    )
    assert order(broker, forget_all, 8, UpdateMetadataResponse) == ErrorCode.STALE_CONTROLLER_EPOCH
    replica = StopReplicaPartitionState(
        partition_index=0, leader_epoch=1_000, delete_partition=True
    )
    delete = StopReplicaRequest(
        controller_id=elder_id,
        controller_epoch=elder_epoch,
        broker_epoch=-1,
        topic_states=[StopReplicaTopicState(topic_name="before", partition_states=[replica])],
    )
    assert order(broker, delete, 4, StopReplicaResponse) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (broker.data_directory / "before-0").is_dir()


def test_a_replaced_broker_with_the_old_id_and_an_empty_disk_gets_everything_back(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    broken = cluster.brokers[2]
    broken.kill()
    broken.data_directory.rename(broken.directory / "taken-out")
    eventually(lambda: all(p.leader != 2 for p in cluster.view("t").values()))
    broken.start()
    cluster.wait_for_full_isr(["t"])
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))
    cluster.wait_for_full_isr(["t"])
    cluster.stop_all()
    data = {number: broker.data_directory for number, broker in cluster.brokers.items()}
    assert differences({n: d for n, d in data.items() if (d / "t-0").is_dir()}) == []
    assert all(log_bytes(data[2] / f"t-{partition}") for partition in range(3))


Records = set[tuple[int, bytes]]


def without_an_in_sync_replica(start_cluster: StartCluster) -> tuple[ClusterProcess, Records]:
    """Broker 1 had records that 2, which is back, never saw; 1 is gone. The cluster, and they."""
    cluster = start_cluster({"min.insync.replicas": "1", "unclean.leader.election.enable": "false"})
    cluster.assign_topic("t", [[1, 2]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2))
    Writer(cluster, "t", 1).start().stop()
    cluster.brokers[2].kill()
    eventually(lambda: cluster.view("t")[0].isr == (1,))
    missed = produced(cluster, [b"missed-%d" % number for number in range(20)])
    cluster.brokers[1].kill()
    cluster.brokers[2].start()
    eventually(lambda: cluster.view("t")[0].leader == -1)
    return cluster, missed


def produced(cluster: ClusterProcess, values: list[bytes]) -> Records:
    """With their offsets, acknowledged by all replicas in sync."""
    from confluent_kafka import KafkaError, Producer

    acked: list[Any] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None
        acked.append(message)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for value in values:
        producer.produce("t", value, partition=0, on_delivery=delivered)
    assert producer.flush(60) == 0
    return {(message.offset(), message.value()) for message in acked}


def all_of(cluster: ClusterProcess) -> Records:
    return {(offset, value) for _, offset, value in read_all(cluster, "t", 1)}


def test_without_unclean_elections_a_partition_waits_and_loses_nothing(
    start_cluster: StartCluster,
) -> None:
    cluster, missed = without_an_in_sync_replica(start_cluster)
    time.sleep(1.0)
    assert cluster.view("t")[0].leader == -1
    cluster.brokers[1].start()
    eventually(lambda: cluster.view("t")[0].leader == 1)
    eventually(lambda: set(cluster.view("t")[0].isr) == {1, 2})
    assert all_of(cluster) >= missed


def test_with_unclean_elections_a_partition_goes_on_without_what_was_missed(
    start_cluster: StartCluster,
) -> None:
    cluster, missed = without_an_in_sync_replica(start_cluster)
    allow_unclean_elections(cluster)
    eventually(lambda: cluster.view("t")[0].leader == 2)
    after = produced(cluster, [b"after-%d" % number for number in range(20)])
    returned = cluster.brokers[1].start()
    eventually(lambda: set(cluster.view("t")[0].isr) == {1, 2})
    found = all_of(cluster)
    assert found >= after
    assert not found & missed
    assert "truncating" in returned.log_text()
    cluster.stop_all()
    logs = [log_bytes(cluster.brokers[number].data_directory / "t-0") for number in (1, 2)]
    assert logs[0] == logs[1]


def allow_unclean_elections(cluster: ClusterProcess) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    key = "unclean.leader.election.enable"
    entry = ConfigEntry(key, "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    for done in cluster.admin.incremental_alter_configs([resource]).values():
        done.result(60)


def test_the_loss_of_a_rack_leaves_every_partition_with_a_leader_and_its_records(
    start_cluster: StartCluster,
) -> None:
    racks = ("east", "east", "west", "west")
    cluster = start_cluster({"min.insync.replicas": "1"}, 4, racks)
    cluster.create_topic("t", 8, factor=2)
    eventually(lambda: all(len(p.isr) == 2 for p in cluster.view("t").values()))
    for partition in cluster.view("t").values():
        assert {racks[number - 1] for number in partition.isr} == {"east", "west"}
    writer = Writer(cluster, "t", 8).start()
    for number in (1, 2):
        cluster.brokers[number].kill()
    eventually(lambda: all(p.leader in (3, 4) for p in cluster.view("t").values()))
    count = len(writer.acks)
    eventually(lambda: len(writer.acks) > count + 100)
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 8))


def test_the_preferred_leader_returns(start_cluster: StartCluster) -> None:
    cluster = start_cluster(
        {"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "1"}
    )
    cluster.assign_topic("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    eventually(lambda: [p.leader for p in cluster.view("t").values()] == [1, 2, 3])
    writer = Writer(cluster, "t", 3).start()
    cluster.brokers[1].kill()
    eventually(lambda: [p.leader for p in cluster.view("t").values()] == [2, 2, 3])
    cluster.brokers[1].start()
    eventually(lambda: [p.leader for p in cluster.view("t").values()] == [1, 2, 3])
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))
