"""`tidelog repair-log`: what it changes, what it keeps, what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.kafka_data import KAFKA_DATA, flip, problems
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.tools.cli.main import main

FIRST = f"{0:020d}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_DATA, tmp_path / "data"))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def backup_of(data: Path) -> Path:
    (folder,) = data.parent.glob("data.repair-*")
    return folder


def test_a_sound_directory_is_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair-log", str(data)]) == 0

    assert contents(data) == contents(KAFKA_DATA)
    assert list(data.parent.iterdir()) == [data]
    assert "nothing to do" in capsys.readouterr().out


def test_a_damaged_log_is_cut_and_a_copy_kept(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = max((data / "codecs-0").glob("*.log"))
    flip(last, last.stat().st_size - 5)
    damaged = last.read_bytes()

    assert main(["repair-log", str(data)]) == 0

    assert problems(data) == []
    assert 0 < last.stat().st_size < len(damaged)
    assert damaged.startswith(last.read_bytes())
    assert (backup_of(data) / "codecs-0" / last.name).read_bytes() == damaged
    assert str(backup_of(data)) in capsys.readouterr().out


def test_every_file_that_changed_has_its_copy(data: Path) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    flip(data / "codecs-0" / f"{FIRST}.index", 3)
    (data / "accounts-0" / "leader-epoch-checkpoint").unlink()
    before = contents(data)

    assert main(["repair-log", str(data)]) == 0

    after, kept = contents(data), contents(backup_of(data))
    changed = {name for name, content in before.items() if after.get(name) != content}
    assert changed
    assert {name: before[name] for name in changed} == {name: kept[name] for name in changed}


def test_a_dry_run_changes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    before = contents(data)

    assert main(["repair-log", "--dry-run", str(data)]) == 1

    assert contents(data) == before
    assert list(data.parent.iterdir()) == [data]
    assert "1 problem would be repaired" in capsys.readouterr().out


def test_it_refuses_while_a_broker_holds_the_lock(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    before = contents(data)
    directory = LogDirectory(data)
    directory.lock()

    assert main(["repair-log", str(data)]) == 1

    directory.unlock()
    assert contents(data) == before
    assert "in use by another process" in capsys.readouterr().err


def test_what_only_the_owner_can_know_is_left(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "meta.properties").write_text("version=7\n")

    assert main(["repair-log", "--json", str(data)]) == 1

    (said,) = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in said["remaining"]] == ["by hand"]


def test_copies_go_where_they_are_asked_to(data: Path, tmp_path: Path) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert main(["repair-log", "--backup", str(tmp_path / "kept"), str(data)]) == 0

    assert (tmp_path / "kept" / "data" / "orders-0" / f"{FIRST}.log").exists()


def test_copies_must_not_go_into_the_log_directory(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert main(["repair-log", "--backup", str(data / "kept"), str(data)]) == 2
    assert "a broker would not start on it" in capsys.readouterr().err


def test_strays_and_leftovers_are_moved_to_the_copies(data: Path) -> None:
    (data / "lost+found").mkdir()
    (data / "codecs-0" / f"{99:020d}.log.cleaned").write_bytes(b"old")

    assert main(["repair-log", str(data)]) == 0

    assert (backup_of(data) / "lost+found").is_dir()
    assert (backup_of(data) / "codecs-0" / f"{99:020d}.log.cleaned").read_bytes() == b"old"
    assert not (data / "lost+found").exists()


def test_a_wrong_epoch_in_a_batch_is_stamped_right(data: Path) -> None:
    log = data / "codecs-0" / f"{FIRST}.log"
    good = log.read_bytes()
    flip(log, 12)

    assert main(["repair-log", str(data)]) == 0
    assert log.read_bytes() == good


def test_readers_pass_over_offsets_that_are_lost_for_good(data: Path) -> None:
    second = sorted((data / "orders-0").glob("*.log"))[1]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        second.with_suffix(suffix).unlink(missing_ok=True)

    assert main(["repair-log", str(data)]) == 0

    assert problems(data) == []
    assert "orders 0 " in (data / "cleaner-offset-checkpoint").read_text()


def test_a_swap_whose_making_was_not_finished_replaces_nothing(data: Path) -> None:
    """The `.cleaned` file tells that the segment's first half is not in a `.swap` yet."""
    log = data / "codecs-0" / f"{FIRST}.log"
    good = log.read_bytes()
    first_bytes = 12 + int.from_bytes(good[8:12], "big")
    log.with_name(f"{FIRST}.log.cleaned").write_bytes(good[:first_bytes])
    log.with_name(f"{good[first_bytes + 7]:020d}.log.swap").write_bytes(good[first_bytes:])

    assert main(["repair-log", str(data)]) == 0
    assert log.read_bytes() == good
