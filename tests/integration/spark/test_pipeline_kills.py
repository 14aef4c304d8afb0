"""A pipeline whose driver, worker and broker are killed answers as a batch would, each window once.

The full size: python -m tests.support.pipeline_kill_harness
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import missing


@pytest.mark.parametrize("by_tasks", [False, True], ids=["rows by driver", "rows by tasks"])
def test_windows_equal_the_batch_answer_though_driver_worker_and_broker_are_killed(
    tmp_path: Path, by_tasks: bool
) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from tests.support.pipeline_kill_harness import PipelineKillHarness

    harness = PipelineKillHarness(tmp_path, events=20_000, kills=3, seed=1, by_tasks=by_tasks)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.killed == {"driver": 1, "worker": 1, "broker": 1}


def test_a_sink_without_a_marker_is_found_out(tmp_path: Path) -> None:
    """`tests/integration/test_sink_through_kills.py` plants more bugs, without Spark."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from tests.support.pipeline_kill_harness import PipelineKillHarness, WindowTwice

    harness = PipelineKillHarness(tmp_path, events=20_000, kills=2, seed=1, bug="no_marker")
    try:
        with pytest.raises(WindowTwice):
            harness.run()
    finally:
        harness.close()
