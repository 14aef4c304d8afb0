"""One Spark session for all tests of this folder, on the machine itself: two cores, and a task that
fails is tried once more.

Without pyspark, pyarrow or Java the tests are skipped with the reason. Under xdist they stay
together in one process (`tests/support/worker_groups.py`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.spark_topics import SparkTopics

FOLDER = Path(__file__).parent
ATTEMPTS = 3
# They start many queries or Sparks of their own, and take longer than the rest of the suite.
LONG = (
    "test_examples.py",
    "test_exported_projects.py",
    "test_pipeline_changes.py",
    "test_pipeline_secrets.py",
    "test_record_formats.py",
    "test_a_secured_pipeline",
    "test_the_declarative_program",
    "are_killed[rows by tasks]",
    "test_a_sink_without_a_marker_is_found_out",
)
# Spark waits 10 s for a Python process to start, and no setting changes that.
SPARK_GAVE_UP = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")


def missing() -> str | None:
    """Why Spark cannot run here."""
    for name in ("pyspark", "pyarrow"):
        try:
            __import__(name)
        except ImportError:
            return f"{name} is not installed: pip install tidelog[spark]"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Spark needs Java 17 or later; there is no java on the PATH"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    with_long = "TIDELOG_LONG_SPARK" in os.environ
    for item in items:
        if FOLDER in item.path.parents:
            if not with_long and any(part in item.nodeid for part in LONG):
                item.add_marker(pytest.mark.skip(reason="takes long: `make spark` runs it"))
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(900))
            for ignored in ("ResourceWarning", "DeprecationWarning", "FutureWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test again if it failed because Spark gave up on a process that was slow to start."""
    if FOLDER not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(ATTEMPTS):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(spark_gave_up(report) for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def spark_gave_up(report: pytest.TestReport) -> bool:
    return report.failed and any(text in report.longreprtext for text in SPARK_GAVE_UP)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2,2]")
        .appName("tidelog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def topics(broker: Any) -> SparkTopics:
    from tests.support.spark_topics import SparkTopics

    return SparkTopics(broker.bootstrap)
