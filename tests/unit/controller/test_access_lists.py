"""Who may do what: the model, and a store that keeps access lists."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl_credential

from tests.support.metadata import in_loop
from tidelog.controller import access_lists
from tidelog.controller.access_lists import (
    ENTRIES_MAX,
    INTERNED_BYTES_MAX,
    OPEN,
    AccessEntry,
    AccessList,
    Identity,
    InvalidAccessList,
    NoAuth,
    Permission,
    decode_access_list,
    digest_identity,
    permits,
    resolved,
    without_digests,
)
from tidelog.controller.journal import JOURNAL_NAME, SNAPSHOT_NAME
from tidelog.controller.metadata_store import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoNode,
    SetData,
    StoreError,
)
from tidelog.controller.node_database import NodeDatabase, Operations, Result
from tidelog.controller.node_tree import DeletedAccess, Transaction
from tidelog.controller.outstanding_changes import CloseSession, CreateGuarded, SetAccess

READ, WRITE, CREATE, DELETE, ADMIN = Permission
HOME = Identity("ip", "127.0.0.1")
ME = digest_identity(b"me:secret")
MINE = AccessList([AccessEntry(31, *ME)])


def world(permissions: int) -> AccessEntry:
    return AccessEntry(permissions, "world", "anyone")


READABLE = AccessList([world(READ)])


class TestModel:
    def test_a_digest_is_zookeepers(self) -> None:
        for user, password in (("me", "secret"), ("a", "b:c"), ("", "")):
            digest = make_digest_acl_credential(user, password)
            assert digest_identity(f"{user}:{password}".encode()) == ("digest", digest)
        assert digest_identity(b"nobody").name.startswith("nobody:")

    def test_a_permission_is_one_of_any_entry_that_names_the_client(self) -> None:
        access = AccessList(
            [world(READ), AccessEntry(WRITE, *ME), AccessEntry(DELETE, "ip", "127.0.0.1")]
        )
        assert permits(access, READ, [HOME])
        assert not permits(access, WRITE, [HOME])
        assert permits(access, WRITE, [HOME, ME])
        assert permits(access, DELETE, [HOME])
        assert not permits(access, ADMIN, [HOME, ME])
        assert permits(access, READ | ADMIN, [HOME])

    @pytest.mark.parametrize(
        ("expression", "is_within"),
        [
            ("10.1.2.3", True),
            ("10.1.2.3/32", True),
            ("10.1.2.4", False),
            ("10.1.2.0/24", True),
            ("10.1.2.99/24", True),
            ("10.1.3.0/24", False),
            ("10.1.3.0/23", True),
            ("10.1.4.0/23", False),
            ("9.9.9.9/0", True),
        ],
    )
    def test_an_address_is_within_a_network(self, expression: str, is_within: bool) -> None:
        access = AccessList([AccessEntry(READ, "ip", expression)])
        assert permits(access, READ, [Identity("ip", "10.1.2.3")]) == is_within
        assert not permits(access, READ, [Identity("ip", "::1"), Identity("digest", expression)])

    def test_the_open_list_is_kept_as_none(self) -> None:
        assert resolved(OPEN, [HOME]) is None
        assert resolved([*OPEN, *OPEN], [HOME]) is None
        assert resolved([world(READ)], [HOME]) == (world(READ),)

    def test_auth_is_everybody_whom_the_client_has_proven_to_be(self) -> None:
        other = digest_identity(b"other:word")
        asked = [AccessEntry(READ, "auth", "whatever"), world(WRITE)]
        assert resolved(asked, [HOME, ME, other]) == (
            AccessEntry(READ, *ME),
            AccessEntry(READ, *other),
            world(WRITE),
        )
        with pytest.raises(InvalidAccessList):
            resolved(asked, [HOME])

    def test_auth_does_not_make_a_list_too_long(self) -> None:
        identities = [digest_identity(b"%d:x" % number) for number in range(100)]
        asked = [AccessEntry(READ, "auth", str(number)) for number in range(ENTRIES_MAX)]
        assert len(resolved(asked, identities) or ()) == 100
        asked = [AccessEntry(number, "auth", "") for number in range(ENTRIES_MAX)]
        began = time.process_time()
        with pytest.raises(InvalidAccessList):
            resolved(asked, identities)
        assert time.process_time() - began < 0.02

    @pytest.mark.parametrize(
        ("scheme", "name", "is_valid"),
        [
            ("digest", "me:x", True),
            ("digest", ":x", True),
            ("digest", "a:b:", True),
            ("digest", "a:", False),
            ("digest", "a", False),
            ("digest", "", False),
            ("digest", "a:b:c", False),
            ("ip", "1.2.3.4", True),
            ("ip", "1.2.3.4/0", True),
            ("ip", "1.2.3.4/33", False),
            ("ip", "1.2.3.4/", False),
            ("ip", "1.2.3", False),
            ("ip", "1.2.3.4.5", False),
            ("ip", "1.2.3.-4", False),
            ("ip", "1.2.3.\u0664", False),
            ("ip", "::1", False),
            ("world", "me", False),
            ("super", "", False),
            ("", "", False),
        ],
    )
    def test_an_entry_has_to_name_somebody(self, scheme: str, name: str, is_valid: bool) -> None:
        try:
            assert resolved([AccessEntry(1, scheme, name)], [HOME])
            assert is_valid
        except InvalidAccessList:
            assert not is_valid

    def test_an_empty_list_is_invalid(self) -> None:
        with pytest.raises(InvalidAccessList):
            resolved([], [HOME])

    def test_digests_are_masked_and_nothing_else_is(self) -> None:
        network = AccessEntry(1, "ip", "127.0.0.1")
        assert without_digests(AccessList([*MINE, network, world(1)])) == (
            AccessEntry(31, "digest", "me:x"),
            network,
            world(1),
        )

    def test_judging_takes_time_for_each_identity_and_not_for_each_entry(self) -> None:
        """A thousand listeners may have to be judged in one turn of the loop."""
        entries = [AccessEntry(READ, "ip", f"10.0.{n // 250}.{n % 250}/32") for n in range(999)]
        access = AccessList([*entries, world(WRITE)])
        began = time.process_time()
        for _ in range(900):
            assert not permits(access, READ, [HOME, ME])
        assert time.process_time() - began < 0.02

    def test_lists_that_were_read_are_kept_up_to_so_many_bytes(self) -> None:
        for number in range(2000):
            list_of_one = AccessList([AccessEntry(READ, "digest", f"{number}:" + "x" * 2000)])
            assert decode_access_list(list_of_one.encoded) == list_of_one
        assert 0 < access_lists._interned.size <= INTERNED_BYTES_MAX
        assert access_lists._interned.size == sum(map(len, access_lists._interned._by_encoded))

    def test_a_list_is_the_same_after_it_was_encoded(self) -> None:
        several = AccessList([*MINE, world(-1), AccessEntry(1, "digest", "\u00e9:x")])
        for access in (OPEN, MINE, several):
            assert decode_access_list(access.encoded) == access

    def test_equal_lists_of_many_nodes_are_in_memory_once(self) -> None:
        asked = [AccessEntry(31, "auth", "")]
        assert resolved(asked, [ME]) is resolved(list(asked), [HOME, ME])


def opened(directory: Path, journal_bytes_max: int = 1024 * 1024) -> NodeDatabase:
    return NodeDatabase.open(directory, journal_bytes_max=journal_bytes_max, keeps_sessions=True)


def submitted(database: NodeDatabase, operations: Operations, *who: Identity) -> list[Result]:
    results: list[Result] = []
    database.submit(operations, 7, results.append, who)
    return results


def guarded(path: str, access: AccessList = MINE, **more: bool) -> CreateGuarded:
    return CreateGuarded(Create(path, b"x", **more), access)


class TestStore:
    @pytest.mark.parametrize(
        ("needed", "operation"),
        [
            (READ, Check("/p")),
            (WRITE, SetData("/p", b"new")),
            (CREATE, Create("/p/new")),
            (CREATE, Create("/p/new-", sequence=True)),
            (CREATE, guarded("/p/new")),
            (DELETE, Delete("/p/child")),
            (ADMIN, SetAccess("/p", None)),
        ],
    )
    @in_loop
    async def test_a_write_needs_its_permission(
        self, tmp_path: Path, needed: Permission, operation: Create
    ) -> None:
        database = opened(tmp_path)
        await database.write([Create("/p"), Create("/p/child")], 0)
        for permission in Permission:
            if permission is not needed:
                await database.write([SetAccess("/p", AccessList([world(permission)]))], 0)
                [error] = submitted(database, [operation], HOME)
                assert isinstance(error, NoAuth)
                assert error.index == 0
        await database.write([SetAccess("/p", AccessList([*MINE, world(needed)]))], 0)
        results = submitted(database, [operation], HOME)
        await database.write([], 0)
        assert not isinstance(results[0], StoreError)
        await database.close()

    @in_loop
    async def test_a_permission_is_asked_for_before_anything_else(self, tmp_path: Path) -> None:
        database = opened(tmp_path)
        await database.write([guarded("/p", READABLE), Create("/p/child")], 0)
        for operation in (
            SetData("/p", b"", version=9),
            Create("/p/child"),
            Delete("/p/no"),
            Delete("/p/child", version=9),
            SetAccess("/p", None, version=9),
        ):
            [error] = submitted(database, [operation], HOME)
            assert isinstance(error, NoAuth), operation
        for operation in (SetData("/no", b""), SetAccess("/no", None), Create("/no/child")):
            [error] = submitted(database, [operation], HOME)
            assert isinstance(error, NoNode), operation
        await database.close()

    @in_loop
    async def test_a_list_that_is_not_yet_durable_holds_for_the_next_write(
        self, tmp_path: Path
    ) -> None:
        database = opened(tmp_path)
        await database.write([Create("/p")], 0)
        closed = submitted(database, [SetAccess("/p", MINE)], HOME)
        too_late = submitted(database, [SetData("/p", b"new")], HOME)
        made = submitted(database, [guarded("/q")], HOME)
        below = submitted(database, [Create("/q/child")], HOME)
        own = submitted(database, [Create("/q/own")], HOME, ME)
        await database.write([], 0)
        assert (closed, made, own) == ([[1]], [["/q"]], [["/q/own"]])
        assert isinstance(too_late[0], NoAuth)
        assert isinstance(below[0], NoAuth)
        await database.close()

    @in_loop
    async def test_a_multi_without_a_permission_leaves_nothing(self, tmp_path: Path) -> None:
        database = opened(tmp_path)
        await database.write([guarded("/p")], 0)
        for count in (1, 300):  # checked at once, and in slices
            operations = [Create(f"/q{number}") for number in range(count)]
            results = submitted(database, [*operations, SetData("/p", b"")], HOME)
            await database.write([], 0)
            error = results[0]
            assert isinstance(error, NoAuth)
            assert error.index == count
            assert set(database.tree.nodes) == {"/", "/p"}
        await database.close()

    @in_loop
    async def test_a_list_has_a_version(self, tmp_path: Path) -> None:
        database = opened(tmp_path)
        await database.write([guarded("/p")], 0)
        assert await database.write([SetAccess("/p", None, version=0)], 0) == [1]
        with pytest.raises(BadVersion):
            await database.write([SetAccess("/p", None, version=0)], 0)
        stat = database.tree.node("/p").stat()
        assert (stat.aversion, stat.version, stat.mzxid) == (1, 0, stat.czxid)
        assert database.tree.node("/p").access is None
        await database.close()

    @in_loop
    async def test_the_end_of_a_session_asks_for_no_permission(self, tmp_path: Path) -> None:
        database = opened(tmp_path)
        await database.write([guarded("/p", READABLE)], 0)
        await database.write([CreateGuarded(Create("/p/e", ephemeral=True), MINE)], 7)
        deleted: list[DeletedAccess] = []

        def note(_transaction: Transaction, of_it: DeletedAccess) -> tuple[()]:
            deleted.append(of_it)
            return ()

        database.fired = note
        await database.write([Delete("/p/e"), CloseSession(7)], 7)
        await database.write([SetData("/p", b"")], 0)
        assert deleted == [{"/p/e": MINE}, {}]
        await database.close()

    @pytest.mark.parametrize("journal_bytes_max", [1024 * 1024, 1])
    @in_loop
    async def test_lists_are_there_after_a_restart_out_of_the_journal_or_a_snapshot(
        self, tmp_path: Path, journal_bytes_max: int
    ) -> None:
        database = opened(tmp_path, journal_bytes_max)
        await database.write([guarded("/p"), Create("/open"), Create("/back")], 0)
        await database.write([CreateGuarded(Create("/e", ephemeral=True), MINE)], 7)
        await database.write([SetAccess("/open", READABLE), SetAccess("/back", MINE)], 0)
        await database.write([SetAccess("/back", None)], 0)
        await database.write([guarded("/gone"), Delete("/gone"), Create("/gone")], 0)
        await database.close()
        assert (tmp_path / SNAPSHOT_NAME).exists() == (journal_bytes_max == 1)
        for _ in range(2):
            database = opened(tmp_path, journal_bytes_max)
            lists = {
                path: (node.access, node.aversion) for path, node in database.tree.nodes.items()
            }
            assert lists == {
                "/": (None, 0),
                "/p": (MINE, 0),
                "/open": (READABLE, 1),
                "/back": (None, 2),
                "/e": (MINE, 0),
                "/gone": (None, 0),
            }
            await database.close()


# What was written before there were access lists: /e of session 7, /p, and then, in the journal, a
# change of /p and its child.
OLD_JOURNAL = (
    "dGRsZ21ldGEAAAACB8I343RkbAoAAAAcqNvRFwAAAAIAAAABAAAAAQAAAAMAAAGLz+VoAAAAAAB0ZGwKAAAAS17ly3sA"
    "AAACAAAAAgAAAAIAAAABAAABi8/laAAAAAACAgAAAAAAAAAAAAAAAgAAAAMvcHNldAEAAAAAAAAAAQAAAAgAAAAAL3Av"
    "Y2hpbGQ="
)
OLD_SNAPSHOT = (
    "dGRsZ3NucDIAAAABAAAAAwAAAAMAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAAMAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAACAAAAAAAAAAAAAAABAAAAAC8AAAABAAAAAwAAAAEAAAADAAAAAQAAAAMAAAGLz+VoAAAAAYvP5WgAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAcAAAACAAAABC9lbWluZQAAAAEAAAADAAAAAQAAAAMAAAABAAAAAwAAAYvP5WgAAAABi8/laAAAAAAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAL/////L3AAAAABAAAAAAAAAAcAAA+gAAAABnNlY3JldMfkssY="
)


@in_loop
async def test_files_from_before_there_were_lists_are_open_to_all(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(base64.b64decode(OLD_JOURNAL))
    (tmp_path / SNAPSHOT_NAME).write_bytes(base64.b64decode(OLD_SNAPSHOT))
    database = opened(tmp_path)
    tree = database.tree
    assert set(tree.nodes) == {"/", "/e", "/p", "/p/child"}
    assert all(node.access is None and node.aversion == 0 for node in tree.nodes.values())
    assert (tree.node("/p").data, tree.ephemerals) == (b"set", {7: {"/e": None}})
    await database.write([SetAccess("/p", MINE)], 0)
    await database.close()
    database = opened(tmp_path, 1)  # reads both files, and writes a snapshot of now
    assert database.tree.node("/p").access == MINE
    await database.close()
    database = opened(tmp_path)
    assert database.tree.node("/p").access == MINE
    assert database.tree.sessions[7].password == b"secret"
    await database.close()
