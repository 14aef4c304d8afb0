"""A broker for a test.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs in a process of its own, or with `in_process=True` on a thread of this one, listens on a
free port of the loopback interface and keeps its data in a temporary directory. Both end with the
`with` block, and with this process, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from tidelog.errors import ErrorCode
from tidelog.testing.control import BrokerGone, LoopPause, RemoteControl, child, obeyed
from tidelog.testing.service import KafkaService

STOP_TIMEOUT_S: Final = 30.0
# For one broker and short tests: nobody waits for further members, and there is one partition where
# Kafka has fifty.
DEFAULTS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PLAINTEXT: Final = "PLAINTEXT"
LogLevel = Literal["debug", "info", "warning", "error"]


class NeedsProcess(RuntimeError):
    """A thread cannot be killed."""


class Paused(RuntimeError):
    """A broker that is paused does nothing that it is told."""


class BrokerClock:
    """The broker's time, which is the time of this machine until it is advanced."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Until what became due is done: retention, compaction, timeouts of sessions and
        transactions.

        The clock jumps, as for a laptop that has slept: a member of a group that did not send a
        heartbeat meanwhile is dead if its session timeout is over. Nothing jumps back.

        The clock is as far ahead when the broker is started again. The clocks of clients stay.
        From the first jump on, topics without a message.timestamp.type of their own have
        LogAppendTime, so that what is written later is younger than what was written before.
        """
        span = (by or timedelta()) + timedelta(
            days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        self._broker._steer("advance", seconds=span.total_seconds())
        self._broker._ahead_s += span.total_seconds()


class Snapshot:
    """The state of a broker at a moment; kept until the broker it was taken of ends."""

    def __init__(self, path: Path) -> None:
        self.path = path


class _InProcess:
    """A broker on a thread of this process, steered by calls."""

    def __init__(self, overrides: Mapping[str, str], ahead_s: float) -> None:
        from tidelog.event_loop import new_loop
        from tidelog.testing.steered_broker import SteeredBroker

        self._loop = new_loop()
        self._broker = SteeredBroker(overrides, self._loop, ahead_s)
        self._pause = LoopPause(self._loop)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tidelog-broker", daemon=True
        )
        self._thread.start()

    def call(self, command: str, /, **arguments: Any) -> Any:
        if not self._thread.is_alive():
            raise BrokerGone(command)
        if command == "pause":
            self._pause.begin()
            return None
        if command == "resume":
            self._pause.end()
            return None
        if command == "leave":
            return None
        return self._run(obeyed(self._broker, command, arguments))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._pause.end()
        self._run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()


class Broker(KafkaService):
    """The methods that steer it return when they have had effect."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        in_process: bool = False,
        data: Path | str | None = None,
        log_level: LogLevel = "info",
        client: Mapping[str, object] | None = None,
    ) -> None:
        """`config` has keys of server.properties. `data` is a directory that stays; without it the
        broker has a temporary one. `client` has what the topics given out here need to reach a
        broker that has no listener in plain text: security.protocol and what belongs to it.
        """
        self._config = {**DEFAULTS, **(config or {})}
        self._client = dict(client or {})
        self._in_process = in_process
        self._kept_data = None if data is None else Path(data)
        self._log_level = log_level
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._link: RemoteControl | _InProcess | None = None
        self._listeners: dict[str, str] = {}
        self._snapshots = 0
        self._ahead_s = 0.0
        self._is_paused = False
        self.clock = BrokerClock(self)

    # Life

    def start(self) -> Self:
        if self._link is not None:
            raise RuntimeError("the broker runs already")
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="tidelog-test-"))
        try:
            self._link = self._thread() if self._in_process else self._child()
            self._listeners = self._control.call("start")
        except BaseException as error:
            log = self.log_text()
            self.close()
            if isinstance(error, BrokerGone):
                raise RuntimeError(f"the broker ended while it started:\n{log}") from error
            raise
        # The next start listens at the same address, so that clients find the broker again.
        self._config["listeners"] = ",".join(
            f"{name}://{address}" for name, address in self._listeners.items()
        )
        return self

    def _overrides(self) -> dict[str, str]:
        return {"log.dirs": str(self.data_directory), **self._config}

    def _thread(self) -> _InProcess:
        return _InProcess(self._overrides(), self._ahead_s)

    def _child(self) -> RemoteControl:
        settings = {
            "overrides": self._overrides(),
            "temporary": str(self._directory),
            "log_level": self._log_level,
            "ahead_s": self._ahead_s,
        }
        module = "tidelog.testing.served_broker"
        self._process, link = child(module, settings, self._log_path)
        return RemoteControl(link)

    def stop(self) -> None:
        """Cleanly; the data stays until `close`, and `start` goes on with it. A broker that is
        paused goes on first.
        """
        self.resume()
        self._control.call("stop")
        self._control.call("leave")
        self._end()

    def kill(self) -> None:
        """As kill -9 does."""
        if self._process is None:
            raise NeedsProcess("a broker in this process cannot be killed")
        self._process.kill()
        self._end()

    def restart(self) -> None:
        """Stops it cleanly, if it runs, and starts it at the same address with the same data."""
        if self._link is not None:
            self.stop()
        self.start()

    def pause(self) -> None:
        """It answers nobody until `resume`, and its connections stay open."""
        self._control.call("pause")
        self._is_paused = True

    def resume(self) -> None:
        self._control.call("resume")
        self._is_paused = False

    def close(self) -> None:
        if isinstance(self._link, _InProcess):
            self._link.call("resume")
            if self._listeners:
                self._link.call("stop")
            self._end()
        elif self._process is not None:
            self._process.kill()
            self._end()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _end(self) -> None:
        self._is_paused = False
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    # What it is

    @property
    def bootstrap_servers(self) -> str:
        """Of its first listener."""
        return next(iter(self.listeners.values()))

    @property
    def client_config(self) -> Mapping[str, object]:
        protocol = str(self._client.get("security.protocol", PLAINTEXT))
        pairs = self._config.get("listener.security.protocol.map", "").split(",")
        halves = [pair.partition(":") for pair in pairs]
        protocols = {name.strip(): spoken.strip() for name, _, spoken in halves}
        for name, address in self.listeners.items():
            if protocols.get(name, name).upper() == protocol.upper():
                return {"bootstrap.servers": address, **self._client}
        raise ValueError(
            f"no listener of the broker speaks {protocol}, as its topics here do: it has "
            f"{', '.join(self.listeners)}; give Broker(client={{...}}) the keys of a client that "
            "may log in"
        )

    @property
    def replicas(self) -> int:
        return 1

    @property
    def listeners(self) -> Mapping[str, str]:
        """Addresses by listener name."""
        if not self._listeners:
            raise RuntimeError("the broker was never started")
        return self._listeners

    @property
    def is_running(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        return self._link is not None

    @property
    def pid(self) -> int:
        return os.getpid() if self._process is None else self._process.pid

    @property
    def data_directory(self) -> Path:
        if self._kept_data is not None:
            return self._kept_data
        return self._own_directory / "data"

    @property
    def _own_directory(self) -> Path:
        if self._directory is None:
            raise RuntimeError("the broker was never started, or is closed")
        return self._directory

    @property
    def _log_path(self) -> Path:
        return self._own_directory / "broker.log"

    def log_text(self) -> str:
        """What it has logged; a broker in this process logs with `logging`."""
        if self._directory is None or not self._log_path.exists():
            return ""
        return self._log_path.read_text(errors="replace")

    @property
    def _control(self) -> RemoteControl | _InProcess:
        if self._link is None:
            raise RuntimeError("the broker does not run")
        return self._link

    def _steer(self, command: str, **arguments: Any) -> None:
        """What the broker itself carries out, on its loop."""
        if self._is_paused:
            raise Paused(f"the broker is paused: resume it before {command}")
        self._control.call(command, **arguments)

    # What a test can do to it

    def fail(
        self,
        api: str,
        error: str | int | ErrorCode,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """The next requests get an error and have no effect; `times=None`: all of them.

        `api` and `error` are Kafka's names: "Produce", "NOT_LEADER_OR_FOLLOWER".
        """
        self._add_fault("fail", api, times, topic, client_id, error=error)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """The next requests are handled later."""
        self._add_fault("delay", api, times, topic, client_id, seconds=seconds)

    def disconnect(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """The next requests have no effect, and their connections close."""
        self._add_fault("disconnect", api, times, topic, client_id)

    def drop_after(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """The next requests have their effect, and their connections close instead of an answer."""
        self._add_fault("drop_after", api, times, topic, client_id)

    def _add_fault(
        self,
        effect: str,
        api: str,
        times: int | None,
        topic: str | None,
        client_id: str | None,
        **more: Any,
    ) -> None:
        if times is not None and times < 1:
            raise ValueError("a fault happens at least once")
        limits = {"times": times, "topic": topic, "client_id": client_id}
        self._steer("add_fault", effect=effect, api=api, **limits, **more)

    def heal(self) -> None:
        """No request meets a fault any more."""
        self._steer("clear_faults")

    def snapshot(self) -> Snapshot:
        """All topics, records, offsets and groups, as they are now."""
        self._snapshots += 1
        path = self._own_directory / f"snapshot-{self._snapshots}"
        self._steer("snapshot", target=str(path))
        return Snapshot(path)

    def restore(self, snapshot: Snapshot) -> None:
        """Everything as it was. Connections close, and clients find the broker again."""
        self._steer("restore", source=str(snapshot.path))
