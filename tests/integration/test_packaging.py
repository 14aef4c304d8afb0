"""The files in packaging/: the systemd unit, and the entry script of the container."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.broker_process import READY_LINE, START_TIMEOUT_S, TIDELOG, dies_with_us
from tests.support.command_line import parsed
from tidelog.config.broker import BROKER_TABLE
from tidelog.config.environment import variables

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
ENTRY = PACKAGING / "docker" / "entrypoint.sh"

FAKE_TIDELOG = """#!/bin/sh
echo "arguments $*"
env | grep -E '^(KAFKA|TIDELOG)_' | sort
"""


class Container:
    """A directory with the places of the container, and a `tidelog` that shows what it is told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("bin", "config", "secrets"):
            (directory / name).mkdir()
        fake = directory / "bin" / "tidelog"
        fake.write_text(FAKE_TIDELOG)
        fake.chmod(0o755)

    def runs(
        self, *arguments: str, settings: Mapping[str, str] | None = None, code: int = 0
    ) -> list[str]:
        done = subprocess.run(
            ["sh", str(ENTRY), *arguments],
            env={
                "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "CONFIG_DIR": str(self.directory / "config"),
                "DATA_DIR": str(self.directory / "data"),
                "SECRETS_DIR": str(self.directory / "secrets"),
                **(settings or {}),
            },
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return (done.stdout + done.stderr).splitlines()


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def test_a_container_without_settings_serves_its_machine(container: Container) -> None:
    lines = container.runs()
    assert lines == [
        "arguments serve --kafka-env",
        "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092",
        "KAFKA_LISTENERS=PLAINTEXT://:9092",
        f"KAFKA_LOG_DIRS={container.directory / 'data'}",
    ]


def test_listeners_follow_from_what_is_advertised(container: Container) -> None:
    lines = container.runs(settings={"KAFKA_ADVERTISED_LISTENERS": "A://one:1,B://two:2"})
    assert "KAFKA_LISTENERS=A://0.0.0.0:1,B://0.0.0.0:2" in lines


def test_a_mounted_file_and_arguments_go_to_the_broker(container: Container) -> None:
    file = container.directory / "config" / "server.properties"
    file.write_text("num.partitions=3\n")
    lines = container.runs("--brokers", "2", "KAFKA_NUM_PARTITIONS=a b", "--strict")
    assert lines == [
        f"arguments serve --kafka-env --config {file} --brokers 2 --strict",
        "KAFKA_NUM_PARTITIONS=a b",
    ]


def test_stores_and_their_passwords_come_from_files(container: Container) -> None:
    secrets = container.directory / "secrets"
    for name in ("k.p12", "key", "store"):
        (secrets / name).write_text(f"hush-{name}\n")
    settings = {
        "KAFKA_ADVERTISED_LISTENERS": "SSL://one:1",
        "KAFKA_SSL_KEYSTORE_FILENAME": "k.p12",
        "KAFKA_SSL_KEY_CREDENTIALS": "key",
    }
    (complaint,) = container.runs(settings=settings, code=1)
    assert complaint == "entrypoint: KAFKA_SSL_KEYSTORE_CREDENTIALS is not set"
    lines = container.runs(settings={**settings, "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store"})
    assert f"KAFKA_SSL_KEYSTORE_LOCATION={secrets / 'k.p12'}" in lines
    assert "KAFKA_SSL_KEY_PASSWORD=hush-key" in lines
    assert "KAFKA_SSL_KEYSTORE_PASSWORD=hush-store" in lines
    told = variables(dict(line.split("=", 1) for line in lines[1:]), with_kafka=True)
    assert [each.key for each in told if each.key not in BROKER_TABLE] == []


@pytest.mark.integration
def test_the_entry_script_becomes_a_broker_and_tells_its_service_manager(tmp_path: Path) -> None:
    container = Container(tmp_path)
    (tmp_path / "bin" / "tidelog").unlink()
    (tmp_path / "bin" / "tidelog").symlink_to(TIDELOG[0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(START_TIMEOUT_S)
        broker = subprocess.Popen(
            dies_with_us(["sh", str(ENTRY), "KAFKA_BROKER_ID=5"]),
            env={
                "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "CONFIG_DIR": str(tmp_path / "config"),
                "DATA_DIR": str(container.directory / "data"),
                "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert broker.stdout is not None
        try:
            ready = READY_LINE.match(broker.stdout.readline())
            assert ready is not None
            assert ready["broker_id"] == "5"
            assert ready["data"] == str(tmp_path / "data")
            assert manager.recv(4096).startswith(b"READY=1\n")
            broker.send_signal(signal.SIGTERM)
            assert manager.recv(4096).startswith(b"STOPPING=1\n")
            assert broker.wait(START_TIMEOUT_S) == 0
        finally:
            broker.kill()
            broker.wait()
            broker.stdout.close()


def test_the_unit_waits_for_readiness_and_starts_a_command_that_exists() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(PACKAGING / "systemd" / "tidelog.service")
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert int(service["LimitNOFILE"]) >= 65536
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/tidelog")
    assert parsed(arguments).info_name == "serve"


def test_every_variable_of_the_compose_file_sets_a_key() -> None:
    text = (PACKAGING / "docker" / "compose.yaml").read_text()
    found = variables(dict.fromkeys(re.findall(r"KAFKA_\w+", text), ""), with_kafka=True)
    assert len(found) == 5
    assert [each.name for each in found if each.key not in BROKER_TABLE] == []
