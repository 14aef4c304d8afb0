"""Access control lists in the metadata store, and brokers that share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop, open_store
from tidelog.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.broker.security.acl_store import DENY_ALL, AclStore
from tidelog.broker.security.authorizer import Authorizer
from tidelog.controller.announcements import EXPIRATION_MS
from tidelog.controller.embedded_store import EmbeddedStore
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    Operation,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from tidelog.errors import ErrorCode
from tidelog.network.session import Principal

TOPIC = ResourceType.TOPIC
READ, WRITE = AclOperation.READ, AclOperation.WRITE
ALICE = Principal("User", "alice")
ORDERS = ResourcePattern(TOPIC, "orders", PatternType.LITERAL)


def acl(operation: AclOperation = READ, name: str = "orders", **fields: Any) -> AclBinding:
    return AclBinding(TOPIC, name, "User:alice", operation, **fields)


class Member:
    """One broker's view of the store."""

    def __init__(self, store: EmbeddedStore, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.store = store.new_session()
        self.acls = AclStore(self.store, Authorizer(), clock=self.clock, timer=self.clock)
        self.acls.load()

    def may(self, operation: AclOperation = READ, name: str = "orders") -> bool:
        return self.acls.authorizer.authorize(ALICE, "10.0.0.1", operation, TOPIC, name)

    async def close(self) -> None:
        self.acls.close()
        await self.store.close()


async def rounds(count: int = 60) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@in_loop
async def test_a_change_holds_here_at_once_and_everywhere_soon(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one, two = Member(store), Member(store)
    for member in (one, two):
        member.acls.watch()
    await two.acls.caught_up()
    prefixed = acl(WRITE, "ord", pattern_type=PatternType.PREFIXED)
    assert set((await one.acls.create([acl(), prefixed])).values()) == {None}
    assert one.may(READ)
    assert one.may(WRITE)
    await two.acls.caught_up()
    assert two.may(READ)
    assert two.may(WRITE)
    await two.acls.delete([AclBindingFilter(principal="User:alice")])
    assert not two.may(READ)
    await one.acls.caught_up()
    assert not one.may(READ)
    assert not one.may(WRITE)
    assert await store.children("/kafka-acl/Topic") == []
    await one.close()
    await two.close()
    await store.close()


@in_loop
async def test_a_broker_that_starts_reads_all_lists_before_it_serves(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Member(store)
    await one.acls.create([acl(), acl(WRITE, "p", pattern_type=PatternType.PREFIXED)])
    two = Member(store)
    assert two.may(READ)
    assert two.may(WRITE, "pears")
    assert [each.name for each in two.acls.authorizer.patterns()] == ["orders", "p"]
    await one.close()
    await two.close()
    await store.close()


@in_loop
async def test_brokers_that_change_one_list_at_once_lose_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    members = [Member(store, FakeClock()) for _ in range(3)]
    operations = [each for each in AclOperation if each > AclOperation.ALL][:12]
    work = [
        asyncio.create_task(member.acls.create([acl(operation)]))
        for operation, member in zip(operations, members * 4, strict=True)
    ]
    while not all(task.done() for task in work):
        await rounds(5)
        for member in members:
            member.clock.advance(ms=200)
    fresh = Member(store)
    assert {entry.operation for entry in fresh.acls.authorizer.entries(ORDERS)} == set(operations)
    for member in (*members, fresh):
        await member.close()
    await store.close()


class FailingStore:
    """Fails the next writes; what it says it did not know may have happened."""

    def __init__(self, store: EmbeddedStore, *errors: StoreError, applies: bool = False) -> None:
        self._store = store
        self._errors = list(errors)
        self._applies = applies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> Any:
        if not self._errors:
            return await self._store.multi(operations)
        if self._applies:
            await self._store.multi(operations)
        raise self._errors.pop(0)


@pytest.mark.parametrize("applies", [False, True])
def test_a_write_whose_outcome_is_unknown_is_looked_at_again(tmp_path: Path, applies: bool) -> None:
    @in_loop
    async def story() -> None:
        store = open_store(tmp_path)
        one = Member(store)
        one.acls._store = FailingStore(one.store, OutcomeUnknown("/"), applies=applies)
        task = asyncio.create_task(one.acls.create([acl()]))
        while not task.done():
            await rounds(5)
            one.clock.advance(ms=200)
        assert task.result() == {acl(): None}
        assert one.may(READ)
        await one.close()
        await store.close()

    story()


@in_loop
async def test_a_change_that_others_keep_overtaking_is_given_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Member(store)
    one.acls._store = FailingStore(one.store, *[BadVersion("/")] * 11)
    task = asyncio.create_task(one.acls.create([acl()]))
    while not task.done():
        await rounds(5)
        one.clock.advance(ms=200)
    failure = task.result()[acl()]
    assert failure is not None
    assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "try again" in str(failure.message)
    assert not one.may(READ)
    await one.close()
    await store.close()


@in_loop
async def test_what_cannot_be_written_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Member(store)
    await one.acls.create([acl()])
    one.acls._store = FailingStore(one.store, StoreUnavailable("/"), StoreUnavailable("/"))
    failure = (await one.acls.create([acl(WRITE)]))[acl(WRITE)]
    assert failure is not None
    assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
    deleted = await one.acls.delete([AclBindingFilter(TOPIC, "orders")])
    assert [each.code for each in deleted[0].values() if each] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert one.may(READ)
    assert not one.may(WRITE)
    await one.close()
    await store.close()


@in_loop
async def test_what_several_filters_match_is_the_first_ones(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Member(store)
    bindings = [acl(READ), acl(WRITE), acl(WRITE, "o", pattern_type=PatternType.PREFIXED)]
    await one.acls.create(bindings)
    matched = await one.acls.delete(
        [
            AclBindingFilter(operation=READ),
            AclBindingFilter(TOPIC, "orders", pattern_type=PatternType.MATCH),
            AclBindingFilter(),
        ]
    )
    assert [sorted(each) for each in matched] == [[bindings[0]], sorted(bindings[1:]), []]
    assert list(one.acls.authorizer.patterns()) == []
    await one.close()
    await store.close()


@in_loop
async def test_a_named_list_that_is_not_known_here_yet_is_deleted_all_the_same(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    one, two = Member(store), Member(store)  # which do not watch
    await one.acls.create([acl()])
    assert await two.acls.delete([AclBindingFilter(TOPIC, "orders")]) == [{acl(): None}]
    assert await store.children("/kafka-acl/Topic") == []
    await one.close()
    await two.close()
    await store.close()


@in_loop
async def test_a_list_that_cannot_be_read_denies_everybody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    await store.multi([Create("/kafka-acl/Topic/orders", b"damaged", make_parents=True)])
    one = Member(store)
    assert one.acls.authorizer.entries(ORDERS) == DENY_ALL
    await one.acls.create([acl(name="*")])
    assert not one.may(READ)
    assert one.may(READ, "other")
    assert "everybody is denied" in caplog.text
    await one.acls.delete([AclBindingFilter(TOPIC, "orders")])
    assert one.may(READ)
    await one.close()
    await store.close()


@in_loop
async def test_a_session_that_begins_anew_misses_nothing(tmp_path: Path) -> None:
    """Announcements may have been made, and removed, while this broker was away."""
    store = open_store(tmp_path)
    one, two = Member(store), Member(store)
    await one.acls.create([acl()])
    two.acls.watch()
    await two.acls.caught_up()
    two.acls.close()
    assert two.may(READ)
    await one.acls.delete([AclBindingFilter()])
    await one.acls.create([acl(WRITE, "other")])
    for name in await store.children("/kafka-acl-changes"):
        await store.delete(f"/kafka-acl-changes/{name}")
    two.acls.session_began()
    two.acls.watch()
    await two.acls.caught_up()
    assert not two.may(READ)
    assert two.may(WRITE, "other")
    await one.close()
    await two.close()
    await store.close()


@in_loop
async def test_announcements_go_after_a_while(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one = Member(store)
    one.acls.watch()
    await one.acls.create([acl()])
    await one.acls.caught_up()
    assert len(await store.children("/kafka-acl-changes")) == 1
    made_ms = (await store.get("/kafka-acl-changes/acl_changes_0000000000"))[1].ctime_ms
    one.clock.advance(ms=made_ms - one.clock.time_ms() + EXPIRATION_MS + 1)
    await one.acls.create([acl(WRITE)])
    await one.acls.caught_up()
    assert "acl_changes_0000000000" not in await store.children("/kafka-acl-changes")
    await one.close()
    await store.close()


@in_loop
async def test_an_announcement_that_cannot_be_read_has_everything_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = open_store(tmp_path)
    one = Member(store)
    one.acls.watch()
    await one.acls.caught_up()
    other = Member(store)
    await other.acls.create([acl()])
    for name in await store.children("/kafka-acl-changes"):
        await store.delete(f"/kafka-acl-changes/{name}")
    await one.acls.caught_up()
    one.acls.authorizer.put(ORDERS, frozenset())
    await store.create("/kafka-acl-changes/acl_changes_", b"?", sequence=True)
    await one.acls.caught_up()
    assert one.may(READ)
    assert "cannot be read" in caplog.text
    await other.close()
    await one.close()
    await store.close()


@pytest.mark.parametrize("name", ["a/b", ".", "..", "with\0null"])
def test_a_name_that_no_node_can_have_is_refused(tmp_path: Path, name: str) -> None:
    @in_loop
    async def story() -> None:
        store = open_store(tmp_path)
        one = Member(store)
        failure = (await one.acls.create([acl(name=name)]))[acl(name=name)]
        assert failure is not None
        assert failure.code is ErrorCode.INVALID_REQUEST
        assert await one.acls.delete([AclBindingFilter(TOPIC, name)]) == [{}]
        await one.close()
        await store.close()

    story()
