"""The exactly-once sink's own code, without Spark, while its processes are killed.

The full size: python -m tests.support.sink_kill_harness
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
psutil = pytest.importorskip("psutil")

from tests.support.sink_kill_harness import SinkKillHarness, WrongRows  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_every_row_is_there_once_though_drivers_workers_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    harness = SinkKillHarness(tmp_path, batches=24, kills=8, seed=1)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.killed == {"driver": 2, "worker": 2, "zombie": 2, "broker": 2}


@pytest.mark.parametrize(
    ("bug", "zombie_steps"),
    [
        ("no_marker", ("done", "decide")),
        ("tasks_commit_themselves", ("fence", "end")),
    ],
)
def test_the_harness_finds_planted_bugs(
    bug: str, zombie_steps: tuple[str, str], tmp_path: Path
) -> None:
    """By drivers that are stopped, and woken while the next one works. More bugs are found by the
    model in test_batch_commit.py, which goes through every order of the steps.
    """
    for seed in range(5):
        directory = tmp_path / str(seed)
        directory.mkdir()
        harness = SinkKillHarness(
            directory,
            batches=4,
            kills=2,
            seed=seed,
            bug=bug,
            victims=("zombie",),
            zombie_steps=zombie_steps,
        )
        try:
            harness.run()
        except WrongRows:
            return
        finally:
            harness.close()
    pytest.fail("not found")
