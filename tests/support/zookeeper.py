"""Real ZooKeeper servers under test: on free loopback ports, with fresh data, dead when we are.

    zookeeper        fixture: one server a test process, shared; take a chroot of your own
    start_zookeeper  fixture: servers of this test's own, to kill, stop and pause
    start_ensemble   fixture: three servers with an elected leader

Without Java or the pyspark wheel the tests that ask for one are skipped with the reason. A server
does not sync its log to disk: the tests kill processes, not machines.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from kazoo.client import KazooClient

from tests.support.eventually import eventually
from tidelog.errors import StartupError
from tidelog.tools.free_ports import free_port
from tidelog.tools.zookeeper_server import (
    Member,
    ServerSettings,
    ZooKeeperMissing,
    ZooKeeperServer,
    must_find_jars,
    must_find_java,
)

JVM_PROPERTIES = {"zookeeper.forceSync": "no"}
START_TIMEOUT_S = 60.0
START_ATTEMPTS = 3

_chroot_numbers = itertools.count()


def require_zookeeper() -> None:
    """Skips the test where no server can run."""
    try:
        must_find_java()
        must_find_jars()
    except ZooKeeperMissing as reason:
        pytest.skip(str(reason))


def fresh_chroot(name: str = "t") -> str:
    """A path that no other test, process or run uses."""
    return f"/{name}-{os.getpid()}-{next(_chroot_numbers)}"


@contextmanager
def zookeeper_client(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(START_TIMEOUT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class ZooKeeperProcess(ZooKeeperServer):
    """A server on a free port, which it keeps over restarts."""

    def __init__(
        self, directory: Path, *, number: int = 1, members: tuple[Member, ...] = ()
    ) -> None:
        super().__init__(
            ServerSettings(
                directory=directory,
                port=free_port(),
                number=number,
                members=members,
                properties=JVM_PROPERTIES,
            )
        )

    @property
    def port(self) -> int:
        return self.settings.port

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> ZooKeeperProcess:
        self.spawn()
        self.wait_until_ready(START_TIMEOUT_S)
        return self

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        self.signal(signal.SIGSTOP)
        eventually(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def __enter__(self) -> ZooKeeperProcess:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


def start_fresh(directory: Path) -> ZooKeeperProcess:
    """Another port if somebody took the free one in the meantime."""
    for attempt in range(START_ATTEMPTS):
        process = ZooKeeperProcess(directory / f"zookeeper-{attempt}")
        try:
            return process.start()
        except StartupError:
            process.kill()
    raise AssertionError(f"no ZooKeeper in {START_ATTEMPTS} attempts")


class ZooKeeperEnsemble:
    """Three servers on this machine; any two of them serve."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        members = tuple(Member(number, free_port(), free_port()) for number in range(1, size + 1))
        self.servers = [
            ZooKeeperProcess(directory / f"server-{m.number}", number=m.number, members=members)
            for m in members
        ]

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.wait_until_ready(START_TIMEOUT_S)
        return self

    def leader(self) -> ZooKeeperProcess:
        """Waits for one, where there is none."""
        found: list[ZooKeeperProcess] = []

        def one_leads() -> bool:
            found[:] = [s for s in self.servers if s.is_alive() and s.mode() == "leader"]
            return bool(found)

        eventually(one_leads)
        return found[0]

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


StartZooKeeper = Callable[[], ZooKeeperProcess]


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    require_zookeeper()
    server = start_fresh(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.kill()


@pytest.fixture
def start_zookeeper(tmp_path: Path) -> Iterator[StartZooKeeper]:
    require_zookeeper()
    started: list[ZooKeeperProcess] = []

    def start() -> ZooKeeperProcess:
        started.append(start_fresh(tmp_path / f"zk{len(started)}"))
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def start_ensemble(tmp_path: Path) -> Iterator[Callable[[], ZooKeeperEnsemble]]:
    require_zookeeper()
    started: list[ZooKeeperEnsemble] = []

    def start() -> ZooKeeperEnsemble:
        started.append(ZooKeeperEnsemble(tmp_path / f"ensemble{len(started)}"))
        return started[-1].start()

    yield start
    for ensemble in started:
        ensemble.kill()
