"""`tidelog zookeeper` as other people's clients and hostile ones meet it, byte by byte."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.security import ACL, Id

from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.eventually import eventually
from tests.support.zookeeper import fresh_chroot, zookeeper_client

pytestmark = pytest.mark.integration

SHORT_S = 2.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeperProcess]:
    with EmbeddedZooKeeperProcess(tmp_path_factory.mktemp("protocol") / "zookeeper") as server:
        yield server
        assert "Traceback" not in server.log_text()


@pytest.fixture
def client(server: EmbeddedZooKeeperProcess) -> Iterator[KazooClient]:
    chroot = fresh_chroot()
    with zookeeper_client(server.address) as maker:
        maker.create(chroot)
    with zookeeper_client(server.address + chroot) as client:
        yield client


class TestNodes:
    def test_a_node_has_a_full_stat(self, client: KazooClient) -> None:
        client.create("/a", b"one")
        client.set("/a", b"three")
        client.create("/a/b")
        client.create("/a/c")
        client.delete("/a/c")
        data, stat = client.get("/a")
        assert data == b"three"
        assert (stat.version, stat.cversion, stat.aversion) == (1, 3, 0)
        assert (stat.dataLength, stat.numChildren, stat.ephemeralOwner) == (5, 1, 0)
        assert stat.czxid < stat.mzxid < stat.pzxid == client.last_zxid
        assert stat.ctime <= stat.mtime

    def test_no_data_is_not_empty_data(self, client: KazooClient) -> None:
        client.create("/empty", b"")
        assert client.get("/empty")[0] == b""
        client.create("/without", None)
        assert client.get("/without")[0] is None

    def test_every_refusal_has_zookeepers_code(self, client: KazooClient) -> None:
        client.create("/a/b", makepath=True)
        client.create("/e", ephemeral=True)
        for error, call in (
            (NoNodeError, lambda: client.get("/no")),
            (NoNodeError, lambda: client.create("/no/child")),
            (NodeExistsError, lambda: client.create("/a")),
            (BadVersionError, lambda: client.set("/a", b"", version=7)),
            (NotEmptyError, lambda: client.delete("/a")),
            (NoChildrenForEphemeralsError, lambda: client.create("/e/child")),
            (BadArgumentsError, lambda: client.create("/a\x01")),
            (InvalidACLError, lambda: client.create("/x", acl=[ACL(31, Id("no", "such"))])),
        ):
            with pytest.raises(error):
                call()
        assert client.exists("/x") is None

    def test_a_transaction_says_what_became_of_each_operation(self, client: KazooClient) -> None:
        client.create("/a")
        good = client.transaction()
        good.create("/a/n", b"x", sequence=True)
        good.set_data("/a", b"y")
        good.check("/a", 1)
        good.delete("/a/n0000000000")
        path, stat, *rest = good.commit()
        assert (path, stat.version, stat.dataLength, rest) == ("/a/n0000000000", 1, 1, [True, True])
        bad = client.transaction()
        bad.create("/b")
        bad.check("/a", 7)
        bad.delete("/a")
        assert [type(result) for result in bad.commit()] == [
            RolledBackError,
            BadVersionError,
            RuntimeInconsistency,
        ]
        assert client.exists("/b") is None

    def test_a_node_with_ten_thousand_children_is_listed(self, client: KazooClient) -> None:
        client.create("/many")
        names = [f"node-{number:05}" for number in range(10_000)]
        for start in range(0, len(names), 500):
            batch = client.transaction()
            for name in names[start : start + 500]:
                batch.create(f"/many/{name}")
            assert not any(isinstance(result, Exception) for result in batch.commit())
        assert sorted(client.get_children("/many")) == names


class TestWatches:
    def test_an_event_comes_before_the_answer_that_shows_the_change(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        """One connection watches and reads as fast as it can while another changes."""
        wire = Wire(server)
        path = f"{client.chroot}/a"
        client.create("/a", b"0")
        stop = threading.Event()

        def change() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                client.set("/a", b"%d" % number)

        changing = threading.Thread(target=change)
        changing.start()
        try:
            shown = wire.get(path, watch=True)
            for _ in range(300):
                data = wire.get(path, watch=False)
                if data != shown:
                    assert wire.events, "it showed a change that it has not told of"
                    wire.events.clear()
                    shown = wire.get(path, watch=True)
        finally:
            stop.set()
            changing.join()
            wire.close()

    def test_each_kind_fires_once(self, client: KazooClient) -> None:
        seen: list[WatchedEvent] = []
        client.exists("/a", watch=seen.append)
        client.create("/a")
        eventually(lambda: len(seen) == 1)
        client.get("/a", watch=seen.append)
        client.get_children("/a", watch=seen.append)
        client.set("/a", b"1")
        client.create("/a/b")
        client.set("/a", b"2")
        eventually(lambda: len(seen) == 3)
        client.delete("/a/b")
        client.delete("/a")
        assert [event.type for event in seen] == [
            EventType.CREATED,
            EventType.CHANGED,
            EventType.CHILD,
        ]


class TestSessions:
    def test_a_session_and_its_nodes_outlive_the_server_and_an_absent_one_expires(
        self, tmp_path: Path
    ) -> None:
        with EmbeddedZooKeeperProcess(tmp_path / "zookeeper") as server:
            absent = Wire(server, timeout_ms=1000)
            absent.create("/absent", flags=1)
            with zookeeper_client(server.address) as client:
                client.create("/here", ephemeral=True)
                session = client.client_id
                client.retry(client.create, "/seen")
                zxid = client.last_zxid
                server.kill()
                absent.close()
                server.start()
                client.retry(client.get, "/here")
                assert client.client_id == session
                assert client.get("/here")[1].ephemeralOwner == session[0]
                eventually(lambda: client.exists("/absent") is None)
                client.create("/later")
                assert client.get("/later")[1].czxid > zxid
            again = Wire(server)
            assert sorted(again.children("/")) == ["later", "seen", "zookeeper"]
            again.close()

    def test_a_password_that_is_wrong_gets_no_session(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        owner = Wire(server)
        owner.create("/mine", flags=1)
        thief = Wire(server, session_id=owner.session_id, password=bytes(16))
        assert (thief.timeout_ms, thief.session_id) == (0, 0)
        assert owner.get("/mine", watch=False) is None
        owner.close_session()

    def test_a_session_that_moves_takes_its_old_connection_away(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        first = Wire(server)
        second = Wire(server, session_id=first.session_id, password=first.password)
        assert second.session_id == first.session_id
        assert first.is_closed()
        second.create("/moved", flags=1)
        second.close_session()

    def test_a_session_with_many_ephemeral_nodes_ends_with_all_of_them(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        wire = Wire(server, timeout_ms=1000)
        client.create("/many")
        for _ in range(10):
            wire.create_many(f"{client.chroot}/many/e", 200)
        assert len(client.get_children("/many")) == 2000
        wire.close()
        eventually(lambda: client.get_children("/many") == [])

    def test_an_old_client_does_not_hear_of_read_only_servers(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        assert Wire(server).greeting_bytes == 37
        assert Wire(server, is_old=True).greeting_bytes == 36


class TestRecipes:
    """kazoo's, which lean on sequences, ephemeral nodes and watches."""

    def test_a_lock_is_held_by_one_at_a_time(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        held: list[int] = []
        most: list[int] = []

        def work(number: int) -> None:
            with zookeeper_client(server.address + client.chroot) as own:
                for _ in range(3):
                    with own.Lock("/lock", str(number)):
                        held.append(number)
                        most.append(len(held))
                        held.remove(number)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert most == [1] * 12

    def test_an_election_goes_on_when_its_leader_loses_its_session(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        leads = threading.Event()
        first = Wire(server, timeout_ms=1000)
        client.ensure_path("/election")
        first.create(f"{client.chroot}/election/{'0' * 32}__lock__", flags=3)
        election = client.Election("/election", "second")
        thread = threading.Thread(target=lambda: election.run(leads.set))
        thread.start()
        assert not leads.is_set()
        first.close()
        thread.join(90)
        assert leads.is_set()

    def test_a_barrier_a_counter_and_a_queue(self, client: KazooClient) -> None:
        counter = client.Counter("/counter")
        counter += 2
        counter -= 5
        assert counter.value == -3
        queue = client.LockingQueue("/queue")
        queue.put_all([b"1", b"2"])
        assert queue.get() == b"1"
        assert queue.consume()
        assert queue.get() == b"2"
        barrier = client.Barrier("/barrier")
        barrier.create()
        assert not barrier.wait(0.01)
        barrier.remove()
        assert barrier.wait(60)


class TestHostileBytes:
    def test_frames_that_no_client_sends_end_their_connection_and_no_other(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        for greeting in (
            struct.pack(">i", -1),
            struct.pack(">i", 2**31 - 1),
            struct.pack(">i", 4) + b"junk",
            struct.pack(">i", 44) + bytes(24) + struct.pack(">i", 2**30) + bytes(16),
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(greeting)
                assert connection.recv(100) == b""
        for frame in (struct.pack(">i", 0x100000), struct.pack(">i", 3) + b"abc"):
            wire = Wire(server)
            wire.socket.sendall(frame)
            assert wire.is_closed()
        assert client.exists("/") is not None

    def test_requests_that_cannot_be_read_are_answered_or_end_their_connection(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        chance = random.Random(5)
        types = [*range(-11, 23), *range(100, 108)]
        wire = Wire(server)
        for _ in range(400):
            body = bytearray(chance.randbytes(chance.randrange(60)))
            if len(body) > 8:
                body[:4] = struct.pack(">i", chance.choice([0, 1, 5, -1, 2**31 - 1, len(body) - 4]))
            wire.send(7, chance.choice(types), bytes(body))
            if chance.random() < 0.1:
                wire.close()
                wire = Wire(server)
        wire.close()
        assert client.exists("/") is not None

    @pytest.mark.parametrize("refused", ["list", "bytes", "multi"])
    def test_a_refusal_does_not_overtake_the_writes_before_it(
        self, server: EmbeddedZooKeeperProcess, refused: str
    ) -> None:
        wire = Wire(server)
        base = f"/{refused}-in-order"
        first, last = creation(f"{base}-1"), creation(f"{base}-3")
        header = struct.pack(">i?i", 1, False, -1)
        type, body, expected = {
            "list": (1, creation(f"{base}-2", ("digest", "nocolon")), -114),
            "bytes": (1, b"\xff" * 8, -5),
            "multi": (14, (header + creation(base)) * 300 + struct.pack(">i?i", 7, False, -1), -5),
        }[refused]
        frames = [(1, 1, first), (2, type, body), (3, 1, last), (4, type, body)]
        wire.socket.sendall(
            b"".join(struct.pack(">iii", len(b) + 8, xid, t) + b for xid, t, b in frames)
        )
        answers = [struct.unpack_from(">iqi", wire.frame()) for _ in frames]
        assert [(xid, code) for xid, _, code in answers] == [
            (1, 0),
            (2, expected),
            (3, 0),
            (4, expected),
        ]
        wire.close_session()

    def test_frames_that_are_cut_off_are_forgotten(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        for length in range(0, 44, 5):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(CONNECT[:length])
        for length in (1, 4, 11):
            wire = Wire(server)
            wire.socket.sendall(struct.pack(">iii", 20, 1, 3)[:length])
            wire.close()
        assert client.exists("/") is not None

    def test_what_is_not_there_is_said_to_be_unimplemented(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        wire = Wire(server)
        open_acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
        container = text("/c") + struct.pack(">i", -1) + open_acl + struct.pack(">i", 4)
        assert wire.call(19, container)[0] == -6
        assert wire.call(21, container + struct.pack(">q", 1000))[0] == -6
        assert wire.call(16, b"")[0] == -6  # reconfig
        assert wire.call(4, b"\0\0")[0] == -5  # a path that ends early
        assert wire.get("/zookeeper", watch=False) == b""
        wire.close()


class TestOtherRequests:
    def test_ephemerals_counts_and_identities_are_told(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        wire = Wire(server)
        base = client.chroot
        wire.create(f"{base}/e1", flags=1)
        wire.create(f"{base}/e2", flags=1)
        code, body = wire.call(103, text(base))
        assert (code, body) == (0, struct.pack(">i", 2) + text(f"{base}/e1") + text(f"{base}/e2"))
        assert wire.call(104, text(base)) == (0, struct.pack(">i", 2))
        assert wire.call(107, b"") == (0, struct.pack(">i", 1) + text("ip") + text("127.0.0.1"))
        assert wire.call(9, text(base)) == (0, text(base))
        wire.close_session()

    def test_a_multi_read_answers_each_for_itself(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        client.create("/a", b"x")
        path = text(f"{client.chroot}/a") + b"\0"
        missing = text(f"{client.chroot}/no") + b"\0"
        body = b"".join(
            struct.pack(">i?i", type, False, -1) + request
            for type, request in ((4, path), (4, missing), (8, path))
        )
        wire = Wire(server)
        code, answer = wire.call(22, body + struct.pack(">i?i", -1, True, -1))
        assert code == 0
        assert answer.startswith(struct.pack(">i?ii", 4, False, 0, 1) + b"x")
        assert struct.pack(">i?ii", -1, False, -101, -101) in answer
        assert answer.endswith(
            struct.pack(">i?ii", 8, False, 0, 0) + struct.pack(">i?i", -1, True, -1)
        )
        wire.close()

    def test_a_persistent_watch_is_added_and_removed(
        self, server: EmbeddedZooKeeperProcess, client: KazooClient
    ) -> None:
        wire = Wire(server)
        path = text(client.chroot)
        assert wire.call(106, path + struct.pack(">i", 1))[0] == 0
        client.create("/a")
        client.set("/a", b"x")
        client.delete("/a")
        wire.call(9, path)
        assert wire.events == [(type, f"{client.chroot}/a") for type in (1, 3, 2)]
        assert wire.call(18, path + struct.pack(">i", 3))[0] == 0
        assert wire.call(18, path + struct.pack(">i", 3))[0] == -121
        wire.close()

    def test_watches_set_again_say_nothing_of_nodes_that_the_client_may_not_read(
        self, server: EmbeddedZooKeeperProcess
    ) -> None:
        owner, other = Wire(server), Wire(server)
        assert owner.call(100, struct.pack(">i", 0) + text("digest") + text("me:word"))[0] == 0
        for kind in ("data", "exist", "child"):
            owner.create(f"/open-{kind}")
            assert owner.call(1, creation(f"/secret-{kind}", ("auth", "")))[0] == 0
            owner.create(f"/open-{kind}/child")
            owner.create(f"/secret-{kind}/child")
            for path in (f"/open-{kind}", f"/secret-{kind}"):
                assert owner.call(5, text(path) + struct.pack(">ii", -1, -1))[0] == 0
        two = struct.pack(">i", 2)
        lists = [
            two + text(f"/open-{kind}") + text(f"/secret-{kind}")
            for kind in ("data", "exist", "child")
        ]
        assert other.call(101, struct.pack(">q", 1) + b"".join(lists))[0] == 0
        assert other.events == [(3, "/open-data"), (1, "/open-exist"), (4, "/open-child")]

        other.events.clear()
        everybody = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
        for kind in ("data", "exist", "child"):
            path = f"/secret-{kind}"
            assert owner.call(7, text(path) + everybody + struct.pack(">i", -1))[0] == 0
            assert owner.call(5, text(path) + struct.pack(">ii", -1, -1))[0] == 0
            owner.create(f"{path}/another")
        other.get("/open-data", watch=False)
        assert other.events == [(3, "/secret-data"), (3, "/secret-exist"), (4, "/secret-child")]
        owner.close_session()
        other.close_session()

    def test_four_letter_words(self, server: EmbeddedZooKeeperProcess) -> None:
        assert server.command(b"ruok") == "imok"
        assert server.command(b"isro") == "rw"
        assert "\nMode: standalone\nNode count: " in server.command(b"srvr")
        assert "Clients:\n /127.0.0.1:" in server.command(b"stat")
        assert "zk_server_state\tstandalone\n" in server.command(b"mntr")
        assert f"clientPort={server.port}\n" in server.command(b"conf")
        assert "zookeeper.version=3.8" in server.command(b"envi")
        wire = Wire(server)
        assert f"sid=0x{wire.session_id:x}" in server.command(b"cons")
        wire.close()
        refusal = "wchc is not executed because it is not in the whitelist.\n"
        assert server.command(b"wchc") == refusal


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">i", len(encoded)) + encoded


CONNECT = struct.pack(">iiqiqi", 44, 0, 0, 10_000, 0, 16) + bytes(16)


def creation(path: str, who: tuple[str, str] = ("world", "anyone"), *, flags: int = 0) -> bytes:
    access = struct.pack(">ii", 1, 31) + text(who[0]) + text(who[1])
    return text(path) + struct.pack(">i", -1) + access + struct.pack(">i", flags)


class Wire:
    """A client that does nothing by itself: no pings, no reconnects."""

    def __init__(
        self,
        server: EmbeddedZooKeeperProcess,
        timeout_ms: int = 30_000,
        session_id: int = 0,
        password: bytes = bytes(16),
        is_old: bool = False,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=240)
        self.events: list[tuple[int, str]] = []
        self.zxid = 0  # of the last answer
        body = struct.pack(">iqiqi", 0, 0, timeout_ms, session_id, 16) + password
        body += b"" if is_old else b"\0"
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        greeting = self.frame()
        self.greeting_bytes = len(greeting)
        _, self.timeout_ms, self.session_id, _ = struct.unpack_from(">iiqi", greeting)
        self.password = greeting[20:36]

    def send(self, xid: int, type: int, body: bytes) -> None:
        with suppress(OSError):  # an earlier request may have ended it
            self.socket.sendall(struct.pack(">iii", len(body) + 8, xid, type) + body)

    def call(self, type: int, body: bytes) -> tuple[int, bytes]:
        """The code and the body of the answer."""
        self.send(1, type, body)
        while True:
            frame = self.frame()
            xid, zxid, code = struct.unpack_from(">iqi", frame)
            if xid != -1:
                self.zxid = zxid
                return code, frame[16:]
            event, _, length = struct.unpack_from(">iii", frame, 16)
            self.events.append((event, frame[28 : 28 + length].decode()))

    def create(self, path: str, flags: int = 0) -> None:
        assert self.call(1, creation(path, flags=flags))[0] == 0

    def create_many(self, path: str, count: int) -> None:
        """Ephemeral sequence nodes, in one multi."""
        header = struct.pack(">i?i", 1, False, -1)
        body = (header + creation(path, flags=3)) * count + struct.pack(">i?i", -1, True, -1)
        assert self.call(14, body)[0] == 0

    def get(self, path: str, *, watch: bool) -> Any:
        code, body = self.call(4, text(path) + bytes([watch]))
        assert code == 0, code
        (length,) = struct.unpack_from(">i", body)
        return None if length < 0 else body[4 : 4 + length]

    def children(self, path: str) -> list[str]:
        code, body = self.call(8, text(path) + b"\0")
        assert code == 0
        names, position = [], 4
        while position < len(body):
            (length,) = struct.unpack_from(">i", body, position)
            names.append(body[position + 4 : position + 4 + length].decode())
            position += 4 + length
        return names

    def close_session(self) -> None:
        assert self.call(-11, b"")[0] == 0
        assert self.is_closed()

    def is_closed(self) -> bool:
        """Reads on until the server's end closes."""
        with suppress(ConnectionResetError):
            while self.socket.recv(4096):
                pass
        self.socket.close()
        return True

    def close(self) -> None:
        self.socket.close()

    def frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self.socket.recv(count - len(received))
            assert piece, "the server has closed the connection"
            received += piece
        return bytes(received)
