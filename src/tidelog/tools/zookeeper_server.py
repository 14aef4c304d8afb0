"""One ZooKeeper server for development: its files, its process, and when it serves.

    DIR/zoo.cfg       written at each start
    DIR/myid          the server's number in an ensemble
    DIR/version-2/    ZooKeeper's snapshots and transaction log
    DIR/server.out    what the JVM said, normally nothing
    DIR/.lock         held while the process runs: two servers would ruin each other's log

It listens on the loopback address alone. It is ready when it answers the command `srvr` with a
mode, which the members of an ensemble do only once they have a leader. The kernel kills it when
the process that started it is gone.

Java and five jars out of the pyspark wheel make the server: Spark carries ZooKeeper for its own
use, so a machine that has pyspark needs no download. The five jars are necessary and sufficient for
a server without TLS. There is no logging backend among them: the server starts in a third of the
time and says nothing.

The tick is short, for sessions of one second and more; ZooKeeper's own bounds, 2 and 20 ticks,
would cut Kafka's 18 s down.
"""

from __future__ import annotations

import ctypes
import fcntl
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, NamedTuple

from tidelog.errors import StartupError
from tidelog.pipeline.spark_session import java_command
from tidelog.tools.free_ports import HOST

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS: Final = 500
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 120_000
LOG_FILE_KB: Final = 4096  # grows by this much; ZooKeeper's own 64 MiB is much for a laptop
POLL_S: Final = 0.02
STOP_TIMEOUT_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
JAR_PATTERNS: Final = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-[0-9]*.jar",
    "slf4j-api-[0-9]*.jar",
    "metrics-core-[0-9]*.jar",
    "snappy-java-[0-9]*.jar",
)


class ZooKeeperMissing(StartupError):
    """There is no Java or no jar here; the message says what to do."""


def must_find_java() -> str:
    java = java_command()
    if java is None:
        raise ZooKeeperMissing(
            "ZooKeeper needs Java and there is no java on the PATH: install one "
            "(apt install openjdk-17-jre-headless) or set JAVA_HOME"
        )
    return java


def must_find_jars() -> list[Path]:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ZooKeeperMissing(
            "ZooKeeper's jars come with pyspark, which is not installed: "
            "pip install 'tidelog[spark]', or run a ZooKeeper of your own"
        )
    directory = Path(next(iter(spec.submodule_search_locations))) / "jars"
    jars = []
    for pattern in JAR_PATTERNS:
        found = sorted(directory.glob(pattern))
        if not found:
            raise ZooKeeperMissing(
                f"there is no {pattern} in {directory}: install the whole pyspark, not "
                "pyspark-client (pip install 'tidelog[spark]'), or run a ZooKeeper of your own"
            )
        jars.append(found[-1])
    return jars


class Member(NamedTuple):
    """A server of an ensemble, as its peers reach it."""

    number: int
    peer_port: int
    election_port: int


@dataclass(frozen=True, slots=True)
class ServerSettings:
    directory: Path
    port: int
    number: int = 1  # among the members
    members: tuple[Member, ...] = ()  # none: a server on its own
    properties: Mapping[str, str] = field(default_factory=dict)  # of the JVM

    def config_text(self) -> str:
        lines = [
            f"dataDir={self.directory.resolve()}",
            f"clientPort={self.port}",
            f"clientPortAddress={HOST}",
            f"tickTime={TICK_MS}",
            f"minSessionTimeout={SESSION_TIMEOUT_MS_MIN}",
            f"maxSessionTimeout={SESSION_TIMEOUT_MS_MAX}",
            "initLimit=20",
            "syncLimit=10",
            "maxClientCnxns=0",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
        ]
        for number, peer_port, election_port in self.members:
            lines.append(f"server.{number}={HOST}:{peer_port}:{election_port}")
        return "".join(f"{line}\n" for line in lines)


def java_arguments(settings: ServerSettings) -> list[str]:
    properties = {
        "zookeeper.admin.enableServer": "false",
        "zookeeper.jmx.log4j.disable": "true",
        "zookeeper.preAllocSize": str(LOG_FILE_KB),
        **settings.properties,
    }
    return [
        must_find_java(),
        "-Xmx96m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-cp",
        ":".join(map(str, must_find_jars())),
        MAIN_CLASS,
        str(settings.directory / "zoo.cfg"),
    ]


class ZooKeeperServer:
    """May be started and stopped many times on the same directory."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.settings.port}"

    @property
    def output_file(self) -> Path:
        return self.settings.directory / "server.out"

    def spawn(self) -> None:
        """Starts the process without waiting for it to serve."""
        assert not self.is_alive(), "already running"
        directory = self.settings.directory
        command = java_arguments(self.settings)
        directory.mkdir(parents=True, exist_ok=True)
        self._take_lock(directory / ".lock")
        _require_free_port(self.settings.port)
        (directory / "zoo.cfg").write_text(self.settings.config_text())
        if self.settings.members:
            (directory / "myid").write_text(f"{self.settings.number}\n")
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def wait_until_ready(self, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while self.mode() is None:
            if not self.is_alive():
                raise StartupError(f"ZooKeeper did not start: {self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                hint = (
                    "; an ensemble serves when more than half of its members run"
                    if self.settings.members
                    else ""
                )
                raise StartupError(
                    f"ZooKeeper did not serve at {self.address} within {timeout_s:g} s{hint}"
                )
            time.sleep(POLL_S)

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def mode(self) -> str | None:
        """standalone, leader or follower; None while it does not serve."""
        try:
            with socket.create_connection((HOST, self.settings.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return None
        for line in answer.decode(errors="replace").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return None

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        if self.process is not None and self.is_alive():
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._release_lock()

    def kill(self) -> None:
        if self.process is not None and self.is_alive():
            self.process.kill()
            self.process.wait()
        self._release_lock()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _take_lock(self, path: Path) -> None:
        if self._lock is not None:  # of a process that ended by itself
            return
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise StartupError(f"{path.parent} is in use by another ZooKeeper") from None
        self._lock = lock

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _last_words(self) -> str:
        words = [
            line
            for line in self.output_file.read_text(errors="replace").splitlines()
            if line.strip() and not line.startswith("SLF4J")
        ]
        code = None if self.process is None else self.process.returncode
        return words[-1] if words else f"exit code {code}, and it said nothing"


def _require_free_port(port: int) -> None:
    """ZooKeeper itself would end without a word."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise StartupError(f"{HOST}:{port}: {error.strerror}") from None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
