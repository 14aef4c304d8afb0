"""`tidelog serve --brokers N`: a cluster under one supervisor, killed in parts and as a whole."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.broker_process import TIDELOG, dies_with_us
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, metadata
from tidelog.client import Admin, NewTopic, Producer
from tidelog.config.jaas import MODULES

pytestmark = pytest.mark.integration

STOP_TIMEOUT_S = 240
RACK = "cellar"
READY = re.compile(r"tidelog ready broker\.id=0,1 cluster\.id=\S+ listeners=(\S+) data=\S+\n")


@contextmanager
def fleet(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The supervisor, and where its two brokers listen."""
    command = [*TIDELOG, "serve", "--brokers", "2", "--log-format", "json"]
    command += options or ("--port", "0")
    command += ["--data", str(tmp_path / "data"), "--override", f"broker.rack={RACK}"]
    with (tmp_path / "log.txt").open("w") as log:
        process = subprocess.Popen(
            dies_with_us(command), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line + (tmp_path / "log.txt").read_text()
        yield process, re.findall(r"127\.0\.0\.1:\d+", ready[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def brokers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if is_broker(child)]


def is_broker(process: psutil.Process) -> bool:
    try:
        return "serve" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


def members(address: str) -> list[int]:
    try:
        with RawClient(address) as client:
            return sorted(broker.node_id for broker in metadata(client, []).brokers)
    except OSError:
        return []


def test_a_broker_that_dies_comes_back_and_a_signal_stops_all_cleanly(tmp_path: Path) -> None:
    with fleet(tmp_path) as (process, addresses):
        with RawClient(addresses[0]) as client:
            assert [broker.rack for broker in metadata(client, []).brokers] == [RACK, RACK]
        killed = brokers_of(process)[1]
        killed.kill()
        eventually(lambda: len(brokers_of(process)) == 2 and killed not in brokers_of(process))
        eventually(lambda: all(members(address) == [0, 1] for address in addresses))
        create = [*TIDELOG, "topic", "create", "after", "-p", "2", "-r", "2", "--timeout", "60s"]
        subprocess.run([*create, "-b", addresses[1]], check=True, stdout=subprocess.DEVNULL)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "", "the ready line is said once"
    for number in (0, 1):
        assert (tmp_path / "data" / f"broker-{number}" / ".kafka_cleanshutdown").exists()
    lines = [json.loads(line) for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert {line.get("broker") for line in lines} == {0, 1, None}
    assert any("ended with exit code -9; it starts again in 1 s" in line["msg"] for line in lines)


def test_nothing_outlives_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with fleet(tmp_path) as (process, _):
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 3, "two brokers and the coordination"
        process.kill()
        process.wait()
        gone, alive = psutil.wait_procs(children, STOP_TIMEOUT_S)
        for child in alive:
            child.kill()
        assert not alive
        assert len(gone) == 3


def test_one_configuration_file_is_for_all_brokers(tmp_path: Path) -> None:
    """Also what they need to log in to each other; the coordination beside them has no such key."""
    authority = Authority(tmp_path / "certificates")
    users = 'username="broker" password="b" user_broker="b" user_alice="a"'
    configuration = {
        **authority.broker_keys(),
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULES['PLAIN']} required {users};",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in configuration.items()))
    with fleet(tmp_path, "--config", str(file), "--strict") as (process, addresses):
        login = f"{MODULES['PLAIN']} required username=alice password=a;"
        client = {
            **authority.client_keys(),
            "bootstrap.servers": ",".join(addresses),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login,
        }
        with Admin(client) as admin:
            admin.create_topics([NewTopic("both", 2, 2)])["both"].get()
        with Producer(client) as producer:
            for partition in range(2):
                producer.send("both", value=b"x", partition=partition).result(60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0
