"""The jars of Apache Kafka: fetched once from Maven Central by mvn into .bench/, never committed.

jars_or_reason() gives the folder, or one sentence saying why this machine has none; the benchmark
prints it and goes on with tidelog alone.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "3.9.2"
NEWEST_KAFKA_VERSION = "4.3.1"
OLDEST_KAFKA_VERSION = "0.10.2.2"
ZOOKEEPER_KAFKA_VERSION = "2.8.2"  # the newest 2.x, which still comes with a ZooKeeper to run
FETCH_TIMEOUT_S = 600


def artifacts(version: str) -> list[tuple[str, str, str]]:
    if version.startswith("0."):
        # of that age, with its ZooKeeper, and a class that Java had until 10
        return [
            ("org.apache.kafka", "kafka_2.12", version),
            ("javax.xml.bind", "jaxb-api", "2.3.1"),
        ]
    if version.startswith("2."):
        return [
            ("org.apache.kafka", "kafka_2.13", version),
            ("org.slf4j", "slf4j-log4j12", "1.7.30"),
        ]
    kafka = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")]
    # from 4.0 on Kafka brings a logger of its own
    logger = [("org.slf4j", "slf4j-reload4j", "1.7.36")] if version.startswith("3.") else []
    return kafka + logger


def pom(version: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts(version)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def jars_or_reason(cache: Path, version: str = KAFKA_VERSION) -> Path | str:
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH"
    home = cache / f"kafka-{version}"
    libs, complete = home / "libs", home / "complete"
    if complete.exists():
        return libs
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(pom(version))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    try:
        done = subprocess.run(
            command, cwd=home, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"mvn did not finish within {FETCH_TIMEOUT_S} s"
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        return f"mvn could not fetch Apache Kafka: {said[0] if said else 'no output'}"
    complete.touch()
    return libs
