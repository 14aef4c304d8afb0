"""kazoo's own tests of its client and its recipes pass against `tidelog zookeeper`.

kazoo's wheel holds them. Each module runs in a process of its own, because one of them counts the
objects of its process; `tests/support/kazoo_suite.py` lists what cannot pass, and why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.broker_process import dies_with_us

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 800
MODULES = {  # how many of their tests pass; the others are in CANNOT_PASS
    "test_barrier": 8,
    "test_cache": 17,
    "test_client": 106,
    "test_connection": 10,
    "test_counter": 5,
    "test_election": 2,
    "test_interrupt": 1,
    "test_lease": 12,
    "test_lock": 31,
    "test_partitioner": 8,
    "test_party": 4,
    "test_queue": 12,
    "test_watchers": 22,
}


def run_module(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With none of our own settings of pytest, and no other plug-in than the one that is needed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {key: value for key, value in os.environ.items() if key != "CI"}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "no:cacheprovider"]
    command += ["-p", "tests.support.kazoo_suite", "-q", "--tb=short", "-rfEX"]
    return subprocess.run(
        dies_with_us([*command, "--pyargs", f"kazoo.tests.{name}"]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("name", MODULES)
def test_kazoos_own_tests_pass(name: str, tmp_path: Path) -> None:
    if find_spec(f"kazoo.tests.{name}") is None:
        pytest.skip(f"this kazoo was installed without kazoo.tests.{name}")
    done = run_module(name, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) == MODULES[name]
    assert not list(tmp_path.glob("kazoo-suite-*")), "no data stays"
