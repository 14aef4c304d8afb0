"""Apache Kafka 4 tells the stories of consumer groups (tests/scenarios) as tidelog does.

The same commands go to Kafka and to the coordinator in memory; all answers must be equal. Stories
in which a clock moves by much or a request waits for another are left out, and so is what a command
shows of the inside.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.maven import NEWEST_KAFKA_VERSION, jars_or_reason
from bench.peers import ApacheKafka, BrokerProcess
from tests.support.consumer_scenario import GROUP, ConsumerScenario, Options
from tests.support.remote_groups import SETTLE_S, RemoteBroker, RemoteGroups, RemoteTopics

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".bench"
STORIES = (
    "first_members",
    "refusals",
    "epochs",
    "static",
    "subscriptions",
    "patterns",
    "policy",
    "static_downgrade",
)
# One assignment is not held back for the next: a story has no time.
SETTINGS = {"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0"}


class QuietScenario(ConsumerScenario):
    """Only what members are told."""

    def _show(self, words: list[str], options: Options) -> None:
        pass

    def _restart(self, words: list[str], options: Options) -> None:
        pass


class WireScenario(QuietScenario):
    def __init__(self, broker: RemoteBroker, text: str) -> None:
        head, _, self._body = text.partition("\n\n")
        self._head = head
        self.topics = cast(Any, RemoteTopics(broker))
        groups = RemoteGroups(broker)
        groups.find(GROUP)
        self.stage = cast(Any, SimpleNamespace(groups=groups, clock=SimpleNamespace(time_ms=int)))
        self.clients = {}
        self.said = []

    def _advance(self, words: list[str], options: Options) -> None:
        time.sleep(SETTLE_S + int(words[0]) / 1000)


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    CACHE.mkdir(exist_ok=True)
    libs = jars_or_reason(CACHE, NEWEST_KAFKA_VERSION)
    if isinstance(libs, str):
        pytest.skip(f"Apache Kafka is not here: {libs}")
    return ApacheKafka(libs, CACHE)


@pytest.mark.parametrize("story", STORIES)
def test_kafka_tells_the_same_story(kafka: ApacheKafka, tmp_path: Path, story: str) -> None:
    text = (REPOSITORY / "tests" / "scenarios" / f"consumer_group_{story}.txt").read_text()
    settings = dict(re.findall(r"(group\S+)=(\S+)", text.partition("\n\n")[0]))
    broker = BrokerProcess(kafka, tmp_path / "kafka", {**SETTINGS, **settings})
    (tmp_path / "tidelog").mkdir()
    try:
        broker.start()
        theirs = WireScenario(RemoteBroker(f"127.0.0.1:{broker.port}"), text).run()
    finally:
        broker.discard()
    assert QuietScenario(tmp_path / "tidelog", text).run() == theirs
