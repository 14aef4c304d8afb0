from __future__ import annotations

import os
import subprocess
import sys

STALE = """
import sys, types
import tidelog.record
tidelog.record._kernel = sys.modules["tidelog.record._kernel"] = types.ModuleType("_kernel")
tidelog.record._kernel.crc32c = None
import tidelog.record.kernel
"""


def test_a_compiled_kernel_older_than_its_source_says_so() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TIDELOG_PURE"}
    result = subprocess.run(
        [sys.executable, "-c", STALE], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    last_line = result.stderr.splitlines()[-1]
    assert last_line.startswith("ImportError: the compiled kernel is older than its source")
    assert "check_batch" in last_line
    assert "build_ext --inplace" in last_line
