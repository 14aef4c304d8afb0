"""`tidelog zookeeper` as its users meet it: a process, its ready line, its end, its complaints."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.broker_process import dies_with_us
from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.eventually import eventually
from tests.support.zookeeper import ZooKeeperProcess, require_zookeeper
from tidelog.tools.free_ports import free_port

pytestmark = pytest.mark.integration


def command(*arguments: object) -> list[str]:
    program = str(Path(sys.executable).parent / "tidelog")
    return dies_with_us([program, "zookeeper", *map(str, arguments)])


@pytest.fixture(params=["embedded", "java"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    more = []
    if request.param == "java":
        require_zookeeper()
        more = ["--java"]
    process = subprocess.Popen(
        command("--port", 0, "--data", tmp_path / "zk", *more), stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def ready_address(process: subprocess.Popen[str]) -> tuple[str, int]:
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:3] == ["tidelog", "zookeeper", "ready"], words
    host, _, port = words[3].partition(":")
    return host, int(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_serves_and_a_signal_ends_it_cleanly(
    running: subprocess.Popen[str], number: signal.Signals
) -> None:
    address = ready_address(running)
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"srvr")
        assert b"Mode: standalone" in connection.recv(4096)
    running.send_signal(number)
    assert running.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=30)


def test_it_listens_on_the_loopback_address_alone(running: subprocess.Popen[str]) -> None:
    _, port = ready_address(running)
    listening = {
        connection.laddr
        for process in family(running)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    hosts = {address.ip for address in listening}
    assert hosts <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert port in {address.port for address in listening}


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(process.pid)
    return [found, *found.children(recursive=True)]


def test_the_server_does_not_outlive_a_killed_command(running: subprocess.Popen[str]) -> None:
    ready_address(running)
    servers = family(running)
    running.kill()
    eventually(
        lambda: all(
            not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in servers
        )
    )


def refused(
    *arguments: object, environment: dict[str, str] | None = None, exit_code: int = 1
) -> str:
    ended = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=environment,
    )
    assert ended.returncode == exit_code, ended
    assert ended.stdout == ""
    return ended.stderr


@pytest.mark.parametrize("more", [(), ("--java",)])
def test_a_taken_port_is_told(tmp_path: Path, more: tuple[str, ...]) -> None:
    if more:
        require_zookeeper()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        complaint = refused("--port", port, "--data", tmp_path, *more)
    assert complaint == f"tidelog: error: 127.0.0.1:{port}: Address already in use\n"


def test_a_directory_in_use_is_told(tmp_path: Path) -> None:
    require_zookeeper()
    with ZooKeeperProcess(tmp_path):
        complaint = refused("--port", free_port(), "--data", tmp_path, "--java")
        of_the_other_kind = refused("--port", free_port(), "--data", tmp_path)
    assert complaint == f"tidelog: error: {tmp_path} is in use by another ZooKeeper\n"
    assert "has the data of Apache ZooKeeper: serve it with" in of_the_other_kind


def test_a_directory_of_the_server_without_java_is_its_own(tmp_path: Path) -> None:
    with EmbeddedZooKeeperProcess(tmp_path / "zk"):
        complaint = refused("--port", free_port(), "--data", tmp_path / "zk")
        assert "is in use by another process" in complaint
        complaint = refused("--port", free_port(), "--data", tmp_path / "zk", "--java")
        assert "choose another --data" in complaint


def test_without_java_it_says_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    complaint = refused("--data", tmp_path, "--java", environment=environment)
    assert "there is no java on the PATH: install one" in complaint


def test_an_ensemble_needs_both_its_options(tmp_path: Path) -> None:
    assert "go together" in refused("--data", tmp_path, "--myid", 1, exit_code=2)
    not_one_of_them = ("--myid", 3, "--server", "1=2888:3888")
    complaint = refused("--data", tmp_path, *not_one_of_them, exit_code=2)
    assert "--myid 3 is not among the --server numbers" in complaint


def test_three_commands_make_an_ensemble(tmp_path: Path) -> None:
    require_zookeeper()
    servers = [f"--server={n}={free_port()}:{free_port()}" for n in (1, 2, 3)]
    members = [
        subprocess.Popen(
            command("--port", 0, "--data", tmp_path / str(n), "--myid", n, *servers),
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in (1, 2, 3)
    ]
    try:
        modes = set()
        for each in members:
            with socket.create_connection(ready_address(each), timeout=30) as connection:
                connection.sendall(b"srvr")
                modes.add(connection.recv(4096).split(b"Mode: ")[1].split()[0])
        assert modes == {b"leader", b"follower"}
    finally:
        for each in members:
            each.terminate()
        assert [each.wait(60) for each in members] == [0, 0, 0]
        for each in members:
            assert each.stdout is not None
            each.stdout.close()
