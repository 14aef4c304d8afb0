"""Moves in the background of a broker without sockets; the copying really runs in threads."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.batches import simple_batch
from tests.support.failing_disk import FailingDisk
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.log_builder import values
from tests.support.metadata import in_loop
from tidelog.errors import ErrorCode
from tidelog.log.directory.checkpoints import LOG_START_FILE
from tidelog.log.future_log import FutureLog, Piece
from tidelog.log.log_errors import StorageError
from tidelog.log.partition_log import PartitionLog
from tidelog.record.errors import CorruptRecords
from tidelog.replication import replica_moves

WITHIN_S = 60.0
THROTTLE = "replica_alter_log_dirs_io_max_bytes_per_second"


@pytest.fixture(autouse=True)
def short_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_moves, "REST_S_MAX", 0.01)


async def until(holds: Callable[[], bool], meanwhile: Callable[[], object] = int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            meanwhile()
            await asyncio.sleep(0.001)


class MoveStage:
    """Topic t, whose one partition is in the first of two directories."""

    def __init__(self, stage: HandlerStage) -> None:
        self.stage = stage
        self.broker = stage.broker
        self.logs = stage.broker.logs

    @property
    def log(self) -> PartitionLog:
        return self.stage.partition("t").log

    @property
    def home(self) -> str:
        return self.log.directory.parent.name

    @property
    def future(self) -> FutureLog | None:
        return self.logs.futures.get(self.log.topic_partition)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.stage.partition("t").append(memoryview(simple_batch(2)), 11)

    def move(self, directory: int) -> None:
        self.broker.moves.move(self.log, self.logs.directories[directory])

    async def until_at(self, home: str) -> None:
        """Time flies, for whoever waits for the throttle."""
        there = lambda: self.home == home and not self.log.is_moving  # noqa: E731
        await until(there, lambda: self.stage.clock.advance(ms=100))


def on_stage(story: Callable[[MoveStage], object], tmp_path: Path, **overrides: str) -> None:
    @in_loop
    async def run() -> None:
        dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        async with handler_stage(tmp_path, log_dirs=dirs, **overrides) as stage:
            await stage.topic("t")
            await story(MoveStage(stage))  # type: ignore[misc]

    run()


def folders(path: Path) -> list[str]:
    return sorted(p.name.rpartition("-")[2] for p in path.iterdir() if p.is_dir())


def test_a_replica_moves_while_it_is_written(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(2000)
        stage.move(1)
        assert stage.log.is_moving
        for _ in range(100_000):
            if stage.home == "b":
                break
            stage.append()
            await asyncio.sleep(0)
        await stage.until_at("b")
        stage.append(10)
        written = stage.log.log_end_offset
        assert len(values(stage.log)) == written
        assert stage.future is None
        assert (tmp_path / "b" / "t-0").is_dir()
        assert not (tmp_path / "b" / "t-0" / "replaces").exists()
        assert folders(tmp_path / "a") == ["delete"]

    on_stage(story, tmp_path, log_segment_bytes="65536")


def test_asking_for_where_it_is_cancels(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(1)
        assert stage.future is not None
        stage.move(0)
        assert stage.future is None
        await until(lambda: not stage.log.is_moving)
        assert stage.home == "a"
        assert folders(tmp_path / "b") == ["delete"]
        stage.move(1)
        await stage.until_at("b")

    on_stage(story, tmp_path, **{THROTTLE: "1000"})


def test_asking_again_for_the_same_changes_nothing(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(0)
        assert stage.future is None
        stage.move(1)
        future = stage.future
        stage.move(1)
        assert stage.future is future

    on_stage(story, tmp_path, **{THROTTLE: "1000"})


def test_records_deleted_before_a_move_stay_deleted_if_the_broker_dies_after_it(
    tmp_path: Path,
) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(1)
        stage.log.maybe_increment_log_start_offset(51)  # inside a batch
        await stage.until_at("b")
        assert (tmp_path / "b" / LOG_START_FILE).read_bytes() == b"0\n1\nt 0 51\n"

    on_stage(story, tmp_path, **{THROTTLE: "1000"})


def test_a_deleted_topic_takes_the_copy_with_it(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(1)
        await stage.broker.topics.delete("t")
        await until(lambda: folders(tmp_path / "b") == ["delete"])
        assert folders(tmp_path / "a") == ["delete"]

    on_stage(story, tmp_path, **{THROTTLE: "1000"})


def test_a_stop_leaves_the_copy_and_the_next_start_goes_on(tmp_path: Path) -> None:
    async def begin(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(1)
        await until(lambda: stage.future is not None and stage.future.log.log_end_offset > 0)

    @in_loop
    async def go_on() -> None:
        dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        async with handler_stage(tmp_path, log_dirs=dirs) as stage:
            again = MoveStage(stage)
            await again.until_at("b")
            assert len(values(again.log)) == 200

    on_stage(begin, tmp_path, **{THROTTLE: "2000"})
    assert folders(tmp_path / "b") == ["future"]
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    go_on()


def test_the_throttle_can_be_changed_on_the_way(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(100)
        stage.move(1)
        await until(lambda: stage.future is not None and stage.future.log.log_end_offset > 0)
        assert stage.home == "a"
        faster = stage.broker.config.with_overrides({replica_moves.THROTTLE_KEY: "1000000000"})
        stage.broker.moves.configure(faster)
        await stage.until_at("b")

    on_stage(story, tmp_path, **{THROTTLE: "1"})


def test_a_full_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(10)
        with monkeypatch.context() as patch:
            FailingDisk(tmp_path / "b" / "t-0.", patch).fail(errno.ENOSPC, "pwrite")
            stage.move(1)
            await until(lambda: "cannot move" in caplog.text)
            assert stage.home == "a"
        await stage.until_at("b")
        assert len(values(stage.log)) == 20

    on_stage(story, tmp_path)


def test_a_destination_that_fails_ends_the_move_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: MoveStage) -> None:
        stage.append(10)
        FailingDisk(tmp_path / "b", monkeypatch).fail(errno.EIO, "pwrite")
        stage.move(1)
        await until(lambda: len(stage.logs.directories.online) == 1)
        await until(lambda: not stage.log.is_moving)
        stage.append(1)
        assert stage.home == "a"
        with pytest.raises(StorageError, match="offline"):
            stage.move(1)

    on_stage(story, tmp_path)
    assert folders(tmp_path / "b") == ["future"]


def test_a_source_that_fails_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: MoveStage) -> None:
        await stage.stage.topic("other")  # in the second directory
        log = stage.stage.partition("other").log
        stage.stage.partition("other").append(memoryview(simple_batch(2)), 11)
        assert log.directory.parent.name == "b"
        FailingDisk(tmp_path / "b", monkeypatch).fail(errno.EIO, "pread", reads=True)
        stage.broker.moves.move(log, stage.logs.directories[0])
        replicas = stage.broker.replicas
        await until(lambda: replicas.get("other", 0) is None)
        assert replicas.absent_error("other", 0) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "future" in folders(tmp_path / "a")

    on_stage(story, tmp_path)


def test_the_cleaner_keeps_off_until_it_is_there(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager

        stage.append(300)
        cleaner = LogCleanerManager(stage.logs, stage.stage.clock)
        begun = cleaner.begin_dirtiest(cleaner.dirty_logs())
        assert begun is not None
        stage.move(1)
        assert not cleaner.is_current(begun)
        cleaner.gave_up(begun)
        assert cleaner.begin_dirtiest(cleaner.dirty_logs()) is None
        await stage.until_at("b")
        assert cleaner.begin_dirtiest(cleaner.dirty_logs()) is not None

    on_stage(story, tmp_path, log_cleanup_policy="compact", log_segment_bytes="4096")


def test_an_acknowledged_flush_is_not_lost_in_the_swap(tmp_path: Path) -> None:
    async def story(stage: MoveStage) -> None:
        flushed: list[int] = []

        def note(end_offset: int, error: OSError | None) -> None:
            assert error is None
            flushed.append(end_offset)

        stage.append(500)
        stage.move(1)
        for _ in range(100_000):
            if stage.home == "b":
                break
            stage.append()
            end_offset = stage.log.log_end_offset
            stage.broker.flusher.flush(stage.log, partial(note, end_offset))
            await asyncio.sleep(0)
            if flushed:
                assert stage.log.recovery_point >= flushed[-1]
        await stage.until_at("b")
        await until(lambda: not stage.broker.flusher.is_flushing(stage.log))
        assert stage.log.recovery_point >= flushed[-1]

    on_stage(story, tmp_path)


@pytest.mark.parametrize("error", [CorruptRecords("one batch"), ValueError("a bug")], ids=repr)
def test_no_error_ends_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    copy = FutureLog.copy
    errors = [error, error]

    def fail_at_first(future: FutureLog, piece: Piece) -> None:
        if errors:
            raise errors.pop()
        copy(future, piece)

    monkeypatch.setattr(FutureLog, "copy", fail_at_first)

    async def story(stage: MoveStage) -> None:
        stage.append(10)
        stage.move(1)
        await stage.until_at("b")
        assert len(values(stage.log)) == 20

    on_stage(story, tmp_path)
