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


class Loaded(Protocol):
    """What the load goes to: a broker."""

    port: int

    def cpu_seconds(self) -> float: ...


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
    """A program that makes the load. Runs are one after the other: they share two files."""

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
        self._script.write_bytes(b"".join(connection.packed() for connection in connections))
        numbers = map(str, (broker.port, requests, copies, int(paced)))
        process = subprocess.Popen(
            [*self._command, *numbers, self._script, self._answers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self._line(process)
            time.sleep(SETTLE_S)
            before = broker.cpu_seconds()
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            figures = self._line(process).split()
            broker_seconds = broker.cpu_seconds() - before
        finally:
            process.kill()
            process.communicate()
        last_answers = list(frames_in(self._answers.read_bytes()))
        if len(last_answers) != len(connections):
            raise BadAnswer(f"{len(last_answers)} of {len(connections)} connections were answered")
        seconds, client_seconds, p50_us, p99_us = map(float, figures[2:])
        return Load(
            int(figures[0]),
            int(figures[1]),
            seconds,
            client_seconds,
            p50_us,
            p99_us,
            broker_seconds,
            last_answers,
        )

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if not line:
            said = process.stderr.read()
            raise BadAnswer(f"the load generator ended with {process.wait()}: {said}")
        return line


def frames_in(data: bytes) -> Iterator[bytes]:
    """Frames one after the other, each with its length in front."""
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        yield data[position : position + 4 + length]
        position += 4 + length


def load_generator(arena: Arena) -> LoadGenerator:
    """The C program, compiled for this run; the loop in Python where there is no compiler."""
    compiler, program = shutil.which("cc"), arena.data_file("load")
    if compiler is None:
        return python_generator(program)
    done = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-o", program, SOURCE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolFailed(f"{compiler}: {done.stderr}")
    return LoadGenerator([program], program)


def python_generator(files: Path) -> LoadGenerator:
    remark = "no C compiler (cc): the client is a loop in Python, which limits the figures"
    return LoadGenerator([sys.executable, "-m", "bench.load_loop"], files, remark)
