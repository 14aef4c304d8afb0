"""Fixtures shared by all tests: brokers to talk to and fresh topic names.

`broker` is one broker a test process (read-mostly and per-topic tests share it), `start_broker`
makes private ones; `zookeeper`, `start_zookeeper` and `start_ensemble` do the same for ZooKeeper.
All of them mark their tests as integration tests.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.broker_process import EXTERNAL_BOOTSTRAP, BrokerProcess
from tests.support.worker_groups import GroupScheduling

pytest_plugins = [
    "tests.support.compiled_modules",
    "tests.support.open_clients",
    "tests.support.zookeeper",
]
pytest.register_assert_rewrite("tests.support.metadata_store_contract")

if TYPE_CHECKING:
    from tests.support.raw_client import RawClient

# How long an example takes says how busy the machine is.
settings.register_profile("any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any pace")

THIRD_PARTY_WARNINGS = (
    "ignore:(read|open)_text is deprecated:DeprecationWarning",
    "ignore:unclosed.*socket.*raddr:ResourceWarning",
)

STARTING_FIXTURES = {"broker", "start_broker", "zookeeper", "start_zookeeper", "start_ensemble"}

StartBroker = Callable[..., BrokerProcess]


def pytest_configure(config: pytest.Config) -> None:
    for line in THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
    config.pluginmanager.register(PlainLogs(config))


class PlainLogs:
    """PySpark's loggers give every handler that they are handed a format of their own, and pytest
    hands them its handlers: from then on `caplog.text` of all tests would be JSON.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logstart(self) -> None:
        loggers = sys.modules.get("pyspark.logger.logger")
        if loggers is None:
            return
        loggers.PySparkLogger.addHandler = logging.Logger.addHandler
        plugin: Any = self._config.pluginmanager.get_plugin("logging-plugin")
        for handler in (plugin.caplog_handler, plugin.report_handler):
            handler.setFormatter(plugin.formatter)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if STARTING_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets logging up as for a process of its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@dataclass(frozen=True)
class SharedBroker:
    bootstrap: str
    process: BrokerProcess | None  # None when TIDELOG_TEST_BOOTSTRAP names a broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    if EXTERNAL_BOOTSTRAP:
        yield SharedBroker(EXTERNAL_BOOTSTRAP, None)
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield SharedBroker(process.bootstrap, process)
        assert process.is_alive(), process.log_text()[-4000:]
        assert not process.long_stalls()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers of this test's own: start_broker({"key": "value"}, name="b1")."""
    if EXTERNAL_BOOTSTRAP:
        pytest.skip("needs a broker of its own")
    started: list[BrokerProcess] = []

    def start(
        overrides: Mapping[str, str] | None = None, *, name: str = "broker", **options: object
    ) -> BrokerProcess:
        process = BrokerProcess(tmp_path / name, overrides, **options)  # type: ignore[arg-type]
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()
    assert not [stall for process in started for stall in process.long_stalls()]


@pytest.fixture
def bootstrap(broker: SharedBroker) -> str:
    return broker.bootstrap


_topic_numbers = itertools.count()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name no other test, process or run uses."""
    import uuid

    return f"t{next(_topic_numbers)}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client(bootstrap: str) -> Iterator[RawClient]:
    from tests.support.raw_client import RawClient

    with RawClient(bootstrap) as raw:
        yield raw


@pytest.fixture
def topic(client: RawClient, topic_name: str) -> str:
    """A fresh topic of one partition."""
    from tests.support.raw_client import create_topic

    create_topic(client, topic_name)
    return topic_name
