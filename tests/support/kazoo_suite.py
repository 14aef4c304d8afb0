"""A plug-in of pytest that runs kazoo's own tests against `tidelog zookeeper`.

    python -m pytest -p tests.support.kazoo_suite --pyargs kazoo.tests.test_client

kazoo's wheel holds its tests. They start ZooKeeper through `kazoo.testing.common`, which this
module replaces, so neither Java nor the packages that kazoo needs for certificates have to be
there. Its cluster has one server.

CANNOT_PASS names the tests that fail for what `tidelog zookeeper` does not have. They are expected
to fail: one that passes makes the run fail, so the list stays true.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess

VERSION: Final = "3.6.0"  # what the tests take the server for; they ask for 3.5 or above

THREE_SERVERS: Final = "stops servers of three, and there is one"
RECONFIG: Final = "changes the members of an ensemble, and there is none"
CANNOT_PASS: Final = {
    "TestClient::test_update_host_list": THREE_SERVERS,
    "TestReadOnlyMode::test_read_only": THREE_SERVERS,
    "TestReconfig::test_add_remove_observer": RECONFIG,
    "TestReconfig::test_bad_input": RECONFIG,
    "TestReconfig::test_no_super_auth": RECONFIG,
    "TestSSLClient::test_create": "connects over TLS, which is not served",
}


class OneServer:
    """What kazoo's tests do to a ZooKeeper server."""

    secure_address = "no TLS"

    def __init__(self, directory: Path) -> None:
        self._process = EmbeddedZooKeeperProcess(directory)

    @property
    def address(self) -> str:
        return self._process.address

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def run(self) -> None:
        if not self.running:
            self._process.start()

    def stop(self) -> None:
        if self.running:
            self._process.stop()
            assert "Traceback" not in self._process.log_text()


class OneServerCluster:
    """Stands in for `ZookeeperCluster`; takes its arguments and needs none of them."""

    def __init__(self, **_: object) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="kazoo-suite-"))
        self._server = OneServer(self._directory / "zookeeper")

    def __getitem__(self, number: int) -> OneServer:
        return [self._server][number]  # kazoo's tests name servers that are not here

    def __iter__(self) -> Iterator[OneServer]:
        return iter([self._server])

    def start(self) -> None:
        self._server.run()

    def stop(self) -> None:
        self._server.stop()

    def terminate(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def get_logs(self) -> list[str]:
        return []

    def get_ssl_client_configuration(self) -> dict[str, object]:
        raise NotImplementedError("tidelog zookeeper has no TLS")


def stand_in(name: str, **members: object) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


def count_objects(type_name: str) -> int:
    """`count` of the package objgraph."""
    return sum(type(found).__name__ == type_name for found in gc.get_objects())


def pytest_configure() -> None:
    os.environ["ZOOKEEPER_VERSION"] = VERSION
    stand_in("kazoo.testing.common", ZookeeperCluster=OneServerCluster)
    stand_in("objgraph", count=count_objects)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid.partition("::")[2]
        if name in CANNOT_PASS:
            item.add_marker(pytest.mark.xfail(reason=CANNOT_PASS[name], strict=True))
