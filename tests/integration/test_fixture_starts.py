"""Fixtures leave nothing behind; the full size is
`python -m tests.support.fixture_harness --starts 5000`."""

from __future__ import annotations

from pathlib import Path

from tests.support.fixture_harness import FixtureHarness

LEAK = """

LEFT = []


def test_that_leaves_something():
    import subprocess, tempfile
    LEFT.append(subprocess.Popen(["sleep", "40"], start_new_session=True))
    LEFT.append(tempfile.mkdtemp(prefix="tidelog-test-"))
    LEFT.extend(open("test_starts.py") for _ in range(3))
"""


def test_no_process_descriptor_thread_or_directory_stays(tmp_path: Path) -> None:
    harness = FixtureHarness(tmp_path, starts=12, workers=2)
    assert harness.run() == []


def test_what_stays_is_told(tmp_path: Path) -> None:
    harness = FixtureHarness(tmp_path, starts=1, workers=1, more_tests=LEAK, end_within_s=1.0)
    problems = "\n".join(harness.run())
    harness.end_what_is_left()
    assert "holds more descriptors" in problems
    assert "has children left" in problems
    assert "process left" in problems
    assert "sleep 40" in problems
    assert "directory left: tidelog-test-" in problems
