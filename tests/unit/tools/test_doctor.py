"""Planted mistakes: the doctor finds each, and says what cures it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tidelog.client.admin.brokers import ClusterDescription, FeatureDescription, VersionRange
from tidelog.client.admin.topics import TopicDescription
from tidelog.config.broker import BrokerConfig
from tidelog.tools.cli.doctor import diagnose
from tidelog.tools.cli.main import main
from tidelog.tools.cli.session import Session
from tidelog.tools.doctor.cluster import (
    check_health,
    check_membership,
    check_nodes,
    check_topics,
    check_versions,
)
from tidelog.tools.doctor.configuration import check_configuration
from tidelog.tools.doctor.directories import check_directories
from tidelog.tools.doctor.finding import UNCHECKED, Finding
from tidelog.tools.doctor.machine import Machine, Room, check_machine

NOW_S = 1_800_000_000.0
GIB = 1 << 30


class SoundMachine(Machine):
    """Nothing is wrong with it, until a test says so."""

    def __init__(self) -> None:
        self.free_bytes = 50 * GIB
        self.limit = 1 << 20
        self.user = os.geteuid()
        self.clock_s: float | None = None
        self.compiled = True
        self.has_java = True
        self.unknown_names: set[str] = set()
        self.closed_ports: set[int] = set()

    def room(self, path: Path) -> Room:
        return Room(100 * GIB, self.free_bytes)

    def file_limit(self) -> int:
        return self.limit

    def user_id(self) -> int:
        return self.user

    def now_s(self) -> float:
        return Machine.now_s(self) if self.clock_s is None else self.clock_s

    def kernel_is_compiled(self) -> bool:
        return self.compiled

    def java(self) -> str | None:
        return "/usr/bin/java" if self.has_java else None

    def has_pyspark(self) -> bool:
        return True

    def resolves(self, host: str) -> bool:
        return host not in self.unknown_names

    def why_not_reachable(self, host: str, port: int) -> str | None:
        return "Connection refused" if port in self.closed_ports else None


@pytest.fixture
def machine() -> SoundMachine:
    return SoundMachine()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that tidelog has served and left cleanly."""
    log = tmp_path / "data" / "orders-0"
    log.mkdir(parents=True)
    (log / f"{0:020}.log").write_bytes(b"x" * 100)
    (log.parent / ".kafka_cleanshutdown").write_text("")
    (log.parent / "tidelog-metadata.journal").write_text("")
    (log.parent / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=mine\n")
    return log.parent


def settings_of(data: Path, **more: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return BrokerConfig({"log.dirs": str(data), **given})


def names(findings: Iterator[Finding]) -> list[str]:
    """Of the checks that found something; each has to name a cure."""
    found = list(findings)
    assert all(finding.cure and finding.problem and finding.subject for finding in found)
    return [finding.check for finding in found]


def test_a_sound_machine_with_a_sound_directory_has_no_findings(
    machine: SoundMachine, data: Path
) -> None:
    config = settings_of(data, broker_id="1")
    assert names(check_machine(machine)) == []
    assert names(check_configuration(config, machine)) == []
    assert names(check_directories(config, machine)) == []


def test_a_low_limit_of_files_is_found(machine: SoundMachine) -> None:
    machine.limit = 1024
    assert names(check_machine(machine)) == ["file-limit"]


def test_a_kernel_that_is_not_compiled_is_found(machine: SoundMachine) -> None:
    machine.compiled = False
    assert names(check_machine(machine)) == ["no-compiled-kernel"]


def test_spark_without_java_is_found(machine: SoundMachine) -> None:
    machine.has_java = False
    assert names(check_machine(machine)) == ["java-missing"]


class TestListeners:
    def test_a_name_that_nobody_knows(self, machine: SoundMachine, data: Path) -> None:
        machine.unknown_names = {"nowhere.invalid"}
        listeners = "PLAINTEXT://nowhere.invalid:9092"
        config = settings_of(
            data, listeners="PLAINTEXT://127.0.0.1:9092", advertised_listeners=listeners
        )
        assert names(check_configuration(config, machine)) == ["advertised-unresolvable"]

    def test_a_loopback_address_for_clients_of_other_machines(
        self, machine: SoundMachine, data: Path
    ) -> None:
        config = settings_of(
            data,
            listeners="PLAINTEXT://0.0.0.0:9092",
            advertised_listeners="PLAINTEXT://localhost:9092",
        )
        found = names(check_configuration(config, machine))
        assert found == ["advertised-loopback", "open-listener"]

    def test_all_interfaces_of_ipv6(self, machine: SoundMachine, data: Path) -> None:
        config = settings_of(data, listeners="PLAINTEXT://[::]:9092")
        assert "advertised-wildcard" in names(check_configuration(config, machine))

    def test_all_interfaces_which_no_broker_starts_with(
        self, tmp_path: Path, machine: SoundMachine
    ) -> None:
        file = tmp_path / "server.properties"
        file.write_text("listeners=PLAINTEXT://0.0.0.0:9092\n")
        found = list(diagnose(Session(), file, machine))
        assert [each.check for each in found] == ["advertised-wildcard", "configuration"]
        assert found[1].level == UNCHECKED

    def test_a_listener_that_is_open_to_everybody(self, machine: SoundMachine, data: Path) -> None:
        config = settings_of(data, listeners="PLAINTEXT://10.0.0.1:9092")
        assert names(check_configuration(config, machine)) == ["open-listener"]


class TestCertificates:
    def config(self, data: Path, keystore: Path) -> BrokerConfig:
        return BrokerConfig(
            {
                "log.dirs": str(data),
                "listeners": "SSL://127.0.0.1:9093",
                "inter.broker.listener.name": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
            }
        )

    @pytest.mark.parametrize(
        ("valid_to", "check"),
        [
            (timedelta(days=-1), ["certificate-expired"]),
            (timedelta(days=3), ["certificate-expires-soon"]),
            (timedelta(days=90), []),
        ],
    )
    def test_one_that_has_ended_or_soon_will(
        self,
        tmp_path: Path,
        machine: SoundMachine,
        data: Path,
        valid_to: timedelta,
        check: list[str],
    ) -> None:
        issued = Authority(tmp_path / "ca").issue(
            "broker", valid_from=timedelta(days=-9), valid_to=valid_to
        )
        config = self.config(data, issued)
        assert names(check_configuration(config, machine)) == check

    def test_a_key_of_another_certificate(
        self, tmp_path: Path, machine: SoundMachine, data: Path
    ) -> None:
        authority = Authority(tmp_path / "ca")
        one, other = (
            authority.issue(name, valid_to=timedelta(days=90)).read_text()
            for name in ("one", "other")
        )
        mark = "-----BEGIN CERTIFICATE-----"
        mixed = tmp_path / "mixed.pem"
        mixed.write_text(one.partition(mark)[0] + mark + other.partition(mark)[2])
        (finding,) = check_configuration(self.config(data, mixed), machine)
        assert finding.check == "tls"
        assert "does not belong to its first certificate" in finding.problem

    def test_a_key_store_that_is_not_there(
        self, tmp_path: Path, machine: SoundMachine, data: Path
    ) -> None:
        config = self.config(data, tmp_path / "none.pem")
        assert names(check_configuration(config, machine)) == ["tls"]


class TestReplication:
    def test_more_replicas_than_a_broker_that_is_alone_can_have(
        self, machine: SoundMachine, data: Path
    ) -> None:
        config = settings_of(data, default_replication_factor="3")
        assert names(check_configuration(config, machine)) == ["replication-factor"]

    def test_more_in_sync_than_there_are_replicas(self, machine: SoundMachine, data: Path) -> None:
        config = settings_of(data, min_insync_replicas="2")
        assert names(check_configuration(config, machine)) == ["min-insync-replicas"]

    @pytest.mark.parametrize(("closed", "level"), [({1, 2}, "error"), ({1}, "warning")])
    def test_zookeeper_that_does_not_answer(
        self, machine: SoundMachine, data: Path, closed: set[int], level: str
    ) -> None:
        machine.closed_ports = closed
        config = settings_of(data, zookeeper_connect="127.0.0.1:1,127.0.0.1:2/kafka")
        (finding,) = check_configuration(config, machine)
        assert (finding.check, finding.level) == ("zookeeper-unreachable", level)


class TestDirectories:
    @pytest.mark.parametrize(
        ("free_bytes", "check"), [(GIB, "disk-full"), (5 * GIB, "disk-nearly-full")]
    )
    def test_a_disk_without_room(
        self, machine: SoundMachine, data: Path, free_bytes: int, check: str
    ) -> None:
        machine.free_bytes = free_bytes
        assert names(check_directories(settings_of(data), machine)) == [check]

    def test_another_owner(self, machine: SoundMachine, data: Path) -> None:
        machine.user = os.geteuid() + 4711
        assert names(check_directories(settings_of(data), machine)) == ["directory-owner"]

    def test_a_directory_that_may_not_be_written(
        self, machine: SoundMachine, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
        assert names(check_directories(settings_of(data), machine)) == ["directory-not-writable"]
        missing = settings_of(data / "deeper")
        assert names(check_directories(missing, machine)) == ["directory-not-writable"]

    def test_a_directory_in_use(self, machine: SoundMachine, data: Path) -> None:
        with (data / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert names(check_directories(settings_of(data), machine)) == ["directory-locked"]
        assert names(check_directories(settings_of(data), machine)) == []

    def test_a_stop_that_was_not_clean(self, machine: SoundMachine, data: Path) -> None:
        (data / ".kafka_cleanshutdown").unlink()
        (finding,) = check_directories(settings_of(data), machine)
        assert finding.check == "unclean-shutdown"
        assert "will recover" in finding.problem

    def test_files_from_the_future(self, machine: SoundMachine, data: Path) -> None:
        machine.clock_s = NOW_S
        os.utime(data / "orders-0" / f"{0:020}.log", (NOW_S + 7200, NOW_S + 7200))
        assert names(check_directories(settings_of(data), machine)) == ["files-from-the-future"]

    def test_another_broker_id(self, machine: SoundMachine, data: Path) -> None:
        assert names(check_directories(settings_of(data, broker_id="2"), machine)) == ["broker-id"]

    def test_directories_of_two_clusters(
        self, machine: SoundMachine, data: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=theirs\n")
        config = BrokerConfig({"log.dirs": f"{data},{other}"})
        assert names(check_directories(config, machine)) == ["other-cluster"]

    def test_an_unreadable_meta_properties(self, machine: SoundMachine, data: Path) -> None:
        (data / "meta.properties").write_text("version=9\n")
        assert names(check_directories(settings_of(data), machine)) == ["meta-properties"]

    def test_a_retention_that_deletes_what_is_adopted(
        self, machine: SoundMachine, data: Path
    ) -> None:
        (data / "tidelog-metadata.journal").unlink()
        machine.clock_s = NOW_S
        os.utime(data / "orders-0" / f"{0:020}.log", (NOW_S - 7200, NOW_S - 7200))
        assert names(check_directories(settings_of(data), machine)) == []
        config = settings_of(data, log_retention_hours="1")
        assert names(check_directories(config, machine)) == ["retention-deletes-adopted-data"]


class Node:
    def __init__(self, id: int, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.id, self.host, self.port = id, host, 9092 + id if port is None else port


def cluster_of(*nodes: Node) -> ClusterDescription:
    made: Any = ClusterDescription
    found: ClusterDescription = made("theirs", nodes[0], nodes)
    return found


class Row:
    def __init__(self, *replicas: int) -> None:
        self.replicas = replicas


class Topic:
    def __init__(self, name: str, *rows: Row) -> None:
        self.name, self.partitions, self.is_internal = name, rows, name.startswith("__")


def topics(*each: Topic) -> list[TopicDescription]:
    made: Any = list(each)
    found: list[TopicDescription] = made
    return found


class TestCluster:
    THREE = cluster_of(Node(1), Node(2), Node(3))

    def test_addresses_that_clients_cannot_reach(self, machine: SoundMachine) -> None:
        machine.unknown_names = {"nowhere.invalid"}
        machine.closed_ports = {9094}
        found = cluster_of(Node(0, "0.0.0.0"), Node(1, "nowhere.invalid"), Node(2), Node(3))
        assert names(check_nodes(found, machine)) == [
            "advertised-wildcard",
            "advertised-unresolvable",
            "port-closed",
        ]

    def test_two_brokers_that_tell_one_address(self, machine: SoundMachine) -> None:
        found = cluster_of(Node(1, port=9092), Node(2, port=9092))
        assert names(check_nodes(found, machine)) == ["shared-address"]

    def test_internal_topics_with_one_replica_among_three_brokers(self) -> None:
        found = topics(Topic("__consumer_offsets", Row(1)), Topic("orders", Row(1)))
        assert names(check_topics(self.THREE, found, {})) == ["internal-topic-replicas"]
        assert names(check_topics(cluster_of(Node(1)), found, {})) == []

    def test_a_topic_that_takes_no_writes(self) -> None:
        found = topics(Topic("orders", Row(1, 2)))
        assert names(check_topics(self.THREE, found, {"orders": 3})) == ["min-insync-replicas"]
        assert names(check_topics(self.THREE, found, {"orders": 2})) == []

    def test_brokers_of_different_releases(self) -> None:
        class FakeAdmin:
            def describe_features(self, broker_id: int) -> FeatureDescription:
                newest = 2 if broker_id == 3 else 1
                return FeatureDescription({}, None, {"group.version": VersionRange(0, newest)})

        admin: Any = FakeAdmin()
        assert names(check_versions(admin, self.THREE)) == ["mixed-versions"]
        assert names(check_versions(admin, cluster_of(Node(1), Node(2)))) == []

    def test_partitions_and_disks_that_are_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        report = {
            "controller": None,
            "brokers_gone": [4],
            "leaderless_partitions": [f"orders-{number}" for number in range(9)],
            "under_replicated_partitions": ["orders-0"],
            "offline_log_dirs": ["1:/data"],
        }
        monkeypatch.setattr("tidelog.tools.cli.cluster.health_report", lambda admin: report)
        admin: Any = None
        found = list(check_health(admin))
        assert [each.check for each in found] == [
            "no-controller",
            "broker-gone",
            "offline-partitions",
            "under-replicated-partitions",
            "offline-log-dirs",
        ]
        assert found[1].cure == "start broker 4"
        assert found[2].subject.endswith("and 4 more")

    def test_a_broker_that_does_not_belong_there(self, data: Path) -> None:
        config = settings_of(
            data,
            broker_id="1",
            listeners="PLAINTEXT://127.0.0.1:9999",
            default_replication_factor="4",
            zookeeper_connect="127.0.0.1:2181",
        )
        assert names(check_membership(self.THREE, config)) == [
            "other-cluster",
            "broker-id-taken",
            "replication-factor",
        ]

    @pytest.mark.parametrize(
        ("listener", "is_taken"),
        [
            ("PLAINTEXT://127.0.0.1:9093", False),
            ("PLAINTEXT://127.0.0.1:0", False),
            ("PLAINTEXT://127.0.0.1:9999", True),
            ("PLAINTEXT://127.0.0.2:9093", True),
        ],
    )
    def test_a_number_that_a_broker_elsewhere_has(
        self, data: Path, listener: str, is_taken: bool
    ) -> None:
        (data / "meta.properties").unlink()
        config = settings_of(data, broker_id="1", listeners=listener)
        found = names(check_membership(self.THREE, config))
        assert found == (["broker-id-taken"] if is_taken else [])


def test_a_cluster_that_does_not_answer_is_not_called_healthy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.tools.cli.doctor.Machine", SoundMachine)
    arguments = ["doctor", "--bootstrap", "127.0.0.1:1", "--timeout", "500ms", "-o", "json"]
    assert main(arguments) == 2
    report = json.loads(capsys.readouterr().out)
    assert not report["healthy"]
    (finding,) = report["findings"]
    assert (finding["check"], finding["level"]) == ("cluster", "unchecked")


def test_what_nobody_asked_for_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.tools.cli.doctor.Machine", SoundMachine)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr()
    assert "Nothing is wrong with what was looked at." in printed.out
    assert printed.err.count("not looked at: ") == 2


def test_unknown_keys_are_found_with_their_line(
    tmp_path: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.tools.cli.doctor.Machine", SoundMachine)
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={data}\nnum.partitons=3\n")
    assert main(["doctor", "--config", str(file)]) == 1
    assert f"{file}:2: unknown configuration key num.partitons" in capsys.readouterr().out
