"""The newcomer's path: a fresh virtual environment, `pip install`, the lines of docs/spark.md.

The lines are taken from the document as they stand, only the port is another; the same against
tidelog and against Apache Kafka 3.9 and 4.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION, jars_or_reason
from bench.peers import ApacheKafka, BrokerProcess, Peer, Tidelog
from tests.integration.spark.conftest import missing
from tests.support.eventually import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".bench"
INSTALL_TIMEOUT_S = 600
ANSWER_TIMEOUT_S = 120.0
# The first test also waits for the installation.
pytestmark = pytest.mark.timeout(INSTALL_TIMEOUT_S + 3 * ANSWER_TIMEOUT_S)
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but tidelog and what it asks for."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("newcomer")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=60)
    install = [str(home / "bin" / "pip"), "install", "-q", f"{REPOSITORY}[spark]"]
    subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_S)
    return home / "bin"


def peer(name: str, environment: Path) -> Peer:
    if name == "tidelog":
        return Tidelog(environment / "tidelog")
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, name)
    if isinstance(libs, str):
        pytest.skip(f"Apache Kafka {name} is not here: {libs}")
    return ApacheKafka(libs, CACHE)


@contextmanager
def running(kind: Peer, data: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(kind, data, {})
    try:
        broker.start()
        yield broker
    finally:
        broker.discard()


@contextmanager
def program_running(text: str, environment: Path, folder: Path) -> Iterator[Path]:
    """The file that the program prints to. The environment is activated, as the document says."""
    program, output = folder / "program.py", folder / "output.txt"
    program.write_text(text)
    path = f"{environment}{os.pathsep}{os.environ['PATH']}"
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [str(environment / "python"), str(program)],
            cwd=folder,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
    try:
        yield output
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["tidelog", KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def test_the_documented_lines_stream_a_topic_in_a_fresh_environment(
    name: str, environment: Path, tmp_path: Path
) -> None:
    write, read = PROGRAM.findall((REPOSITORY / "docs" / "spark.md").read_text())[:2]
    with running(peer(name, environment), tmp_path / "data") as broker:
        text = (write + read).replace("127.0.0.1:9092", f"127.0.0.1:{broker.port}")
        with program_running(text, environment, tmp_path) as output:
            eventually(lambda: "Batch: 0" in output.read_text(), ANSWER_TIMEOUT_S)
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
            producer.produce("orders", b"the first order")
            assert producer.flush(30) == 0
            eventually(lambda: "the first order" in output.read_text(), ANSWER_TIMEOUT_S)
