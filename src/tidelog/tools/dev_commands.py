"""How one terminal tells the `tidelog dev` of another what to do to its brokers.

    DIR/dev.lock             held while the cluster runs
    DIR/dev-commands/        ID.request, a line of JSON, is taken and answered with ID.answer

Only whoever may write to the data directory can do this. The cluster looks for requests a few times
a second, and itself kills and starts its processes: no number of a process that is long gone is
ever signalled.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tidelog.errors import StartupError

if TYPE_CHECKING:
    from tidelog.tools.child_server import ChildServer
    from tidelog.tools.dev_cluster import DevCluster

POLL_S: Final = 0.05
ANSWER_TIMEOUT_S: Final = 120.0
REQUEST_BYTES_MAX: Final = 4096


class NoCluster(StartupError):
    def __init__(self, directory: Path) -> None:
        super().__init__(f"no cluster runs on {directory}: start one with `tidelog dev`")


class DevCommands:
    """The cluster's side."""

    def __init__(self, directory: Path, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._requests = directory / "dev-commands"
        self._lock = _take_lock(directory)
        shutil.rmtree(self._requests, ignore_errors=True)
        self._requests.mkdir()
        self.asked_to_end: set[ChildServer] = set()  # these did not end by themselves

    def close(self) -> None:
        shutil.rmtree(self._requests, ignore_errors=True)
        self._lock.close()

    def serve(self) -> list[str]:
        """Does what was asked for since the last time; what was done to brokers."""
        done = []
        for path in sorted(self._requests.glob("*.request")):
            with path.open() as file:
                text = file.read(REQUEST_BYTES_MAX)
            path.unlink()
            try:
                request = json.loads(text)
                line = self._obey(request)
                answer = {"done": line}
                if request["action"] != "status":
                    done.append(line)
            except (StartupError, ValueError, TypeError, KeyError) as error:
                answer = {"error": str(error)}
            _write(path.with_suffix(".answer"), answer)
        return done

    def _obey(self, request: dict[str, object]) -> str:
        action, number = request["action"], request["broker"]
        if action == "status":
            return self.status()
        found = [each for each in self._cluster.brokers if each.broker_id == number]
        if not found:
            count = len(self._cluster.brokers)
            raise StartupError(f"there is no broker {number}: they are numbered 1 to {count}")
        (broker,) = found
        if action == "kill":
            broker.kill()
            self.asked_to_end.add(broker)
            return f"{broker.name} killed"
        if action == "pause":
            broker.pause()
            return f"{broker.name} paused"
        if action == "resume":
            broker.resume()
            return f"{broker.name} resumed"
        if action != "restart":
            raise StartupError(f"brokers cannot {action}")
        self.asked_to_end.add(broker)
        broker.restart()
        self.asked_to_end.discard(broker)
        return f"{broker.name} restarted with pid {broker.pid}"

    def status(self) -> str:
        lines = []
        for server in self._cluster.servers:
            state = "does not run" if server.pid is None else f"pid {server.pid}"
            paused = ", paused" if server.is_paused and server.pid is not None else ""
            lines.append(f"{server.name} {server.address} {state}{paused}")
        return "\n".join(lines)


def ask(directory: Path, action: str, broker: int | None) -> str:
    """From another process: what the cluster says when it has done it."""
    requests = directory / "dev-commands"
    if not requests.is_dir() or not _is_locked(directory):
        raise NoCluster(directory)
    path = requests / f"{time.time_ns()}-{secrets.token_hex(4)}.request"
    _write(path, {"action": action, "broker": broker})
    answer_path = path.with_suffix(".answer")
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while not answer_path.exists():
        if not _is_locked(directory):
            raise NoCluster(directory)
        if time.monotonic() > deadline:
            raise StartupError(f"the cluster on {directory} has not answered")
        time.sleep(POLL_S)
    answer = json.loads(answer_path.read_text())
    answer_path.unlink()
    if "error" in answer:
        raise StartupError(answer["error"])
    return str(answer["done"])


def _write(path: Path, content: object) -> None:
    """Seen as a whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content))
    os.replace(temporary, path)


def _take_lock(directory: Path) -> IO[str]:
    lock = (directory / "dev.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StartupError(f"a cluster runs on {directory} already") from None
    return lock


def _is_locked(directory: Path) -> bool:
    try:
        lock = (directory / "dev.lock").open()
    except FileNotFoundError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
