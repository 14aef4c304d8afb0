"""Incidents of a cluster, staged for real, and what `tidelog explain` makes of them.

The brokers' logs are given as files, so that those of brokers that are dead count too. No Java.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tidelog.client import Admin, NewTopic, Producer
from tidelog.client.admin.topics import PartitionDescription
from tidelog.client.errors import ClientError
from tidelog.testing import Cluster
from tidelog.tools.cli.main import main

WITHIN_S = 120.0
# A paused broker answers nothing, and the other one is asked in its place.
IMPATIENT = {"request.timeout.ms": "2000", "default.api.timeout.ms": "60000"}
CALM = {"auto.leader.rebalance.enable": "false"}


class Scene:
    """A cluster, and what is asked of it."""

    def __init__(self, cluster: Cluster, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self._folder = folder
        self._capsys = capsys

    def create(self, name: str, replicas: list[int], **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name, assignments={0: replicas}, configs=settings)
        with Admin({**self.servers, **IMPATIENT}) as admin:
            admin.create_topics([wanted])[name].get()
        with Producer(self.servers) as producer:
            producer.send(name, value=b"first")

    def partition(self, topic: str) -> PartitionDescription:
        with Admin({**self.servers, **IMPATIENT}) as admin:
            return admin.describe_topics([topic])[topic].get().partitions[0]

    def live(self) -> set[int]:
        with Admin({**self.servers, **IMPATIENT}) as admin:
            return {node.id for node in admin.describe_cluster().nodes}

    def controller(self) -> int:
        found: list[int] = []

        def is_elected() -> bool:
            with Admin({**self.servers, **IMPATIENT}) as admin:
                cluster = admin.describe_cluster()
            if cluster.controller is not None:
                found.append(cluster.controller.id)
            return bool(found) and len(cluster.nodes) == len(self.cluster.brokers)

        eventually(is_elected, WITHIN_S)
        return found[-1]

    def explain(self, topic: str) -> dict[str, Any]:
        logs = []
        for number, broker in enumerate(self.cluster.brokers, 1):
            path = self._folder / f"broker-{number}.log"
            path.write_text(broker.log_text())
            logs += ["--log", str(path)]
        asked = ["explain", "partition", topic, "0", "-o", "json", "--timeout", "60s", *logs]
        code = main([*asked, "-b", self.cluster.bootstrap_servers])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        found: dict[str, Any] = json.loads(printed.out)
        return found


def finding(found: dict[str, Any], cause: str) -> dict[str, Any]:
    causes = {each["cause"]: each for each in found["findings"]}
    assert cause in causes, found
    row: dict[str, Any] = causes[cause]
    return row


def test_a_killed_leader_a_partition_that_is_offline_and_a_preferred_leader_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(3, CALM) as cluster:
        scene = Scene(cluster, tmp_path, capsys)
        scene.create("orders", [1, 2, 3])
        scene.create("pair", [1, 2], min_insync_replicas="1")
        cluster.brokers[0].kill()
        eventually(lambda: scene.partition("orders").leader_id == 2, WITHIN_S)
        eventually(lambda: scene.partition("pair").isr == (2,), WITHIN_S)
        found = scene.explain("orders")
        leads = finding(found, "leader")
        assert leads["what"].startswith("broker 2 leads in epoch ")
        assert leads["why"].startswith("broker 1 led before and is gone")
        assert finding(found, "preferred-leader-gone")["why"] == "broker 1 is not there"
        assert "start broker 1" in finding(found, "replica-gone")["next_step"]
        finding(found, "at-min-isr")
        texts = [each["text"] for each in found["timeline"]]
        first = next(n for n, text in enumerate(texts) if "broker 1 leads in epoch 0" in text)
        later = next(n for n, text in enumerate(texts) if text.startswith("broker 2 leads"))
        assert first < later, texts

        cluster.brokers[1].kill()
        cluster.brokers[0].restart()
        eventually(lambda: scene.live() == {1, 3}, WITHIN_S)
        eventually(lambda: scene.partition("pair").leader_id == -1, WITHIN_S)
        offline = finding(scene.explain("pair"), "offline")
        assert "the replicas in sync were 2, and none of them is there" in offline["why"]
        assert "broker 1 is there, but may lack records" in offline["why"]
        assert offline["next_step"].startswith("start broker 2. If they are lost for good, tidelog")

        cluster.brokers[1].restart()
        eventually(lambda: set(scene.partition("pair").isr) == {1, 2}, WITHIN_S)
        found = scene.explain("pair")
        waits = finding(found, "preferred-leader-waits")
        assert waits["next_step"].startswith("tidelog elect pair:0")
        assert "leader-missing" in [each["event"] for each in found["timeline"]]


def test_a_paused_follower_leaves_the_in_sync_set_and_producers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its session outlives the pause, so the controller still counts it among the living."""
    patient = {"zookeeper.session.timeout.ms": "60000", "replica.lag.time.max.ms": "1500"}
    with Cluster(2, {**CALM, **patient}) as cluster:
        scene = Scene(cluster, tmp_path, capsys)
        # The controller leads: a paused one could not change the in-sync set.
        leader = scene.controller()
        paused = 3 - leader
        scene.create("orders", [leader, paused], min_insync_replicas="2")
        follower = cluster.brokers[paused - 1]
        follower.pause()
        try:
            scene.servers = {"bootstrap.servers": cluster.brokers[leader - 1].bootstrap_servers}
            quick = {"delivery.timeout.ms": 3_000, "request.timeout.ms": 1_000, "linger.ms": 0}
            with Producer({**scene.servers, **quick}) as producer:
                delivery = producer.send("orders", value=b"second")
                with pytest.raises(ClientError):
                    delivery.result(WITHIN_S)
            eventually(lambda: scene.partition("orders").isr == (leader,), WITHIN_S)
            found = scene.explain("orders")
            silent = finding(found, "replica-silent")
            assert silent["what"] == f"broker {paused} is not in sync"
            assert "it fetched nothing for" in silent["why"]
            assert "replica.lag.time.max.ms=1500" in silent["why"]
            refused = finding(found, "under-min-isr")
            assert refused["what"] == "1 of 2 replicas in sync, min.insync.replicas=2"
            assert "NOT_ENOUGH_REPLICAS" in refused["why"]
        finally:
            follower.resume()
