"""One real broker process under test: started, watched, stopped and always cleaned up by its pid.

`BrokerProcess` starts `tidelog serve` on a free loopback port with its own data directory and
waits for the ready line. The kernel kills the broker when the test process dies (`setpriv
--pdeathsig`, where there is one), so an aborted run leaves nothing behind. Stdout and stderr go to
files beside the data directory.

With TIDELOG_TEST_BOOTSTRAP=host:port the black-box tests talk to that broker instead (Apache
Kafka, say); tests that need to start, kill or look into a broker are skipped then.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

EXTERNAL_BOOTSTRAP = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
unlike_apache_kafka = pytest.mark.skipif(
    EXTERNAL_BOOTSTRAP is not None, reason="Apache Kafka is deliberately not followed here"
)
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0
STALL_WARN_MS = 20
# Processor time: what the machine gives to others does not count. Half a second is no accident.
STALL_CPU_MAX_MS = 500
STALL = re.compile(r"the event loop was held.*\bcpu_ms=(?P<cpu_ms>\d+)")

READY_LINE = re.compile(
    r"^tidelog ready broker\.id=(?P<broker_id>\d+) cluster\.id=(?P<cluster_id>\S+) "
    r"listeners=(?P<name>\w+)://(?P<host>[^:]+):(?P<port>\d+)\S*( metrics=(?P<metrics>\S+))? "
    r"data=(?P<data>.+)$",
    re.MULTILINE,
)


class BrokerFailedToStart(AssertionError):
    """The process ended, or said nothing, before its ready line."""


TIDELOG = (str(Path(sys.executable).parent / "tidelog"),)


def serve_command(
    overrides: Mapping[str, str], extra: Sequence[str] = (), program: Sequence[str] = TIDELOG
) -> list[str]:
    command = [*program, "serve", *extra]
    for key, value in overrides.items():
        command += ["--override", f"{key}={value}"]
    return command


def dies_with_us(command: list[str]) -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command


class BrokerProcess:
    """A broker that may be started and stopped many times on the same data directory.

    The port is chosen by the first start and kept for later ones, so that clients find the broker
    again.
    """

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        file_size_limit_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = TIDELOG,
    ) -> None:
        self.program = program
        self.directory = directory
        self.data_directory = directory / "data"
        self.overrides = {
            "log.dirs": str(self.data_directory),
            "tidelog.loop.stall.warn.ms": str(STALL_WARN_MS),
            # Many tests write records of the past. Where they take long, a shared broker would
            # delete them under their eyes.
            "log.retention.check.interval.ms": "3600000",
            **(overrides or {}),
        }
        self.file_size_limit_bytes = file_size_limit_bytes
        self.environment = dict(environment or {})
        self.port = 0
        self.broker_id = -1
        self.cluster_id = ""
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was never started"
        return self.process.pid

    @property
    def stdout_path(self) -> Path:
        return self.directory / "stdout.txt"

    @property
    def stderr_path(self) -> Path:
        return self.directory / "stderr.txt"

    def log_text(self) -> str:
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def long_stalls(self) -> list[str]:
        """What has held the loop for so long that a test has to fail."""
        found = ((STALL.search(line), line) for line in self.log_text().splitlines())
        return [line for stall, line in found if stall and int(stall["cpu_ms"]) > STALL_CPU_MAX_MS]

    def spawn(self) -> None:
        """Starts the process without waiting for it to be ready."""
        assert self.process is None or self.process.poll() is not None, "already running"
        overrides = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", **self.overrides}
        command = dies_with_us(serve_command(overrides, program=self.program))
        if self.file_size_limit_bytes is not None:
            command = ["prlimit", f"--fsize={self.file_size_limit_bytes}", *command]
        with self.stdout_path.open("wb") as stdout, self.stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self.process.poll()
            match = READY_LINE.search(self.stdout_path.read_text(errors="replace"))
            if match:
                break
            if ended is not None:
                raise BrokerFailedToStart(f"exit code {ended}\n{self.log_text()[-4000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailedToStart(f"no ready line\n{self.log_text()[-4000:]}")
            time.sleep(0.01)
        self.port = int(match["port"])
        self.broker_id = int(match["broker_id"])
        self.cluster_id = match["cluster_id"]

    def start(self) -> BrokerProcess:
        self.spawn()
        self.wait_until_ready()
        return self

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_s(self) -> float:
        """The processor time it has used so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


def run_serve(
    overrides: Mapping[str, str], extra: Sequence[str] = (), timeout_s: float = START_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """`tidelog serve` that is expected to end by itself: exit code, stdout and stderr."""
    return subprocess.run(
        dies_with_us(serve_command(overrides, extra)),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
