"""The load generator: runs `csrc/load.c` against a broker and reads what it measured.

A client in Python would take a large part of the processors that it shares with the broker, and the
figure would be the client's. The C program costs a few microseconds a request, most of them in the
kernel, and is the same for every broker. What it sends is built by whoever asks, who also checks
the last answers. Where there is no C compiler, the same loop in Python runs (`load_loop`).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.arena import Arena
from bench.tools import ToolFailed
from bench.wire import BadAnswer

SOURCE = Path(__file__).with_name("csrc") / "load.c"
HEAD = struct.Struct("=5I")  # kind, offset_position, empty_bytes, batch_bytes, frame_bytes
ASKS, ASKS_THE_SAME, CONSUMES = range(3)
SETTLE_S = 0.2  # consumers' first Fetches arrive and wait


class Served(Protocol):
    """Whose processor time counts."""

    def cpu_seconds(self) -> float: ...


class Loaded(Served, Protocol):
    """What the load goes to: a broker."""

    port: int


@dataclass(frozen=True, slots=True)
class Asks:
    """A connection that sends its frame again and again."""

    frame: bytes
    same_answer: bool  # every answer must equal the first, byte for byte

    def packed(self) -> bytes:
        kind = ASKS_THE_SAME if self.same_answer else ASKS
        return HEAD.pack(kind, 0, 0, 0, len(self.frame)) + self.frame


@dataclass(frozen=True, slots=True)
class Consumes:
    """A connection that follows a log of batches of one record each."""

    frame: bytes  # a Fetch
    offset_position: int  # of the fetch offset in the frame
    empty_bytes: int  # length of an answer without records
    batch_bytes: int

    def packed(self) -> bytes:
        head = HEAD.pack(
            CONSUMES, self.offset_position, self.empty_bytes, self.batch_bytes, len(self.frame)
        )
        return head + self.frame


@dataclass(frozen=True, slots=True)
class Load:
    """One timed run of the generator."""

    answers: int
    deliveries: int  # Fetch answers with records
    seconds: float
    client_seconds: float
    p50_us: float
    p99_us: float
    broker_seconds: float
    last_answers: Sequence[bytes]  # of each connection


class LoadGenerator:
    """A program that makes the load. Its runs are one after the other: they share two files."""

    def __init__(self, command: Sequence[str | Path], files: Path, remark: str = "") -> None:
        self.remark = remark  # what a reader of the figures must know
        self._command = command
        self._script = files.with_name(files.name + ".script")
        self._answers = files.with_name(files.name + ".answers")

    def run(
        self,
        broker: Loaded,
        connections: Sequence[Asks | Consumes],
        requests: int,
        *,
        copies: int = 0,
        paced: bool = False,
    ) -> Load:
        """Sends that many requests in all, after one on each connection that asks.

        Each record must reach `copies` of the connections that consume. A paced run sends a
        request once all copies of the last have arrived.
        """
        opened = self.open(broker.port, connections, requests, copies=copies, paced=paced)
        return run_opened(broker, [opened])

    def open(
        self,
        port: int,
        connections: Sequence[Asks | Consumes],
        requests: int,
        *,
        copies: int = 0,
        paced: bool = False,
    ) -> OpenedLoad:
        """What `run` does, before its clock starts."""
        self._script.write_bytes(b"".join(connection.packed() for connection in connections))
        numbers = map(str, (port, requests, copies, int(paced)))
        process = subprocess.Popen(
            [*self._command, *numbers, self._script, self._answers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return OpenedLoad(process, self._answers, len(connections))


class OpenedLoad:
    """A generator that opens its connections, and then waits for `go`."""

    def __init__(
        self, process: subprocess.Popen[str], answers: Path, connections_count: int
    ) -> None:
        self._process = process
        self._answers = answers
        self._connections_count = connections_count

    def wait_until_ready(self) -> None:
        self._line()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def figures(self) -> list[float]:
        """Waits for them: answers, deliveries, seconds, client seconds, p50 and p99 in us."""
        return [float(word) for word in self._line().split()]

    def last_answers(self) -> list[bytes]:
        found = list(frames_in(self._answers.read_bytes()))
        if len(found) != self._connections_count:
            raise BadAnswer(f"{len(found)} of {self._connections_count} connections were answered")
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.stderr.read()
            raise BadAnswer(f"the load generator ended with {self._process.wait()}: {said}")
        return line


def run_opened(broker: Served, opened: Sequence[OpenedLoad]) -> Load:
    """Runs them at the same time and adds them up; the slowest tells the time."""
    try:
        for each in opened:
            each.wait_until_ready()
        time.sleep(SETTLE_S)
        before = broker.cpu_seconds()
        for each in opened:
            each.go()
        figures = [each.figures() for each in opened]
        broker_seconds = broker.cpu_seconds() - before
    finally:
        for each in opened:
            each.close()
    answers, deliveries, seconds, client_seconds, p50_us, p99_us = zip(*figures, strict=True)
    return Load(
        int(sum(answers)),
        int(sum(deliveries)),
        max(seconds),
        sum(client_seconds),
        max(p50_us),
        max(p99_us),
        broker_seconds,
        [answer for each in opened for answer in each.last_answers()],
    )


def frames_in(data: bytes) -> Iterator[bytes]:
    """Frames one after the other, each with its length in front."""
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        yield data[position : position + 4 + length]
        position += 4 + length


def load_generator(arena: Arena) -> LoadGenerator:
    """The C program, compiled for this run; the loop in Python where there is no compiler."""
    return load_generators(arena, 1)[0]


def load_generators(arena: Arena, count: int) -> list[LoadGenerator]:
    """Such that can run at the same time."""
    compiler, program = shutil.which("cc"), arena.data_file("load")
    files = [program.with_name(f"{program.name}-{number}") for number in range(count)]
    if compiler is None:
        return [python_generator(each) for each in files]
    done = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-o", program, SOURCE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolFailed(f"{compiler}: {done.stderr}")
    return [LoadGenerator([program], each) for each in files]


def python_generator(files: Path) -> LoadGenerator:
    remark = "no C compiler (cc): the client is a loop in Python, which limits the figures"
    return LoadGenerator([sys.executable, "-m", "bench.load_loop"], files, remark)
