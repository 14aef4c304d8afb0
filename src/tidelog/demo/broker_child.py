"""The demo's broker: `tidelog serve` in a child process, which dies with its parent.

The child has a session of its own, so that Ctrl-C reaches only the parent, which stops it when
everything that uses it has stopped. Its log is a file in the data directory.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tidelog.errors import StartupError

STOP_TIMEOUT_S: Final = 15.0
_LISTENER = re.compile(r"listeners=\w+://([^\s,]+)")
# On Linux the kernel sends SIGTERM (15) when the parent is gone, however it went.
_SERVE: Final = """\
import sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 15)
from tidelog.tools.cli.main import main
sys.exit(main())
"""


class BrokerChild:
    def __init__(self, directory: Path, port: int) -> None:
        self.log_file = directory / "broker.log"
        self.data_directory = directory / "log"
        self.port = port
        self.ready_line = ""
        self.bootstrap = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it serves; raises what it said when it cannot."""
        self.data_directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", _SERVE, "serve"]
        for key, value in (
            ("log.dirs", str(self.data_directory)),
            ("listeners", f"PLAINTEXT://127.0.0.1:{self.port}"),
        ):
            command += ["--override", f"{key}={value}"]
        with self.log_file.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().strip()
        found = _LISTENER.search(self.ready_line)
        if found is None:
            self.stop()
            raise StartupError(self._last_words())
        self.bootstrap = found[1]

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit code."""
        process = self._process
        if process is None:
            return 0
        process.terminate()
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code

    def _last_words(self) -> str:
        words = self.log_file.read_text(errors="replace").strip().splitlines()
        last = words[-1] if words else "the broker ended without a word"
        return last.removeprefix("tidelog: error: ")
