"""A broker in a process of its own whose log is copied line by line, under its broker's name."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final

from tidelog.broker_process import BrokerProcess
from tidelog.errors import StartupError

STOP_TIMEOUT_S: Final = 30.0


class ChildBroker:
    """May be started again when it has ended. The kernel ends it when the thread that called
    `spawn` is gone.
    """

    def __init__(
        self,
        broker_id: int,
        overrides: Mapping[str, str],
        options: Sequence[str] = (),
        labelled: Callable[[int, str], str] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.overrides = overrides
        self._options = options
        self._labelled = labelled or labelled_for_people
        self._process: BrokerProcess | None = None
        self._copier: threading.Thread | None = None
        self._last_words = ""

    @property
    def name(self) -> str:
        return f"broker {self.broker_id}"

    def spawn(self, log: IO[str]) -> None:
        self._process = BrokerProcess(self.overrides, *self._options, stderr=subprocess.PIPE)
        self._copier = threading.Thread(
            target=self._copy, args=(self._process.log, log), daemon=True
        )
        self._copier.start()

    def _copy(self, lines: IO[str], log: IO[str]) -> None:
        for line in lines:
            self._last_words = line.strip()
            log.write(self._labelled(self.broker_id, line))
            log.flush()

    def wait_until_ready(self) -> str:
        """Its ready line. Raises what it said last when it cannot."""
        assert self._process is not None
        line = self._process.wait_until_ready()
        if not line:
            self._process.wait()
            assert self._copier is not None
            self._copier.join()
            words = self._last_words.removeprefix("tidelog: error: ")
            raise StartupError(f"{self.name}: {words or 'it ended without a word'}")
        return line

    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.exit_code()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Its exit code; 0 if it was never started."""
        if self._process is None:
            return 0
        code = self._process.stop(timeout_s)
        assert self._copier is not None
        self._copier.join()
        return code


def labelled_for_people(broker_id: int, line: str) -> str:
    return f"broker {broker_id} | {line}"
