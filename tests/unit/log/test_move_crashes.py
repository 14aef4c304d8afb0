"""A move between directories by a process that dies at any file operation, and the next start.

Whatever happened: the log is there, once, with every record it had and in order; what was synced in
the old directory is there even if nothing unsynced is; a move that had not come to its swap goes
on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crashing_disk import CrashingDisk
from tests.support.log_broker import LogBroker, close_abruptly
from tests.support.log_builder import fill, produce
from tidelog.config.topic import LogConfig
from tidelog.errors import StartupError
from tidelog.log.future_log import REPLACES_FILE, FutureLog, forget_replaced
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment.index_file import fsync_path
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid(bytes(range(16)))
PARTITION = TopicPartition("events", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
SYNCED, ALL = 12, 16


def prepare(root: Path) -> LogBroker:
    """A log in the first of two directories; all but the last records are synced."""
    broker = LogBroker(root, directories=2)
    log = broker.start(CONFIG).get_or_create(PARTITION, TOPIC_ID)
    fill(log, SYNCED)
    log.flush()
    fill(log, ALL - SYNCED)
    return broker


def copy_all(future: FutureLog) -> None:
    while (piece := future.next_piece(300)) is not None:
        future.copy(piece)


def move(manager: LogManager) -> None:
    future = manager.create_future(PARTITION, manager.directories[1])
    old_parent = str(future.current.directory.parent)
    copy_all(future)
    future.make_ready()
    future.catch_up_on_disk(flush_under_way=False)
    future.save_state()
    manager.replace_with_future(future)
    for path in (str(future.directory.path), old_parent):
        fsync_path(path)
    forget_replaced(str(future.current.directory))


def check(log: PartitionLog | None) -> None:
    assert log is not None
    assert log.topic_id == TOPIC_ID
    assert SYNCED <= log.log_end_offset <= ALL
    log.update_high_watermark(log.log_end_offset)
    offset = 0
    while offset < log.log_end_offset:
        records = log.read(offset, 1, up_to_offset=log.log_end_offset, min_one_batch=True).records
        assert records is not None
        assert records.read()[:8] == offset.to_bytes(8, "big")
        offset += 1


def operations(root: Path) -> int:
    broker = prepare(root)
    assert broker.manager is not None
    with CrashingDisk(root) as disk:
        move(broker.manager)
    close_abruptly(broker.manager)
    shutil.rmtree(root)
    return len(disk.operations)


def test_a_move_survives_a_crash_at_every_file_operation(tmp_path: Path) -> None:
    count = operations(tmp_path / "counted")
    assert count > 20
    homes = set()
    for die_at in range(count):
        root = tmp_path / str(die_at)
        broker = prepare(root)
        assert broker.manager is not None
        with CrashingDisk(root, die_at):
            move(broker.manager)
        manager = broker.kill_and_start(CONFIG)
        log = manager.get(PARTITION)
        check(log)
        assert log is not None
        homes.add(log.directory.parent.name)
        future = manager.futures.get(PARTITION)
        if future is not None:
            copy_all(future)
            future.make_ready()
            future.save_state()
            manager.replace_with_future(future)
        end_offset = log.log_end_offset
        produce(log, leader_epoch=1)
        manager = broker.restart(CONFIG)
        log = manager.get(PARTITION)
        assert log is not None
        assert log.log_end_offset == end_offset + 1
        folders = [p.name for path in broker.paths for p in path.iterdir() if p.is_dir()]
        assert folders.count("events-0") == 1, folders
        close_abruptly(manager)
        shutil.rmtree(root)
    assert homes == {"data0", "data1"}


class TestRenamingsLostWithThePower:
    """Of the two renamings of a swap either may be missing."""

    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[LogBroker]:
        broker = prepare(tmp_path)
        assert broker.manager is not None
        manager = broker.manager
        future = manager.create_future(PARTITION, manager.directories[1])
        copy_all(future)
        future.make_ready()
        future.save_state()
        manager.replace_with_future(future)
        close_abruptly(manager)
        yield broker
        assert broker.manager is not None
        close_abruptly(broker.manager)

    def restore_old(self, broker: LogBroker) -> None:
        (away,) = broker.paths[0].glob("events-0.*-delete")
        away.rename(broker.paths[0] / "events-0")

    def restore_future(self, broker: LogBroker) -> None:
        name = f"events-0.{'0' * 32}-future"
        (broker.paths[1] / "events-0").rename(broker.paths[1] / name)

    def test_both_are_there(self, broker: LogBroker) -> None:
        check(broker.start(CONFIG).get(PARTITION))

    def test_the_old_folder_has_its_name_again(
        self, broker: LogBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.restore_old(broker)
        manager = broker.start(CONFIG)
        log = manager.get(PARTITION)
        check(log)
        assert log is not None
        assert log.directory == broker.paths[1] / "events-0"
        assert not (log.directory / REPLACES_FILE).exists()
        assert "has moved to" in caplog.text
        manager.shutdown()
        assert not [path for path in broker.paths[0].iterdir() if path.is_dir()]

    def test_the_new_folder_has_its_old_name_again(self, broker: LogBroker) -> None:
        self.restore_future(broker)
        manager = broker.start(CONFIG)
        log = manager.get(PARTITION)
        check(log)
        assert log is not None
        assert log.directory == broker.paths[1] / "events-0"
        assert manager.futures.get(PARTITION) is None

    def test_both_have_their_old_names_again(self, broker: LogBroker) -> None:
        self.restore_old(broker)
        self.restore_future(broker)
        manager = broker.start(CONFIG)
        log = manager.get(PARTITION)
        check(log)
        assert log is not None
        assert log.directory == broker.paths[0] / "events-0"
        assert manager.futures.get(PARTITION) is not None

    def test_nothing_is_decided_while_the_old_directory_cannot_be_read(
        self, broker: LogBroker
    ) -> None:
        self.restore_future(broker)
        broker.paths[0].rename(broker.paths[0].with_name("away"))
        broker.paths[0].write_text("no directory")
        manager = broker.start(CONFIG)
        assert manager.get(PARTITION) is None
        assert [p.name for p in broker.paths[1].iterdir() if p.is_dir()] == [
            f"events-0.{'0' * 32}-future"
        ]

    def test_two_logs_of_other_origin_are_the_operators(self, broker: LogBroker) -> None:
        self.restore_old(broker)
        (broker.paths[1] / "events-0" / REPLACES_FILE).unlink()
        with pytest.raises(StartupError, match="two log directories"):
            broker.start(CONFIG)
