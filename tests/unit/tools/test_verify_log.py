"""`tidelog verify-log`: what it finds in sound, damaged and odd directories, and how it says so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.damage_stage import DamageStage
from tests.support.kafka_data import KAFKA_DATA, flip, problems
from tests.support.message_sets import message_set_of
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.record.batch import Codec
from tidelog.record.legacy import LegacyRecord
from tidelog.tools.cli.main import main
from tidelog.tools.verify import directory_check
from tidelog.tools.verify.directory_check import DirectoryCheck
from tidelog.tools.verify.finding import Kind
from tidelog.tools.verify.target import Target

FIRST = f"{0:020d}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_DATA, tmp_path / "data"))


def test_what_apache_kafka_wrote_is_sound(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify-log", str(data)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no damage"


def test_what_tidelog_wrote_is_sound(tmp_path: Path) -> None:
    assert problems(DamageStage(tmp_path).pristine) == []


def test_damage_is_said_with_place_and_remedy(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert main(["verify-log", str(data)]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("  ")[1:3] == [
        "DAMAGE",
        f"orders-0/{FIRST}.log at position 0, offset 0: a batch whose checksum does not match",
    ]
    assert "cut off and 3 later segments dropped" in lines[2]
    assert f"tidelog repair-log {data}" in lines[4]
    assert "--salvage" in lines[6]


def test_json_says_the_same(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert main(["verify-log", "--json", str(data)]) == 1

    said = json.loads(capsys.readouterr().out)
    (directory,) = said["directories"]
    (finding,) = directory["findings"]
    assert said["damaged"] is True
    assert len(directory["logs"]) == 7
    assert finding["kind"] == "log"
    assert finding["position"] == 0


@pytest.mark.parametrize("argument", ["nowhere", __file__])
def test_what_is_no_directory_is_wrong_usage(argument: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify-log", argument])
    assert ended.value.code == 2


def test_a_killed_broker_leaves_remarks_and_no_damage(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Indexes of the last segment are stretched, the marker is missing, checkpoints lag behind."""
    (data / ".kafka_cleanshutdown").unlink()
    for suffix, size in ((".index", 800), (".timeindex", 1200)):
        path = max((data / "codecs-0").glob(f"*{suffix}"))
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\ncodecs 0 3\n")

    assert main(["verify-log", str(data)]) == 0
    assert "remark  .kafka_cleanshutdown" in capsys.readouterr().out


def test_a_broker_at_work_is_remarked(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = LogDirectory(data)
    directory.lock()

    assert main(["verify-log", str(data)]) == 0
    directory.unlock()
    assert "a broker is using the directory" in capsys.readouterr().out


def test_a_copy_on_its_way_is_remarked_and_its_checkpoints_too(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "codecs-0").rename(data / f"codecs-0.{'a' * 32}-future")

    assert main(["verify-log", str(data)]) == 0
    shown = capsys.readouterr().out
    assert "a copy of a log that moves" in shown
    assert "it has a row for codecs-0" not in shown


def test_leftovers_and_strays_are_named(data: Path) -> None:
    for suffix in (".log.deleted", ".log.cleaned", ".log.swap", ".index"):
        (data / "codecs-0" / f"{99:020d}{suffix}").touch()
    (data / "lost+found").mkdir()
    (data / f"gone-0.{'a' * 32}-delete").mkdir()
    (data / f"stray-0.{'a' * 32}-stray").mkdir()

    found = problems(data)

    assert (Kind.LEFTOVER, "lost+found") in found
    assert (Kind.LEFTOVER, f"codecs-0/{99:020d}.log.cleaned") in found
    assert (Kind.LOG, f"codecs-0/{99:020d}.log.swap") in found
    assert (Kind.LEFTOVER, f"codecs-0/{99:020d}.index") in found
    assert len(found) == 4


def test_small_files_are_checked(data: Path) -> None:
    (data / "meta.properties").write_text("version=7\n")
    (data / "replication-offset-checkpoint").write_text("0\n9\n")
    (data / "codecs-0" / "partition.metadata").write_text("")
    (data / "codecs-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 17\n")

    found = problems(data)

    assert (Kind.BY_HAND, "meta.properties") in found
    assert (Kind.CHECKPOINT, "replication-offset-checkpoint") in found
    assert (Kind.LEFTOVER, "codecs-0/partition.metadata") in found
    assert (Kind.EPOCHS, "codecs-0/leader-epoch-checkpoint") in found
    assert len(found) == 4


def test_a_lone_batch_of_another_epoch_is_the_liar(data: Path) -> None:
    flip(data / "codecs-0" / f"{FIRST}.log", 12)

    assert problems(data) == [(Kind.BATCH_EPOCH, f"codecs-0/{FIRST}.log")]


def test_a_lost_segment_is_missed(data: Path) -> None:
    _, second, third, *_ = sorted((data / "orders-0").glob("*.log"))
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        second.with_suffix(suffix).unlink(missing_ok=True)

    assert (Kind.LOG, f"orders-0/{third.name}") in problems(data)


def test_retention_in_the_middle_of_a_transaction_is_no_damage(tmp_path: Path) -> None:
    """The transaction index still tells where the transaction began; the batches do not."""
    pristine = DamageStage(tmp_path).pristine
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (pristine / "orders-0" / f"{FIRST}{suffix}").unlink()

    assert problems(pristine) == []


def test_compressed_batches_of_old_formats_are_sound(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "old-0"
    folder.mkdir(parents=True)
    content = b"".join(
        message_set_of(
            [LegacyRecord(offset + n, 1_400_000_000_000, None, b"old") for n in range(3)],
            1,
            codec=Codec.GZIP,
        )
        for offset in range(0, 30, 3)
    )
    (folder / f"{FIRST}.log").write_bytes(content)

    found = problems(folder.parent)

    assert [path for _, path in found if path.endswith(".log")] == []


def test_logs_are_checked_in_several_processes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_check, "SEVERAL_PROCESSES_FROM_BYTES", 0)
    flip(data / "orders-1" / f"{FIRST}.log", 200)

    summary = DirectoryCheck(Target(data), jobs=2).run()

    assert len(summary.partitions) == 7
    assert [f.path for f in summary.all_findings if f.is_damage] == [f"{data}/orders-1/{FIRST}.log"]
