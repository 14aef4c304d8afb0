"""Requests as large as a frame may be: they do not hold the loop of `tidelog zookeeper`.

The processor time that one turn may take is looked at with much room, because the machine that
tests may be slow: it was 70 to 170 ms before such requests were worked through in slices.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_zookeeper_protocol import Wire, text
from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess

pytestmark = pytest.mark.integration

FRAME_BYTES = 1_000_000
TURN_CPU_MAX_MS = 50
OPEN = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
LAST = struct.pack(">i?i", -1, True, -1)
NOTHING = struct.pack(">i", 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeperProcess]:
    with EmbeddedZooKeeperProcess(tmp_path / "zookeeper") as server:
        yield server
        assert "Traceback" not in server.log_text()


def require_short_turns(server: EmbeddedZooKeeperProcess) -> None:
    long = [line for cpu_ms, line in server.stalls() if cpu_ms > TURN_CPU_MAX_MS]
    assert not long, "\n".join(long)


def patient(server: EmbeddedZooKeeperProcess) -> Wire:
    """Its session lasts though the machine is slow."""
    return Wire(server, timeout_ms=120_000)


def header(type: int) -> bytes:
    return struct.pack(">i?i", type, False, -1)


def creation(path: str) -> bytes:
    return header(1) + text(path) + struct.pack(">i", -1) + OPEN + struct.pack(">i", 0)


def setting(path: str) -> bytes:
    return header(5) + text(path) + struct.pack(">ii", -1, -1)


def fitting(one: bytes) -> int:
    return FRAME_BYTES // len(one)


def result_codes(answer: bytes, count: int) -> list[int]:
    """Of a multi that was refused."""
    assert len(answer) == 13 * count + 9
    return [struct.unpack_from(">i", answer, 13 * index + 9)[0] for index in range(count)]


class TestMulti:
    def test_it_is_applied_as_a_whole(self, server: EmbeddedZooKeeperProcess) -> None:
        """Others read meanwhile, and see none of it or all of it."""
        wire = patient(server)
        wire.create("/d")
        count = fitting(creation("/d/00000"))
        body = b"".join(creation(f"/d/{number:05}") for number in range(count)) + LAST
        seen: set[int] = set()
        done = threading.Event()

        def read() -> None:
            reader = patient(server)
            while not done.is_set():
                first = reader.call(3, text("/d/00000") + b"\0")[0]
                last = reader.call(3, text(f"/d/{count - 1:05}") + b"\0")[0]
                assert (first, last) != (0, -101)
                (children,) = struct.unpack_from(">i", reader.call(8, text("/d") + b"\0")[1])
                seen.add(children)
            reader.close()

        reading = threading.Thread(target=read)
        reading.start()
        code, answer = wire.call(14, body)
        done.set()
        reading.join()
        assert code == 0
        assert answer.startswith(struct.pack(">i?i", 1, False, 0) + text("/d/00000"))
        assert answer.endswith(struct.pack(">i?i", 1, False, 0) + text(f"/d/{count - 1:05}") + LAST)
        assert seen <= {0, count}
        assert len(wire.children("/d")) == count
        wire.close()
        require_short_turns(server)

    def test_every_result_is_told(self, server: EmbeddedZooKeeperProcess) -> None:
        wire = patient(server)
        wire.create("/a")
        count = fitting(setting("/a"))
        code, answer = wire.call(14, setting("/a") * count + LAST)
        assert code == 0
        assert len(answer) == (9 + 68) * count + 9
        versions = [
            struct.unpack_from(">i", answer, (9 + 68) * index + 9 + 32)[0] for index in range(count)
        ]
        assert versions == list(range(1, count + 1))
        wire.close()
        require_short_turns(server)

    def test_a_refusal_names_the_operation(self, server: EmbeddedZooKeeperProcess) -> None:
        wire = patient(server)
        wire.create("/a")
        count = fitting(setting("/a"))
        body = setting("/a") * (count - 2) + setting("/b") + setting("/a") + LAST
        code, answer = wire.call(14, body)
        assert code == 0
        assert result_codes(answer, count) == [0] * (count - 2) + [-101, -2]
        assert wire.get("/a", watch=False) is None
        invalid = b"".join([setting("/a") * (count - 10), creation("/zz\x01"), setting("/a")])
        code, answer = wire.call(14, invalid + LAST)
        assert result_codes(answer, count - 8) == [0] * (count - 10) + [-8, -2]
        wire.close()
        require_short_turns(server)

    def test_what_is_sent_behind_it_is_done_behind_it(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        wire = patient(server)
        wire.create("/a")
        count = fitting(setting("/a"))
        wire.send(2, 14, setting("/a") * count + LAST)
        wire.send(3, 5, text("/a") + struct.pack(">ii", -1, count))
        wire.send(4, 14, setting("/a") + LAST)
        wire.send(5, 3, text("/a") + b"\0")
        answers = [wire.frame() for _ in range(4)]
        assert [struct.unpack_from(">iqi", answer)[::2] for answer in answers] == [
            (xid, 0) for xid in (2, 3, 4, 5)
        ]
        assert struct.unpack_from(">i", answers[3], 16 + 32)[0] == count + 2
        wire.close()

    def test_a_session_that_moves_while_it_is_read_takes_nothing_along(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        """Not both: what the old connection sent is done before the new one is heard, or never."""
        wire = patient(server)
        wire.create("/a")
        count = fitting(setting("/a"))
        wire.send(2, 14, setting("/a") * count + LAST)
        moved = Wire(server, session_id=wire.session_id, password=wire.password)
        first = struct.unpack_from(">i", moved.call(3, text("/a") + b"\0")[1], 32)[0]
        assert moved.call(9, text("/"))[0] == 0
        last = struct.unpack_from(">i", moved.call(3, text("/a") + b"\0")[1], 32)[0]
        assert {first, last} <= {0, count}
        wire.close()
        moved.close()

    def test_watches_hear_of_all_of_it_before_it_can_be_read(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        wire, watcher = patient(server), patient(server)
        wire.create("/d")
        assert watcher.call(106, text("/d") + struct.pack(">i", 1))[0] == 0
        count = fitting(creation("/d/00000"))
        body = b"".join(creation(f"/d/{number:05}") for number in range(count)) + LAST
        assert wire.call(14, body)[0] == 0
        assert len(watcher.children("/d")) == count
        assert watcher.events == [(1, f"/d/{number:05}") for number in range(count)]
        wire.close()
        watcher.close()
        require_short_turns(server)

    def test_a_session_that_ends_behind_it_leaves_no_ephemeral_node(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        wire = patient(server)
        one = header(1) + text("/e-") + struct.pack(">i", -1) + OPEN + struct.pack(">i", 3)
        wire.send(1, 14, one * fitting(one) + LAST)
        wire.send(2, -11, b"")
        assert wire.is_closed()
        observer = patient(server)
        assert observer.children("/") == ["zookeeper"]
        observer.close()
        require_short_turns(server)


class TestReads:
    def test_a_large_multi_read(self, server: EmbeddedZooKeeperProcess) -> None:
        wire = patient(server)
        wire.create("/a")
        one = header(4) + text("/a") + b"\0"
        missing = header(4) + text("/b") + b"\0"
        count = fitting(one) - 1
        code, answer = wire.call(22, one * count + missing + LAST)
        assert code == 0
        assert len(answer) == (9 + 4 + 68) * count + 13 + 9
        assert answer.endswith(struct.pack(">i?ii", -1, False, -101, -101) + LAST)
        wire.close()
        require_short_turns(server)

    def test_one_whose_answer_is_too_large_ends_its_connection(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        wire = patient(server)
        assert wire.call(1, text("/a") + text("x" * 500_000) + OPEN + struct.pack(">i", 0))[0] == 0
        one = header(4) + text("/a") + b"\0"
        wire.send(1, 22, one * fitting(one) + LAST)
        assert wire.is_closed()
        require_short_turns(server)


class TestWatches:
    def test_a_large_set_watches(self, server: EmbeddedZooKeeperProcess) -> None:
        wire = patient(server)
        wire.create("/there")
        zxid = wire.zxid
        paths = [text(f"/{number:05}") for number in range(fitting(text("/00000")) // 2)]
        some = struct.pack(">i", len(paths)) + b"".join(paths)
        there = struct.pack(">i", 1) + text("/there")
        body = struct.pack(">q", zxid) + NOTHING + there + NOTHING + some + NOTHING
        wire.events.clear()
        assert wire.call(105, body)[0] == 0
        assert wire.events == [(1, "/there")]
        assert f"zk_watch_count\t{len(paths)}\n" in server.command(b"mntr")
        exist = struct.pack(">q", zxid) + NOTHING + some + NOTHING
        assert wire.call(101, exist)[0] == 0
        wire.create("/00000")
        wire.create("/later")
        assert wire.events == [(1, "/there"), (1, "/00000")]
        wire.close()
        require_short_turns(server)
