"""Servers in processes of their own, for whoever runs several on one machine: brokers, and the
coordination of brokers that were given no ZooKeeper. What they log is copied line by line.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tidelog.broker_process import BrokerProcess, ServerProcess
from tidelog.errors import StartupError
from tidelog.tools.free_ports import HOST

STOP_TIMEOUT_S: Final = 30.0


class ChildServer:
    """May be started again when it has ended. The kernel ends it when the thread that called
    `spawn` is gone.
    """

    def __init__(self, name: str, address: str, labelled: Callable[[str], str] | None) -> None:
        """`labelled` makes a line that it logs a line of the common log."""
        self.name = name
        self.address = address
        self.is_paused = False
        self._labelled = labelled or self._labelled_for_people
        self._process: ServerProcess | None = None
        self._copier: threading.Thread | None = None
        self._last_words = ""
        self._log: IO[str] | None = None

    def _labelled_for_people(self, line: str) -> str:
        return f"{self.name} | {line}"

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return self._process.pid if self._process and self.exit_code() is None else None

    def spawn(self, log: IO[str]) -> None:
        self._log = log
        self._process = self._new_process()
        self.is_paused = False
        self._copier = threading.Thread(
            target=self._copy, args=(self._process.log, log), daemon=True
        )
        self._copier.start()

    def _new_process(self) -> ServerProcess:
        raise NotImplementedError

    def _copy(self, lines: IO[str], log: IO[str]) -> None:
        for line in lines:
            self._last_words = line.strip()
            log.write(self._labelled(line))
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
        """None while it runs, and before."""
        return None if self._process is None else self._process.exit_code()

    def kill(self) -> None:
        self._signal(signal.SIGKILL).wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def _signal(self, number: signal.Signals) -> ServerProcess:
        if self._process is None or self.pid is None:
            raise StartupError(f"{self.name} does not run")
        self._process.signal(number)
        return self._process

    def restart(self) -> None:
        """Also one that does not run."""
        assert self._log is not None, "it was never started"
        self.stop()
        self.spawn(self._log)
        self.wait_until_ready()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Its exit code; 0 if it was never started."""
        if self._process is None:
            return 0
        code = self._process.stop(timeout_s)
        assert self._copier is not None
        self._copier.join()
        return code


class ChildBroker(ChildServer):
    def __init__(
        self,
        broker_id: int,
        address: str,
        overrides: Mapping[str, str],
        options: Sequence[str] = (),
        labelled: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__(f"broker {broker_id}", address, labelled)
        self.broker_id = broker_id
        self._overrides = overrides
        self._options = options

    def _new_process(self) -> ServerProcess:
        return BrokerProcess(self._overrides, *self._options, stderr=subprocess.PIPE)


class ChildCoordination(ChildServer):
    """`tidelog zookeeper`, for brokers of this machine. Those that start with it wait for it."""

    def __init__(
        self,
        directory: Path,
        port: int,
        options: Sequence[str] = (),
        labelled: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__("zookeeper", f"{HOST}:{port}", labelled)
        self._arguments = ["--port", str(port), "--data", str(directory), *options]

    def _new_process(self) -> ServerProcess:
        return ServerProcess(["zookeeper", *self._arguments], stderr=subprocess.PIPE)
