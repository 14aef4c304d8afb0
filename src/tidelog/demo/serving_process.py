"""`tidelog serve` in a child process, which dies with its parent.

The child has a session of its own, so that Ctrl-C reaches only the parent, which stops it when
everything that uses it has stopped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Final

# On Linux the kernel sends SIGTERM (15) when the parent is gone, however it went.
_SERVE: Final = """\
import sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 15)
from tidelog.tools.cli.main import main
sys.exit(main())
"""


def spawn(
    overrides: Mapping[str, str], *options: str, stderr: int | IO[str]
) -> subprocess.Popen[str]:
    """Its standard output is a pipe, on which it says one line when it serves."""
    command = [sys.executable, "-c", _SERVE, "serve", *options]
    for key, value in overrides.items():
        command += ["--override", f"{key}={value}"]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def stop(process: subprocess.Popen[str], timeout_s: float) -> int:
    """SIGTERM, and SIGKILL if that does not help; the exit code."""
    process.terminate()
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return code
