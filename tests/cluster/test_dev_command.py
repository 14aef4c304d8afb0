"""`tidelog dev`: a cluster in one command, one ready line, one log, and a clean end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.support.broker_process import dies_with_us
from tests.support.raw_client import RawClient, metadata

pytestmark = pytest.mark.integration

WITHIN_S = 200
NO_JAVA = {**os.environ, "PATH": "/nonexistent", "JAVA_HOME": ""}


def test_a_cluster_in_one_command_serves_and_stops_cleanly(tmp_path: Path) -> None:
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
        pages = [scraped(url) for url in line.split("metrics=")[1].split()[0].split(",")]
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


def run_dev(data: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what it says."""
    program = str(Path(sys.executable).parent / "tidelog")
    command = [program, "dev", *arguments, "--data", str(data)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN_S, check=False, env=NO_JAVA
    )
    return done.returncode, done.stdout + done.stderr


def test_a_broker_is_killed_and_started_again_from_another_terminal(tmp_path: Path) -> None:
    data = tmp_path / "dev"
    program = str(Path(sys.executable).parent / "tidelog")
    process = subprocess.Popen(
        dies_with_us(
            [program, "dev", "-n", "2", "--port", "0", "--no-console", "--data", str(data)]
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=NO_JAVA,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "console=" not in line
        pids = dict(pair.split(":") for pair in line.split("pids=")[1].strip().split(","))
        assert list(pids) == ["broker-1", "broker-2", "zookeeper"]
        code, said = run_dev(data, "status")
        assert (code, len(said.splitlines())) == (0, 3)
        assert f"pid {pids['broker-2']}" in said
        assert run_dev(data, "kill", "2") == (0, "broker 2 killed\n")
        assert not psutil.pid_exists(int(pids["broker-2"]))
        assert run_dev(data, "kill", "2")[0] == 1
        code, said = run_dev(data, "restart", "2")
        assert (code, said.startswith("broker 2 restarted with pid ")) == (0, True), said
        assert run_dev(data, "pause", "1") == (0, "broker 1 paused\n")
        assert psutil.Process(int(pids["broker-1"])).status() == psutil.STATUS_STOPPED
        assert run_dev(data, "resume", "1") == (0, "broker 1 resumed\n")
        assert "there is no broker 7" in run_dev(data, "kill", "7")[1]
        assert run_dev(data, "kill")[0] == 2
        assert "a cluster runs on" in run_dev(data, "-n", "1", "--port", "0")[1]
    finally:
        process.terminate()
        assert process.wait(WITHIN_S) == 0
        process.stdout.close()
    assert "no cluster runs on" in run_dev(data, "status")[1]


def test_one_broker_needs_nothing_beside_it(tmp_path: Path) -> None:
    program = str(Path(sys.executable).parent / "tidelog")
    process = subprocess.Popen(
        dies_with_us([program, "dev", "-n", "1", "--port", "0", "--data", str(tmp_path / "dev")]),
        stdout=subprocess.PIPE,
        text=True,
        env=NO_JAVA,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "zookeeper" not in line
        assert "Under-replicated" in scraped(line.split("console=")[1].split()[0])
        assert produced(line.split("bootstrap.servers=")[1].split()[0])
    finally:
        process.terminate()
        assert process.wait(WITHIN_S) == 0
        process.stdout.close()


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
