"""A broker whose process stays for a while after it has stopped, as one does whose machine is busy.

python -m tests.support.lingering_broker FILE serve --override ...

It makes the file when all is done but the exit, and exits when the file is gone.
"""

from __future__ import annotations

import atexit
import sys
import time
from pathlib import Path

from tidelog.tools.cli.main import main


def program_that_lingers(file: Path) -> tuple[str, ...]:
    """What runs in place of `tidelog`."""
    return (sys.executable, "-m", "tests.support.lingering_broker", str(file))


def linger(file: Path) -> None:
    file.touch()
    while file.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    # uvloop leaves its signal handlers to the interpreter, asyncio takes them away before that.
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    atexit.register(linger, Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
