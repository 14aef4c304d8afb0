"""`repair-log --salvage`: the damaged batch goes, everything else stays where it was."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from tests.support import raw_batch
from tests.support.damage_stage import DamageStage
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.tools.cli.main import main

NOW_MS = 1_700_000_000_000
Records = dict[int, bytes | None]


def plain_batch(offset: int, *values: bytes, epoch: int = 3) -> bytes:
    return raw_batch.batch(
        *values, base_offset=offset, leader_epoch=epoch, base_timestamp=NOW_MS + offset
    )


def value_of(offset: int) -> bytes:
    return b"value %6d" % offset


class Log:
    """A log directory with one log, closed cleanly; segments as they are given."""

    def __init__(self, root: Path, *segments: list[bytes]) -> None:
        self.data = root / "data"
        self.folder = self.data / "events-0"
        self.folder.mkdir(parents=True)
        self.paths: list[Path] = []
        self.places: dict[int, tuple[Path, int]] = {}  # of batches, by their first 8 bytes
        for batches in segments:
            path = self.folder / f"{first_offset(batches[0]):020d}.log"
            self.paths.append(path)
            path.write_bytes(b"".join(batches))
            position = 0
            for batch in batches:
                self.places[first_offset(batch)] = path, position
                position += len(batch)
        main(["repair-log", str(self.data), "--backup", str(root / "first")])
        (self.data / ".kafka_cleanshutdown").write_bytes(b"")
        assert main(["verify-log", str(self.data)]) == 0
        self.written = self.records()

    def records(self) -> Records:
        found: Records = {}
        for path in sorted(self.folder.glob("*.log")):
            content = path.read_bytes()
            if content[16:17] in (b"\0", b"\1"):
                found |= {row[0]: row[3] for row in raw_batch.read_messages(content)}
                continue
            for batch in raw_batch.read_batches(content):
                found |= {record.offset: record.value for record in batch.records()}
        return found

    def change(self, offset: int, position: int, new: bytes) -> None:
        """Of the batch at `offset`."""
        path, start = self.places[offset]
        content = bytearray(path.read_bytes())
        content[start + position : start + position + len(new)] = new
        path.write_bytes(content)

    def flip(self, offset: int, position: int, bit: int = 0) -> None:
        path, start = self.places[offset]
        self.change(offset, position, bytes([path.read_bytes()[start + position] ^ 1 << bit]))

    def salvage(self) -> None:
        assert main(["repair-log", "--salvage", str(self.data)]) == 0
        assert main(["verify-log", str(self.data)]) == 0
        for copies in self.data.parent.glob("data.repair-*"):
            shutil.rmtree(copies)

    def without(self, *offsets: int) -> Records:
        return {offset: value for offset, value in self.written.items() if offset not in offsets}


def first_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def one_by_one(count: int, start: int = 0) -> list[bytes]:
    return [plain_batch(offset, value_of(offset)) for offset in range(start, start + count)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, one_by_one(40), one_by_one(40, 40), one_by_one(40, 80))


def test_one_flipped_byte_costs_one_batch(log: Log) -> None:
    log.flip(7, 70)

    log.salvage()

    assert log.records() == log.without(7)


def test_plain_repair_says_what_it_would_cost_and_how_to_keep_it(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.flip(7, 70)
    size = sum(path.stat().st_size for path in log.paths)
    capsys.readouterr()

    assert main(["repair-log", "--dry-run", str(log.data)]) == 1

    lines = capsys.readouterr().out
    lost_bytes = size - log.places[7][1]
    assert f"cut at offset 7: {lost_bytes:,} bytes, among them 2 whole segments" in lines
    assert "offsets 7-119" in lines
    assert "112 good records go with the damage; repair-log --salvage keeps them" in lines


def test_a_dry_run_of_a_salvage_changes_nothing_and_tells_all(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.flip(7, 70)
    log.flip(50, 70)
    before = {path: path.read_bytes() for path in log.data.rglob("*") if path.is_file()}
    capsys.readouterr()

    assert main(["repair-log", "--salvage", "--dry-run", "--json", str(log.data)]) == 1

    (said,) = json.loads(capsys.readouterr().out)
    (plan,) = said["plans"]
    assert plan["good_records"] == 118
    assert [(loss["first_offset"], loss["end_offset"]) for loss in plan["losses"]] == [
        (7, 8),
        (50, 51),
    ]
    assert plan["cut"]["good_records"] == 111
    after = {path: path.read_bytes() for path in log.data.rglob("*") if path.is_file()}
    assert after == before


def test_the_plan_is_told_before_the_first_file_changes(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    log.flip(7, 70)
    damaged = log.paths[0].read_bytes()
    monkeypatch.setattr("tidelog.tools.repair.directory_repair.carry_out", fail)

    assert main(["repair-log", "--salvage", str(log.data)]) == 1
    assert "lost: 1 record, 80 bytes" in capsys.readouterr().out
    assert log.paths[0].read_bytes() == damaged


@pytest.mark.parametrize("position", range(17))
def test_what_lies_outside_of_the_checksum_is_found_again(tmp_path: Path, position: int) -> None:
    """Base offset, length, leader epoch, magic; all batches are of one size, so that a wrong length
    often leads to another batch."""
    log = Log(tmp_path, one_by_one(20), one_by_one(20, 20))
    contents = [path.read_bytes() for path in log.paths]
    for offset in (0, 7, 19, 39):
        for bit in (0, 6):
            log.flip(offset, position, bit)

            log.salvage()

            assert log.records() == log.written, (offset, bit)
            assert [each.read_bytes() for each in log.paths] == contents, (offset, bit)


@pytest.mark.parametrize("position", range(17, 61, 4))
def test_a_header_field_inside_of_the_checksum_costs_the_batch(
    tmp_path: Path, position: int
) -> None:
    log = Log(tmp_path, one_by_one(20))
    log.flip(11, position)

    log.salvage()

    assert log.records() == log.without(11)


def test_a_header_that_is_all_gone_costs_one_batch(log: Log) -> None:
    log.change(7, 0, bytes(61))

    log.salvage()

    assert log.records() == log.without(7)


def test_many_damages_in_many_segments_cost_only_themselves(log: Log) -> None:
    bad = (3, 4, 20, 39, 40, 61, 80, 100, 119)
    for offset in bad:
        log.flip(offset, 66)
    log.salvage()

    assert log.records() == log.without(*bad)


NESTED = plain_batch(9, b"no record of this log", b"nor this one")


def test_batches_in_the_values_of_good_batches_are_left_alone(tmp_path: Path) -> None:
    batches = one_by_one(8)
    batches.append(plain_batch(8, NESTED, NESTED))
    batches += one_by_one(8, 10)
    log = Log(tmp_path, batches)
    log.flip(3, 70)

    log.salvage()

    assert log.records() == log.without(3)


@pytest.mark.parametrize("damage", ["length", "header", "value", "header count"])
def test_a_batch_in_the_value_of_a_damaged_batch_is_no_batch(tmp_path: Path, damage: str) -> None:
    """Its offsets, epoch and checksum are as right as can be; it leads nowhere."""
    batches = one_by_one(8)
    batches.append(plain_batch(8, b"some", NESTED, b"others", NESTED))
    batches += one_by_one(8, 12)
    log = Log(tmp_path, batches)
    if damage == "length":
        log.flip(8, 11, 3)
        log.flip(8, 62)
    elif damage == "header":
        log.change(8, 0, bytes(61))
    elif damage == "value":
        log.flip(8, 62)
    else:
        log.flip(12, -1)

    log.salvage()

    assert log.records() == log.without(8, 9, 10, 11)


def test_a_copy_of_a_batch_behind_the_end_is_no_new_record(tmp_path: Path) -> None:
    """As a write that was done twice, or an old block, leaves it."""
    batches = one_by_one(20)
    log = Log(tmp_path, batches)
    (log.data / ".kafka_cleanshutdown").unlink()
    log.paths[0].write_bytes(log.paths[0].read_bytes() + batches[16])

    log.salvage()

    assert log.records() == log.written


def old_log(tmp_path: Path, magic: int) -> Log:
    messages = [
        raw_batch.message(value_of(n), magic=magic, offset=n, timestamp=NOW_MS + n)
        for n in range(20)
    ]
    return Log(tmp_path, messages)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_salvaged_too(tmp_path: Path, magic: int) -> None:
    log = old_log(tmp_path, magic)
    content = log.paths[0].read_bytes()
    for position in range(12):
        log.flip(5, position)
        log.salvage()
        assert log.paths[0].read_bytes() == content, position
    log.flip(5, 30)

    log.salvage()

    assert log.records() == log.without(5)


def test_an_old_message_in_the_value_of_a_damaged_one_is_no_message(tmp_path: Path) -> None:
    """There a value ends where its message ends: only the length tells them apart."""
    nested = raw_batch.message(b"no record of this log", offset=8, timestamp=NOW_MS)
    messages = [raw_batch.message(value_of(n), offset=n, timestamp=NOW_MS) for n in range(8)]
    messages.append(raw_batch.message(b"before " + nested, offset=8, timestamp=NOW_MS))
    messages += [raw_batch.message(value_of(n), offset=n, timestamp=NOW_MS) for n in range(9, 16)]
    log = Log(tmp_path, messages)
    log.flip(8, 36)

    log.salvage()

    assert log.records() == log.without(8)


def end(offset: int, control_type: ControlType) -> bytes:
    marker = EndTransactionMarker(control_type, 0)
    return bytes(
        marker_batch(
            marker,
            producer_id=7,
            producer_epoch=0,
            timestamp=NOW_MS + offset,
            base_offset=offset,
            leader_epoch=3,
        )
    )


def in_txn(offset: int) -> bytes:
    return raw_batch.batch(
        value_of(offset),
        base_offset=offset,
        leader_epoch=3,
        base_timestamp=NOW_MS + offset,
        attributes=0x10,
        producer_id=7,
        producer_epoch=0,
        base_sequence=offset,
    )


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ([in_txn(4), end(5, ControlType.COMMIT)], "the marker at offset 5 commits its records too"),
        ([plain_batch(4, b"another")], "read_committed consumers wait at offset 1"),
    ],
)
def test_what_a_lost_abort_marker_means_is_said(
    tmp_path: Path, tail: list[bytes], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = [plain_batch(0, b"first"), in_txn(1), in_txn(2), end(3, ControlType.ABORT)]
    log = Log(tmp_path, [*start, *tail])
    log.flip(3, 70)
    capsys.readouterr()

    assert main(["repair-log", "--salvage", "--dry-run", str(log.data)]) == 1

    shown = capsys.readouterr().out
    assert "of producer 7 from offset 1: it was aborted, and its marker is lost" in shown
    assert said in shown
    log.salvage()
    assert log.records() == log.without(3)


def test_only_indexes_damaged_costs_no_record(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    log.paths[1].with_suffix(".index").write_bytes(b"\1" * 8)

    log.salvage()

    assert log.records() == log.written
    assert "no batch is lost, all 120 records stay" in capsys.readouterr().out


def test_a_segment_of_which_nothing_is_left_goes(log: Log) -> None:
    log.paths[1].write_bytes(bytes(log.paths[1].stat().st_size))

    log.salvage()

    assert log.records() == log.without(*range(40, 80))
    assert not log.paths[1].exists()


def test_a_log_of_which_nothing_is_left_begins_where_its_last_segment_did(log: Log) -> None:
    for path in log.paths:
        path.write_bytes(bytes(path.stat().st_size))

    log.salvage()

    assert log.records() == {}
    assert [path.name for path in log.folder.glob("*.log")] == [f"{80:020d}.log"]


def test_swapped_segments_are_put_back(log: Log) -> None:
    contents = [path.read_bytes() for path in log.paths]
    log.paths[0].write_bytes(contents[1])
    log.paths[1].write_bytes(contents[0])

    log.salvage()

    assert [path.read_bytes() for path in log.paths] == contents


def test_an_interrupted_cleaning_is_not_salvaged(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    log.flip(7, 70)
    log.paths[0].with_name(log.paths[1].name + ".swap").write_bytes(b"")
    before = {path: path.read_bytes() for path in log.folder.iterdir()}

    assert main(["repair-log", "--salvage", str(log.data)]) == 1
    assert "holds a cleaning that was interrupted" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in log.folder.iterdir()} == before


def test_several_wrong_epochs_are_put_right(tmp_path: Path) -> None:
    first = [plain_batch(n, value_of(n), epoch=1) for n in range(10)]
    second = [plain_batch(n, value_of(n), epoch=4) for n in range(10, 20)]
    log = Log(tmp_path, first + second)
    content = log.paths[0].read_bytes()
    for offset in (2, 8, 13):
        log.flip(offset, 13)

    log.salvage()

    assert log.paths[0].read_bytes() == content


def damage_every_segment(directory: Path, number: int = 1) -> None:
    """The batch of that number in each, counted as Python counts."""
    for path in sorted(directory.glob("*/*.log")):
        content = bytearray(path.read_bytes())
        positions, position = [], 0
        while position < len(content):
            positions.append(position)
            position += 12 + struct.unpack_from(">i", content, position + 8)[0]
        content[positions[number] + 65] ^= 1
        path.write_bytes(content)


def test_a_broker_serves_what_was_salvaged(tmp_path: Path) -> None:
    stage = DamageStage(tmp_path)
    directory = stage.copy(tmp_path / "data")
    damage_every_segment(directory)
    good = {key: stage.good_batches(directory, key) for key in stage.truths}

    assert main(["repair-log", "--salvage", str(directory)]) == 0

    outcome, lost = stage.read_salvaged(directory, good)
    assert (lost, outcome.lies, outcome.errors, outcome.log_lines) == ([], [], [], [])


@pytest.mark.parametrize("was_closed", [True, False])
@pytest.mark.parametrize("number", [1, -2])
@pytest.mark.parametrize(
    "step", ["partition_repair.PartitionRepair.run", "directory_repair.DirectoryRepair._rows"]
)
def test_a_broker_that_starts_on_a_salvage_cut_short_loses_nothing_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, was_closed: bool
) -> None:
    """The new segments are in place, and no index or checkpoint is."""
    stage = DamageStage(tmp_path)
    directory = stage.copy(tmp_path / "data")
    damage_every_segment(directory, number)
    good = {key: stage.good_batches(directory, key) for key in stage.truths}
    if not was_closed:
        (directory / ".kafka_cleanshutdown").unlink()
        (directory / "recovery-point-offset-checkpoint").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(f"tidelog.tools.repair.{step}", interrupt)
        assert main(["repair-log", "--salvage", str(directory)]) != 0

    outcome, lost = stage.read_salvaged(directory, good)

    assert (lost, outcome.lies, outcome.errors) == ([], [], [])


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
