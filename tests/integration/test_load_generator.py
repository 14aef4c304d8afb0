"""The load generator of the benchmark: against servers that misbehave, and against a broker."""

from __future__ import annotations

import shutil
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.arena import Arena, Sample, Size
from bench.load import Asks, Consumes, LoadGenerator, load_generator, python_generator
from bench.measures.clients import Subject
from bench.peers import Tidelog
from bench.wire import BadAnswer
from tests.support.broker_process import EXTERNAL_BOOTSTRAP

FRAME = struct.pack(">i", 12) + b"questions..."
ANSWER = struct.pack(">i", 8) + b"answered"
BATCH_BYTES = 100


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return Arena([Tidelog(Path(sys.executable).with_name("tidelog"))], Size(quick=True), tmp_path)


@pytest.fixture(params=["C", "Python"])
def generator(request: pytest.FixtureRequest, arena: Arena, tmp_path: Path) -> LoadGenerator:
    if request.param == "Python":
        return python_generator(tmp_path / "load")
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return load_generator(arena)


class Server:
    """Answers each request with what `answer` makes of the request and its number."""

    def __init__(self, answer: Callable[[bytes, int], bytes | None]) -> None:
        self._answer = answer
        self._number = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def cpu_seconds(self) -> float:
        return 0.0

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # the generator ends without a farewell
            while len(request := connection.recv(len(FRAME), socket.MSG_WAITALL)) == len(FRAME):
                with self._lock:
                    self._number += 1
                    answer = self._answer(request, self._number)
                if answer is None:
                    return
                connection.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def server(answer: Callable[[bytes, int], bytes | None]) -> Iterator[Server]:
    found = Server(answer)
    thread = threading.Thread(target=found.accept)
    thread.start()
    try:
        yield found
    finally:
        found.close()
        thread.join()


def test_every_request_is_sent_and_every_answer_counted(generator: LoadGenerator) -> None:
    received = []

    def answer(request: bytes, _: int) -> bytes:
        received.append(request)
        return ANSWER

    with server(answer) as target:
        load = generator.run(target, [Asks(FRAME, same_answer=True)] * 3, 50)
    assert received == [FRAME] * 53  # one on each connection comes before the clock
    assert (load.answers, load.deliveries) == (50, 0)
    assert load.last_answers == [ANSWER] * 3
    assert 0 < load.p50_us <= load.p99_us <= load.seconds * 1e6


@pytest.mark.parametrize(
    ("tenth", "said"),
    [
        (struct.pack(">i", 8) + b"refused.", "differs from the first"),
        (struct.pack(">i", 9) + b"refused..", "an answer of 13 bytes, the first had 12"),
        (ANSWER + ANSWER, "24 came"),
        (None, "closed a connection"),
    ],
)
def test_an_answer_that_differs_fails_the_run(
    generator: LoadGenerator, tenth: bytes | None, said: str
) -> None:
    with (
        server(lambda _, number: tenth if number == 10 else ANSWER) as target,
        pytest.raises(BadAnswer, match=said),
    ):
        generator.run(target, [Asks(FRAME, same_answer=True)], 50)


def test_a_consumer_moves_its_offset_by_the_records_of_each_answer(
    generator: LoadGenerator,
) -> None:
    offsets = []

    def answer(request: bytes, _: int) -> bytes:
        if request == FRAME:
            return ANSWER
        offsets.append(struct.unpack_from(">q", request, 8)[0])
        return struct.pack(">i", 8 + 2 + 2 * BATCH_BYTES) + bytes(8 + 2 + 2 * BATCH_BYTES)

    fetch = struct.pack(">iiq", 12, 0, 7)
    consumer = Consumes(fetch, 8, empty_bytes=12, batch_bytes=BATCH_BYTES)
    with server(answer) as target:
        load = generator.run(target, [Asks(FRAME, same_answer=False), consumer], 10, copies=1)
    assert offsets[:5] == [7, 9, 11, 13, 15]
    assert (load.answers, load.deliveries >= 5) == (10, True)


def test_an_answer_with_half_a_record_fails_the_run(generator: LoadGenerator) -> None:
    half = struct.pack(">i", 8 + 150) + bytes(8 + 150)
    consumer = Consumes(struct.pack(">iiq", 12, 0, 7), 8, empty_bytes=12, batch_bytes=BATCH_BYTES)
    with (
        server(lambda request, _: ANSWER if request == FRAME else half) as target,
        pytest.raises(BadAnswer, match="no whole number of records"),
    ):
        generator.run(target, [Asks(FRAME, same_answer=False), consumer], 10, copies=1)


@pytest.mark.skipif(EXTERNAL_BOOTSTRAP is not None, reason="starts its own broker")
def test_every_question_of_the_measure_is_answered_by_a_broker(
    arena: Arena, generator: LoadGenerator
) -> None:
    with arena.brokers() as (broker,):
        subject = Subject(broker, generator)
        subject.prepare(3)
        questions: list[Callable[[int, int], list[Sample]]] = [
            subject.produce,
            subject.produce_own,
            subject.fetch,
            subject.pairs,
            subject.commit,
            subject.heartbeat,
            subject.metadata,
        ]
        for ask in questions:
            rate, cpu = ask(3, 60)
            assert rate.value > 0, ask
            assert cpu.value > 0, ask
        assert all(sample.value > 0 for sample in subject.group(20, 40))


def test_without_a_compiler_the_loop_in_python_runs_and_the_report_says_so(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert "a loop in Python" in load_generator(arena).remark
