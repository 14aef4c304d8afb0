"""Spark and pipelines on a broker that asks for TLS and a login and lets in whom it was told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.spark.conftest import missing
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.sasl_broker import SaslBroker, running_sasl_broker
from tests.support.spark_queries import TIMEOUT_S, batch, numbers, stream
from tests.support.spark_topics import SparkTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRESS_TOPIC = "_tidelog_spark_progress"
MECHANISM = "SCRAM-SHA-256"
DECLARATION = """\
[pipeline]
name = "{name}"
bootstrap = "{bootstrap}"
trigger = "available-now"

[kafka]
{kafka}
"sasl.jaas.config" = "${{file:{login}}}"

[spark]
master = "local[2]"
"spark.sql.shuffle.partitions" = 1

[source.visits]
topic = "{topic}"
format = "raw"

[sink.copy]
from = "visits"
topic = "{topic}-copy"
format = "raw"
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """Its plain listener is the tests' own, for what they prepare and look at."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    allowed = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    directory = tmp_path_factory.mktemp("broker")
    with running_sasl_broker(directory, allowed, authority=authority) as started:
        yield started


@pytest.fixture
def topics(broker: SaslBroker) -> SparkTopics:
    return SparkTopics(broker.plain_bootstrap)


@pytest.fixture
def login(broker: SaslBroker, tmp_path: Path) -> Path:
    path = tmp_path / "login"
    path.write_text(broker.config(MECHANISM)["sasl.jaas.config"])
    return path


def options(broker: SaslBroker, login: Path) -> dict[str, str]:
    keys = {**broker.connection_keys(), "sasl.mechanism": MECHANISM}
    keys["sasl.jaas.config"] = f"${{file:{login}}}"
    return {f"kafka.{name}": value for name, value in keys.items()}


def allow_queries_on(topics: SparkTopics, topic: str) -> None:
    """For alice: topics that begin so, and what `docs/spark.md` says that exactly once needs."""
    from tidelog.client import AclBinding, AclOperation, Admin, PatternType, ResourceType

    bindings = [
        AclBinding(kind, name, "User:alice", operation, pattern_type=pattern)
        for kind, name, pattern, operations in (
            (ResourceType.TOPIC, topic, PatternType.PREFIXED, "READ WRITE"),
            (ResourceType.TOPIC, PROGRESS_TOPIC, PatternType.LITERAL, "READ WRITE CREATE"),
            (ResourceType.TRANSACTIONAL_ID, "tidelog-spark-", PatternType.PREFIXED, "WRITE"),
        )
        for operation in map(AclOperation.__getitem__, operations.split())
    ]
    with Admin({"bootstrap.servers": topics.bootstrap}) as admin:
        for result in admin.create_acls(bindings).values():
            result.get()


def test_a_stream_reads_and_writes_exactly_once(
    spark: SparkSession,
    broker: SaslBroker,
    topics: SparkTopics,
    login: Path,
    topic_name: str,
    tmp_path: Path,
) -> None:
    copied = f"{topic_name}-copy"
    for topic in (topic_name, copied):
        topics.create(topic, 2)
    topics.fill(topic_name, range(200), 2)
    secured = options(broker, login)

    def run() -> Any:
        frame = stream(spark, None, subscribe=topic_name, startingOffsets="earliest", **secured)
        writer = frame.writeStream.format("tidelog").options(**secured)
        query = (
            writer.option("topic", copied)
            .option("deliveryGuarantee", "exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    with pytest.raises(Exception, match="AUTHORIZATION_FAILED"):
        run()
    allow_queries_on(topics, topic_name)
    eventually(lambda: run() is None)
    committed = {"kafka__isolation__level": "read_committed", **secured}
    eventually(
        lambda: numbers(batch(spark, None, subscribe=copied, **committed)) == list(range(200)), 60
    )
    password = login.read_text().encode()
    assert not [
        path
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file() and password in path.read_bytes()
    ]


def test_a_secured_pipeline(
    broker: SaslBroker, topics: SparkTopics, login: Path, topic_name: str, tmp_path: Path
) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    for topic in (topic_name, f"{topic_name}-copy"):
        topics.create(topic)
    topics.fill(topic_name, range(30))
    allow_queries_on(topics, topic_name)
    keys = {**broker.connection_keys(), "sasl.mechanism": MECHANISM}
    bootstrap = keys.pop("bootstrap.servers")
    (tmp_path / "pipeline.toml").write_text(
        DECLARATION.format(
            name=f"{topic_name}-pipeline",
            bootstrap=bootstrap,
            kafka="\n".join(f'"{name}" = "{value}"' for name, value in keys.items()),
            login=login,
            topic=topic_name,
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "pipeline", "run", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended: 30 rows written" in done.stdout + done.stderr
