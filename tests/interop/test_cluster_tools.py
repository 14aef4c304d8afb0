"""Apache Kafka 3.9's own tools against three tidelog brokers over ZooKeeper, and what both write.

The tools speak to brokers; ZooKeeper's shell, as Kafka ships it, reads the znodes. One test does
the same things to a cluster of tidelog and to one of Apache Kafka and compares all their znodes;
in another, brokers of both make up one cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.cluster import ClusterProcess as PeerCluster
from bench.cluster import KafkaOverZooKeeper
from bench.peers import ApacheKafka
from bench.peers import BrokerProcess as PeerBroker
from tests.interop.apache_kafka import ToolFailed, kafka_or_skip, run_tool
from tests.support.cluster import SETTINGS, ClusterProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

WITHIN_S = 30.0
THROTTLED_RATE = "follower.replication.throttled.rate"
RECORDS = 1_000
LARGE_RECORDS = 8  # each takes a follower a fetch of its own
LARGE_RECORD_BYTES = 900_000


class Tools:
    """By what they are for, as the scripts in Kafka's bin directory are."""

    def __init__(self, kafka: ApacheKafka, bootstrap: str, zookeeper: str, folder: Path) -> None:
        self._kafka = kafka
        self._bootstrap = bootstrap
        self._zookeeper = zookeeper
        self._folder = folder

    def _run(self, main_class: str, *arguments: str) -> str:
        return run_tool(self._kafka, main_class, "--bootstrap-server", self._bootstrap, *arguments)

    def topics(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self._run("kafka.admin.ConfigCommand", *arguments)

    def groups(self, *arguments: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        return self._run(name, *arguments)

    def elect_leaders(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.LeaderElectionCommand", *arguments)

    def reassign(self, moves: dict[tuple[str, int], list[int]], *arguments: str) -> str:
        plan = self._folder / "reassignment.json"
        partitions = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in moves.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return self._reassign("--reassignment-json-file", str(plan), *arguments)

    def reassignments(self) -> str:
        return self._reassign("--list")

    def propose(self, topic: str, brokers: str) -> dict[str, Any]:
        wanted = self._folder / "topics-to-move.json"
        wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
        printed = self._reassign(
            "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", brokers
        )
        proposal: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return proposal

    def _reassign(self, *arguments: str) -> str:
        name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return self._run(name, *arguments)

    def api_versions(self) -> str:
        return self._run("kafka.admin.BrokerApiVersionsCommand")

    def log_dirs(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.LogDirsCommand", *arguments)

    def metadata_quorum(self, *arguments: str) -> str:
        return self._run("org.apache.kafka.tools.MetadataQuorumCommand", *arguments)

    def zookeeper(self, *command: str) -> str:
        name = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
        return run_tool(self._kafka, name, "-server", self._zookeeper, *command)


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


@pytest.fixture(scope="module")
def cluster(
    kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    made = ClusterProcess(tmp_path_factory.mktemp("cluster"), 3)
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def tools(kafka: ApacheKafka, cluster: ClusterProcess, tmp_path: Path) -> Tools:
    return Tools(kafka, cluster.bootstrap, cluster.zookeeper.address, tmp_path)


def partition_rows(described: str) -> list[dict[str, str]]:
    """The lines of a described topic: Partition, Leader, Replicas, Isr."""
    lines = [line for line in described.splitlines() if line.startswith("\t")]
    return [dict(re.findall(r"(\w+): (\S*)", line)) for line in lines]


def fill(bootstrap: str, topic: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(WITHIN_S) == 0


def fill_with_much(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(LARGE_RECORDS):
        producer.produce(topic, bytes(LARGE_RECORD_BYTES), partition=0)
    assert producer.flush(WITHIN_S) == 0


def values(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    while len(found) < RECORDS:
        messages = consumer.consume(RECORDS, 10)
        assert messages, f"only {len(found)} records came"
        found += [int(message.value() or b"-1") for message in messages]
    consumer.close()
    return found


def zookeeper_json(printed: str) -> Any:
    return json.loads(next(line for line in printed.splitlines() if line.startswith("{")))


class TestTopics:
    def test_a_topic_is_made_described_grown_and_deleted(
        self, tools: Tools, topic_name: str
    ) -> None:
        place = ("--topic", topic_name)
        assignment = ("--replica-assignment", "1:2:3,2:3:1", "--config", "retention.ms=5000000")
        assert f"Created topic {topic_name}" in tools.topics("--create", *place, *assignment)
        described = tools.topics("--describe", *place)
        assert "PartitionCount: 2" in described
        assert "ReplicationFactor: 3" in described
        assert "retention.ms=5000000" in described
        first, second = partition_rows(described)
        assert (first["Leader"], first["Replicas"]) == ("1", "1,2,3")
        assert (second["Leader"], second["Replicas"]) == ("2", "2,3,1")
        tools.topics("--alter", *place, "--partitions", "4")
        assert len(partition_rows(tools.topics("--describe", *place))) == 4
        assert topic_name in tools.topics("--list").split()
        tools.topics("--delete", *place)
        eventually(lambda: topic_name not in tools.topics("--list").split(), WITHIN_S)

    def test_replicas_are_spread_over_the_brokers(self, tools: Tools, topic_name: str) -> None:
        place = ("--topic", topic_name)
        tools.topics("--create", *place, "--partitions", "6", "--replication-factor", "3")
        rows = partition_rows(tools.topics("--describe", *place))
        assert sorted(row["Leader"] for row in rows) == ["1", "1", "2", "2", "3", "3"]
        assert all(sorted(row["Replicas"].split(",")) == ["1", "2", "3"] for row in rows)

    def test_too_many_replicas_are_refused(self, tools: Tools, topic_name: str) -> None:
        with pytest.raises(ToolFailed, match="InvalidReplicationFactorException"):
            tools.topics("--create", "--topic", topic_name, "--replication-factor", "4")


class TestConfigs:
    def test_a_topics_configuration_is_set_and_taken_back(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.create_topic(topic_name)
        entity = ("--entity-type", "topics", "--entity-name", topic_name)
        tools.configs("--alter", *entity, "--add-config", "cleanup.policy=compact")
        described = tools.configs("--describe", *entity)
        assert "cleanup.policy=compact" in described
        assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact" in described
        tools.configs("--alter", *entity, "--delete-config", "cleanup.policy")
        assert "cleanup.policy" not in tools.configs("--describe", *entity)
        with pytest.raises(ToolFailed, match="InvalidConfigurationException"):
            tools.configs("--alter", *entity, "--add-config", "retention.ms=soon")

    def test_brokers_have_configuration_of_their_own_and_in_common(self, tools: Tools) -> None:
        one, all_of_them = ("--entity-name", "2"), ("--entity-default",)
        kind = ("--entity-type", "brokers")
        tools.configs("--alter", *kind, *one, "--add-config", "log.cleaner.threads=2")
        tools.configs("--alter", *kind, *all_of_them, "--add-config", "log.retention.ms=7777777")
        assert "log.cleaner.threads=2" in tools.configs("--describe", *kind, *one)
        assert "log.retention.ms=7777777" in tools.configs("--describe", *kind, *all_of_them)
        everything = tools.configs("--describe", *kind, "--entity-name", "3", "--all")
        assert "log.retention.ms=7777777" in everything
        assert "log.cleaner.threads=1" in everything
        tools.configs("--alter", *kind, *one, "--delete-config", "log.cleaner.threads")
        tools.configs("--alter", *kind, *all_of_them, "--delete-config", "log.retention.ms")


class TestReassignments:
    def test_partitions_move_with_a_throttle_and_keep_their_records(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.assign_topic(topic_name, [[1, 2]])
        fill(cluster.bootstrap, topic_name)
        moves = {(topic_name, 0): [3, 2]}
        printed = tools.reassign(moves, "--execute", "--throttle", "50000000")
        assert "Successfully started partition reassignment" in printed
        assert '"replicas":[1,2]' in printed  # what to go back to
        assert "throttle limit was set to 50000000 B/s" in printed
        completed = f"Reassignment of partition {topic_name}-0 is completed."

        def is_completed() -> bool:
            return completed in tools.reassign(moves, "--verify")

        eventually(is_completed, WITHIN_S)
        (row,) = partition_rows(tools.topics("--describe", "--topic", topic_name))
        assert (row["Replicas"], sorted(row["Isr"].split(","))) == ("3,2", ["2", "3"])
        assert values(cluster.bootstrap, topic_name) == list(range(RECORDS))
        described = tools.configs("--describe", "--entity-type", "brokers", "--entity-name", "3")
        assert "throttled" not in described  # --verify has taken the throttle off again

    def test_a_plan_is_proposed(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.assign_topic(topic_name, [[1, 2], [1, 2]])
        proposal = tools.propose(topic_name, "2,3")
        rows = proposal["partitions"]
        assert [sorted(row["replicas"]) for row in rows] == [[2, 3], [2, 3]]

    def test_a_reassignment_that_cannot_go_on_is_listed_and_cancelled(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        """The tool moves replicas only to a broker that is registered, so the new replica is slowed
        down until the reassignment is under way, and killed then.
        """
        cluster.assign_topic(topic_name, [[1, 2]], follower_replication_throttled_replicas="*")
        fill_with_much(cluster.bootstrap, topic_name)
        broker, rate = ("--entity-type", "brokers", "--entity-name", "3"), THROTTLED_RATE
        tools.configs("--alter", *broker, "--add-config", f"{rate}=1")
        eventually(lambda: f"{rate}=1" in tools.configs("--describe", *broker), WITHIN_S)
        moves = {(topic_name, 0): [1, 3]}
        tools.reassign(moves, "--execute")
        cluster.brokers[3].kill()
        try:
            eventually(lambda: cluster.live_broker_ids() == {1, 2}, WITHIN_S)
            listed = tools.reassignments()
            assert f"{topic_name}-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
            # Throttles would be taken off on all brokers, also on the one that is gone.
            verified = tools.reassign(moves, "--verify", "--preserve-throttles")
            assert "is still in progress" in verified
            cancelled = tools.reassign(moves, "--cancel", "--preserve-throttles")
            assert f"Successfully cancelled partition reassignment for: {topic_name}-0" in cancelled
        finally:
            cluster.brokers[3].start()
            tools.configs("--alter", *broker, "--delete-config", rate)
        assert "No partition reassignments found." in tools.reassignments()
        (row,) = partition_rows(tools.topics("--describe", "--topic", topic_name))
        assert sorted(row["Replicas"].split(",")) == ["1", "2"]


class TestElections:
    def test_the_preferred_leader_is_elected(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.assign_topic(topic_name, [[1, 2, 3]])
        place = ("--topic", topic_name, "--partition", "0")
        preferred = ("--election-type", "preferred", *place)
        already = tools.elect_leaders(*preferred)
        assert f"Valid replica already elected for partitions {topic_name}-0" in already
        cluster.brokers[1].stop()
        eventually(lambda: cluster.view(topic_name)[0].leader == 2, WITHIN_S)
        with pytest.raises(ToolFailed, match="PreferredLeaderNotAvailableException"):
            tools.elect_leaders(*preferred)
        cluster.brokers[1].start()
        cluster.wait_for_full_isr([topic_name])
        elected = tools.elect_leaders(*preferred)
        assert "Successfully completed leader election (PREFERRED)" in elected
        eventually(lambda: cluster.view(topic_name)[0].leader == 1, WITHIN_S)

    def test_an_unclean_election_is_not_needed_while_a_leader_lives(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.assign_topic(topic_name, [[1, 2, 3]])
        place = ("--topic", topic_name, "--partition", "0")
        assert "Valid replica already elected" in tools.elect_leaders(
            "--election-type", "unclean", *place
        )


class TestGroups:
    def test_a_group_is_listed_described_and_reset(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.create_topic(topic_name)
        fill(cluster.bootstrap, topic_name)
        group = ("--group", topic_name)
        reset = ("--reset-offsets", *group, "--topic", topic_name, "--execute")
        tools.groups(*reset, "--to-offset", "400")
        assert topic_name in tools.groups("--list").split()
        lines = tools.groups("--describe", *group).splitlines()
        (row,) = [line.split() for line in lines if line.startswith(topic_name)]
        assert row[1:6] == [topic_name, "0", "400", str(RECORDS), str(RECORDS - 400)]
        coordinator = tools.groups("--describe", *group, "--state")
        assert "Empty" in coordinator
        assert re.search(r":\d+ +\([123]\) ", coordinator)
        assert "successful" in tools.groups("--delete", *group)


class TestBrokers:
    def test_all_three_tell_their_versions(self, tools: Tools) -> None:
        printed = tools.api_versions()
        assert sorted(re.findall(r"\(id: (\d) rack: null\)", printed)) == ["1", "2", "3"]
        assert printed.count("AlterPartition(56)") == 3
        assert "UNSUPPORTED" not in re.sub(r"\w+\(\d+\): UNSUPPORTED", "", printed)

    def test_their_directories_are_described(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.create_topic(topic_name)
        fill(cluster.bootstrap, topic_name)

        def sizes() -> list[int]:
            printed = tools.log_dirs("--describe", "--topic-list", topic_name)
            return [
                row["size"]
                for broker in zookeeper_json(printed)["brokers"]
                for directory in broker["logDirs"]
                for row in directory["partitions"]
            ]

        eventually(lambda: len(set(sizes())) == 1, WITHIN_S)
        assert len(sizes()) == 3
        assert sizes()[0] > RECORDS

    def test_there_is_no_metadata_quorum_and_the_tool_is_told_so(self, tools: Tools) -> None:
        with pytest.raises(ToolFailed, match="does not support DESCRIBE_QUORUM"):
            tools.metadata_quorum("describe", "--status")


class TestZooKeeperShell:
    def test_it_reads_brokers_controller_topics_and_configuration(
        self, tools: Tools, cluster: ClusterProcess, topic_name: str
    ) -> None:
        cluster.assign_topic(topic_name, [[2, 3, 1]], retention_ms="5000000")
        eventually(lambda: cluster.view(topic_name)[0].leader == 2)
        listed = tools.zookeeper("ls", "/brokers/ids")
        assert "[1, 2, 3]" in listed
        controller = zookeeper_json(tools.zookeeper("get", "/controller"))
        assert controller["brokerid"] == cluster.controller_id()
        assert zookeeper_json(tools.zookeeper("get", "/cluster/id"))["id"] == (
            cluster.brokers[1].cluster_id
        )
        topic = zookeeper_json(tools.zookeeper("get", f"/brokers/topics/{topic_name}"))
        assert topic["partitions"] == {"0": [2, 3, 1]}
        state_path = f"/brokers/topics/{topic_name}/partitions/0/state"
        state = zookeeper_json(tools.zookeeper("get", state_path))
        assert (state["leader"], state["isr"]) == (2, [2, 3, 1])
        config = zookeeper_json(tools.zookeeper("get", f"/config/topics/{topic_name}"))
        assert config == {"version": 1, "config": {"retention.ms": "5000000"}}


class Znodes:
    """All nodes of a ZooKeeper, as far as two clusters can have them in common."""

    # features: tidelog announces that it knows strict min ISR (KIP-966), Kafka nothing.
    VOLATILE = frozenset(
        {"brokerid", "timestamp", "port", "endpoints", "topic_id", "id", "features"}
    )
    OURS = frozenset({"clean_shutdown", "min_insync_replicas"})  # Kafka does not look at them

    def __init__(self, address: str) -> None:
        from kazoo.client import KazooClient

        self._client = KazooClient(hosts=address)
        self._client.start()
        try:
            found = dict(self._below("/"))
        finally:
            self._client.stop()
            self._client.close()
        # The brokers are told of changes in an order that depends on the tool.
        changes = [path for path in found if path.startswith("/config/changes/")]
        self.config_changes = sorted(str(found.pop(path)) for path in changes)
        self.found = found

    def _below(self, path: str) -> Iterator[tuple[str, object]]:
        data, stat = self._client.get(path)
        if path.startswith("/zookeeper"):
            return
        yield path, (self._plain(data or b""), stat.ephemeralOwner != 0)
        for child in self._client.get_children(path):
            yield from self._below(f"{path.rstrip('/')}/{child}")

    def _plain(self, data: bytes) -> object:
        try:
            content = json.loads(data)
        except ValueError:
            return data
        if not isinstance(content, dict):
            return content
        return {
            key: type(value).__name__ if key in self.VOLATILE else value
            for key, value in content.items()
            if key not in self.OURS
        }


def same_things(tools: Tools) -> None:
    """What administrators do, to either cluster."""
    place = ("--topic", "kept")
    tools.topics("--create", *place, "--replica-assignment", "1:2:3,2:3:1")
    tools.topics(
        "--alter", *place, "--partitions", "3", "--replica-assignment", "1:2:3,2:3:1,3:1:2"
    )
    tools.topics("--create", "--topic", "gone", "--replica-assignment", "1:2:3")
    topic = ("--entity-type", "topics", "--entity-name", "kept")
    tools.configs("--alter", *topic, "--add-config", "retention.ms=5000000,segment.ms=600000")
    tools.configs("--alter", *topic, "--delete-config", "segment.ms")
    brokers = ("--entity-type", "brokers")
    tools.configs(
        *("--alter", *brokers, "--entity-name", "1", "--add-config", "log.cleaner.threads=2")
    )
    tools.configs(
        *("--alter", *brokers, "--entity-default", "--add-config", "log.retention.ms=7777777")
    )
    moves = {("kept", 0): [1, 2]}
    tools.reassign(moves, "--execute")
    eventually(lambda: "is completed" in tools.reassign(moves, "--verify"), WITHIN_S)
    tools.topics("--delete", "--topic", "gone")
    eventually(lambda: "gone" not in tools.topics("--list").split(), WITHIN_S)


def test_the_same_things_done_to_apache_kafka_leave_the_same_znodes(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    overrides = {"broker.rack": "east", "auto.leader.rebalance.enable": "false"}
    ours = ClusterProcess(tmp_path / "tidelog", 3, overrides)
    theirs = PeerCluster(kafka, tmp_path / "kafka", overrides)
    left: list[Znodes] = []
    try:
        for cluster in (ours, theirs):
            cluster.start()
            address = cluster.zookeeper.address
            same_things(Tools(kafka, cluster.bootstrap, address, tmp_path))
            left.append(once_deleted(address, "gone"))
    finally:
        ours.close()
        theirs.discard()
    assert left[0].found == left[1].found
    assert left[0].config_changes == left[1].config_changes


def once_deleted(address: str, topic: str) -> Znodes:
    eventually(lambda: f"/admin/delete_topics/{topic}" not in Znodes(address).found, WITHIN_S)
    return Znodes(address)


def test_brokers_of_both_make_up_one_cluster_whoever_is_its_controller(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    cluster = ClusterProcess(tmp_path, broker_count=2)
    settings = {
        "broker.id": "3",
        "zookeeper.connect": cluster.zookeeper.address,
        **SETTINGS,  # without the same count of offsets partitions each finds its own coordinators
    }
    third = PeerBroker(KafkaOverZooKeeper(kafka), tmp_path / "kafka", settings)
    try:
        cluster.start()
        third.start()
        eventually(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 3, WITHIN_S)
        assert cluster.controller_id() in (1, 2)
        cluster.assign_topic("t", [[1, 2, 3], [3, 1, 2]])
        for partition in range(2):
            fill(cluster.bootstrap, "t", partition)
            assert values(cluster.bootstrap, "t", partition) == list(range(RECORDS))
        cluster.stop_all()
        for broker in cluster.brokers.values():
            broker.start()
        cluster.wait_for_full_isr(["t"])
        assert cluster.controller_id() == 3
        cluster.assign_topic("u", [[2, 3, 1], [3, 2, 1]])
        for partition in range(2):
            fill(cluster.bootstrap, "u", partition)
            assert values(cluster.bootstrap, "u", partition) == list(range(RECORDS))
        cluster.wait_for_full_isr(["t", "u"])
    finally:
        cluster.close()
        third.discard()
