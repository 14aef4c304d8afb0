"""Three brokers over a real ZooKeeper: what producers and consumers see of leaders that go."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.batches import simple_batch
from tests.support.broker_process import BrokerProcess
from tests.support.cluster import (
    SESSION_TIMEOUT_MS,
    ClusterProcess,
    PartitionView,
    Writer,
    read_all,
    require_nothing_lost,
)
from tests.support.cuttable_link import CuttableLink
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, fetch_request, produce, topic_metadata
from tests.support.zookeeper import zookeeper_client
from tidelog.controller import znodes
from tidelog.errors import ErrorCode

pytestmark = pytest.mark.integration


def require_equal_replicas(cluster: ClusterProcess, topic: str, partitions: int) -> None:
    """After a clean stop of all brokers."""
    cluster.wait_for_full_isr([topic])
    cluster.stop_all()
    for partition in range(partitions):
        logs = [cluster.log_bytes(number, topic, partition) for number in cluster.brokers]
        assert logs[0], "the log is empty"
        assert logs == [logs[0]] * len(logs), f"replicas of partition {partition} differ"


def test_a_killed_leader_is_followed_within_the_session_timeout_and_nothing_is_lost(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    victim = cluster.leader_of("t")
    killed_at = time.monotonic()
    victim.kill()
    eventually(lambda: all(p.leader != victim.broker_id for p in cluster.view("t").values()))
    time.sleep(1.0)
    silence_s = writer.longest_silence_s(killed_at)
    victim.start()
    cluster.wait_for_full_isr(["t"])
    writer.stop()
    # Alone on a machine it is the session and half a second; nobody waits for the default of 18 s.
    assert silence_s < SESSION_TIMEOUT_MS / 1000 + 12
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))
    require_equal_replicas(cluster, "t", 3)


def test_a_leader_that_is_stopped_hands_over_before_it_goes(start_cluster: StartCluster) -> None:
    session_s = 18
    cluster = start_cluster({"zookeeper.session.timeout.ms": str(session_s * 1000)})
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    with zookeeper_client(cluster.zookeeper.address) as store:
        for number, broker in cluster.brokers.items():
            led = [n for n, partition in cluster.view("t").items() if partition.leader == number]
            assert led, "it has something to hand over"
            before = time.monotonic()
            assert broker.stop() == 0, number
            gone_at = store.get(znodes.BROKER_IDS)[1].pzxid
            moves = [store.get(znodes.state_path("t", partition)) for partition in led]
            assert all(stat.mzxid < gone_at for _, stat in moves), "it went first"
            assert number not in [znodes.decode_state(state).leader for state, _ in moves]
            assert "without having handed over" not in broker.log_text()
            count = len(writer.acks)
            eventually(lambda count=count: len(writer.acks) > count + 100)  # type: ignore[misc]
            assert writer.longest_silence_s(before) < session_s
            broker.start()
            cluster.wait_for_full_isr(["t"])
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))


def test_the_controller_killed_with_a_leader_is_replaced_too(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    victim = cluster.brokers[cluster.controller_id()]
    victim.kill()
    eventually(lambda: all(p.leader != victim.broker_id for p in cluster.view("t").values()))
    count = len(writer.acks)
    eventually(lambda: len(writer.acks) > count + 100)
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))


def test_a_returning_leader_gives_up_what_only_it_had(start_cluster: StartCluster) -> None:
    """acks=1 promises no more than the leader's own log: the tail is lost, what acks=all has
    acknowledged is kept, and the returning leader truncates by epoch.
    """
    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2, 3]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2, 3))
    kept = Writer(cluster, "t", 1).start()
    kept.stop()
    leader, followers = cluster.brokers[1], (cluster.brokers[2], cluster.brokers[3])
    for follower in followers:
        follower.signal(signal.SIGSTOP)
    # The first ones may reach a follower: its Fetch was waiting for them already.
    *_, lost = batches = [produce_with_acks_1(cluster, "t", n) for n in range(5)]
    assert all(batches)
    leader.kill()
    for follower in followers:
        follower.signal(signal.SIGCONT)
    eventually(lambda: cluster.view("t")[0].leader in (2, 3))
    after = Writer(cluster, "t", 1).start()
    after.stop()
    leader.start()
    cluster.wait_for_full_isr(["t"])
    values = {value for _, _, value in read_all(cluster, "t", 1)}
    assert lost not in values
    assert values >= {ack.value for ack in (*kept.acks, *after.acks)}
    require_equal_replicas(cluster, "t", 1)
    assert "truncating" in leader.log_text()


def produce_with_acks_1(cluster: ClusterProcess, topic: str, number: int) -> bytes | None:
    """The value, if it was acknowledged."""
    from confluent_kafka import Producer

    bootstrap = cluster.brokers[1].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "log_level": 0})
    acked: list[bytes | None] = []
    producer.produce(
        topic,
        b"lost-%d" % number,
        on_delivery=lambda error, message: acked.append(message.value() if not error else None),
    )
    producer.flush(60)
    return acked[0] if acked else None


def test_too_few_replicas_in_sync_refuse_acks_all_and_take_acks_1(
    start_cluster: StartCluster,
) -> None:
    from confluent_kafka import KafkaException, Producer

    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2, 3]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2, 3))
    for number in (2, 3):
        cluster.brokers[number].kill()
    eventually(lambda: cluster.view("t")[0].isr == (1,))
    settings = {"bootstrap.servers": cluster.brokers[1].bootstrap, "log_level": 0}
    errors: list[object] = []
    strict = Producer({**settings, "acks": "all", "retries": 0, "message.timeout.ms": 60_000})
    strict.produce("t", b"x", on_delivery=lambda error, message: errors.append(error))
    strict.flush(60)
    assert KafkaException(errors[0]).args[0].name() == "NOT_ENOUGH_REPLICAS"
    loose = Producer({**settings, "acks": 1, "message.timeout.ms": 60_000})
    loose.produce("t", b"y", on_delivery=lambda error, message: errors.append(error))
    loose.flush(60)
    assert errors[1] is None


def test_a_group_survives_the_death_of_its_coordinator(start_cluster: StartCluster) -> None:
    from confluent_kafka import Consumer, TopicPartition

    cluster = start_cluster()
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    read: list[bytes] = []

    def read_some(count: int) -> None:
        deadline = time.monotonic() + 60
        until = len(read) + count
        while len(read) < until and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                if message.error() is None:
                    read.append(message.value() or b"")
        assert len(read) >= until

    def commit() -> bool:
        from confluent_kafka import KafkaException

        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            consumer.consume(1, 0.1)
            return False
        return True

    read_some(200)
    eventually(commit)
    coordinator = coordinator_of(cluster, "survivors")
    coordinator.kill()
    read_some(200)
    eventually(commit)
    committed = consumer.committed([TopicPartition("t", n) for n in range(3)], timeout=60)
    positions = consumer.position([TopicPartition("t", n) for n in range(3)])
    assert [each.offset for each in committed] == [each.offset for each in positions]
    consumer.close()
    writer.stop()
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))


def coordinator_of(cluster: ClusterProcess, group_id: str) -> BrokerProcess:
    from tidelog.coordinator.runtime import partition_for

    view = cluster.view("__consumer_offsets")
    return cluster.brokers[view[partition_for(group_id, len(view))].leader]


def test_transactions_survive_the_death_of_their_coordinator(start_cluster: StartCluster) -> None:
    from confluent_kafka import KafkaException, Producer

    from tidelog.coordinator.runtime import partition_for

    cluster = start_cluster()
    cluster.create_topic("t", 3)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "survivor",
            "transaction.timeout.ms": 20_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    committed: list[bytes] = []
    aborted: list[bytes] = []
    victim = None
    for number in range(60):
        values = [b"%d-%d" % (number, n) for n in range(3)]
        producer.begin_transaction()
        for n, value in enumerate(values):
            producer.produce("t", value, partition=n)
        if number == 20:
            view = cluster.view("__transaction_state")
            victim = cluster.brokers[view[partition_for("survivor", len(view))].leader]
            victim.kill()
        if number % 4 == 3:
            # librdkafka may end a transaction whose partitions the coordinator was too busy to
            # add. An abort of nothing is INVALID_TXN_STATE, as by Kafka, and fatal to this client.
            assert producer.flush(60) == 0
            producer.abort_transaction(60)
            aborted += values
        else:
            try:
                producer.commit_transaction(60)
                committed += values
            except KafkaException:
                producer.abort_transaction(60)
                aborted += values
    assert victim is not None
    found = [
        value for _, _, value in read_all(cluster, "t", 3, **{"isolation.level": "read_committed"})
    ]
    assert sorted(found) == sorted(committed)


def test_a_whole_cluster_that_was_killed_comes_back_with_everything(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    writer.stop()
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.spawn()
    for broker in cluster.brokers.values():
        broker.wait_until_ready()
    cluster.wait_for_full_isr(["t"])
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))
    require_equal_replicas(cluster, "t", 3)


def test_consumers_read_from_the_replica_in_their_rack(start_cluster: StartCluster) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    cluster = start_cluster({"replica.selector.class": selector})
    for number, broker in cluster.brokers.items():
        broker.stop()
        broker.overrides["broker.rack"] = f"rack-{number}"
        broker.start()
    cluster.assign_topic("t", [[1, 2, 3]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2, 3))
    writer = Writer(cluster, "t", 1).start()
    writer.stop()
    assert serving_brokers(cluster, client_rack="rack-3") == {3}
    assert serving_brokers(cluster, client_rack="rack-1") == {1}
    rack = {"client.rack": "rack-3"}
    eventually(lambda: len(read_all(cluster, "t", 1, **rack)) == len(writer.acks))
    require_nothing_lost(writer.acks, read_all(cluster, "t", 1, **rack))


def serving_brokers(cluster: ClusterProcess, client_rack: str) -> set[int]:
    """The brokers that a consumer of this rack gets records from, by raw fetches."""

    def fetch(number: int) -> Any:
        with RawClient(cluster.brokers[number].bootstrap) as client:
            request = fetch_request("t", 0, version=12, max_wait_ms=500, min_bytes=1)
            request.rack_id = client_rack
            return client.call(request).responses[0].partitions[0]

    serving = set()
    row = fetch(1)
    if row.records:
        serving.add(1)
    if row.preferred_read_replica >= 0 and fetch(row.preferred_read_replica).records:
        serving.add(row.preferred_read_replica)
    return serving


def test_topics_made_by_a_first_use_are_replicated(start_cluster: StartCluster) -> None:
    from confluent_kafka import Producer

    cluster = start_cluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    errors: list[object] = []
    producer.produce("made-by-use", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]
    assert len(cluster.view("made-by-use")[0].isr) == 3


def test_records_deleted_on_the_leader_go_from_every_replica(start_cluster: StartCluster) -> None:
    from confluent_kafka import TopicPartition

    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2, 3]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2, 3))
    writer = Writer(cluster, "t", 1).start()
    writer.stop()
    deleted = cluster.admin.delete_records([TopicPartition("t", 0, 5)], request_timeout=60)
    for future in deleted.values():
        assert future.result(60).low_watermark == 5
    cluster.brokers[1].stop()
    eventually(lambda: cluster.view("t")[0].leader in (2, 3))
    assert min(offset for _, offset, _ in read_all(cluster, "t", 1)) == 5


def test_a_leader_without_a_session_promises_nothing_and_comes_back(
    start_cluster: StartCluster,
) -> None:
    """Only its link to ZooKeeper is cut: everybody reaches it, and it thinks that it leads. But its
    followers follow another, so what it is sent with acks=all it does not acknowledge.
    """
    cluster = start_cluster()
    cut_off, other = cluster.brokers[1], cluster.brokers[2]
    with CuttableLink(cluster.zookeeper.port) as link:
        cut_off.stop()
        cut_off.overrides["zookeeper.connect"] = link.address
        cut_off.start()
        cluster.assign_topic("t", [[1, 2, 3]])
        eventually(lambda: cluster.view("t")[0] == PartitionView(1, (1, 2, 3)))
        writer = Writer(cluster, "t", 1, **{"request.timeout.ms": 2_000}).start()
        link.cut()
        eventually(lambda: leader_as_told_by(other, "t") in (2, 3))
        with RawClient(cut_off.bootstrap) as client:
            batch = bytes(simple_batch(1))
            row = produce(client, "t", batch, acks=-1, timeout_ms=500)
        assert row.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        moved_at = time.monotonic()
        eventually(lambda: writer.acks[-1].at > moved_at + 0.5)
        link.heal()
        cluster.wait_for_full_isr(["t"])
        writer.stop()
        assert not writer.errors
        require_nothing_lost(writer.acks, read_all(cluster, "t", 1))
        require_equal_replicas(cluster, "t", 1)


def leader_as_told_by(broker: BrokerProcess, topic: str) -> int:
    with RawClient(broker.bootstrap) as client:
        return int(topic_metadata(client, topic).partitions[0].leader_id)
