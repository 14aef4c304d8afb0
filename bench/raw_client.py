"""One socket that sends prebuilt bytes and counts what comes back.

The client must cost next to nothing, or a fast broker's figure is the client's. So requests are
built beforehand, answers of a known size are counted rather than parsed, one receive takes as many
answers as are there, and the bulk of a Fetch answer is dropped in the kernel (MSG_TRUNC on a TCP
socket takes bytes off the queue without copying them). What remains is measured: each run reports
the processor time of the client beside the wall time.

A run proves itself: the base offset of the last Produce answer must have moved by exactly the
records sent, and a Fetch pass must meet the sizes that a checked first answer had.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import wire
from bench.wire import Batch, FetchAnswer, ProduceAnswer

CHUNK_BYTES = 1 << 20
HEAD_BYTES = 160  # holds a Fetch answer up to its records for every topic name used here
ANSWER_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run: how much was done, how long it took, how much of that the client worked."""

    requests: int
    payload_bytes: int
    seconds: float
    client_seconds: float

    @property
    def megabytes_per_second(self) -> float:
        return self.payload_bytes / self.seconds / 1e6

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def client_busy(self) -> float:
        return self.client_seconds / self.seconds


class RawClient:
    """A blocking connection. Not shared between threads."""

    def __init__(
        self,
        port: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._drop_flags: int = socket.MSG_TRUNC
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
            self._drop_flags = 0  # only who decrypts them knows where an answer ends
        self._buffer = bytearray(CHUNK_BYTES)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> bytes:
        """One request, its whole answer with the length in front."""
        self.socket.sendall(request)
        return self.receive_answer()

    def receive_answer(self) -> bytes:
        head = self._receive_exactly(4)
        (length,) = struct.unpack(">i", head)
        return head + self._receive_exactly(length)

    def _receive_exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view, have = memoryview(data), 0
        while have < count:
            got = self.socket.recv_into(view[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        return bytes(data)

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Creates a topic and waits until the broker serves it.

        Metadata may name a leader a moment before that leader knows it, hence the second wait.
        """
        named = {name.replace("_", "."): value for name, value in configs.items()}
        error = wire.topic_error(
            self.ask(wire.create_topic_request(topic, partitions, named, timeout_ms=100_000))
        )
        if error:
            raise wire.BadAnswer(f"CreateTopics answered error code {error} for {topic}")
        request = wire.metadata_request([topic], auto_create=False)
        give_up_at = time.monotonic() + ANSWER_TIMEOUT_S
        while wire.led_partitions(self.ask(request)) < partitions:
            if time.monotonic() > give_up_at:
                raise wire.BadAnswer(f"{topic} has partitions without a leader")
            time.sleep(0.02)
        while not self._serves(topic, partitions - 1):
            if time.monotonic() > give_up_at:
                raise wire.BadAnswer(f"{topic} is not served")
            time.sleep(0.02)

    def _serves(self, topic: str, partition: int) -> bool:
        try:
            self.end_offset(topic, partition)
        except wire.BadAnswer:
            return False
        return True

    def delete_topic(self, topic: str) -> None:
        error = wire.topic_error(self.ask(wire.delete_topics_request([topic])))
        if error:
            raise wire.BadAnswer(f"DeleteTopics answered error code {error} for {topic}")

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return wire.end_offset(self.ask(wire.end_offset_request(topic, partition)))

    def api_keys(self) -> frozenset[int]:
        return wire.api_keys(self.ask(wire.api_versions_request()))

    def produce(
        self, topic: str, batch: Batch, count: int, *, partition: int = 0, in_flight: int = 5
    ) -> Run:
        """Sends the batch count times, never more than in_flight unanswered."""
        request = wire.produce_request(topic, partition, batch.data)
        layout = ProduceAnswer.for_topic(topic)
        first = self.ask(request)
        first_offset = layout.base_offset(first)
        run, tail = self.pump(request, len(first), count, in_flight, len(batch.data))
        moved = layout.base_offset(tail) - first_offset
        if moved != count * batch.records_count:
            raise wire.BadAnswer(f"offsets moved by {moved}, sent {count * batch.records_count}")
        return run

    def pump(
        self, request: bytes, answer_bytes: int, count: int, in_flight: int, payload_bytes: int
    ) -> tuple[Run, bytes]:
        """Sends the same request count times, keeping the window full; also the last answer."""
        started, cpu_started = time.perf_counter(), time.process_time()
        tail = self._pump(request, answer_bytes, count, in_flight)
        taken, cpu_taken = time.perf_counter() - started, time.process_time() - cpu_started
        return Run(count, count * payload_bytes, taken, cpu_taken), tail

    def _pump(self, request: bytes, answer_bytes: int, count: int, in_flight: int) -> bytes:
        """The timed loop."""
        request_bytes = len(request)
        window = memoryview(request * in_flight)
        buffer, view = self._buffer, memoryview(self._buffer)
        send, receive = self.socket.sendall, self.socket.recv_into
        unsent = count
        partial = 0  # bytes of an unfinished answer at the start of the buffer
        answered = 0
        first = min(in_flight, unsent)
        send(window[: first * request_bytes])
        unsent -= first
        while True:
            got = receive(view[partial:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            whole, rest = divmod(partial + got, answer_bytes)
            answered += whole
            if answered >= count:
                return bytes(buffer[(whole - 1) * answer_bytes : whole * answer_bytes])
            if whole and unsent:
                more = whole if whole < unsent else unsent
                send(window[: more * request_bytes])
                unsent -= more
            if rest and whole:
                start = whole * answer_bytes
                buffer[:rest] = buffer[start : start + rest]
            partial = rest

    def fetch_all(self, topic: str, batch: Batch, batches: int, *, max_bytes: int = 1 << 20) -> Run:
        """Reads a log of equal batches from its start, one Fetch of max_bytes after the other.

        The first answer is read and its CRCs checked before the clock starts; from then on each
        answer's head is parsed for its size and the records are dropped unread.
        """
        head_answer = self.ask(wire.fetch_request(topic, 0, 0, max_bytes=max_bytes))
        head = FetchAnswer.parse(head_answer, topic)
        records = memoryview(head_answer)[head.records_position :][: head.records_bytes]
        batch_bytes = len(batch.data)
        per_answer = len(records) // batch_bytes
        if wire.last_offset_of(records) != per_answer * batch.records_count - 1:
            raise wire.BadAnswer("a Fetch from the start does not hold the batches written")
        offsets = range(0, batches * batch.records_count, per_answer * batch.records_count)
        requests = [wire.fetch_request(topic, 0, offset, max_bytes=max_bytes) for offset in offsets]
        started, cpu_started = time.perf_counter(), time.process_time()
        total = 0
        for request in requests:
            total += self._fetch_and_drop(request, topic)
        run = Run(
            len(requests),
            total,
            time.perf_counter() - started,
            time.process_time() - cpu_started,
        )
        if total < batches * batch_bytes:
            raise wire.BadAnswer(f"read {total} bytes of a log of {batches * batch_bytes}")
        return run

    def _fetch_and_drop(self, request: bytes, topic: str) -> int:
        """Sends one Fetch, gives the bytes of records its answer held."""
        head = memoryview(self._buffer)[:HEAD_BYTES]
        self.socket.sendall(request)
        have = 0
        while have < HEAD_BYTES:
            got = self.socket.recv_into(head[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        (length,) = struct.unpack_from(">i", head)
        records_bytes = FetchAnswer.parse(head, topic).records_bytes
        remaining = length + 4 - HEAD_BYTES
        view = memoryview(self._buffer)
        while remaining > 0:
            got = self.socket.recv_into(view, min(remaining, CHUNK_BYTES), self._drop_flags)
            if not got:
                raise ConnectionError("the broker closed the connection")
            remaining -= got
        return records_bytes


def lone_requests(
    clients: Sequence[RawClient], requests: Sequence[bytes], count: int
) -> list[float]:
    """Seconds of each of count requests, one at a time, connections and requests in turn.

    Answers must fit the client's buffer and are taken whole: by their length prefix.
    """
    buffer = memoryview(bytearray(CHUNK_BYTES))
    calls: list[tuple[Callable[[bytes], None], Callable[[memoryview], int]]] = [
        (client.socket.sendall, client.socket.recv_into) for client in clients
    ]
    clock, from_bytes = time.perf_counter, int.from_bytes
    taken = [0.0] * count
    connections, kinds = len(calls), len(requests)
    for turn in range(count):
        send, receive = calls[turn % connections]
        request = requests[turn % kinds]
        started = clock()
        send(request)
        have = receive(buffer)
        while have < 4 or have < from_bytes(buffer[:4], "big") + 4:
            got = receive(buffer[have:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            have += got
        taken[turn] = clock() - started
    return taken


def percentile(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
