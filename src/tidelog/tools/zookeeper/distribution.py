"""Where a ZooKeeper server comes from: Java, and five jars out of the pyspark wheel.

Spark carries ZooKeeper for its own use, so a machine that has pyspark needs no download. The five
jars are necessary and sufficient for a server without TLS. There is no logging backend among them:
the server starts in a third of the time and says nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidelog.errors import StartupError
from tidelog.pipeline.spark_session import java_command

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
