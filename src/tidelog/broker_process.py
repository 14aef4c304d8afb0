"""Servers of tidelog in child processes that die with their parent: `tidelog serve`, `zookeeper`,
`console`.

A child has a session of its own, so that Ctrl-C reaches only the parent, which stops it when
everything that uses it has stopped.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
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


class ServerProcess:
    """Starts when it is made. `stderr` takes what it logs: a file, or subprocess.PIPE."""

    def __init__(self, arguments: Sequence[str], *, stderr: int | IO[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> IO[str]:
        """What it logs, line by line; there is one with subprocess.PIPE."""
        assert self._process.stderr is not None
        return self._process.stderr

    def wait_until_ready(self) -> str:
        """The line that it says when it serves; empty when it ended instead."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """For its end; its exit code."""
        return self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, timeout_s: float) -> int:
        """SIGTERM, and SIGKILL if that does not help; the exit code. Also of one that is paused."""
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class BrokerProcess(ServerProcess):
    def __init__(self, overrides: Mapping[str, str], *options: str, stderr: int | IO[str]) -> None:
        arguments = ["serve", *options]
        for key, value in overrides.items():
            arguments += ["--override", f"{key}={value}"]
        super().__init__(arguments, stderr=stderr)


class ConsoleProcess(ServerProcess):
    """The web console. `properties` are those of Kafka's clients."""

    MODULES: Final = ("jinja2", "starlette", "uvicorn")  # of the extra `console`

    def __init__(self, properties: Mapping[str, str], *options: str, stderr: int | IO[str]) -> None:
        arguments = ["console", *options]
        for key, value in properties.items():
            arguments += ["-X", f"{key}={value}"]
        super().__init__(arguments, stderr=stderr)

    @classmethod
    def missing(cls) -> list[str]:
        """The modules that the console needs and that are not installed."""
        return [name for name in cls.MODULES if find_spec(name) is None]

    def wait_for_address(self) -> str:
        """Where it serves; empty when it ended instead."""
        _, _, said = self.wait_until_ready().partition(" console=")
        return said.partition(" ")[0]
