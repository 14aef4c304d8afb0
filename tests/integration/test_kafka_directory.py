"""A data directory that Apache Kafka 3.9 wrote (tests/fixtures), served by tidelog."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.support.broker_process import EXTERNAL_BOOTSTRAP, BrokerProcess
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
