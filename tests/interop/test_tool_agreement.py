"""`tidelog kafka NAME` prints what Kafka 3.9's own tool prints, for the same flags.

Both ask the same broker. What a tool changes, each changes in a topic of its own: the commands come
in stories, and every story is told twice, with other names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.maven import KAFKA_VERSION, jars_or_reason
from tests.interop.apache_kafka import CACHE, TOOL_TIMEOUT_S
from tests.support.broker_process import BrokerProcess
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce

JAVA = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
VOLATILE = (
    (re.compile(r"TopicId: \S+"), "TopicId: ID"),
    (re.compile(r"CreateTime:\d+"), "CreateTime:N"),
    # Error codes travel without words, and our words are our own.
    (re.compile(r"(errors\.\w+Exception): .*"), r"\1"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
    (re.compile(r"^\s*at .*$|^\tat .*$", re.MULTILINE), ""),
)
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


class Said(NamedTuple):
    exit_code: int
    lines: list[str]


class Teller:
    """Runs one of the two tools, with its own names for {topic} and {group}."""

    def __init__(self, name: str, bootstrap: str, folder: Path, libs: Path | None) -> None:
        self.topic = f"{name}-topic"
        self.group = f"{name}-group"
        self._bootstrap = bootstrap
        self._folder = folder
        self._libs = libs

    def tells(self, command: str, stdin: str = "") -> Said:
        tool, *arguments = [
            word.format(topic=self.topic, group=self.group, folder=self._folder)
            for word in command.split()
        ]
        if self._libs is None:
            program = [sys.executable, "-m", "tidelog", "kafka", tool]
        else:
            program = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{self._libs}/*"]
            program.append(JAVA[tool])
        done = subprocess.run(
            [*program, "--bootstrap-server", self._bootstrap, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        return Said(done.returncode, self._plain(done.stdout))

    def _plain(self, text: str) -> list[str]:
        text = text.replace(self.topic, "TOPIC").replace(self.group, "GROUP")
        for pattern, word in VOLATILE:
            text = pattern.sub(word, text)
        return [_sorted_json(line) for line in text.splitlines() if line.strip()]


def _sorted_json(line: str) -> str:
    """Kafka's maps have no order."""
    if not line.startswith("{"):
        return line
    data = json.loads(line)
    for broker in data.get("brokers", ()):
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda row: row["partition"])
    if "partitions" in data:
        data["partitions"].sort(key=lambda row: (row["topic"], row["partition"]))
    return json.dumps(data, sort_keys=True)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def libs() -> Path:
    CACHE.mkdir(exist_ok=True)
    found = jars_or_reason(CACHE, KAFKA_VERSION)
    if isinstance(found, str):
        pytest.skip(found)
    return found


_stories = iter(range(1_000))


@pytest.fixture
def tellers(broker: BrokerProcess, libs: Path, tmp_path: Path) -> tuple[Teller, Teller]:
    """Theirs and ours; both have a topic of 3 partitions with 4 records in each."""
    number = next(_stories)
    found = []
    for name, jars in (("java", libs), ("here", None)):
        folder = tmp_path / name
        folder.mkdir()
        # Names of the same length: tables are padded to their widest cell.
        teller = Teller(f"{name}{number:03d}", broker.bootstrap, folder, jars)
        found.append(teller)
        with RawClient(broker.bootstrap) as client:
            create_topic(client, teller.topic, 3)
            for partition in range(3):
                produce(client, teller.topic, batch(*[b"v"] * 4), partition)
        rows = [{"topic": teller.topic, "partition": 0, "offset": 2}]
        (folder / "delete.json").write_text(json.dumps({"partitions": rows, "version": 1}))
        moves = [{"topic": teller.topic, "partition": 1, "replicas": [0]}]
        (folder / "moves.json").write_text(json.dumps({"partitions": moves, "version": 1}))
        topics = [{"topic": teller.topic}]
        (folder / "topics.json").write_text(json.dumps({"topics": topics, "version": 1}))
    return found[0], found[1]


GROUP = "consumer-groups --group {group}"
RESET = f"{GROUP} --topic {{topic}} --reset-offsets --execute"
TOPIC = "configs --entity-type topics --entity-name {topic}"
PAIR = (
    "configs --entity-type users --entity-name {group} --entity-type clients --entity-name {topic}"
)
PRINT = (
    "console-consumer --topic {topic} --from-beginning --property print.key=true "
    "--property print.partition=true --property print.offset=true --property print.headers=true "
    "--property print.timestamp=true"
)
STORIES = {
    "topics": [
        "topics --create --topic {topic}x --partitions 2 --config retention.ms=1000",
        "topics --create --topic {topic}x",
        "topics --create --topic {topic}x --if-not-exists",
        "topics --create --topic {topic}y --partitions 0",
        "topics --list --topic {topic}.?",
        "topics --describe --topic {topic}x",
        "topics --describe --topic {topic}x --topics-with-overrides",
        "topics --describe --topic {topic} --under-replicated-partitions",
        "topics --describe --topic {topic} --at-min-isr-partitions",
        "topics --alter --topic {topic}x --partitions 3",
        "topics --alter --topic {topic}x --partitions 1",
        "topics --delete --topic {topic}x",
        "topics --delete --topic {topic}x --if-exists",
        "topics --list --exclude-internal --topic {topic}x",
        "topics --list --describe",
        "topics --alter --topic {topic}",
    ],
    "configs": [
        f"{TOPIC} --describe",
        f"{TOPIC} --alter --add-config cleanup.policy=[compact,delete],segment.bytes=2000000",
        f"{TOPIC} --describe",
        f"{TOPIC} --alter --delete-config segment.bytes",
        f"{TOPIC} --alter --delete-config segment.bytes",
        "configs --describe --topic {topic}",
        "configs --describe --entity-type nonsense",
        "configs --alter --topic {topic} --add-config retention.ms",
        "configs --describe --broker-defaults",
        "configs --describe --entity-type brokers --entity-name zero",
    ],
    "quotas": [
        f"{PAIR} --describe",
        f"{PAIR} --alter --add-config producer_byte_rate=10485760,request_percentage=12.5",
        f"{PAIR} --describe",
        f"{PAIR} --alter --delete-config request_percentage",
        f"{PAIR} --alter --delete-config request_percentage",
        f"{PAIR} --alter --add-config nonsense=1",
        f"{PAIR} --describe",
        "configs --alter --client {topic} --add-config consumer_byte_rate=1000",
        "configs --describe --client {topic}",
        "configs --alter --client {topic} --add-config consumer_byte_rate=1.5",
        "configs --alter --client {topic} --add-config consumer_byte_rate=fast",
        "configs --alter --user {group} --add-config controller_mutation_rate=0.0001",
        "configs --describe --user {group}",
        "configs --alter --user {group} "
        "--add-config producer_byte_rate=1,SCRAM-SHA-256=[password=p]",
        "configs --alter --client-defaults --add-config request_percentage=200",
        "configs --describe --client-defaults",
        "configs --alter --ip 127.0.0.1 --add-config connection_creation_rate=1000",
        "configs --describe --ip 127.0.0.1",
        "configs --alter --ip 127.0.0.1 --add-config producer_byte_rate=1",
        "configs --describe --entity-type ips",
    ],
    "offsets": [
        "get-offsets --topic {topic}",
        "get-offsets --topic {topic} --time earliest",
        "get-offsets --topic {topic} --partitions 0,2 --time -1",
        "get-offsets --topic-partitions {topic}:1-",
        "get-offsets --topic {topic} --time 99999999999999",
        "get-offsets --topic nothing-of-this-name",
        "get-offsets --topic {topic} --time soon",
        "delete-records --offset-json-file {folder}/delete.json",
        "get-offsets --topic {topic} --time -2",
    ],
    "groups": [
        f"{GROUP} --describe",
        f"{RESET} --to-offset 3",
        f"{GROUP} --describe",
        f"{GROUP} --describe --state",
        f"{GROUP} --describe --members --verbose",
        f"{GROUP} --topic {{topic}}:1 --delete-offsets",
        f"{GROUP} --describe --offsets",
        f"{GROUP} --all-topics --reset-offsets --to-latest --export --dry-run",
        f"{GROUP} --delete",
        f"{GROUP} --delete",
        "consumer-groups --list --describe",
        "consumer-groups --list --state Nonsense",
    ],
    "partitions": [
        "leader-election --election-type preferred --topic {topic} --partition 1",
        "leader-election --election-type preferred --topic {topic}",
        "leader-election --election-type unclean --topic {topic} --partition 9",
        "reassign-partitions --list",
        "reassign-partitions --generate --broker-list 0 "
        "--topics-to-move-json-file {folder}/topics.json",
        "reassign-partitions --execute --reassignment-json-file {folder}/moves.json",
        "reassign-partitions --verify --reassignment-json-file {folder}/moves.json",
        "reassign-partitions --cancel --reassignment-json-file {folder}/moves.json",
        "reassign-partitions --verify",
        "log-dirs --describe --topic-list {topic}",
        "log-dirs --describe --broker-list 7",
    ],
    "transactions": [
        "transactions list",
        "transactions describe-producers --topic {topic} --partition 0",
        "transactions find-hanging --topic {topic}",
        "transactions describe --transactional-id nobody",
    ],
    "console": [
        f"{PRINT} --max-messages 12",
        "console-consumer --topic {topic} --partition 1 --offset 2 --max-messages 2",
        "console-consumer --topic {topic} --partition 1 --offset 2 --timeout-ms 2000",
        "console-consumer --topic {topic} --offset 2",
    ],
}
# Kafka 3.9 forgets ends of lines here, or has no order.
SHUFFLED = (
    "--entity-type clients --entity-name {topic} --describe",
    "--reset-offsets",
    "--delete-offsets",
    "--cancel",
    "--max-messages 12",
)


# Kafka prints these rows in the order of a hash map, which changes with the topic's name.
ROWS_IN_ANY_ORDER = (f"{GROUP} --describe",)


def shuffled(said: Said) -> tuple[int, list[str]]:
    return said.exit_code, sorted("".join(said.lines).replace(" ", ""))


def compared_by(command: str) -> Callable[[Said], object]:
    """What of a tool's words must be equal for this command."""
    if any(flag in command for flag in SHUFFLED):
        return shuffled
    if command.startswith(ROWS_IN_ANY_ORDER):
        return lambda said: (said.exit_code, sorted(said.lines))
    return lambda said: said


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_both_tools_say_the_same(tellers: tuple[Teller, Teller], story: list[str]) -> None:
    theirs, ours = tellers
    different = []
    for command in story:
        expected, found = theirs.tells(command), ours.tells(command)
        words = compared_by(command)
        if words(expected) != words(found):
            different.append((command, expected, found))
    assert different == []


def test_both_console_producers_write_the_same_records(tellers: tuple[Teller, Teller]) -> None:
    theirs, ours = tellers
    lines = "h1:1,h2:2|k:value\nh1:1|k:NULL\n"
    command = (
        "console-producer --topic {topic} --property parse.key=true --property key.separator=: "
        "--property parse.headers=true --property headers.delimiter=| --property null.marker=NULL"
    )
    read = f"{PRINT} --max-messages 14"
    assert theirs.tells(command, lines).exit_code == 0
    assert ours.tells(command, lines).exit_code == 0
    assert shuffled(ours.tells(read)) == shuffled(theirs.tells(read))
