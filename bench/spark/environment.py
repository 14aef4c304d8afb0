"""Where the Spark workload runs: pyspark 4.2.0 in a virtual environment of its own, and the jars of
Spark's own Kafka connector for it. Both are fetched once into .bench/, never committed.

4.2.0 is the newest pyspark whose connector is published. Its pom names a repository that cannot be
relied on, so each jar is fetched alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYSPARK_VERSION = "4.2.0"
PACKAGES = (
    f"pyspark=={PYSPARK_VERSION}",
    "pyarrow>=18",
    "pandas<3",
    "cramjam>=2.9",
    "lz4>=4.3",
    "zstandard>=0.23",
    "fastavro>=1.9",
    "protobuf>=5",
)
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{PYSPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
FETCH_TIMEOUT_S = 900


class Unavailable(Exception):
    """One sentence saying why."""


@dataclass(frozen=True, slots=True)
class SparkEnvironment:
    python: Path
    jars: tuple[Path, ...]  # empty where Spark's own connector could not be fetched
    remark: str


def prepare(cache: Path) -> SparkEnvironment:
    """tidelog itself is not installed there: the workload finds it in the tree.

    Raises Unavailable when not even pyspark can be had.
    """
    if shutil.which("java") is None:
        raise Unavailable("java is not on the PATH")
    home = cache / f"spark-{PYSPARK_VERSION}"
    python = _virtual_environment(home)
    try:
        return SparkEnvironment(python, _jars(home), "")
    except Unavailable as reason:
        return SparkEnvironment(python, (), f"tidelog alone, no ratios: {reason}")


def _virtual_environment(home: Path) -> Path:
    python = home / "venv" / "bin" / "python"
    complete = home / "venv" / "complete"
    if complete.exists():
        return python
    home.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(home / "venv")])
    _run([str(python), "-m", "pip", "install", "-q", *PACKAGES])
    complete.touch()
    return python


def _jars(home: Path) -> tuple[Path, ...]:
    folder = home / "jars"
    complete = home / "jars-complete"
    if not complete.exists():
        if shutil.which("mvn") is None:
            raise Unavailable("mvn is not on the PATH")
        for artifact in ARTIFACTS:
            get = ["dependency:get", "-Dtransitive=false", f"-Dartifact={artifact}"]
            copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
            _run(["mvn", "-q", "-B", *get])
            _run(["mvn", "-q", "-B", *copy])
        complete.touch()
    return tuple(sorted(folder.glob("*.jar")))


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not finish in {FETCH_TIMEOUT_S} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise Unavailable(f"{' '.join(command[:4])}: {said[-1] if said else 'no output'}")
