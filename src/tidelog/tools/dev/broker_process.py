"""One broker of a development cluster, in a process of its own.

What it logs goes to the parent's standard error, each line under the broker's name.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Final

from tidelog.demo import serving_process
from tidelog.errors import StartupError

STOP_TIMEOUT_S: Final = 30.0


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
        self._process = serving_process.spawn(
            self._overrides, "--log-level", log_level, stderr=subprocess.PIPE
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
        """Its exit code."""
        if self._process is None:
            return 0
        code = serving_process.stop(self._process, STOP_TIMEOUT_S)
        assert self._copier is not None
        self._copier.join()
        return code
