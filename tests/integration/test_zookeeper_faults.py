"""The store over ZooKeeper when the connection, the session or a server goes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.support.cuttable_link import CuttableLink
from tests.support.metadata import contents, in_loop
from tests.support.zookeeper import (
    StartZooKeeper,
    ZooKeeperEnsemble,
    ZooKeeperProcess,
    fresh_chroot,
)
from tidelog.controller.metadata_store import (
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    NodeExists,
    Operation,
    OutcomeUnknown,
    SessionState,
    SetData,
    StoreClosed,
    StoreUnavailable,
    WatchedEvent,
)
from tidelog.controller.zookeeper_store import ZooKeeperStore
from tidelog.errors import StartupError
from tidelog.tools.free_ports import free_port

LONG_MS = 20_000
SHORT_MS = 2_000
NOTICEABLE_MS = 9_000  # silence is noticed after two thirds; the rest is for a busy machine
CONNECTED = SessionState.CONNECTED
DISCONNECTED = SessionState.DISCONNECTED
EXPIRED = SessionState.EXPIRED


class Observed:
    """A store, and the states its session went through since it was opened."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.states: list[SessionState] = []
        store.on_session(self.states.append)

    async def until(self, state: SessionState, within_s: float = 60.0) -> None:
        await until(lambda: bool(self.states) and self.states[-1] is state, within_s)


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        await asyncio.sleep(0.01)


def connect(address: str, session_timeout_ms: int = LONG_MS) -> Observed:
    return Observed(
        ZooKeeperStore.connect(
            address,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=20_000,
            loop=asyncio.get_running_loop(),
        )
    )


@pytest.fixture
def link(zookeeper: ZooKeeperProcess) -> Iterator[CuttableLink]:
    with CuttableLink(zookeeper.port) as link:
        yield link


@pytest.fixture
def chroot() -> str:
    return fresh_chroot()


@asynccontextmanager
async def answers_lost(link: CuttableLink, observed: Observed):  # type: ignore[no-untyped-def]
    """What is asked inside reaches the server; then the link is cut and comes back."""
    link.swallow_answers()
    yield
    await asyncio.to_thread(link.wait_until_answers_are_swallowed)
    link.cut()
    await observed.until(DISCONNECTED)
    link.heal()


async def under_way(call: Awaitable[object]) -> asyncio.Future[object]:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    return task


class TestLostConnection:
    @in_loop
    async def test_calls_made_meanwhile_wait_for_the_next_one(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot)
        store = observed.store
        await store.create("/e", ephemeral=True)
        session_id = store.session_id
        link.cut()
        await observed.until(DISCONNECTED)
        assert not store.is_connected
        write = await under_way(store.create("/a", b"1"))
        read = await under_way(store.get("/a"))
        link.heal()
        assert await write == "/a"
        assert (await read)[0] == b"1"  # type: ignore[index]
        assert observed.states == [DISCONNECTED, CONNECTED]
        assert store.session_id == session_id
        assert await store.exists("/e") is not None
        await store.close()

    @in_loop
    async def test_it_is_noticed_while_the_store_does_nothing(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot, NOTICEABLE_MS)
        link.freeze()
        started = time.monotonic()
        await observed.until(DISCONNECTED)
        assert time.monotonic() - started < NOTICEABLE_MS / 1000
        link.cut()
        await observed.store.close()

    @in_loop
    async def test_a_silent_server_is_noticed_though_there_is_always_something_to_ask(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot, NOTICEABLE_MS)
        await observed.store.create("/a")
        link.freeze()
        started = time.monotonic()
        asked = []
        while not observed.states:
            asked.append(asyncio.ensure_future(observed.store.get("/a")))
            await asyncio.sleep(0.2)
        assert time.monotonic() - started < NOTICEABLE_MS / 1000
        link.cut()
        await observed.store.close()
        await asyncio.gather(*asked, return_exceptions=True)

    @in_loop
    async def test_a_call_gives_up_after_the_session_timeout(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot, SHORT_MS)
        link.cut()
        await observed.until(DISCONNECTED)
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as raised:
            await observed.store.create("/a")
        assert not isinstance(raised.value, OutcomeUnknown)
        assert SHORT_MS / 1000 - 0.1 < time.monotonic() - started < LONG_MS / 1000
        await observed.store.close()

    @in_loop
    async def test_a_write_that_was_sent_and_gives_up_says_that_it_may_have_happened(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot, SHORT_MS)
        link.swallow_answers()
        write = await under_way(observed.store.create("/a"))
        await asyncio.to_thread(link.wait_until_answers_are_swallowed)
        link.cut()
        with pytest.raises(OutcomeUnknown):
            await write
        link.heal()
        await observed.until(CONNECTED)
        assert await observed.store.exists("/a") is not None
        await observed.store.close()

    @in_loop
    async def test_blocking_calls_wait_for_the_next_one_too(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot)

        def lose_the_answer() -> None:
            link.wait_until_answers_are_swallowed()
            link.cut()
            link.heal()

        link.swallow_answers()
        cutting = asyncio.ensure_future(asyncio.to_thread(lose_the_answer))
        await asyncio.sleep(0)
        assert observed.store.multi_now([Create("/a", b"1"), Create("/a/b")]) == ["/a", "/a/b"]
        await cutting
        assert contents(observed.store) == {"/": b"", "/a": b"1", "/a/b": b""}
        await observed.store.close()


class TestLostAnswer:
    """Each of these happened at the server and its answer was lost: it counts once."""

    @pytest.mark.parametrize("ephemeral", [False, True])
    @in_loop
    async def test_of_a_creation(self, link: CuttableLink, chroot: str, ephemeral: bool) -> None:
        observed = connect(link.address + chroot)
        async with answers_lost(link, observed):
            made = await under_way(observed.store.create("/a", b"mine", ephemeral=ephemeral))
        assert await made == "/a"
        data, stat = await observed.store.get("/a")
        assert (data, stat.version) == (b"mine", 0)
        assert stat.ephemeral_owner == (observed.store.session_id if ephemeral else 0)
        await observed.store.close()

    @in_loop
    async def test_of_a_conditional_change(self, link: CuttableLink, chroot: str) -> None:
        observed = connect(link.address + chroot)
        await observed.store.create("/a", b"0")
        async with answers_lost(link, observed):
            made = await under_way(observed.store.set("/a", b"1", 0))
        assert await made == 1
        assert (await observed.store.get("/a"))[1].version == 1
        await observed.store.close()

    @in_loop
    async def test_of_an_unconditional_change(self, link: CuttableLink, chroot: str) -> None:
        observed = connect(link.address + chroot)
        await observed.store.create("/a", b"0")
        async with answers_lost(link, observed):
            made = await under_way(observed.store.set("/a", b"1"))
        assert await made == 1
        assert (await observed.store.get("/a"))[1].version == 1
        await observed.store.close()

    @in_loop
    async def test_of_a_deletion(self, link: CuttableLink, chroot: str) -> None:
        observed = connect(link.address + chroot)
        await observed.store.create("/a")
        async with answers_lost(link, observed):
            gone = await under_way(observed.store.delete("/a", 0))
        assert await gone is None
        assert await observed.store.exists("/a") is None
        await observed.store.close()

    @pytest.mark.parametrize("ephemeral", [False, True])
    @in_loop
    async def test_of_a_sequence_node(
        self, link: CuttableLink, chroot: str, ephemeral: bool
    ) -> None:
        observed = connect(link.address + chroot)
        store = observed.store
        await store.create("/q/n_", b"same", sequence=True, make_parents=True)
        async with answers_lost(link, observed):
            made = await under_way(
                store.create("/q/n_", b"same", sequence=True, ephemeral=ephemeral)
            )
        assert await made == "/q/n_0000000001"
        assert await store.children("/q") == ["n_0000000000", "n_0000000001"]
        await store.close()

    @in_loop
    async def test_of_a_multi_of_every_kind(self, link: CuttableLink, chroot: str) -> None:
        observed = connect(link.address + chroot)
        store = observed.store
        await store.multi([Create("/epoch", b"4"), Create("/old"), Create("/q")])
        operations: list[Operation] = [
            Check("/epoch", 0),
            SetData("/epoch", b"5", 0),
            Create("/controller", b"me", ephemeral=True),
            Create("/new/below", b"x", make_parents=True),
            SetData("/new/below", b"y"),
            Create("/q/n", b"1", sequence=True),
            Create("/q/n", b"2", sequence=True),
            Delete("/old"),
        ]
        async with answers_lost(link, observed):
            made = await under_way(store.multi(operations))
        expected = [None, 1, "/controller", "/new/below", 1]
        assert await made == [*expected, "/q/n0000000000", "/q/n0000000001", None]
        assert sorted(contents(store, "/q")) == ["/q", "/q/n0000000000", "/q/n0000000001"]
        assert (await store.get("/new/below"))[1].version == 1
        await store.close()

    @in_loop
    async def test_of_a_refusal_is_refused_again(self, link: CuttableLink, chroot: str) -> None:
        observed = connect(link.address + chroot)
        await observed.store.create("/a", b"theirs")
        async with answers_lost(link, observed):
            create = await under_way(observed.store.create("/a", b"theirs"))
            change = await under_way(observed.store.set("/a", b"mine", 7))
        with pytest.raises(NodeExists):
            await create
        with pytest.raises(BadVersion):
            await change
        await observed.store.close()

    @in_loop
    async def test_of_a_change_that_another_has_changed_again_is_a_bad_version(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        observed = connect(link.address + chroot)
        other = connect(zookeeper.address + chroot).store
        await observed.store.create("/a")
        link.swallow_answers()
        change = await under_way(observed.store.set("/a", b"mine", 0))
        await asyncio.to_thread(link.wait_until_answers_are_swallowed)
        await other.set("/a", b"theirs", 1)
        link.cut()
        link.heal()
        with pytest.raises(BadVersion):
            await change
        assert (await other.get("/a"))[0] == b"theirs"
        await other.close()
        await observed.store.close()

    @in_loop
    async def test_many_writes_in_a_row_happen_once_and_in_order_over_many_cuts(
        self, link: CuttableLink, chroot: str
    ) -> None:
        observed = connect(link.address + chroot)
        store = observed.store
        await store.create("/a")
        count = 600
        writes = [asyncio.ensure_future(store.set("/a", b"%d" % n, n)) for n in range(count)]
        cuts = done = 0
        chance = random.Random(7)
        while not all(write.done() for write in writes):
            await asyncio.sleep(chance.uniform(0.005, 0.05))
            before, done = done, sum(write.done() for write in writes)
            if done == before:
                continue  # on a busy machine the session would otherwise end before it connects
            if chance.random() < 0.5:
                link.swallow_answers()
                await asyncio.sleep(chance.uniform(0.001, 0.01))
            link.cut()
            cuts += 1
            link.heal()
        assert await asyncio.gather(*writes) == list(range(1, count + 1))
        assert (await store.get("/a"))[0] == b"%d" % (count - 1)
        assert cuts > 3
        await store.close()


class TestWatches:
    @in_loop
    async def test_they_fire_for_what_happened_while_there_was_no_connection(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        other = connect(zookeeper.address + chroot).store
        observed = connect(link.address + chroot)
        store = observed.store
        await other.multi([Create("/changed"), Create("/gone"), Create("/parent"), Create("/calm")])
        seen: list[WatchedEvent] = []
        for path in ("/changed", "/gone", "/calm"):
            await store.get(path, watch=seen.append)
        await store.exists("/made", watch=seen.append)
        await store.exists("/absent", watch=seen.append)
        for path in ("/parent", "/calm", "/gone"):
            await store.children(path, watch=seen.append)
        link.cut()
        await observed.until(DISCONNECTED)
        await other.set("/changed", b"new")
        await other.delete("/gone")
        await other.create("/made")
        await other.create("/parent/child")
        assert seen == []
        link.heal()
        await observed.until(CONNECTED)
        await store.exists("/")
        assert sorted(seen) == sorted(
            [
                WatchedEvent(EventType.CHANGED, "/changed"),
                WatchedEvent(EventType.DELETED, "/gone"),
                WatchedEvent(EventType.CREATED, "/made"),
                WatchedEvent(EventType.CHILD, "/parent"),
            ]
        )
        await other.close()
        await store.close()

    @in_loop
    async def test_those_for_what_did_not_happen_are_there_as_before_and_fire_once(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        other = connect(zookeeper.address + chroot).store
        observed = connect(link.address + chroot)
        store = observed.store
        await other.multi([Create("/data"), Create("/parent")])
        seen: list[WatchedEvent] = []
        await store.get("/data", watch=seen.append)
        await store.exists("/absent", watch=seen.append)
        await store.children("/parent", watch=seen.append)
        for _ in range(2):
            link.cut()
            await observed.until(DISCONNECTED)
            link.heal()
            await observed.until(CONNECTED)
        for number in range(2):
            await other.set("/data", b"%d" % number)
        await other.create("/absent")
        await other.create("/parent/child")
        await store.set("/data", b"last")
        assert seen == [
            WatchedEvent(EventType.CHANGED, "/data"),
            WatchedEvent(EventType.CREATED, "/absent"),
            WatchedEvent(EventType.CHILD, "/parent"),
        ]
        await other.close()
        await store.close()

    @in_loop
    async def test_more_of_them_than_fit_in_one_request_outlive_a_connection(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        other = connect(zookeeper.address + chroot).store
        observed = connect(link.address + chroot)
        names = [f"/{'x' * 200}-{number}" for number in range(1500)]
        seen: list[str] = []
        await asyncio.gather(
            *(observed.store.exists(n, watch=lambda event: seen.append(event.path)) for n in names)
        )
        link.cut()
        await observed.until(DISCONNECTED)
        for number in range(0, len(names), 500):
            await other.multi([Create(name) for name in names[number : number + 500]])
        link.heal()
        await until(lambda: len(seen) == len(names))
        assert sorted(seen) == sorted(names)
        await other.close()
        await observed.store.close()


class TestExpiredSession:
    @in_loop
    async def test_old_calls_fail_and_a_new_session_follows(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        other = connect(zookeeper.address + chroot).store
        observed = connect(link.address + chroot, SHORT_MS)
        store = observed.store
        seen: list[WatchedEvent] = []
        await store.create("/e", ephemeral=True)
        await store.get("/e", watch=seen.append)
        first_session = store.session_id
        link.cut()
        gone = asyncio.Event()
        await other.exists("/e", watch=lambda event: gone.set())
        await asyncio.wait_for(gone.wait(), 20)
        old = await under_way(store.create("/old"))
        link.heal()
        with pytest.raises(StoreClosed):
            await old
        await observed.until(CONNECTED)
        assert observed.states == [DISCONNECTED, EXPIRED, CONNECTED]
        assert store.session_id != first_session
        assert await store.exists("/old") is None
        await store.create("/e", ephemeral=True)
        stat = await store.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == store.session_id
        assert seen == []
        await other.close()
        await store.close()

    @in_loop
    async def test_calls_made_in_its_listener_belong_to_the_new_session(
        self, link: CuttableLink, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        other = connect(zookeeper.address + chroot).store
        observed = connect(link.address + chroot, SHORT_MS)
        store = observed.store
        made: list[asyncio.Future[str]] = []

        def register(state: SessionState) -> None:
            if state is EXPIRED:
                made.append(asyncio.ensure_future(store.create("/e", b"again", ephemeral=True)))

        await store.create("/e", ephemeral=True)
        store.on_session(register)
        link.cut()
        gone = asyncio.Event()
        await other.exists("/e", watch=lambda event: gone.set())
        await asyncio.wait_for(gone.wait(), 20)
        link.heal()
        await observed.until(CONNECTED)
        assert await made[0] == "/e"
        data, stat = await other.get("/e")
        assert (data, stat.ephemeral_owner) == (b"again", store.session_id)
        await other.close()
        await store.close()

    @in_loop
    async def test_a_loop_that_was_held_for_longer_than_that_goes_on_in_a_new_one(
        self, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        """So do calls that block: at start-up the logs may take that long to load."""
        other = connect(zookeeper.address + chroot).store
        observed = connect(zookeeper.address + chroot, SHORT_MS)
        store = observed.store
        first_session = store.session_id
        await store.create("/e", ephemeral=True)
        while "/e" in contents(other):
            time.sleep(0.1)
        assert store.multi_now([Create("/a", b"1")]) == ["/a"]
        assert store.session_id != first_session
        assert await store.exists("/e") is None
        assert observed.states == [DISCONNECTED, EXPIRED, CONNECTED]
        await other.close()
        await store.close()


class TestServers:
    @in_loop
    async def test_a_killed_server_that_comes_back_has_the_session_and_every_write(
        self, start_zookeeper: StartZooKeeper
    ) -> None:
        server = start_zookeeper()
        observed = connect(server.address)
        store = observed.store
        await store.create("/e", ephemeral=True)
        await store.multi([Create("/a", b"0"), Create("/a/b", b"x")])
        server.kill()
        await observed.until(DISCONNECTED)
        write = await under_way(store.set("/a", b"1", 0))
        server.start()
        assert await write == 1
        assert observed.states == [DISCONNECTED, CONNECTED]
        assert contents(store, "/a") == {"/a": b"1", "/a/b": b"x"}
        assert await store.exists("/e") is not None
        await store.close()

    @in_loop
    async def test_a_paused_server_makes_calls_give_up_and_serves_again_when_it_goes_on(
        self, start_zookeeper: StartZooKeeper
    ) -> None:
        server = start_zookeeper()
        observed = connect(server.address, SHORT_MS)
        store = observed.store
        await store.create("/a")
        server.pause()
        with pytest.raises(StoreUnavailable):
            await store.set("/a", b"1")
        assert observed.states[0] is DISCONNECTED
        server.resume()
        await observed.until(CONNECTED)
        await store.set("/a", b"2")
        assert (await store.get("/a"))[0] == b"2"
        await store.close()

    @in_loop
    async def test_closing_does_not_wait_for_a_server_that_is_gone(
        self, start_zookeeper: StartZooKeeper
    ) -> None:
        server = start_zookeeper()
        store = connect(server.address).store
        server.pause()
        read = await under_way(store.get("/"))
        started = time.monotonic()
        await store.close()
        assert time.monotonic() - started < LONG_MS / 1000
        with pytest.raises(StoreClosed):
            await read
        with pytest.raises(StoreClosed):
            await store.get("/")
        server.kill()

    @in_loop
    async def test_an_ensemble_that_loses_its_leader_serves_the_same_session_on(
        self, start_ensemble: Callable[[], ZooKeeperEnsemble]
    ) -> None:
        ensemble = start_ensemble()
        observed = connect(ensemble.address)
        store = observed.store
        session_id = store.session_id
        await store.create("/e", ephemeral=True)
        await store.create("/a")
        version = 0
        for _ in range(20):
            version = await store.set("/a", b"x", version)
        ensemble.leader().kill()
        for _ in range(20):
            version = await store.set("/a", b"y", version)
        assert version == 40
        assert store.session_id == session_id
        assert EXPIRED not in observed.states
        assert await store.exists("/e") is not None
        await store.close()

    @in_loop
    async def test_an_ensemble_whose_servers_are_killed_one_after_the_other_serves_it_too(
        self, start_ensemble: Callable[[], ZooKeeperEnsemble]
    ) -> None:
        """One of them is the one that the session is connected to; each write counts once."""
        ensemble = start_ensemble()
        observed = connect(ensemble.address)
        store = observed.store
        session_id = store.session_id
        seen: list[WatchedEvent] = []
        await store.create("/a")
        await store.exists("/made", watch=seen.append)
        version = 0
        for server in ensemble.servers:
            server.kill()
            for _ in range(10):
                version = await store.set("/a", b"x", version)
            await asyncio.to_thread(server.start)
        assert version == 30
        assert DISCONNECTED in observed.states
        assert EXPIRED not in observed.states
        assert store.session_id == session_id
        await store.create("/made")
        assert seen == [WatchedEvent(EventType.CREATED, "/made")]
        await store.close()

    @in_loop
    async def test_a_server_may_be_named_and_one_that_is_not_known_is_passed_over(
        self, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        unknown = "a" * 70  # too long for a label, so no resolver is asked
        observed = connect(f"{unknown}:1,localhost:{zookeeper.port}{chroot}")
        assert await observed.store.create("/a") == "/a"
        await observed.store.close()

    @in_loop
    async def test_a_write_larger_than_a_server_takes_is_refused_and_the_connection_stays(
        self, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        observed = connect(zookeeper.address + chroot)
        with pytest.raises(BadArguments) as raised:
            await observed.store.create("/a", bytes(1_100_000))
        assert "ZooKeeper takes 1048575" in str(raised.value.__cause__)
        most = bytes(1_048_000)
        await observed.store.create("/a", most)
        assert (await observed.store.get("/a"))[0] == most
        assert observed.states == []
        await observed.store.close()

    def test_no_server_at_start_up_is_told_with_the_reason(self) -> None:
        port = free_port()
        with pytest.raises(StartupError) as raised:
            ZooKeeperStore.connect(f"127.0.0.1:{port}/kafka", connection_timeout_ms=300)
        assert str(raised.value) == (
            f"zookeeper.connect: no session with ZooKeeper at 127.0.0.1:{port} within 300 ms "
            f"(zookeeper.connection.timeout.ms): 127.0.0.1:{port} Connection refused"
        )

    def test_what_does_not_speak_zookeeper_is_told_too(self, link: CuttableLink) -> None:
        link.freeze()
        with pytest.raises(StartupError, match="accepts connections but gives no session"):
            ZooKeeperStore.connect(link.address, session_timeout_ms=2000, connection_timeout_ms=300)
