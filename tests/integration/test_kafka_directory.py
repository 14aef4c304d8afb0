"""Data directories that Apache Kafka wrote (tests/fixtures), served by tidelog."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.adoption_data import KRAFT, recorded, unpack
from tests.support.adoption_story import describe, read
from tests.support.broker_process import (
    EXTERNAL_BOOTSTRAP,
    READY_LINE,
    TIDELOG,
    BrokerProcess,
    dies_with_us,
)
from tests.support.eventually import eventually
from tests.support.handover_story import PARTITIONS, Everything, read_everything
from tests.support.kafka_data import KAFKA_DATA, problems
from tidelog.tools.cli.main import main

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="needs a broker of its own"),
]
COMMITTED_OFFSETS = {
    "readers": [("codecs", 0), ("orders", 0), ("orders", 1)],
    "simple": [("codecs", 0)],
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    home = tmp_path_factory.mktemp("adopted")
    broker = BrokerProcess(home, {"broker.id": "1", "log.cleaner.enable": "false"})
    shutil.copytree(KAFKA_DATA, broker.data_directory)
    with broker:
        found = read_everything(broker.bootstrap)
        assert broker.stop() == 0
    assert problems(broker.data_directory) == []
    return found


def dumped(folder: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The records in the files, by the dump whose text is proven to be Kafka's."""
    files = ",".join(str(path) for path in sorted((KAFKA_DATA / folder).glob("*.log")))
    assert main(["dump-log", "--files", files, "--deep-iteration", "--output", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [row for row in rows if row["kind"] == "record" and "control" not in row]


@pytest.mark.parametrize("place", PARTITIONS, ids=lambda place: f"{place[0]}-{place[1]}")
def test_every_record_is_read_as_it_is_in_the_files(
    everything: Everything, place: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    in_files = dumped(f"{place[0]}-{place[1]}", capsys)

    read = everything.records[place]

    assert [(row["offset"], row["timestamp"]) for row in in_files] == [
        (offset, timestamp[1]) for offset, timestamp, *_ in read
    ]
    assert [(row["key"], row["value"]) for row in in_files] == [
        (key and key.decode(), value and value.decode()) for _, _, key, value, _ in read
    ]


def test_aborted_transactions_are_hidden_from_committed_readers(everything: Everything) -> None:
    for partition in (0, 1):
        all_values = [row[3] for row in everything.records["orders", partition]]
        committed = [row[3] for row in everything.committed_records["orders", partition]]
        assert committed == [value for value in all_values if b" c " in value]
        assert len(committed) < len(all_values)


def test_committed_offsets_of_groups_are_known(everything: Everything) -> None:
    for group, places in COMMITTED_OFFSETS.items():
        assert [row[:2] for row in everything.group_offsets[group]] == places
    assert everything.group_offsets["simple"][0][2:] == (7, "seven")


SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300
"""  # Kafka's own config/kraft/server.properties, but for the port and the last line


@pytest.mark.parametrize("name", KRAFT)
def test_serve_with_the_properties_of_kafka_takes_its_directory_over(
    name: str, tmp_path: Path
) -> None:
    """The command of the README."""
    expected = recorded(name)
    data = unpack(name, tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(SERVER_PROPERTIES.format(data=data))
    program = [*TIDELOG, "serve", "--config", str(properties)]
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(dies_with_us(program), stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: "tidelog ready" in (tmp_path / "out").read_text(), 60)
        ready = READY_LINE.search((tmp_path / "out").read_text())
        assert ready is not None
        bootstrap = f"127.0.0.1:{ready['port']}"
        described = describe(bootstrap)
        assert described.topic_ids == expected.topic_ids
        for topic in expected.configs:
            rows = described.configs[topic].items()
            overrides = {key: row[0] for key, row in rows if row[1] == "DYNAMIC_TOPIC_CONFIG"}
            assert overrides == expected.overrides(topic)
        eventually(lambda: not read(bootstrap, {"half-a-day": 1})["half-a-day-0"], 60)
        found = read(bootstrap, {"for-ever": 1, "compacted": 1, "wide": 3})
        assert found == {folder: expected.kept[folder] for folder in found}
    finally:
        process.terminate()
        assert process.wait(60) == 0
