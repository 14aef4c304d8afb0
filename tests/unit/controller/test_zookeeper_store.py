from __future__ import annotations

import subprocess
import sys


def test_a_broker_without_zookeeper_does_not_import_its_client() -> None:
    script = (
        "import sys, tidelog.broker.process;"
        "print([name for name in sys.modules if 'controller.zookeeper' in name])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"
