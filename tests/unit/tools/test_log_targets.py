"""What `verify-log` and `repair-log` may be pointed at, and what they refuse untouched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.kafka_data import KAFKA_DATA, flip
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.tools.cli.main import main
from tidelog.tools.verify.target import NotALog, Target, find_target
from tidelog.types import TopicPartition

FIRST = f"{0:020d}"
COMMANDS = ("verify-log", "repair-log")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KAFKA_DATA, tmp_path / "data"))


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def exit_code(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def home_folder(root: Path, data: Path) -> Path:
    home = root / "home"
    (home / "photos").mkdir(parents=True)
    (home / "photos" / "cat.png").write_bytes(b"cat")
    (home / "notes.txt").write_text("dear diary")
    return home


def empty_folder(root: Path, data: Path) -> Path:
    (root / "empty").mkdir()
    return root / "empty"


def folder_around_log_directories(root: Path, data: Path) -> Path:
    return data.parent


def folder_with_a_log_among_others(root: Path, data: Path) -> Path:
    """As /tmp is after somebody copied a partition there."""
    home = home_folder(root, data)
    shutil.copytree(data / "orders-0", home / "orders-0")
    return home


def empty_folder_with_a_partitions_name(root: Path, data: Path) -> Path:
    (root / "orders-7").mkdir()
    return root / "orders-7"


def plain_file(root: Path, data: Path) -> Path:
    return data / "meta.properties"


def missing(root: Path, data: Path) -> Path:
    return root / "nowhere"


def kraft_metadata(root: Path, data: Path) -> Path:
    return (data / "orders-1").rename(data / "__cluster_metadata-0")


def folder_marked(suffix: str, data: Path) -> Path:
    return (data / "orders-1").rename(data / f"orders-1.{'a' * 32}-{suffix}")


def future(root: Path, data: Path) -> Path:
    return folder_marked("future", data)


def deleted(root: Path, data: Path) -> Path:
    return folder_marked("delete", data)


def stray(root: Path, data: Path) -> Path:
    return folder_marked("stray", data)


WRONG = [
    home_folder,
    empty_folder,
    folder_around_log_directories,
    folder_with_a_log_among_others,
    empty_folder_with_a_partitions_name,
    plain_file,
    missing,
    kraft_metadata,
    future,
    deleted,
    stray,
]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_log_is_refused_and_not_touched(
    command: str, make: object, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    path = make(tmp_path, data)
    before = tree(tmp_path)

    assert exit_code(command, str(path)) == 2

    assert tree(tmp_path) == before
    assert str(path) in capsys.readouterr().err


def test_a_directory_that_cannot_be_read_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)

    with pytest.raises(NotALog, match="Permission denied"):
        find_target(str(data))


def test_the_refusal_names_the_log_directory_that_was_meant(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("repair-log", str(data.parent)) == 2
    assert f"{data} is a log directory" in capsys.readouterr().err


def test_one_wrong_argument_stops_all_of_them(data: Path, tmp_path: Path) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    before = tree(tmp_path)

    assert exit_code("repair-log", str(data), str(tmp_path / "nowhere")) == 2
    assert tree(tmp_path) == before


@pytest.mark.parametrize("text", ["orders-0", "orders-0/", "./orders-0", "../data/orders-0", "."])
def test_a_partition_is_found_by_any_spelling_of_its_path(
    data: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data / "orders-0" if text == "." else data)

    assert find_target(text) == Target(data.resolve(), TopicPartition("orders", 0))


def test_links_are_followed_to_what_they_mean(data: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to(data)
    (tmp_path / "short").symlink_to(data / "orders-0")
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (data / "codecs-0").rename(moved / "codecs-0")
    (data / "codecs-0").symlink_to(moved / "codecs-0")

    assert find_target(str(tmp_path / "disk")) == Target(data)
    assert find_target(str(tmp_path / "disk" / "orders-0")).directory == data
    assert find_target(str(tmp_path / "short")).path == data / "orders-0"
    # The broker of `data` serves this one: its lock counts.
    assert find_target(str(data / "codecs-0")) == Target(data, TopicPartition("codecs", 0))


def test_only_the_partition_asked_for_is_checked(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert exit_code("verify-log", str(data / "codecs-0")) == 0
    assert f"{data}/codecs-0: 1 log, " in capsys.readouterr().out
    assert exit_code("verify-log", str(data / "orders-0")) == 1


def test_only_the_partition_asked_for_is_repaired(data: Path, tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        flip(data / name / f"{FIRST}.log", 200)
    (data / "lost+found").mkdir()
    before = tree(data)

    assert exit_code("repair-log", str(data / "orders-0")) == 0

    after = tree(data)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    own = (".lock", *(name for name in changed if name.endswith("-offset-checkpoint")))
    assert all(name.startswith("orders-0/") or name in own for name in changed), changed
    checkpoint = "recovery-point-offset-checkpoint"
    rows, old = ((tree_[checkpoint] or b"").splitlines() for tree_ in (after, before))
    assert sorted(rows[2:]) != sorted(old[2:])
    assert len(rows) == len(old)
    assert exit_code("verify-log", str(data / "orders-0")) == 0
    # Copies never go into the log directory.
    assert [path.name for path in data.parent.glob("*.repair-*/*")].count("orders-0") == 1


def test_a_checkpoint_that_cannot_be_read_is_not_written_for_one_partition(data: Path) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    (data / "replication-offset-checkpoint").write_bytes(b"garbage")

    assert exit_code("repair-log", str(data / "orders-0")) == 0
    assert (data / "replication-offset-checkpoint").read_bytes() == b"garbage"


def test_a_partition_outside_of_any_log_directory_is_worked_on_alone(
    data: Path, tmp_path: Path
) -> None:
    home = folder_with_a_log_among_others(tmp_path, data)
    flip(home / "orders-0" / f"{FIRST}.log", 200)
    others = {name: content for name, content in tree(home).items() if "orders-0" not in name}

    assert exit_code("verify-log", str(home / "orders-0")) == 1
    assert exit_code("repair-log", str(home / "orders-0")) == 0
    assert exit_code("verify-log", str(home / "orders-0")) == 0

    left = {name: content for name, content in tree(home).items() if "orders-0" not in name}
    assert left == others
    assert len(list(home.glob("orders-0.repair-*"))) == 1


def test_a_partition_is_not_repaired_under_a_running_broker(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(data / "orders-0" / f"{FIRST}.log", 200)
    directory = LogDirectory(data)
    directory.lock()
    before = tree(data)

    assert exit_code("repair-log", str(data / "orders-0")) == 1
    assert "in use by another process" in capsys.readouterr().err
    assert exit_code("repair-log", "--dry-run", str(data / "orders-0")) == 1
    assert "a broker is using the directory" in capsys.readouterr().out

    directory.unlock()
    assert tree(data) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_directory_without_logs_is_no_success(
    command: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in data.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    before = tree(data)

    assert exit_code(command, str(data)) == 2

    assert tree(data) == before
    said = capsys.readouterr()
    assert "no damage" not in said.out
    assert "nothing was checked" in said.err


@pytest.mark.parametrize("name", [".", "orders-0"])
@pytest.mark.parametrize("command", COMMANDS)
def test_where_nothing_is_damaged_not_even_a_lock_stays_behind(
    command: str, name: str, data: Path
) -> None:
    before = tree(data)

    assert exit_code(command, str(data / name)) == 0
    assert tree(data) == before


def test_logs_that_are_left_alone_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "__cluster_metadata-0").mkdir()
    folder_marked("stray", data)

    assert exit_code("verify-log", str(data)) == 0

    shown = capsys.readouterr().out
    assert "the log of a KRaft controller; not checked" in shown
    assert "a log that was set aside; not checked" in shown


def test_copies_never_go_where_copies_are(data: Path, tmp_path: Path) -> None:
    """An older copy would stand in for the new one."""
    for number, name in enumerate(("orders-0", "orders-1")):
        flip(data / name / f"{FIRST}.log", 200)
        before = tree(data)
        code = exit_code("repair-log", "--backup", str(tmp_path / "kept"), str(data))
        assert code == (2 if number else 0)
    assert tree(data) == before  # as the second round found it


def test_copies_of_two_directories_go_to_two_places(data: Path, tmp_path: Path) -> None:
    other = shutil.copytree(data, tmp_path / "other" / "data")
    flip(data / "orders-0" / f"{FIRST}.log", 200)

    assert exit_code("repair-log", "--backup", str(tmp_path / "kept"), str(data), str(other)) == 2
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["orders-0", "nowhere.txt", "meta.properties"])
def test_a_dump_that_shows_nothing_is_no_success(
    data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("dump-log", "--files", os.path.join(data, name)) == 2
    assert "Ignoring unknown file" in capsys.readouterr().err
