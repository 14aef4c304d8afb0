"""`tidelog zookeeper` under test, with what `ZooKeeperProcess` offers: it can stand in for one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.broker_process import STALL, STALL_CPU_MAX_MS, STALL_WARN_MS, dies_with_us
from tests.support.eventually import eventually
from tidelog.tools.free_ports import free_port

STOP_TIMEOUT_S = 90.0


class EmbeddedZooKeeperProcess:
    """A server on a free port, which it keeps over restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def _log_path(self) -> Path:
        return self.directory.with_suffix(".log")

    def log_text(self) -> str:
        return self._log_path.read_text(errors="replace")

    def stalls(self) -> list[tuple[int, str]]:
        """What has held the loop: the processor time in ms, and the line of the log."""
        found = ((STALL.search(line), line) for line in self.log_text().splitlines())
        return [(int(stall["cpu_ms"]), line) for stall, line in found if stall]

    def start(self) -> EmbeddedZooKeeperProcess:
        assert not self.is_alive(), "already running"
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        command = [str(Path(sys.executable).parent / "tidelog"), "zookeeper"]
        command += ["--port", str(self.port), "--data", str(self.directory)]
        command += ["--loop-stall-warn-ms", str(STALL_WARN_MS)]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                dies_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        with self.process.stdout as output:
            line = output.readline()
        assert line == f"tidelog zookeeper ready {self.address}\n", self.log_text()
        return self

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def command(self, word: bytes) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()

    def kill(self) -> None:
        if self.process is not None and self.is_alive():
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        eventually(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def __enter__(self) -> EmbeddedZooKeeperProcess:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()
        if exc[0] is None:
            long = [line for cpu_ms, line in self.stalls() if cpu_ms > STALL_CPU_MAX_MS]
            assert not long, long
