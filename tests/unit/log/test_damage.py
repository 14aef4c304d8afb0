"""Damaged directories: whatever happened to the files, nothing wrong is served as good.

TIDELOG_DAMAGES sets how many random damages are done; each is opened as after a clean and as after
an unclean stop. A failure names its seed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damage import do_damage, do_damages
from tests.support.damage_stage import DamageStage
from tidelog.tools.repair.directory_repair import DirectoryRepair
from tidelog.tools.verify.target import Target

COUNT = int(os.environ.get("TIDELOG_DAMAGES", "240"))
PIECES = 4


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> DamageStage:
    return DamageStage(tmp_path_factory.mktemp("stage"))


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_an_undamaged_directory_is_read_whole_and_without_a_word(
    stage: DamageStage, tmp_path: Path, clean: bool
) -> None:
    outcome = stage.read_everything(stage.copy(tmp_path / "data"), clean=clean)

    assert outcome.lies == []
    assert outcome.missing == []
    assert outcome.errors == []
    assert outcome.log_lines == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_no_damage_is_served_as_good(stage: DamageStage, tmp_path: Path, piece: int) -> None:
    for seed in range(piece, COUNT, PIECES):
        for clean in (True, False):
            directory = stage.copy(tmp_path / "data")
            done = do_damage(stage, directory, seed)
            outcome = stage.read_everything(directory, clean=clean)
            shutil.rmtree(directory)
            story = f"seed {seed}, {'clean' if clean else 'unclean'}, {done}"
            assert outcome.lies == [], story
            assert outcome.is_explained, story


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_verify_finds_every_damage_and_repair_leaves_none(
    stage: DamageStage, tmp_path: Path, piece: int
) -> None:
    for seed in range(piece, COUNT, PIECES):
        directory = stage.copy(tmp_path / "data")
        story = f"seed {seed}, {do_damage(stage, directory, seed)}"

        summary = DirectoryRepair(Target(directory), tmp_path / "backup", jobs=1).run()

        assert summary.found, story
        assert summary.remaining == [], story
        outcome = stage.read_everything(directory, clean=True, after_repair=True)
        assert (outcome.lies, outcome.errors, outcome.log_lines) == ([], [], []), story
        shutil.rmtree(directory)
        shutil.rmtree(tmp_path / "backup")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_salvage_keeps_every_good_batch_and_no_other(
    stage: DamageStage, tmp_path: Path, piece: int
) -> None:
    for seed in range(piece, COUNT, PIECES):
        salvage_and_check(stage, tmp_path, seed, do_damage)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_several_damages_at_once_cost_only_what_they_hit(
    stage: DamageStage, tmp_path: Path, piece: int
) -> None:
    for seed in range(piece, COUNT // 4, PIECES):
        salvage_and_check(stage, tmp_path, seed, do_damages)


def test_a_segment_of_a_compacted_log_is_not_taken_for_one_of_this_log(
    stage: DamageStage, tmp_path: Path
) -> None:
    """Its offsets fit, and its gaps look as if this log had been compacted."""

    def replace(stage: DamageStage, directory: Path, seed: int) -> str:
        source = directory / "accounts-0" / f"{99:020}.log"
        shutil.copy(source, directory / "plain-0" / f"{90:020}.log")
        return "plain-0/90 is accounts-0/99"

    salvage_and_check(stage, tmp_path, 0, replace)


def salvage_and_check(
    stage: DamageStage, root: Path, seed: int, damage: Callable[[DamageStage, Path, int], str]
) -> None:
    directory = stage.copy(root / "data")
    story = f"seed {seed}, {damage(stage, directory, seed)}"
    good = {key: stage.good_batches(directory, key) for key in stage.truths}

    summary = DirectoryRepair(Target(directory), root / "backup", jobs=1, salvage=True).run()

    assert summary.remaining == [], story
    outcome, lost = stage.read_salvaged(directory, good)
    assert lost == [], story
    assert (outcome.lies, outcome.errors, outcome.log_lines) == ([], [], []), story
    shutil.rmtree(directory)
    shutil.rmtree(root / "backup", ignore_errors=True)


def test_a_log_start_in_a_lost_part_hides_no_time(stage: DamageStage, tmp_path: Path) -> None:
    """All that is left of the first segment lies below the log start."""
    directory = stage.copy(tmp_path / "data")
    first = directory / "plain-0" / f"{0:020d}.log"
    first.write_bytes(first.read_bytes()[:427])
    good = {key: stage.good_batches(directory, key) for key in stage.truths}

    DirectoryRepair(Target(directory), tmp_path / "backup", jobs=1, salvage=True).run()

    outcome, lost = stage.read_salvaged(directory, good)
    assert (lost, outcome.lies) == ([], [])
