"""The demo's broker, in a process of its own. Its log is a file in the demo's directory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from tidelog.demo import serving_process
from tidelog.errors import StartupError

STOP_TIMEOUT_S: Final = 15.0
_LISTENER = re.compile(r"listeners=\w+://([^\s,]+)")


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
        overrides = {
            "log.dirs": str(self.data_directory),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        with self.log_file.open("w") as log:
            self._process = serving_process.spawn(overrides, stderr=log)
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
        """Its exit code."""
        return 0 if self._process is None else serving_process.stop(self._process, STOP_TIMEOUT_S)

    def _last_words(self) -> str:
        words = self.log_file.read_text(errors="replace").strip().splitlines()
        last = words[-1] if words else "the broker ended without a word"
        return last.removeprefix("tidelog: error: ")
