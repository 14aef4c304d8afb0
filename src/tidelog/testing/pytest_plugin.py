"""Fixtures for pytest, there for everybody who has installed tidelog.

    tidelog          a broker for all tests of this process, and fresh topics for each test
    tidelog_broker   a broker for this test alone
    tidelog_cluster  three brokers for this test alone
    tidelog_session  the broker of `tidelog` itself, for fixtures whose scope is larger than a test
    kafka_server     the address of the first one, "127.0.0.1:PORT"

Options of the broker: the marker @pytest.mark.tidelog(**config) for one test (which then has a
broker of its own, under each of the names; in tidelog_cluster all brokers get them), with
underscores for dots, and the ini key tidelog_config, a line KEY=VALUE each, for all.
`tidelog_in_process = true` runs brokers on a thread of the tests' process, but not those of a
cluster.

What a broker logs is shown with a test that fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tidelog.testing.broker import Broker
    from tidelog.testing.cluster import Cluster
    from tidelog.testing.topic import Topic

MARKER: Final = "tidelog"
LOG_LINES_SHOWN: Final = 100
BROKERS: Final = pytest.StashKey["list[tuple[Broker, int]]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("tidelog_config", "KEY=VALUE of server.properties, for all brokers", "linelist")
    parser.addini("tidelog_in_process", "run brokers on a thread of the tests' process", "bool")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**config): a broker for this test alone, with keys of server.properties "
        "(underscores for dots)",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed:
        for broker, position in item.stash.get(BROKERS, []):
            lines = broker.log_text()[position:].splitlines()
            if lines:
                shown = "\n".join(lines[-LOG_LINES_SHOWN:])
                report.sections.append((f"log of tidelog at {broker.bootstrap_servers}", shown))


class TestBroker:
    """The broker as one test has it. What the broker can, this can; topics are new ones."""

    __test__ = False

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.broker = broker
        self._prefix = prefix
        self._numbers = count(1)

    def topic(
        self, name: str = "topic", partitions: int = 1, replicas: int | None = None, **configs: str
    ) -> Topic:
        """A new one, whose name begins with the one that is given."""
        unique = f"{name}-{self._prefix}-{next(self._numbers)}"
        return self.broker.create_topic(unique, partitions, replicas, **configs)

    def group(self, name: str = "group") -> str:
        """The name of a group that nobody has used."""
        return f"{name}-{self._prefix}-{next(self._numbers)}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)


def _ini_config(config: pytest.Config) -> dict[str, str]:
    lines: list[str] = config.getini("tidelog_config")
    pairs = [line.partition("=") for line in lines]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise pytest.UsageError(f"tidelog_config: not KEY=VALUE: {wrong[0]}")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _new_broker(config: pytest.Config, more: Mapping[str, str]) -> Broker:
    from tidelog.testing.broker import Broker  # every pytest of this environment loads the plug-in

    in_process: bool = config.getini("tidelog_in_process")
    return Broker({**_ini_config(config), **more}, in_process=in_process)


def _marked_config(node: pytest.Item) -> dict[str, str] | None:
    """Of all its markers; where they differ, the closest one decides."""
    markers = list(node.iter_markers(MARKER))
    if not markers:
        return None
    found: dict[str, str] = {}
    for marker in reversed(markers):
        if marker.args:
            raise pytest.UsageError(
                f"@pytest.mark.{MARKER} takes keywords, not {marker.args[0]!r}: "
                "num_partitions=3, or **{'num.partitions': 3}"
            )
        found.update((_key(name), str(value)) for name, value in marker.kwargs.items())
    return found


def _key(name: str) -> str:
    """Underscores are dots, but not in a name that has its dots: listener.name.sasl_ssl."""
    return name if "." in name else name.replace("_", ".")


def _shown_if_it_fails(node: pytest.Item, broker: Broker) -> None:
    node.stash.setdefault(BROKERS, []).append((broker, len(broker.log_text())))


@pytest.fixture(scope="session")
def _tidelog_session_broker(pytestconfig: pytest.Config) -> Iterator[list[Broker]]:
    """Started with the first test that needs it, so that none is where all have their own."""
    brokers: list[Broker] = []
    yield brokers
    for broker in brokers:
        broker.close()


@pytest.fixture
def tidelog(
    request: pytest.FixtureRequest, _tidelog_session_broker: list[Broker]
) -> Iterator[TestBroker]:
    node, marked = request.node, _marked_config(request.node)
    if marked is not None:
        own: Broker = request.getfixturevalue("tidelog_broker")
        yield TestBroker(own, "own")
        return
    broker = _started(_tidelog_session_broker, request.config)
    _shown_if_it_fails(node, broker)
    name = re.sub(r"[^\w.-]", "-", node.name, flags=re.ASCII)[:80]
    yield TestBroker(broker, f"{name}-{next(_TESTS)}")
    if broker.is_running:
        broker.resume()
        broker.heal()


_TESTS: Final = count(1)


def _started(brokers: list[Broker], config: pytest.Config) -> Broker:
    if not brokers:
        brokers.append(_new_broker(config, {}).start())
    (broker,) = brokers
    if not broker.is_running:
        broker.start()  # a test before this one has killed it
    return broker


@pytest.fixture(scope="session")
def tidelog_session(pytestconfig: pytest.Config, _tidelog_session_broker: list[Broker]) -> Broker:
    return _started(_tidelog_session_broker, pytestconfig)


@pytest.fixture
def tidelog_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with _new_broker(request.config, _marked_config(request.node) or {}) as broker:
        _shown_if_it_fails(request.node, broker)
        yield broker


@pytest.fixture
def tidelog_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    from tidelog.testing.cluster import Cluster

    config = {**_ini_config(request.config), **(_marked_config(request.node) or {})}
    with Cluster(3, config) as cluster:
        for broker in cluster.brokers:
            _shown_if_it_fails(request.node, broker)
        yield cluster


@pytest.fixture
def kafka_server(tidelog: TestBroker) -> str:
    return tidelog.broker.bootstrap_servers
