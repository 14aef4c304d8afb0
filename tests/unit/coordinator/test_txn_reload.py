"""A broker killed between any two steps of a transaction comes back to all of it or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.metadata import in_loop
from tests.support.txn_stage import crash_points, txn_stage

TIMEOUT_MS = 60_000


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_killed_between_any_two_steps_of_a_transaction_it_is_all_there_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool, version: int
) -> None:
    @in_loop
    async def story() -> None:
        source = tmp_path / "broker"
        async with txn_stage(source) as stage:
            with crash_points(monkeypatch, source, tmp_path / "copies") as copies:
                producer = await stage.producer()
                assert await producer.add(0, 1) == [0, 0]
                assert await producer.send(b"a", 0) == 0
                assert await producer.send(b"b", 1) == 0
                assert await producer.add_offsets() == 0
                assert await producer.commit_offset(7) == 0
                assert await producer.end(committed=committed, version=version) == 0
        # init, 2 x add, 2 x send, offsets, prepare, 3 markers, complete, and the state before all
        assert len(copies) == 12
        seen = [await outcome(copy) for copy in copies]
        prepared_at = 7
        assert seen[:prepared_at] == [("", (), -1)] + [("nothing", (), -1)] * (prepared_at - 1)
        everything = ("all", (b"a", b"b"), 7) if committed else ("nothing", (), -1)
        assert seen[prepared_at:] == [everything] * 5

    async def outcome(directory: Path) -> tuple[str, tuple[bytes, ...], int]:
        async with txn_stage(directory) as stage:
            stage.clock.advance(ms=TIMEOUT_MS + 1)
            stage.broker.transactions.abort_timed_out()
            for index in (0, 1):
                assert stage.log(index).last_stable_offset == stage.log(index).log_end_offset
            values = (*stage.committed(0), *stage.committed(1))
            offset = await stage.offset(require_stable=True)
            if stage.state():
                next_one = await stage.producer()  # the id is usable again
                assert await next_one.add(0) == [0]
                assert await next_one.send(b"next", 0) == 0
                assert await next_one.end(committed=True) == 0
                assert stage.committed(0) == [*values[:1], b"next"]
            name = "" if not stage.state() else "all" if values else "nothing"
            return name, values, offset

    story()


@in_loop
async def test_what_is_in_memory_is_what_a_restart_reads(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer("a")
        await producer.add(0, 1)
        await producer.send(b"a")
        await producer.end(committed=True, version=5)
        open_one = await stage.producer("b")
        await open_one.add(1)
        before = {
            each.transactional_id: each for each in stage.broker.transactions.list_transactions()
        }
    async with txn_stage(tmp_path) as stage:
        after = {
            each.transactional_id: each for each in stage.broker.transactions.list_transactions()
        }
    assert after == {name: each._replace(last_producer_epoch=-1) for name, each in before.items()}


@in_loop
async def test_producer_ids_of_a_directory_are_not_handed_out_again(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        taken = (await stage.init()).producer_id
    for path in tmp_path.glob("tidelog-metadata.*"):
        path.unlink()
    async with txn_stage(tmp_path) as stage:
        assert (await stage.init("other")).producer_id > taken


@in_loop
async def test_end_repeated_after_a_restart_succeeds(tmp_path: Path) -> None:
    async with txn_stage(tmp_path) as stage:
        producer = await stage.producer()
        await producer.add(0)
        await producer.send(b"a")
        first = await producer.end_answer(committed=True, version=5)
    async with txn_stage(tmp_path) as stage:
        producer._stage = stage
        assert await producer.end_answer(committed=True, version=5) == first
