"""A pipeline whose driver, worker and broker are killed answers as a batch would.

The full size: python -m tests.support.pipeline_kill_harness
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import missing


def test_windows_equal_the_batch_answer_though_driver_worker_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    from tests.support.pipeline_kill_harness import PipelineKillHarness

    harness = PipelineKillHarness(tmp_path, events=20_000, kills=3, seed=1)
    try:
        harness.run()
    finally:
        harness.close()
    assert harness.killed == {"driver": 1, "worker": 1, "broker": 1}
