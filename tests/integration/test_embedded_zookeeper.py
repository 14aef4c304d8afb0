"""The store over `tidelog zookeeper`: the contract, and every fault that a real ZooKeeper of one
server is put through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.test_zookeeper_contract import TestZooKeeperStore as _Contract
from tests.integration.test_zookeeper_faults import (
    TestExpiredSession as _ExpiredSession,
)
from tests.integration.test_zookeeper_faults import (
    TestLostAnswer as _LostAnswer,
)
from tests.integration.test_zookeeper_faults import (
    TestLostConnection as _LostConnection,
)
from tests.integration.test_zookeeper_faults import (
    TestServers as _Servers,
)
from tests.integration.test_zookeeper_faults import (
    TestWatches as _Watches,
)
from tests.support.cuttable_link import CuttableLink
from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeperProcess]:
    with EmbeddedZooKeeperProcess(tmp_path_factory.mktemp("embedded") / "zookeeper") as server:
        yield server


@pytest.fixture
def start_zookeeper(tmp_path: Path) -> Iterator[Callable[[], EmbeddedZooKeeperProcess]]:
    started: list[EmbeddedZooKeeperProcess] = []

    def start() -> EmbeddedZooKeeperProcess:
        started.append(EmbeddedZooKeeperProcess(tmp_path / f"zk{len(started)}"))
        return started[-1].start()

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def link(zookeeper: EmbeddedZooKeeperProcess) -> Iterator[CuttableLink]:
    with CuttableLink(zookeeper.port) as link:
        yield link


@pytest.fixture
def chroot() -> str:
    return fresh_chroot()


class TestContract(_Contract):
    pass


class TestLostConnection(_LostConnection):
    pass


class TestLostAnswer(_LostAnswer):
    pass


class TestWatches(_Watches):
    pass


class TestExpiredSession(_ExpiredSession):
    pass


class TestServers(_Servers):
    # There is one server.
    test_an_ensemble_that_loses_its_leader_serves_the_same_session_on = None  # type: ignore[assignment]
    test_an_ensemble_whose_servers_are_killed_one_after_the_other_serves_it_too = None  # type: ignore[assignment]
