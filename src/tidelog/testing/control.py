"""How a test steers its broker: commands, and what they return or raise.

A command is the name of a method of `SteeredBroker` and its arguments. To a broker in a process of
its own it goes as a line of JSON over a pair of sockets, and what comes of it comes back as a line:
{"result": ...} or {"error": [kind, text]}. When the test's end of the pair closes, whatever ended
the test, the broker ends at once: not even kill -9 leaves one behind.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import StartupError

if TYPE_CHECKING:
    from tidelog.testing.steered_broker import SteeredBroker

COMMANDS: Final = frozenset(
    {"start", "stop", "advance", "add_fault", "clear_faults", "snapshot", "restore"}
)
ERRORS: Final[dict[str, type[Exception]]] = {
    each.__name__: each for each in (ValueError, OSError, StartupError)
}


class BrokerGone(Exception):
    """The broker has ended, and did not answer."""


def child(
    module: str, settings: Mapping[str, Any], log_path: Path
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A process that runs the module, and this end of the pair of sockets that it lives with. Its
    first line there is the settings.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs, log_path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ours.sendall(_line(settings))
    except BaseException:
        ours.close()
        raise
    return process, ours


class LoopPause:
    """Holds the loop of a broker, which answers nobody then. For any other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._go_on = threading.Event()
        self._go_on.set()

    def begin(self) -> None:
        """Returns when the loop is held."""
        if not self._go_on.is_set():
            return
        self._go_on.clear()
        is_held = threading.Event()
        self._loop.call_soon_threadsafe(self._hold, is_held)
        is_held.wait()

    def _hold(self, is_held: threading.Event) -> None:
        is_held.set()
        self._go_on.wait()

    def end(self) -> None:
        self._go_on.set()


class RemoteControl:
    """The test's end of the pair."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lines = link.makefile("rb")
        self._lock = threading.Lock()

    def call(self, command: str, /, **arguments: Any) -> Any:
        with self._lock:
            try:
                self._link.sendall(_line({"command": command, "arguments": arguments}))
                answer = self._lines.readline()
            except OSError as error:
                raise BrokerGone(command) from error
        if not answer:
            raise BrokerGone(command)
        outcome = json.loads(answer)
        if "error" in outcome:
            kind, text = outcome["error"]
            raise ERRORS.get(kind, RuntimeError)(text)
        return outcome["result"]

    def close(self) -> None:
        self._lines.close()
        self._link.close()


class ControlListener:
    """The broker's end, read by a thread, so that it sees the end of the test whatever the broker
    does. `pause` is obeyed here: it holds the loop until `resume`. After `leave` the end of the
    link is no surprise, and calls `left`.
    """

    def __init__(
        self,
        link: socket.socket,
        broker: SteeredBroker,
        loop: asyncio.AbstractEventLoop,
        *,
        abandoned: Callable[[], object],
        left: Callable[[], object],
    ) -> None:
        self._link = link
        self._broker = broker
        self._loop = loop
        self._abandoned = abandoned
        self._left = left
        self._pause = LoopPause(loop)

    def run(self) -> None:
        try:
            with self._link.makefile("rb") as lines:
                for line in lines:
                    self._link.sendall(_line(self._obey(json.loads(line))))
        except OSError:
            pass
        self._abandoned()

    def _obey(self, wanted: dict[str, Any]) -> dict[str, Any]:
        command, arguments = wanted["command"], wanted["arguments"]
        if command == "pause":
            self._pause.begin()
            return {"result": None}
        if command == "resume":
            self._pause.end()
            return {"result": None}
        if command == "leave":
            self._abandoned = self._left
            return {"result": None}
        running = asyncio.run_coroutine_threadsafe(
            obeyed(self._broker, command, arguments), self._loop
        )
        try:
            return {"result": running.result()}
        except Exception as error:  # noqa: BLE001 the test is told
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS]
            return {"error": [kinds[0] if kinds else "RuntimeError", str(error)]}


async def obeyed(broker: SteeredBroker, command: str, arguments: dict[str, Any]) -> Any:
    if command not in COMMANDS:
        raise ValueError(f"no command of a broker under test: {command}")
    result = getattr(broker, command)(**arguments)
    return await result if inspect.isawaitable(result) else result


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
