"""The cleaner's workers on a real loop with real threads."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cleaning import stored_pairs, write
from tests.support.clock import FakeClock
from tests.support.log_broker import close_abruptly
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.log.cleaner.cleaned_segment import CleanedSegment
from tidelog.log.cleaner.log_cleaner import LogCleaner
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager, Round
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.types import ZERO_UUID, TopicPartition

COMPACTED = LogConfig(compact=True, min_cleanable_dirty_ratio=0.0)
QUICK = {"log.cleaner.backoff.ms": "1"}
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager(
        [tmp_path], broker_config=BrokerConfig(), default_log_config=COMPACTED, clock=FakeClock()
    )
    manager.start(lambda _: COMPACTED)
    yield manager
    close_abruptly(manager)


def dirty_log(logs: LogManager, partition: int = 0) -> PartitionLog:
    log = logs.get_or_create(TopicPartition("t", partition), ZERO_UUID)
    for number in range(5):
        write(log, (b"k", b"%d" % number))
    log.roll()
    return log


def run(
    logs: LogManager,
    story: Callable[[LogCleaner], Awaitable[None]],
    offline: list[Any] | None = None,
    **config: str,
) -> None:
    async def life() -> None:
        settings = {**QUICK, **{key.replace("_", "."): value for key, value in config.items()}}
        cleaner = LogCleaner(
            logs,
            lambda *what: (offline if offline is not None else []).append(what),
            BrokerConfig(settings),
            loop=asyncio.get_running_loop(),
            clock=FakeClock(),
        )
        cleaner.start()
        try:
            await asyncio.wait_for(story(cleaner), 60)
        finally:
            await cleaner.stop()

    asyncio.run(life())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_dirty_logs_are_cleaned_and_the_checkpoint_says_so(
    logs: LogManager, tmp_path: Path
) -> None:
    found = [dirty_log(logs, number) for number in range(3)]
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert checkpoint.read_bytes() == b""

    async def story(cleaner: LogCleaner) -> None:
        await until(lambda: checkpoint.read_bytes().startswith(b"0\n3\n"))
        totals = cleaner.totals
        assert totals.rounds == 3
        assert totals.bytes_read > totals.bytes_written > 0
        assert cleaner.manager.looked_ms is not None

    run(logs, story)
    assert sorted(checkpoint.read_text().splitlines()[2:]) == ["t 0 5", "t 1 5", "t 2 5"]
    assert [stored_pairs(log) for log in found] == [[(4, b"k", b"4")]] * 3


def test_the_checkpoint_is_known_after_a_restart(logs: LogManager, tmp_path: Path) -> None:
    log = dirty_log(logs)

    async def story(_: LogCleaner) -> None:
        await until(lambda: b"t 0 5" in (tmp_path / "cleaner-offset-checkpoint").read_bytes())

    run(logs, story)
    logs.shutdown()
    again = LogManager(
        [tmp_path], broker_config=BrokerConfig(), default_log_config=COMPACTED, clock=FakeClock()
    )
    again.start(lambda _: COMPACTED)
    found = again.get(PARTITION)
    assert found is not None
    assert found.cleaner_offset == log.cleaner_offset == 5
    close_abruptly(again)


def test_switched_off_it_leaves_compacted_topics_to_grow(logs: LogManager) -> None:
    log = dirty_log(logs)

    async def story(cleaner: LogCleaner) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)

    run(logs, story, log_cleaner_enable="false")
    assert len(stored_pairs(log)) == 5


def test_a_log_with_damage_is_marked_and_the_others_go_on(
    logs: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = dirty_log(logs, 0), dirty_log(logs, 1)
    path = bad.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    async def story(cleaner: LogCleaner) -> None:
        await until(lambda: good.cleaner_offset == 5 and bool(cleaner.manager.uncleanable))
        assert list(cleaner.manager.uncleanable) == [bad.topic_partition]

    run(logs, story)
    assert "t-0 cannot be cleaned" in caplog.text
    assert "checksum does not match at position 70" in caplog.text
    assert path.read_bytes() == content


def test_a_full_disk_is_tried_again(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = dirty_log(logs)
    finish = CleanedSegment.finish
    tries: list[int] = []

    def full(self: CleanedSegment, *arguments: Any) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finish(self, *arguments)

    monkeypatch.setattr(CleanedSegment, "finish", full)

    async def story(_: LogCleaner) -> None:
        await until(lambda: log.cleaner_offset == 5)

    run(logs, story)
    assert len(tries) == 3
    assert "cannot clean t-0 for now" in caplog.text
    assert not list(log.directory.glob("*.cleaned"))


def test_a_failed_read_is_reported_as_the_directorys(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dirty_log(logs)
    failed: list[str] = []
    logs.failures.listener = failed.append

    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", broken)

    async def story(cleaner: LogCleaner) -> None:
        await until(lambda: bool(failed))

    run(logs, story)
    assert failed == [str(log.directory.parent)]


def test_a_swap_that_fails_takes_the_partition_offline(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty_log(logs)
    offline: list[Any] = []

    def broken(_: Any, created_ms: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(CleanedSegment, "_go_live", broken)

    async def story(_: LogCleaner) -> None:
        await until(lambda: bool(offline))

    run(logs, story, offline)
    assert offline[0][0] == PARTITION


@pytest.mark.parametrize("what", ["delete", "truncate"])
def test_a_log_that_goes_meanwhile_is_given_up(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    log = dirty_log(logs)
    reached, may_go_on = threading.Event(), threading.Event()
    append = CleanedSegment.append

    def slow(self: CleanedSegment, batches: Any) -> None:
        reached.set()
        may_go_on.wait(60)
        append(self, batches)

    monkeypatch.setattr(CleanedSegment, "append", slow)

    async def story(cleaner: LogCleaner) -> None:
        await until(reached.is_set)
        if what == "delete":
            logs.async_delete(PARTITION)
        else:
            log.truncate_to(2)
        may_go_on.set()
        await until(lambda: not log.is_being_cleaned)
        assert not cleaner.manager.uncleanable

    run(logs, story)
    if what == "truncate":
        assert not list(log.directory.glob("*.cleaned"))
        assert [offset for offset, _, _ in stored_pairs(log)] == [0, 1]


def test_new_settings_bring_more_workers_and_fewer(logs: LogManager) -> None:
    def with_threads(count: int) -> BrokerConfig:
        return BrokerConfig({"log.cleaner.backoff.ms": "600000", "log.cleaner.threads": str(count)})

    async def story(cleaner: LogCleaner) -> None:
        cleaner.configure(with_threads(2))
        assert list(cleaner._workers) == [0, 1]
        await asyncio.sleep(0)  # both find nothing to do, and rest
        cleaner.configure(with_threads(1))
        await until(lambda: list(cleaner._workers) == [0])

    run(logs, story, log_cleaner_backoff_ms="600000")


def test_a_stop_does_not_wait_for_a_throttled_round(logs: LogManager) -> None:
    log = dirty_log(logs)
    clock = FakeClock()

    async def life() -> None:
        cleaner = LogCleaner(
            logs,
            lambda *_: None,
            BrokerConfig({**QUICK, "log.cleaner.io.max.bytes.per.second": "0.001"}),
            loop=asyncio.get_running_loop(),
            clock=clock,
        )
        cleaner.start()
        clock.advance(ms=1000)
        await until(lambda: log.is_being_cleaned)
        await asyncio.wait_for(cleaner.stop(), 10)

    asyncio.run(life())
    assert not log.is_being_cleaned


def test_no_error_ends_a_worker(logs: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty_log(logs)
    begin = LogCleanerManager.begin_dirtiest
    turns: list[int] = []

    def fail_at_first(self: LogCleanerManager, found: Any) -> Round | None:
        turns.append(1)
        if len(turns) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return begin(self, found)

    monkeypatch.setattr(LogCleanerManager, "begin_dirtiest", fail_at_first)

    async def story(_: LogCleaner) -> None:
        await until(lambda: log.cleaner_offset == 5)

    run(logs, story)
