"""Dashboards that people use for Kafka, beside what a replicated cluster tells."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import dies_with_us
from tests.support.eventually import eventually
from tests.support.public_dashboards import (
    DASHBOARDS,
    Dashboard,
    Told,
    fills,
    get,
    told_by,
    with_rules,
)
from tidelog.client import Admin, Consumer, NewTopic, Producer
from tidelog.tools.recording_rules import RULES

pytestmark = pytest.mark.integration

WITHIN_S = 200
PAGE = Path(__file__).parents[2] / "docs" / "observability.md"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """By a cluster with topics, traffic, and a group that lags."""
    program = str(Path(sys.executable).parent / "tidelog")
    command = [program, "dev", "-n", "3", "--port", "0"]
    command += ["--data", str(tmp_path_factory.mktemp("dashboards") / "dev")]
    process = subprocess.Popen(
        dies_with_us(command),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PATH": "/nonexistent", "JAVA_HOME": ""},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        servers = {"bootstrap.servers": line.split("bootstrap.servers=")[1].split()[0]}
        urls = line.split("metrics=")[1].split()[0].split(",")
        yield told_while_used(servers, urls)
    finally:
        process.terminate()
        process.wait(WITHIN_S)
        process.stdout.close()


def told_while_used(servers: dict[str, str], urls: list[str]) -> Told:
    for url in urls:
        get(url)  # some things are told of the time between two scrapes
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("orders", 3, 3)])
    with Producer(servers) as producer:
        for number in range(30):
            producer.send("orders", value=b"%d" % number, partition=number % 3)
        producer.flush()
    reading = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer({**servers, **reading}) as consumer:
        consumer.subscribe(["orders"])
        read: list[object] = []

        def has_read_all() -> bool:
            read.extend(consumer.poll(1.0))
            return len(read) >= 30

        eventually(has_read_all)
        consumer.commit()
        with Producer(servers) as producer:
            for number in range(3):
                producer.send("orders", value=b"unread", partition=number)
            producer.flush()
        return told_by([get(url) for url in urls])


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_the_panels_of_public_dashboards_have_their_metrics(
    told: Told, dashboard: Dashboard
) -> None:
    filled = dashboard.filled(told)
    assert filled.by_nobody == set()
    assert fills(with_rules(told), dashboard.variables)
    sums = [len(dashboard.panels), *map(len, filled[:3])]
    row = re.search(
        rf"^\| {dashboard.name} \|.*?\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$",
        PAGE.read_text(),
        re.M,
    )
    assert row is not None
    assert [int(number) for number in row.groups()] == sums


def test_rules_copy_only_what_brokers_tell(told: Told) -> None:
    for rule in RULES:
        assert rule.source in told, rule.record
        if rule.renamed is not None:
            assert rule.renamed[1] in told[rule.source], rule.record


def test_a_cluster_tells_what_its_brokers_do_beside_answering(told: Told) -> None:
    for asked in (
        "kafka_server_delayedoperationpurgatory_purgatorysize delayedoperation",
        "kafka_server_replicafetchermanager_maxlag clientid",
        "kafka_server_replicafetchermanager_failedpartitionscount clientid",
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "tidelog_zookeeper_connected",
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "kafka_log_logflushstats_logflushrateandtimems_count",
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "tidelog_log_cleaner_rounds_total",
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
    ):
        assert fills(told, asked), asked
