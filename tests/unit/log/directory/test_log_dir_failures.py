"""Which errors are a directory's, and what a log manager does with a directory that has failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.failing_disk import FailingDisk
from tests.support.log_broker import LogBroker, close_abruptly
from tests.support.log_builder import fill, offsets, produce
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, StartupError
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager
from tidelog.log.directory.log_dir_failures import LogDirFailures
from tidelog.log.log_errors import DirectoryLocked, StorageError
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid(bytes(range(16)))
GOOD, BAD = TopicPartition("events", 0), TopicPartition("events", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LogBroker]:
    """Two directories; `GOOD` goes to the first, `BAD` to the second."""
    broker = LogBroker(tmp_path, directories=2)
    yield broker
    if broker.manager is not None:
        close_abruptly(broker.manager)


def two_logs(manager: LogManager) -> tuple[PartitionLog, PartitionLog]:
    good, bad = (manager.get_or_create(key, TOPIC_ID) for key in (GOOD, BAD))
    for log in (good, bad):
        fill(log, 3)
        log.flush()
    return good, bad


def produce_and_flush(log: PartitionLog) -> None:
    produce(log)
    log.flush()


def failed(manager: LogManager) -> list[str]:
    return [path.name for path in manager.directories.paths if str(path) in manager.failures]


class TestReports:
    def test_the_first_report_of_a_directory_is_passed_on(self) -> None:
        failures = LogDirFailures(["/a", "/a/b", "/ab"])
        heard: list[str] = []
        failures.listener = heard.append
        for path in ("/a/b/t-0/0.log", "/a/b/t-1", "/ab"):
            assert failures.report(path, "write", OSError(errno.EIO, "Input/output error"))
        assert heard == ["/a/b", "/ab"]
        assert "/a" not in failures
        assert failures.covers("/a/b/t-2")
        assert not failures.covers("/a/t-2")
        assert failures.reason("/ab") == "cannot write: [Errno 5] Input/output error"

    @pytest.mark.parametrize(
        "code", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENODEV, errno.ESTALE, errno.ENOENT]
    )
    def test_these_errors_are_the_directorys(self, code: int) -> None:
        assert LogDirFailures(["/none"]).report("/none/t-0", "write", OSError(code, "no"))

    @pytest.mark.parametrize(
        "error",
        [
            OSError(errno.ENOSPC, "full"),
            OSError(errno.EDQUOT, "quota"),
            OSError(errno.EFBIG, "limit"),
            OSError(errno.EMFILE, "descriptors"),
            OSError("no number"),
            FileExistsError(errno.EEXIST, "there"),
        ],
    )
    def test_these_errors_are_not(self, error: OSError) -> None:
        assert not LogDirFailures(["/none"]).report("/none/t-0", "write", error)

    def test_a_missing_file_is_the_directorys_only_if_that_is_missing(self, tmp_path: Path) -> None:
        failures = LogDirFailures([str(tmp_path)])
        gone = FileNotFoundError(errno.ENOENT, "no such file")
        assert not failures.report(f"{tmp_path}/t-0", "read", gone)
        tmp_path.rmdir()
        assert failures.report(f"{tmp_path}/t-0", "read", gone)

    def test_what_lies_in_no_directory_is_nobodys(self) -> None:
        assert not LogDirFailures(["/a"]).report("/b/t-0", "write", OSError(errno.EIO, "no"))


class TestWhatFindsOut:
    """The log answers with KAFKA_STORAGE_ERROR, and its directory, no other, has failed."""

    STEPS: tuple[tuple[str, Callable[[PartitionLog], object]], ...] = (
        ("append", lambda log: produce(log)),
        ("roll", lambda log: log.roll()),
        ("flush", produce_and_flush),
        ("epoch", lambda log: produce(log, leader_epoch=5)),
        ("retention", lambda log: log.delete_old_segments()),
        ("truncation", lambda log: log.truncate_to(1)),
        ("close", lambda log: log.close()),
    )

    @pytest.mark.parametrize(("name", "step"), STEPS, ids=[name for name, _ in STEPS])
    @pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
    def test_any_write(
        self,
        broker: LogBroker,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        step: Callable[[PartitionLog], object],
        code: int,
    ) -> None:
        manager = broker.start(LogConfig(index_interval_bytes=1, retention_bytes=1))
        _, bad = two_logs(manager)
        bad.roll()
        produce(bad)
        only = ("fdatasync",) if name == "flush" else ()
        FailingDisk(broker.paths[1], monkeypatch).fail(code, *only)
        with pytest.raises(StorageError) as caught:
            step(bad)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert failed(manager) == ["data1"]

    def test_a_read(self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        manager = broker.start()
        two_logs(manager)
        manager = broker.restart()
        bad = manager.get(BAD)
        assert bad is not None
        FailingDisk(broker.paths[1], monkeypatch).fail(errno.EIO, "pread", reads=True)
        with pytest.raises(StorageError):
            bad.read(1, 1000, up_to_offset=3, min_one_batch=True)
        assert failed(manager) == ["data1"]

    def test_the_cleaner(self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        for log in two_logs(broker.start()):
            log.roll()
        manager = broker.restart(LogConfig(compact=True, delete=False, max_compaction_lag_ms=1))
        cleaner = LogCleanerManager(manager, broker.clock)
        FailingDisk(broker.paths[1], monkeypatch).fail(errno.EIO, "pread", reads=True)
        begun = cleaner.begin_dirtiest(cleaner.dirty_logs())
        assert begun is not None
        assert begun.log.topic_partition == GOOD
        assert failed(manager) == ["data1"]
        assert cleaner.uncleanable == {}

    def test_a_full_disk_is_no_failure_and_serves_again_when_there_is_room(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        _, bad = two_logs(manager)
        with monkeypatch.context() as patch:
            FailingDisk(broker.paths[1], patch).fail(errno.ENOSPC, "pwrite")
            with pytest.raises(StorageError):
                produce(bad)
        assert failed(manager) == []
        produce(bad)
        assert offsets(bad) == [0, 1, 2, 3]


class TestAFailedDirectory:
    @pytest.fixture
    def manager(self, broker: LogBroker) -> LogManager:
        """The second directory has failed, and been let go of."""
        manager = broker.start()
        for log in two_logs(manager):
            produce(log)
        manager.failures.report(str(broker.paths[1]), "write", OSError(errno.EIO, "dead"))
        manager.close_directory(manager.directories[1])
        return manager

    def test_has_no_logs_and_makes_none(self, manager: LogManager) -> None:
        assert [log.topic_partition for log in manager.all_logs()] == [GOOD]
        with pytest.raises(StorageError, match="dead"):
            manager.get_or_create(BAD, TOPIC_ID)

    def test_gets_no_new_logs(self, manager: LogManager, broker: LogBroker) -> None:
        for number in range(2, 6):
            log = manager.get_or_create(TopicPartition("events", number), TOPIC_ID)
            assert log.directory.parent == broker.paths[0]

    def test_gets_no_checkpoint_and_no_marker(self, manager: LogManager, broker: LogBroker) -> None:
        before = {path: path.stat().st_mtime_ns for path in broker.paths[1].rglob("*")}
        for write in manager.pending_checkpoints():
            write.run()
        manager.shutdown()
        assert {path: path.stat().st_mtime_ns for path in broker.paths[1].rglob("*")} == before
        assert not (broker.paths[1] / ".kafka_cleanshutdown").exists()
        assert (broker.paths[0] / ".kafka_cleanshutdown").exists()
        rows = (broker.paths[0] / "recovery-point-offset-checkpoint").read_text()
        assert "events 0 4\n" in rows

    def test_gives_its_lock_free(self, manager: LogManager) -> None:
        assert not manager.directories[1].is_locked

    def test_comes_back_with_the_next_start(self, manager: LogManager, broker: LogBroker) -> None:
        bad = broker.restart().get(BAD)
        assert bad is not None
        assert bad.log_end_offset == 4

    def test_keeps_what_was_to_be_removed_from_it(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        two_logs(manager)
        manager.async_delete(BAD)
        manager.failures.report(str(broker.paths[1]), "write", OSError(errno.EIO, "dead"))
        broker.clock.advance(ms=60_001)
        assert manager.take_due_deletions() == []

    def test_a_log_of_it_can_be_forgotten_but_not_deleted(
        self, manager: LogManager, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        FailingDisk(broker.paths[1], monkeypatch).fail(errno.EIO)
        with pytest.raises(StorageError, match="cannot delete"):
            manager.async_delete(BAD)
        assert BAD not in manager.offline


class TestAtTheStart:
    def test_a_directory_that_cannot_be_used_is_left_out(
        self, broker: LogBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.paths[1].write_text("no directory")
        manager = broker.start()
        assert failed(manager) == ["data1"]
        assert "data1 has failed: cannot use it" in caplog.text
        assert manager.get_or_create(GOOD, TOPIC_ID).directory.parent == broker.paths[0]

    def test_one_that_is_read_only_is_left_out(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        two_logs(broker.start())
        assert broker.manager is not None
        close_abruptly(broker.manager)
        FailingDisk(broker.paths[1], monkeypatch).fail(errno.EROFS)
        manager = broker.start()
        assert failed(manager) == ["data1"]
        assert [log.topic_partition for log in manager.all_logs()] == [GOOD]

    def test_one_whose_checkpoints_cannot_be_made_is_left_out(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        two_logs(broker.start())
        assert broker.manager is not None
        broker.manager.shutdown()
        FailingDisk(broker.paths[1], monkeypatch).fail(errno.EIO, "unlink")
        manager = broker.start()
        assert failed(manager) == ["data1"]
        assert BAD in manager.offline
        manager.shutdown()
        assert (broker.paths[1] / ".kafka_cleanshutdown").exists()

    def test_none_that_can_be_used_is_an_error(self, broker: LogBroker) -> None:
        for path in broker.paths:
            path.write_text("no directory")
        with pytest.raises(StartupError, match=r"no log directory can be used; .*data0: .*data1: "):
            broker.start()

    def test_one_that_another_process_holds_is_an_error(self, broker: LogBroker) -> None:
        broker.start()
        with pytest.raises(DirectoryLocked):
            LogBroker(broker.paths[0].parent, directories=2).start()

    def test_a_log_that_must_be_somewhere_is_not_made_anew(self, broker: LogBroker) -> None:
        two_logs(broker.start())
        assert broker.manager is not None
        close_abruptly(broker.manager)
        os.rename(broker.paths[1], broker.paths[1].with_name("away"))
        broker.paths[1].write_text("no directory")
        manager = broker.start()
        manager.expect([GOOD, BAD])
        with pytest.raises(StorageError, match="a log directory is offline"):
            manager.get_or_create(BAD, TOPIC_ID)
        manager.async_delete(BAD)
        assert manager.get_or_create(BAD, TOPIC_ID).log_end_offset == 0

    def test_with_all_directories_there_a_missing_log_is_made(self, broker: LogBroker) -> None:
        manager = broker.start()
        manager.expect([GOOD])
        assert manager.get_or_create(GOOD, TOPIC_ID).log_end_offset == 0


def test_a_directory_that_fails_a_new_log_hands_it_to_the_next(
    broker: LogBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    FailingDisk(broker.paths[0], monkeypatch).fail(errno.EIO)
    assert manager.get_or_create(GOOD, TOPIC_ID).directory.parent == broker.paths[1]
    assert failed(manager) == ["data0"]
    FailingDisk(broker.paths[1], monkeypatch).fail(errno.EIO)
    with pytest.raises(StorageError, match="no log directory is online"):
        manager.get_or_create(BAD, TOPIC_ID)


def test_a_new_log_goes_where_it_was_asked_for(broker: LogBroker) -> None:
    manager = broker.start()
    for key in (GOOD, BAD):
        manager.prefer(key, manager.directories[1])
        assert manager.get_or_create(key, TOPIC_ID).directory.parent == broker.paths[1]
