from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.metadata import in_loop, no_space, open_store, refused
from tidelog.controller import znodes
from tidelog.controller.producer_ids import ProducerIds
from tidelog.controller.znodes import ProducerIdBlock
from tidelog.errors import ErrorCode


@in_loop
async def test_ids_count_up_from_0_and_a_block_is_claimed_before_its_first_id(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    ids = ProducerIds(store, 3)
    assert [await ids.next() for _ in range(3)] == [0, 1, 2]
    data, _ = await store.get(znodes.PRODUCER_ID_BLOCK)
    assert znodes.decode_producer_id_block(data) == ProducerIdBlock(3, 0, 999)
    await store.close()


@in_loop
async def test_a_restart_begins_a_new_block(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await ProducerIds(store, 0).next()
    await store.close()
    again = open_store(tmp_path)
    assert await ProducerIds(again, 0).next() == 1000
    await again.close()


@in_loop
async def test_two_brokers_and_many_callers_never_get_the_same_id(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    one, two = ProducerIds(store, 1), ProducerIds(store.new_session(), 2)
    given = await asyncio.gather(*(ids.next() for _ in range(1500) for ids in (one, two)))
    assert len(set(given)) == 3000
    assert max(given) < 4000


@in_loop
async def test_the_node_that_kafka_makes_empty_is_understood(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create(znodes.PRODUCER_ID_BLOCK)
    assert await ProducerIds(store, 0).next() == 0
    await store.close()


@in_loop
async def test_ids_are_above_those_found_in_logs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ids = ProducerIds(store, 0)
    ids.start_above(41_999)
    assert await ids.next() == 42_000
    await store.close()


@in_loop
async def test_ids_found_while_a_block_is_in_hand_are_skipped(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ids = ProducerIds(store, 0)
    await ids.next()
    ids.start_above(500)
    assert await ids.next() == 501
    ids.start_above(1500)
    assert await ids.next() == 1501
    await store.close()


@in_loop
async def test_without_a_block_a_client_is_told_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    ids = ProducerIds(store, 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        with refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            await ids.next()
    assert await ids.next() == 0
    await store.close()
