"""One broker of a development cluster: `tidelog serve` in a child process.

The child has a session of its own, so that Ctrl-C reaches only the parent, and dies with it. What
it logs goes to the parent's standard error, each line under the broker's name.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Final

from tidelog.errors import StartupError

STOP_TIMEOUT_S: Final = 30.0
# On Linux the kernel sends SIGTERM (15) when the parent is gone, however it went.
_SERVE: Final = """\
import sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 15)
from tidelog.tools.cli.main import main
sys.exit(main())
"""


class BrokerProcess:
    def __init__(self, broker_id: int, port: int, overrides: Mapping[str, str]) -> None:
        self.broker_id = broker_id
        self.port = port
        self._overrides = overrides
        self._process: subprocess.Popen[str] | None = None
        self._copier: threading.Thread | None = None
        self._last_words = ""

    @property
    def name(self) -> str:
        return f"broker {self.broker_id}"

    def spawn(self, log: IO[str], log_level: str) -> None:
        command = [sys.executable, "-c", _SERVE, "serve", "--log-level", log_level]
        for key, value in self._overrides.items():
            command += ["--override", f"{key}={value}"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stderr is not None
        self._copier = threading.Thread(
            target=self._copy, args=(self._process.stderr, log), daemon=True
        )
        self._copier.start()

    def _copy(self, lines: IO[str], log: IO[str]) -> None:
        for line in lines:
            self._last_words = line.strip()
            log.write(f"{self.name} | {line}")
            log.flush()

    def wait_until_ready(self) -> None:
        """Raises what it said last when it cannot."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        if not process.stdout.readline():
            process.wait()
            assert self._copier is not None
            self._copier.join()
            words = self._last_words.removeprefix("tidelog: error: ")
            raise StartupError(f"{self.name}: {words or 'it ended without a word'}")

    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit code."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.terminate()
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        assert self._copier is not None
        self._copier.join()
        assert process.stdout is not None
        process.stdout.close()
        return code
