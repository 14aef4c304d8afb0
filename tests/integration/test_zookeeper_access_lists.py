"""Access lists, as kazoo's clients meet them: the same of `tidelog zookeeper` and of a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    Id,
    Permissions,
    make_acl,
    make_digest_acl,
    make_digest_acl_credential,
)

from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.eventually import eventually
from tests.support.zookeeper import fresh_chroot, zookeeper_client

pytestmark = pytest.mark.integration

READ, WRITE, CREATE, DELETE, ADMIN = (
    Permissions.READ,
    Permissions.WRITE,
    Permissions.CREATE,
    Permissions.DELETE,
    Permissions.ADMIN,
)
WORLD = Id("world", "anyone")
OWNERS = make_digest_acl("owner", "secret", all=True)


class Place:
    """A chroot of its own on some server, and clients of it."""

    def __init__(self, address: str) -> None:
        self._stack = ExitStack()
        self.chroot = fresh_chroot("acl")
        with zookeeper_client(address) as maker:
            maker.create(self.chroot)
        self.address = address + self.chroot

    def client(self, *credentials: str) -> KazooClient:
        client = self._stack.enter_context(zookeeper_client(self.address))
        for credential in credentials:
            client.add_auth("digest", credential)
        return client

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeperProcess]:
    with EmbeddedZooKeeperProcess(tmp_path_factory.mktemp("acl") / "zookeeper") as server:
        yield server
        assert "Traceback" not in server.log_text()


@pytest.fixture(params=["embedded", pytest.param("zookeeper", id="apache")])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(request.getfixturevalue(request.param).address)
    yield place
    place.close()


Attempt = Callable[[KazooClient], object]

NEEDED: list[tuple[str, int, Attempt]] = [
    ("get", READ, lambda client: client.get("/p")),
    ("exists", READ, lambda client: client.exists("/p")),
    ("get_children", READ, lambda client: client.get_children("/p")),
    ("get_children2", READ, lambda client: client.get_children("/p", include_data=True)),
    ("set", WRITE, lambda client: client.set("/p", b"new")),
    ("create", CREATE, lambda client: client.create("/p/new")),
    ("create of one that is there", CREATE, lambda client: client.create("/p/child")),
    ("delete", DELETE, lambda client: client.delete("/p/child")),
    ("delete of one that is not there", DELETE, lambda client: client.delete("/p/no")),
    ("set_acls", ADMIN, lambda client: client.set_acls("/p", OPEN_ACL_UNSAFE)),
]


class TestPermissions:
    @pytest.mark.parametrize(("name", "needed", "attempt"), NEEDED, ids=[row[0] for row in NEEDED])
    def test_each_request_needs_one(
        self, place: Place, name: str, needed: int, attempt: Attempt
    ) -> None:
        owner, other = place.client("owner:secret"), place.client("other:word")
        owner.create("/p", b"old")
        owner.create("/p/child")
        for granted in (READ, WRITE, CREATE, DELETE, ADMIN):
            if granted != needed:
                owner.set_acls("/p", [OWNERS, ACL(granted, WORLD)])
                with pytest.raises(NoAuthError):
                    attempt(other)
        assert owner.get("/p")[0] == b"old"
        assert owner.get_children("/p") == ["child"]
        owner.set_acls("/p", [OWNERS, ACL(needed, WORLD)])
        try:
            attempt(other)
        except (NodeExistsError, NoNodeError):
            assert "one that is" in name

    def test_a_list_says_nothing_of_the_nodes_below(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        owner.create("/p", acl=[OWNERS])
        owner.create("/p/open", b"x")
        assert other.get("/p/open")[0] == b"x"
        other.set("/p/open", b"y")
        assert other.exists("/p/no") is None

    def test_two_clients_keep_their_nodes_from_each_other(self, place: Place) -> None:
        one, two = place.client("one:1"), place.client("two:2")
        one.create("/one", b"1", acl=CREATOR_ALL_ACL)
        two.create("/two", b"2", acl=CREATOR_ALL_ACL, ephemeral=True)
        assert one.get("/one")[0] == b"1"
        assert two.get("/two")[0] == b"2"
        for stranger, path in ((two, "/one"), (one, "/two")):
            for attempt in (stranger.get, stranger.get_children, stranger.get_acls):
                with pytest.raises(NoAuthError):
                    attempt(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"")
        two.add_auth("digest", "one:1")
        assert two.get("/one")[0] == b"1"

    def test_who_comes_from_an_address_may(self, place: Place) -> None:
        client = place.client()
        client.create("/here", acl=[make_acl("ip", "127.0.0.0/8", all=True)])
        client.create("/exact", acl=[make_acl("ip", "127.0.0.1", all=True)])
        client.create("/there", acl=[make_acl("ip", "10.1.2.3/32", all=True)])
        client.get("/here")
        client.get("/exact")
        with pytest.raises(NoAuthError):
            client.get("/there")

    def test_permissions_of_several_entries_add_up(self, place: Place) -> None:
        client = place.client("owner:secret")
        client.create(
            "/p",
            b"x",
            acl=[make_digest_acl("owner", "secret", read=True), ACL(WRITE, WORLD)],
        )
        assert client.get("/p")[0] == b"x"
        client.set("/p", b"y")
        with pytest.raises(NoAuthError):
            client.set_acls("/p", OPEN_ACL_UNSAFE)


class TestLists:
    def test_a_list_is_told_as_it_was_given_and_its_version_counts(self, place: Place) -> None:
        client = place.client("owner:secret")
        given = [OWNERS, ACL(READ, WORLD), make_acl("ip", "127.0.0.1", write=True)]
        client.create("/p", acl=given)
        listed, stat = client.get_acls("/p")
        assert (listed, stat.aversion) == (given, 0)
        changed = client.set_acls("/p", [OWNERS], version=0)
        assert (changed.aversion, changed.version) == (1, 0)
        with pytest.raises(BadVersionError):
            client.set_acls("/p", given, version=0)
        listed, stat = client.get_acls("/p")
        assert (listed, stat.aversion) == ([OWNERS], 1)
        assert client.get("/p")[1].aversion == client.exists("/p").aversion == 1
        assert stat.mzxid == stat.czxid == stat.pzxid < client.last_zxid
        with pytest.raises(NoNodeError):
            client.set_acls("/no", [OWNERS])
        with pytest.raises(NoNodeError):
            client.get_acls("/no")

    def test_digests_are_told_to_administrators_only(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        owner.create("/p", acl=[OWNERS, ACL(READ, WORLD)])
        assert other.get_acls("/p")[0] == [ACL(31, Id("digest", "owner:x")), ACL(READ, WORLD)]
        assert owner.get_acls("/p")[0] == [OWNERS, ACL(READ, WORLD)]
        owner.set_acls("/p", [OWNERS, ACL(ADMIN, WORLD)])
        assert other.get_acls("/p")[0] == [OWNERS, ACL(ADMIN, WORLD)]
        owner.set_acls("/p", [OWNERS, ACL(WRITE | CREATE | DELETE, WORLD)])
        with pytest.raises(NoAuthError):
            other.get_acls("/p")

    def test_auth_stands_for_all_whom_the_client_has_proven_to_be(self, place: Place) -> None:
        client = place.client("one:1", "two:2")
        client.create("/p", acl=[make_acl("auth", "", read=True, admin=True)])
        expected = {
            (READ | ADMIN, make_digest_acl_credential("one", "1")),
            (READ | ADMIN, make_digest_acl_credential("two", "2")),
        }
        assert {(acl.perms, acl.id.id) for acl in client.get_acls("/p")[0]} == expected

    def test_entries_that_are_twice_there_are_kept_once(self, place: Place) -> None:
        client = place.client("owner:secret")
        client.create("/p", acl=[OWNERS, OWNERS])
        assert client.get_acls("/p")[0] == [OWNERS]

    @pytest.mark.parametrize(
        "entry",
        [
            make_acl("auth", "", all=True),  # of somebody who has proven nothing
            make_acl("world", "me", all=True),
            make_acl("no", "such", all=True),
            make_acl("sasl", "me", all=True),
            make_acl("digest", "me", all=True),
            make_acl("digest", "me:", all=True),
            make_acl("digest", "a:b:c", all=True),
            make_acl("ip", "1.2.3", all=True),
            make_acl("ip", "1.2.3.256", all=True),
            make_acl("ip", "1.2.3.4/33", all=True),
            make_acl("ip", "1.2.3.4/x", all=True),
        ],
        ids=lambda entry: f"{entry.id.scheme}:{entry.id.id}",
    )
    def test_a_list_that_names_nobody_is_invalid(self, place: Place, entry: ACL) -> None:
        client = place.client()
        with pytest.raises(InvalidACLError):
            client.create("/p", acl=[entry])
        assert client.exists("/p") is None
        client.create("/p")
        with pytest.raises(InvalidACLError):
            client.set_acls("/p", [ACL(31, WORLD), entry])
        assert client.get_acls("/p")[0] == OPEN_ACL_UNSAFE

    def test_an_invalid_list_is_found_before_a_missing_parent(self, place: Place) -> None:
        client = place.client()
        with pytest.raises(InvalidACLError):
            client.create("/no/p", acl=[make_acl("no", "such", all=True)])
        with pytest.raises(InvalidACLError):
            client.set_acls("/no", [])

    def test_permissions_beyond_the_five_are_kept_and_mean_nothing(self, place: Place) -> None:
        client = place.client()
        client.create("/p", acl=[ACL(96, WORLD)])
        with pytest.raises(NoAuthError):
            client.get("/p")
        client.create("/q", acl=[ACL(-1, WORLD)])
        assert client.get_acls("/q")[0] == [ACL(-1, WORLD)]


class TestTransactions:
    def test_one_without_a_permission_is_rolled_back(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        owner.create("/p", b"old", acl=[OWNERS, ACL(WRITE, WORLD)])
        refused = other.transaction()
        refused.create("/q")
        refused.set_data("/p", b"new")
        refused.create("/p/child")
        refused.delete("/q")
        results = refused.commit()
        assert [type(result) for result in results] == [
            RolledBackError,
            RolledBackError,
            NoAuthError,
            RuntimeInconsistency,
        ]
        assert owner.get("/p")[0] == b"old"
        assert other.exists("/q") is None

    def test_a_check_needs_to_read_and_a_node_of_the_same_one_is_guarded(
        self, place: Place
    ) -> None:
        owner, other = place.client("owner:secret"), place.client()
        owner.create("/p", acl=[OWNERS])
        checking = other.transaction()
        checking.check("/p", 0)
        assert isinstance(checking.commit()[0], NoAuthError)
        within = other.transaction()
        within.create("/q", acl=[OWNERS])
        within.create("/q/child")
        assert isinstance(within.commit()[1], NoAuthError)
        good = owner.transaction()
        good.create("/q", acl=[OWNERS])
        good.create("/q/child", b"x", acl=[OWNERS])
        good.check("/q/child", 0)
        assert not any(isinstance(result, Exception) for result in good.commit())
        with pytest.raises(NoAuthError):
            other.get("/q/child")

    def test_an_invalid_list_takes_the_others_with_it(self, place: Place) -> None:
        client = place.client()
        refused = client.transaction()
        refused.create("/a")
        refused.create("/b", acl=[make_acl("no", "such", all=True)])
        results = refused.commit()
        assert [type(result) for result in results] == [RolledBackError, InvalidACLError]
        assert client.exists("/a") is None


class TestWatches:
    def test_events_of_a_node_go_to_those_who_may_read_it(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        seen: list[WatchedEvent] = []
        for path in ("/secret", "/open"):
            other.exists(path, watch=seen.append)
            owner.create(path, acl=[OWNERS] if path == "/secret" else None)
        eventually(lambda: [event.path for event in seen] == ["/open"])
        assert seen[0].type == EventType.CREATED

    def test_a_node_that_was_made_unreadable_is_silent(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        for path in ("/p", "/q"):
            owner.create(path)
        seen: list[tuple[str, str]] = []

        def note(event: WatchedEvent) -> None:
            seen.append((event.type, event.path))

        for path in ("/p", "/q"):
            other.get_children(path, watch=note)
            other.get(path, watch=note)
        owner.set_acls("/p", [OWNERS])
        for path in ("/p", "/q"):
            owner.create(f"{path}/child")
            owner.delete(path, recursive=True)
        eventually(lambda: len(seen) == 2)
        other.sync("/")
        assert seen == [(EventType.CHILD, "/q"), (EventType.DELETED, "/q")]

    def test_a_child_is_told_of_to_those_who_may_read_its_parent(self, place: Place) -> None:
        owner, other = place.client("owner:secret"), place.client()
        seen: list[WatchedEvent] = []
        owner.create("/p", acl=[OWNERS, ACL(READ, WORLD)])
        other.get_children("/p", watch=seen.append)
        owner.create("/p/secret", acl=[OWNERS])
        eventually(lambda: [event.type for event in seen] == [EventType.CHILD])


class TestAuthentication:
    def test_a_scheme_that_is_not_there_ends_the_connection(self, place: Place) -> None:
        client = place.client()
        with pytest.raises(AuthFailedError):
            client.add_auth("no-such", "me:word")

    def test_a_user_without_a_password_is_one(self, place: Place) -> None:
        client = place.client("nobody")
        client.create("/p", acl=CREATOR_ALL_ACL)
        assert client.get_acls("/p")[0][0].id.id.startswith("nobody:")
        client.add_auth("ip", "whatever")

    def test_credentials_are_given_again_after_a_reconnect(
        self, embedded: EmbeddedZooKeeperProcess
    ) -> None:
        place = Place(embedded.address)
        client = place.client("owner:secret")
        client.create("/p", b"x", acl=[OWNERS])
        lost: list[KazooState] = []
        client.add_listener(lost.append)
        embedded.kill()
        embedded.start()
        eventually(lambda: KazooState.SUSPENDED in lost and client.connected)
        assert client.retry(client.get, "/p")[0] == b"x"
        place.close()


def test_lists_outlive_the_server(tmp_path: Path) -> None:
    with EmbeddedZooKeeperProcess(tmp_path / "zookeeper") as server:
        place = Place(server.address)
        owner, other = place.client("owner:secret"), place.client()
        owner.create("/p", b"x", acl=[OWNERS])
        owner.create("/q", b"y")
        owner.set_acls("/q", [OWNERS, ACL(READ, WORLD)])
        owner.create("/e", acl=[OWNERS], ephemeral=True)
        server.kill()
        server.start()
        eventually(lambda: owner.connected and other.connected)
        assert owner.retry(owner.get_acls, "/p")[0] == [OWNERS]
        assert owner.get_acls("/q")[1].aversion == 1
        for path in ("/p", "/e"):
            with pytest.raises(NoAuthError):
                other.get(path)
        assert other.get("/q")[0] == b"y"
        with pytest.raises(NoAuthError):
            other.set("/q", b"")
        place.close()
