"""Kafka 3.9's own dump tool and `tidelog dump-log` on files that tidelog wrote: the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import ApacheKafka
from tests.interop.apache_kafka import dump_log_segments, kafka_or_skip, wait_for_cleaning
from tests.support.broker_process import BrokerProcess
from tests.support.damage_stage import DamageStage
from tests.support.handover_story import fill
from tidelog.tools.cli.main import main
from tidelog.tools.repair.directory_repair import DirectoryRepair
from tidelog.tools.verify.target import Target

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
}


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tidelog broker that clients have written to, compacted where it is due."""
    broker = BrokerProcess(tmp_path_factory.mktemp("served"), SMALL)
    with broker:
        fill(broker.bootstrap)
        wait_for_cleaning(broker.data_directory)
        assert broker.stop() == 0
    return broker.data_directory


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many small segments, made without clients."""
    return DamageStage(tmp_path_factory.mktemp("written")).pristine


@pytest.fixture(scope="module")
def salvaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Damaged in every log and every second segment, then salvaged."""
    root = tmp_path_factory.mktemp("salvaged")
    stage = DamageStage(root)
    directory = stage.copy(root / "data")
    for path in sorted(directory.glob("*/*.log"))[::2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    repair = DirectoryRepair(Target(directory), root / "copies", jobs=1, salvage=True)
    assert repair.run().remaining == []
    return directory


def agree(
    kafka: ApacheKafka, home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> int:
    """The number of lines; both tools run in `home`."""
    theirs = dump_log_segments(kafka, arguments, home)
    assert main(["dump-log", *arguments]) == 0
    ours = capsys.readouterr()
    assert ours.out.split("\n")[:-1] == theirs.stdout
    # Kafka names the files with gaps in the order of a hash table.
    assert sorted(ours.err.split("\n")[:-1]) == sorted(theirs.stderr)
    return len(theirs.stdout)


@pytest.mark.parametrize("place", ["served", "written", "salvaged"])
@pytest.mark.parametrize("flags", [["--print-data-log"], []], ids=["data", "shallow"])
def test_offsets_checksums_positions_and_index_entries_are_the_same(
    kafka: ApacheKafka,
    place: str,
    flags: list[str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home: Path = request.getfixturevalue(place)
    monkeypatch.chdir(home)
    files = [
        str(path.relative_to(home))
        for path in sorted(home.glob("*-*/*"))
        if path.suffix in SUFFIXES
    ]
    assert {Path(name).suffix for name in files} == set(SUFFIXES)

    assert agree(kafka, home, ["--files", ",".join(files), *flags], capsys) > 100


def test_kafka_finds_a_salvaged_directory_valid(
    kafka: ApacheKafka, salvaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(salvaged)
    files = [
        str(path.relative_to(salvaged))
        for path in sorted(salvaged.glob("*-*/*"))
        if path.suffix in SUFFIXES
    ]

    said = dump_log_segments(kafka, ["--files", ",".join(files), "--deep-iteration"], salvaged)

    batches = [line for line in said.stdout if line.startswith("baseOffset:")]
    assert len(batches) > 100
    assert all("isvalid: true" in line for line in batches)
    # It names the gaps that compaction and salvage leave, and nothing else.
    assert all(line.startswith(("Non-consecutive", "  ")) for line in said.stderr)
    assert not any("ismatch" in line or "invalid" in line for line in [*said.stdout, *said.stderr])


@pytest.mark.parametrize(
    ("folder", "decoder"),
    [
        ("__consumer_offsets-0", "--offsets-decoder"),
        ("__transaction_state-0", "--transaction-log-decoder"),
    ],
)
def test_internal_topics_decode_to_the_same(
    kafka: ApacheKafka,
    served: Path,
    folder: str,
    decoder: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(served)

    agree(kafka, served, ["--files", f"{folder}/{0:020d}.log", decoder], capsys)
