"""Brokers for development give a new group its first record without a wait for more members."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import EXTERNAL_BOOTSTRAP, dies_with_us
from tidelog.client import Admin, Consumer, NewTopic, Producer

pytestmark = pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="starts its own brokers")

GROUPS = 3  # the quickest counts, so that a busy machine does not
TOPIC = "first-record"
WITHIN_S = 60.0


@pytest.fixture
def served(start_broker: StartBroker) -> str:
    return start_broker(name="default").bootstrap


@pytest.fixture
def developed(tmp_path: Path) -> Iterator[str]:
    """Of `tidelog dev`, a cluster of one broker."""
    program = str(Path(sys.executable).parent / "tidelog")
    command = [program, "dev", "-n", "1", "--data", str(tmp_path / "dev"), "--port", "0"]
    process = subprocess.Popen(
        dies_with_us(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split("bootstrap.servers=")[1].split()[0]
    finally:
        process.terminate()
        process.wait(WITHIN_S)
        process.stdout.close()


@pytest.mark.parametrize("quick", ["served", "developed"])
def test_the_first_record_of_a_group_comes_without_the_delay_of_kafka(
    start_broker: StartBroker, quick: str, request: pytest.FixtureRequest
) -> None:
    """Kafka's default of group.initial.rebalance.delay.ms makes every new group wait for 3 s."""
    bootstrap: str = request.getfixturevalue(quick)
    patient = start_broker({"group.initial.rebalance.delay.ms": "3000"}, name="patient")
    assert quickest_s(bootstrap) < quickest_s(patient.bootstrap) / 2


def quickest_s(bootstrap: str) -> float:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].get()
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(TOPIC, b"first").result(WITHIN_S)
    return min(first_record_s(bootstrap, f"group-{number}") for number in range(GROUPS))


def first_record_s(bootstrap: str, group: str) -> float:
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": bootstrap, **settings}) as consumer:
        began_at = time.monotonic()
        consumer.subscribe([TOPIC])
        assert consumer.poll(WITHIN_S), "no record"
        return time.monotonic() - began_at
