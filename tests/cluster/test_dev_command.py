"""`tidelog dev`: a cluster in one command, one ready line, one log, and a clean end."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.broker_process import dies_with_us
from tests.support.raw_client import RawClient, metadata
from tests.support.zookeeper import require_zookeeper

pytestmark = pytest.mark.integration


def test_a_cluster_in_one_command_serves_and_stops_cleanly(tmp_path: Path) -> None:
    require_zookeeper()
    command = [str(Path(sys.executable).parent / "tidelog"), "dev", "-n", "3"]
    command += ["--data", str(tmp_path / "dev"), "--port", "0", "--log-level", "info"]
    command += ["--override", "broker.rack=shelf"]
    log = (tmp_path / "log.txt").open("w+")
    process = subprocess.Popen(dies_with_us(command), stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("tidelog dev ready brokers=3 bootstrap.servers=127.0.0.1:"), line
        bootstrap = line.split("bootstrap.servers=")[1].split()[0]
        assert len(set(bootstrap.split(","))) == 3, "each has a port of its own"
        for address in bootstrap.split(","):
            with RawClient(address) as client:
                assert [broker.rack for broker in metadata(client, []).brokers] == ["shelf"] * 3
        assert produced(bootstrap)
        pages = [scraped(url) for url in line.split("metrics=")[1].split(",")]
        active = "\nkafka_controller_kafkacontroller_activecontrollercount 1\n"
        assert sum(active in page for page in pages) == 1
        assert all("kafka_brokers 3\n" in page for page in pages)
        led = 'kafka_topic_partition_replicas{topic="t",partition="0"} 3'
        assert sum(led in page for page in pages) == 1, "one leader tells of a partition"
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        log.close()
    lines = (tmp_path / "log.txt").read_text().splitlines()
    for number in (1, 2, 3):
        of_broker = [text for text in lines if text.startswith(f"broker {number} | ")]
        assert any("msg=stopped" in text for text in of_broker), f"broker {number}"
        marker = tmp_path / "dev" / f"broker-{number}" / ".kafka_cleanshutdown"
        assert marker.exists()


def scraped(url: str) -> str:
    with urllib.request.urlopen(url.strip(), timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def produced(bootstrap: str) -> bool:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    errors: list[object] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    return errors == [None]
