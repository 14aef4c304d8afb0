"""`csrc/load.c` in Python, for machines without a C compiler: same arguments, same behaviour.

    python -m bench.load_loop PORT REQUESTS COPIES PACED SCRIPT ANSWERS

It uses several times the processor time of the C program for a request, so the benchmark says which
of the two it ran.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.load import ASKS_THE_SAME, CONSUMES, HEAD
from bench.raw_client import percentile

ANSWER_BYTES_MAX = 1 << 16
RUN_SECONDS_MAX = 300
LENGTH_BYTES_MAX = 4  # by how much the length of the records may itself grow


class Connection:
    """One socket, its frame, and the answer that is arriving or arrived last."""

    def __init__(self, port: int, head: tuple[int, ...], frame: bytearray) -> None:
        self.kind, self.offset_position, self.empty_bytes, self.batch_bytes, _ = head
        self.frame = frame
        self.first = b""
        self.answer = memoryview(bytearray(ANSWER_BYTES_MAX))
        self.have = self.last_bytes = 0
        self.sent_at = 0.0
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, at: float) -> None:
        if self.socket.send(self.frame) != len(self.frame):
            sys.exit(f"send of {len(self.frame)} bytes was cut short")
        self.sent_at = at

    def receive(self) -> bool:
        """Takes what is there; whether that completes an answer."""
        got = self.socket.recv_into(self.answer[self.have :])
        if not got:
            sys.exit("the broker closed a connection")
        self.have += got
        if self.have < 4:
            return False
        length = int.from_bytes(self.answer[:4], "big") + 4
        if length > ANSWER_BYTES_MAX or self.have > length:
            sys.exit(f"an answer of {length} bytes, {self.have} came")
        if self.have < length:
            return False
        self.last_bytes, self.have = length, 0
        return True

    @property
    def last(self) -> memoryview:
        return self.answer[: self.last_bytes]

    def check(self) -> None:
        """An answer to a question, against the first."""
        if self.last_bytes != len(self.first):
            sys.exit(f"an answer of {self.last_bytes} bytes, the first had {len(self.first)}")
        if self.kind == ASKS_THE_SAME and self.last != self.first:
            sys.exit("an answer differs from the first")

    def advance(self) -> int:
        """Moves the offset by the records of the last answer; gives their number."""
        came, rest = divmod(self.last_bytes - self.empty_bytes, self.batch_bytes)
        if came < 0 or rest > LENGTH_BYTES_MAX:
            sys.exit(f"a Fetch answer of {self.last_bytes} bytes holds no whole number of records")
        if came:
            (offset,) = struct.unpack_from(">q", self.frame, self.offset_position)
            struct.pack_into(">q", self.frame, self.offset_position, offset + came)
        return came


def read_script(path: Path, port: int) -> Iterator[Connection]:
    data, position = path.read_bytes(), 0
    while position < len(data):
        head = HEAD.unpack_from(data, position)
        position += HEAD.size + head[-1]
        yield Connection(port, head, bytearray(data[position - head[-1] : position]))


def ask_first(asking: list[Connection]) -> None:
    for connection in asking:
        connection.send(0.0)
    for connection in asking:
        while not connection.receive():
            pass
        connection.first = bytes(connection.last)


def run(
    connections: list[Connection], requests: int, copies: int, pacer: Connection | None
) -> tuple[int, int, list[float]]:
    """Answers, deliveries and the seconds of each answer (of each delivery, with a pacer)."""
    clock = time.perf_counter
    poll = select.epoll()
    by_number = {connection.socket.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    issued = answered = records = deliveries = 0
    taken: list[float] = []
    for connection in connections:
        if connection.kind != CONSUMES and issued < requests:
            issued += 1
            connection.send(clock())
    while answered < requests or records < requests * copies:
        for number, _ in poll.poll():
            connection = by_number[number]
            if not connection.receive():
                continue
            now = clock()
            if connection.kind == CONSUMES:
                came = connection.advance()
                records += came
                deliveries += bool(came)
                if came and pacer:
                    taken.append(now - pacer.sent_at)
                connection.send(now)
                continue
            connection.check()
            answered += 1
            if pacer is None:
                taken.append(now - connection.sent_at)
                if issued < requests:
                    issued += 1
                    connection.send(now)
        if pacer and answered == issued < requests and records == issued * copies:
            issued += 1
            pacer.send(clock())
    return answered, deliveries, taken


def main(port: str, requests: str, copies: str, paced: str, script: str, answers: str) -> None:
    signal.alarm(RUN_SECONDS_MAX)
    connections = list(read_script(Path(script), int(port)))
    asking = [connection for connection in connections if connection.kind != CONSUMES]
    if int(paced) and len(asking) != 1:
        sys.exit("more than one connection asks in a paced run")
    ask_first(asking)
    for connection in connections:
        if connection.kind == CONSUMES:
            connection.send(0.0)
    print("ready", flush=True)
    sys.stdin.readline()
    started, cpu_started = time.perf_counter(), time.process_time()
    pacer = asking[0] if int(paced) else None
    answered, deliveries, taken = run(connections, int(requests), int(copies), pacer)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    p50, p99 = (percentile(taken, share) * 1e6 for share in (0.5, 0.99))
    Path(answers).write_bytes(b"".join(connection.last for connection in connections))
    print(answered, deliveries, seconds, cpu, p50, p99, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
