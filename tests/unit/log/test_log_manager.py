from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.cleaning import clean
from tests.support.cleaning import write as write_keyed
from tests.support.clock import FakeClock
from tests.support.log_broker import LogBroker as Broker
from tests.support.log_broker import close_abruptly
from tests.support.log_builder import fill, offsets, produce
from tests.support.syncs import record_syncs
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError, StartupError
from tidelog.log.directory.checkpoints import (
    CHECKPOINT_FILES,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from tidelog.log.directory.log_directory import remove_paths
from tidelog.log.log_errors import DirectoryLocked, StorageError, StrayFolder
from tidelog.log.log_manager import LogManager, PendingLogs
from tidelog.log.partition_log import PartitionLog
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

TOPIC_ID = Uuid(bytes(range(16)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    if broker.manager is not None:
        close_abruptly(broker.manager)


def partition(number: int, topic: str = "events") -> TopicPartition:
    return TopicPartition(topic, number)


def checkpoint(manager: LogManager, name: str) -> None:
    for write in manager.pending_checkpoints(name):
        write.run()


def delete_due(manager: LogManager) -> int:
    due = manager.take_due_deletions()
    remove_paths(due)
    return len(due)


def disk_full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def has_clean_marker(broker: Broker) -> bool:
    return (broker.paths[0] / ".kafka_cleanshutdown").exists()


def test_a_log_is_made_once_and_found_again(broker: Broker) -> None:
    manager = broker.start()
    assert manager.get(partition(0)) is None
    log = manager.get_or_create(partition(0), TOPIC_ID)
    assert manager.get_or_create(partition(0), TOPIC_ID) is log is manager.get(partition(0))
    assert list(manager.all_logs()) == [log]
    assert log.directory == broker.paths[0] / "events-0"


def test_a_topic_of_another_id_is_refused(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(partition(0), TOPIC_ID)
    with pytest.raises(KafkaError) as error:
        manager.get_or_create(partition(0), Uuid.random())
    assert error.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_without_a_topic_id_takes_one(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(partition(0), ZERO_UUID)
    manager.get_or_create(partition(0), TOPIC_ID)
    log = broker.restart().get(partition(0))
    assert log is not None
    assert log.topic_id == TOPIC_ID


def test_a_new_log_goes_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=3)
    manager = broker.start()
    for number in range(7):
        manager.get_or_create(partition(number), TOPIC_ID)
    counts = [len(list(path.glob("events-*"))) for path in broker.paths]
    assert counts == [3, 2, 2]
    manager.async_delete(partition(0))
    manager.async_delete(partition(3))
    log = manager.get_or_create(partition(9), TOPIC_ID)
    assert log.directory.parent == broker.paths[0]
    manager = broker.restart()
    assert len(manager.all_logs()) == 6
    close_abruptly(manager)


def test_one_log_lives_in_one_directory(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=2)
    for path in broker.paths:
        (path / "events-0").mkdir(parents=True)
    with pytest.raises(StartupError, match="two log directories"):
        broker.start()


def test_records_survive_a_clean_restart(broker: Broker) -> None:
    log = broker.start().get_or_create(partition(0), TOPIC_ID)
    fill(log, 5)
    again = broker.restart().get(partition(0))
    assert again is not None
    assert (again.high_watermark, again.recovery_point, again.topic_id) == (5, 5, TOPIC_ID)
    assert offsets(again) == [0, 1, 2, 3, 4]


def test_records_survive_a_kill(broker: Broker) -> None:
    log = broker.start().get_or_create(partition(0), TOPIC_ID)
    fill(log, 5)
    again = broker.kill_and_start().get(partition(0))
    assert again is not None
    assert (again.log_end_offset, again.high_watermark, again.recovery_point) == (5, 0, 0)


def test_the_marker_lives_from_a_clean_stop_to_the_next_start(broker: Broker) -> None:
    marker = broker.paths[0] / ".kafka_cleanshutdown"
    manager = broker.start()
    assert not marker.exists()
    manager.shutdown()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    broker.start()
    assert not marker.exists()


def test_the_files_of_a_log_directory_are_kafkas(broker: Broker) -> None:
    manager = broker.start()
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    manager.directories.confirm_identity(4, "cluster")
    manager.shutdown()
    content = {path.name: path.read_bytes() for path in broker.paths[0].iterdir() if path.is_file()}
    assert content.pop("meta.properties").endswith(b"version=0\nbroker.id=4\n")
    assert content == {
        ".lock": b"",
        ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":-1}',
        "recovery-point-offset-checkpoint": b"0\n1\nevents 0 3\n",
        "replication-offset-checkpoint": b"0\n1\nevents 0 3\n",
        "log-start-offset-checkpoint": b"0\n0\n",
        "cleaner-offset-checkpoint": b"",
    }


def test_checkpoints_are_read_after_a_kill(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    fill(log, 5)
    log.flush()
    log.maybe_increment_log_start_offset(2)
    checkpoint(manager, RECOVERY_POINT_FILE)
    checkpoint(manager, HIGH_WATERMARK_FILE)
    checkpoint(manager, LOG_START_FILE)
    assert (broker.paths[0] / "log-start-offset-checkpoint").read_bytes() == b"0\n1\nevents 0 2\n"
    again = broker.kill_and_start().get(partition(0))
    assert again is not None
    assert (again.log_start_offset, again.high_watermark, again.recovery_point) == (2, 5, 5)


def test_a_log_start_at_a_segments_base_needs_no_row(broker: Broker) -> None:
    manager = broker.start(LogConfig(retention_ms=1))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log, timestamp=5)
    log.roll()
    sum(manager.delete_old_segments())
    assert log.log_start_offset == 1
    checkpoint(manager, LOG_START_FILE)
    assert (broker.paths[0] / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"


def test_a_log_whose_retention_fails_in_any_way_does_not_stop_the_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start(LogConfig(retention_ms=1))
    logs = [manager.get_or_create(partition(number), TOPIC_ID) for number in range(2)]
    for log in logs:
        produce(log, timestamp=5)
        log.roll()
    delete = PartitionLog.delete_old_segments

    def fail_for_the_first(log: PartitionLog) -> int:
        assert log is not logs[0], "a bug"
        return delete(log)

    monkeypatch.setattr(PartitionLog, "delete_old_segments", fail_for_the_first)
    assert sum(manager.delete_old_segments()) == 1
    assert [log.log_start_offset for log in logs] == [0, 1]


def test_an_unchanged_checkpoint_is_not_written_again(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(partition(0), TOPIC_ID)
    path = broker.paths[0] / "replication-offset-checkpoint"
    checkpoint(manager, HIGH_WATERMARK_FILE)
    before = path.stat().st_ino
    checkpoint(manager, HIGH_WATERMARK_FILE)
    assert path.stat().st_ino == before


def test_a_checkpoint_that_could_not_be_written_is_tried_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", disk_full)
        for write in manager.pending_checkpoints(HIGH_WATERMARK_FILE):
            with pytest.raises(OSError, match="No space left"):
                write.run()
    checkpoint(manager, HIGH_WATERMARK_FILE)
    content = (broker.paths[0] / "replication-offset-checkpoint").read_bytes()
    assert content == b"0\n1\nevents 0 3\n"


def test_of_two_checkpoints_the_later_one_stays_whoever_is_first(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    fill(log, 3)
    [early] = manager.pending_checkpoints(HIGH_WATERMARK_FILE)
    fill(log, 3)
    [late] = manager.pending_checkpoints(HIGH_WATERMARK_FILE)
    late.run()
    early.run()
    content = (broker.paths[0] / "replication-offset-checkpoint").read_bytes()
    assert content == b"0\n1\nevents 0 6\n"


def a_log_with_rows(manager: LogManager) -> None:
    """In every checkpoint of its directory."""
    log = manager.get_or_create(partition(0), TOPIC_ID)
    fill(log, 6)
    log.flush()
    log.maybe_increment_log_start_offset(4)
    log.cleaner_offset = 5
    for name in CHECKPOINT_FILES:
        checkpoint(manager, name)


def must_be_a_new_log_of_3(broker: Broker) -> None:
    log = broker.kill_and_start().get(partition(0))
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert (log.recovery_point, log.high_watermark, log.cleaner_offset) == (0, 0, -1)


def test_offsets_of_a_deleted_log_are_not_those_of_one_that_is_made_anew(broker: Broker) -> None:
    """By the old start offset, the records of the new log would be dropped after a crash."""
    manager = broker.start()
    a_log_with_rows(manager)
    manager.async_delete(partition(0))
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    must_be_a_new_log_of_3(broker)


def test_offsets_of_a_deleted_log_are_forgotten_by_the_thread_that_makes_it_anew(
    broker: Broker,
) -> None:
    manager = broker.start()
    a_log_with_rows(manager)
    manager.async_delete(partition(0))
    pending = many_logs(manager, 1)
    pending.run()
    manager.take_in(pending)
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    must_be_a_new_log_of_3(broker)


def test_offsets_of_a_folder_that_is_gone_are_not_those_of_a_new_log(broker: Broker) -> None:
    a_log_with_rows(broker.start())
    assert broker.manager is not None
    broker.manager.shutdown()
    shutil.rmtree(broker.paths[0] / "events-0")
    fill(broker.start().get_or_create(partition(0), TOPIC_ID), 3)
    must_be_a_new_log_of_3(broker)


def test_a_checkpoint_of_the_deleted_log_that_is_late_does_not_bring_them_back(
    broker: Broker,
) -> None:
    manager = broker.start()
    a_log_with_rows(manager)
    late = manager.pending_checkpoints(*CHECKPOINT_FILES)
    manager.async_delete(partition(0))
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    for write in late:
        write.run()
    must_be_a_new_log_of_3(broker)


def test_a_copy_in_a_directory_where_the_log_was_before_has_none_of_its_old_offsets(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, directories=2)
    manager = broker.start()
    a_log_with_rows(manager)
    manager.async_delete(partition(0))
    manager.prefer(partition(0), manager.directories[1])
    manager.get_or_create(partition(0), TOPIC_ID)
    manager.create_future(partition(0), manager.directories[0])
    for name in CHECKPOINT_FILES:
        rows = (broker.paths[0] / name).read_text().splitlines()[2:]
        assert rows in ([], ["events 0 0"]), name
    close_abruptly(manager)


def test_no_log_is_made_where_the_offsets_of_the_one_before_cannot_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path, directories=2)
    manager = broker.start()
    a_log_with_rows(manager)
    manager.async_delete(partition(0))
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.log.directory.checkpoints.replace_file", disk_full)
        manager.prefer(partition(0), manager.directories[0])
        pending = many_logs(manager, 1)
        pending.run()
        manager.take_in(pending)
        assert not manager.all_logs()
        with pytest.raises(StorageError, match="No space left"):
            manager.get_or_create(partition(0), TOPIC_ID)
    assert not (broker.paths[0] / "events-0").exists()
    assert manager.get_or_create(partition(0), TOPIC_ID).log_end_offset == 0
    close_abruptly(manager)


def test_a_damaged_checkpoint_costs_time_but_no_data(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.start().get_or_create(partition(0), TOPIC_ID)
    fill(log, 3)
    assert broker.manager is not None
    broker.manager.shutdown()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (broker.paths[0] / name).write_bytes(b"\0garbage")
    again = broker.start().get(partition(0))
    assert again is not None
    assert again.log_end_offset == 3
    assert "damaged checkpoint" in caplog.text


def test_a_directory_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    first = Broker(tmp_path)
    manager = first.start()
    with pytest.raises(DirectoryLocked, match="in use by another process"):
        Broker(tmp_path).start()
    manager.shutdown()
    second = Broker(tmp_path)
    close_abruptly(second.start())


def test_a_failed_lock_gives_the_others_free(tmp_path: Path) -> None:
    blocker = Broker(tmp_path)
    blocker.paths = [tmp_path / "data1"]
    manager = blocker.start()
    both = LogManager(
        [tmp_path / "data0", tmp_path / "data1"],
        broker_config=BrokerConfig(),
        default_log_config=LogConfig(),
        clock=FakeClock(),
    )
    with pytest.raises(DirectoryLocked):
        both.directories.lock()
    other = Broker(tmp_path)
    other.paths = [tmp_path / "data0"]
    close_abruptly(other.start())
    close_abruptly(manager)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data0").write_text("a file")
    with pytest.raises(StartupError, match="data0"):
        Broker(tmp_path).start()


@pytest.mark.parametrize("name", ["backup", "events", "events-x", "-5", "lost+found"])
def test_a_stray_folder_stops_the_start_with_its_name(tmp_path: Path, name: str) -> None:
    broker = Broker(tmp_path)
    (broker.paths[0] / name).mkdir(parents=True)
    with pytest.raises(StrayFolder, match="is neither") as error:
        broker.start()
    assert str(broker.paths[0] / name) in str(error.value)


def test_plain_files_are_left_alone(broker: Broker) -> None:
    manager = broker.start()
    path = broker.paths[0] / "tidelog-metadata.journal"
    path.write_bytes(b"journal")
    manager.shutdown()
    broker.start()
    assert path.read_bytes() == b"journal"


def test_the_folder_of_a_kraft_controller_is_left_alone(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    folder = broker.paths[0] / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    manager = broker.start()
    assert not manager.all_logs()
    assert folder.exists()
    close_abruptly(manager)


def test_a_deleted_log_is_renamed_and_removed_after_the_delay(broker: Broker) -> None:
    manager = broker.start(LogConfig(file_delete_delay_ms=60_000))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log)
    result = log.read(0, 1000, up_to_offset=1, min_one_batch=True)
    manager.async_delete(partition(0))
    assert manager.get(partition(0)) is None
    [folder] = broker.paths[0].glob("events-0*")
    assert folder.name.startswith("events-0.")
    assert folder.name.endswith("-delete")
    assert len(folder.name) == len("events-0.") + 32 + len("-delete")
    new = manager.get_or_create(partition(0), Uuid.random())
    assert new.log_end_offset == 0
    broker.clock.advance(ms=59_999)
    assert delete_due(manager) == 0
    broker.clock.advance(ms=1)
    assert delete_due(manager) == 1
    assert not folder.exists()
    assert result.records is not None
    assert len(result.records.read()) == len(result.records)


def test_a_long_topic_name_is_cut_when_its_folder_is_deleted(broker: Broker) -> None:
    manager = broker.start()
    name = "t" * 249
    manager.get_or_create(TopicPartition(name, 0), TOPIC_ID)
    manager.async_delete(TopicPartition(name, 0))
    [folder] = [path for path in broker.paths[0].iterdir() if path.is_dir()]
    assert len(folder.name) == 255


def test_an_unfinished_deletion_is_finished_at_the_next_start(broker: Broker) -> None:
    manager = broker.start()
    produce(manager.get_or_create(partition(0), TOPIC_ID))
    manager.async_delete(partition(0))
    manager = broker.kill_and_start()
    assert not manager.all_logs()
    delete_due(manager)
    assert not [path for path in broker.paths[0].iterdir() if path.is_dir()]


def test_deleted_segments_are_removed_after_the_delay(broker: Broker) -> None:
    manager = broker.start(LogConfig(retention_ms=1, file_delete_delay_ms=1000))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log, timestamp=5)
    log.roll()
    assert sum(manager.delete_old_segments()) == 1
    names = {path.name for path in log.directory.glob("*.deleted")}
    assert f"{0:020d}.log.deleted" in names
    broker.clock.advance(ms=1000)
    assert delete_due(manager) == len(names)
    assert not list(log.directory.glob("*.deleted"))


def test_rolled_logs_wait_to_be_flushed(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log)
    log.roll()
    produce(log)
    assert manager.take_rolled_logs() == [log]
    assert manager.take_rolled_logs() == []


def test_logs_are_flushed_by_time(broker: Broker) -> None:
    manager = broker.start(LogConfig(flush_ms=1000))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log)
    assert [log for log in manager.logs_due_for_flush() if log] == []
    broker.clock.advance(ms=1000)
    assert [each for each in manager.logs_due_for_flush() if each] == [log]
    log.flush()
    assert [log for log in manager.logs_due_for_flush() if log] == []


def test_a_stop_flushes_every_log(broker: Broker) -> None:
    manager = broker.start()
    logs = [manager.get_or_create(partition(number), TOPIC_ID) for number in range(6)]
    for log in logs:
        produce(log)
    manager.shutdown()
    assert [log.recovery_point for log in logs] == [1] * 6


def test_idle_producers_expire(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    now = broker.clock.time_ms()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, timestamp=now)
    broker.clock.advance(ms=86_399_999)
    list(manager.remove_expired_producers())
    assert 7 in log.producers.producers
    broker.clock.advance(ms=1)
    list(manager.remove_expired_producers())
    assert 7 not in log.producers.producers


def test_a_new_expiration_time_holds_for_producers_that_are_there(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log, producer_id=7, producer_epoch=0, sequence=0, timestamp=broker.clock.time_ms())
    broker.clock.advance(ms=5000)
    list(manager.remove_expired_producers())
    assert 7 in log.producers.producers
    manager.configure(BrokerConfig({"producer.id.expiration.ms": "5000"}))
    list(manager.remove_expired_producers())
    assert 7 not in log.producers.producers


def test_the_cleaners_checkpoint_stays_empty_until_something_is_cleaned(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(partition(0), TOPIC_ID)
    produce(log)
    path = broker.paths[0] / "cleaner-offset-checkpoint"
    manager = broker.restart()
    assert path.read_bytes() == b""
    found = manager.get(partition(0))
    assert found is not None
    found.cleaner_offset = 1
    manager = broker.restart()
    assert path.read_bytes() == b"0\n1\nevents 0 1\n"
    again = manager.get(partition(0))
    assert again is not None
    assert again.cleaner_offset == 1


def copy_log(source: PartitionLog, log: PartitionLog) -> None:
    """As a follower has it from its leader."""
    while log.log_end_offset < source.log_end_offset:
        result = source.read(
            log.log_end_offset, 1 << 20, up_to_offset=source.log_end_offset, min_one_batch=True
        )
        assert result.records is not None
        log.append_as_follower(memoryview(bytearray(result.records.read())))
    log.update_high_watermark(log.log_end_offset)


def cleaned_log(broker: Broker) -> PartitionLog:
    config = LogConfig(compact=True, delete=False)
    log = broker.start(config).get_or_create(partition(0), TOPIC_ID)
    write_keyed(log, (b"a", b"1"), (b"b", b"1"))
    for number in range(5):
        write_keyed(log, (b"a", b"%d" % number))
    log.roll()
    write_keyed(log, (b"c", b"1"))
    clean(log, broker.clock)
    assert offsets(log) == [1, 6, 7]
    return log


@pytest.mark.parametrize("killed", [False, True])
def test_a_replica_of_a_cleaned_log_has_its_gaps_by_right_whatever_becomes_of_the_topic(
    tmp_path: Path, broker: Broker, killed: bool
) -> None:
    """Nobody has cleaned the replica itself, and the topic is not compacted any more."""
    leader = Broker(tmp_path / "leader")
    source = cleaned_log(leader)
    manager = broker.start(LogConfig(compact=True, delete=False))
    copy_log(source, manager.get_or_create(partition(0), TOPIC_ID))
    for write in manager.pending_cleaner_checkpoints():
        write.run()

    again = broker.kill_and_start() if killed else broker.restart()

    log = again.get(partition(0))
    assert log is not None
    assert log.log_end_offset == 8
    log.update_high_watermark(8)
    found = log.read(4, 1 << 20, up_to_offset=8, min_one_batch=True)
    assert found.records is not None
    assert log.offset_for_timestamp(0) is not None
    assert leader.manager is not None
    close_abruptly(leader.manager)


def test_a_replica_of_a_whole_log_has_no_gaps_by_right(tmp_path: Path, broker: Broker) -> None:
    leader = Broker(tmp_path / "leader")
    source = leader.start().get_or_create(partition(0), TOPIC_ID)
    fill(source, 5)
    manager = broker.start(LogConfig(compact=True, delete=False))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    copy_log(source, log)
    assert log.cleaner_offset == -1
    assert not manager.pending_cleaner_checkpoints()
    assert leader.manager is not None
    close_abruptly(leader.manager)


def test_the_highest_producer_id_of_all_logs_is_known(broker: Broker) -> None:
    manager = broker.start()
    assert manager.highest_producer_id() == -1
    for number, producer_id in enumerate((12, 4007, 300)):
        log = manager.get_or_create(partition(number), TOPIC_ID)
        produce(log, producer_id=producer_id, producer_epoch=0, sequence=0)
    assert manager.highest_producer_id() == 4007


def test_an_unreadable_segment_takes_only_its_own_log_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = broker.start()
    for number in range(2):
        fill(manager.get_or_create(partition(number), TOPIC_ID), 3)
    checkpoint(manager, HIGH_WATERMARK_FILE)
    close_abruptly(manager)
    real_preadv = os.preadv

    def bad_sector(descriptor: int, buffers: list[memoryview], position: int) -> int:
        if "events-1" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        return real_preadv(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", bad_sector)
    with caplog.at_level(logging.ERROR):
        manager = broker.start()
    assert [log.topic_partition for log in manager.all_logs()] == [partition(0)]
    assert "stays offline" in caplog.text
    with pytest.raises(StorageError, match="Input/output error"):
        manager.get_or_create(partition(1), TOPIC_ID)
    manager.shutdown()
    assert not (broker.paths[0] / ".kafka_cleanshutdown").exists()
    written = (broker.paths[0] / "replication-offset-checkpoint").read_text()
    assert "events 1 3" in written


def test_idle_logs_give_back_their_maps(broker: Broker) -> None:
    manager = broker.start(LogConfig(index_interval_bytes=1))
    before = len(os.listdir("/proc/self/fd"))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    fill(log, 5)
    assert len(os.listdir("/proc/self/fd")) == before + 3
    list(manager.release_idle_maps())
    assert len(os.listdir("/proc/self/fd")) == before + 3
    list(manager.release_idle_maps())
    assert len(os.listdir("/proc/self/fd")) == before + 1
    fill(log, 5)
    assert offsets(log) == list(range(10))


def test_a_stray_folder_leaves_the_marker_of_other_directories(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=2)
    broker.start().shutdown()
    (broker.paths[1] / "stray").mkdir()
    with pytest.raises(StrayFolder):
        broker.start()
    assert (broker.paths[0] / ".kafka_cleanshutdown").exists()


def test_due_deletions_can_be_carried_out_elsewhere(broker: Broker) -> None:
    manager = broker.start(LogConfig(file_delete_delay_ms=1000))
    for number in range(2):
        manager.get_or_create(partition(number), TOPIC_ID)
        manager.async_delete(partition(number))
        broker.clock.advance(ms=500)
    due = manager.take_due_deletions()
    assert [Path(path).name.partition(".")[0] for path in due] == ["events-0"]
    assert manager.take_due_deletions() == []
    remove_paths(due)
    assert [path.name[:8] for path in broker.paths[0].glob("events-*")] == ["events-1"]


@pytest.mark.parametrize("content", [b"", b"version: 0\ntopic", bytes(40)])
def test_garbled_partition_metadata_is_written_anew(
    broker: Broker, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.start().get_or_create(partition(0), TOPIC_ID)
    fill(log, 3)
    metadata = log.directory / "partition.metadata"
    good = metadata.read_bytes()
    metadata.write_bytes(content)
    manager = broker.kill_and_start()
    assert str(metadata) in caplog.text
    again = manager.get_or_create(partition(0), TOPIC_ID)
    assert (again.log_end_offset, again.topic_id) == (3, TOPIC_ID)
    assert metadata.read_bytes() == good


def test_a_topic_id_that_cannot_be_written_is_a_storage_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    manager.get_or_create(partition(0), ZERO_UUID)
    monkeypatch.setattr("tidelog.log.partition_log.write_partition_metadata", disk_full)
    with pytest.raises(StorageError):
        manager.get_or_create(partition(0), TOPIC_ID)


def test_logs_that_nobody_knows_are_set_aside(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    manager = broker.start()
    for number in range(2):
        fill(manager.get_or_create(partition(number), TOPIC_ID), 3)
    manager = broker.kill_and_start()
    asked: list[tuple[TopicPartition, Uuid]] = []

    def is_known(topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        asked.append((topic_partition, topic_id))
        return topic_partition.partition == 0

    with caplog.at_level(logging.WARNING):
        assert manager.set_aside_strays(is_known) == [partition(1)]
    assert sorted(asked) == [(partition(0), TOPIC_ID), (partition(1), TOPIC_ID)]
    [folder] = broker.paths[0].glob("events-1*")
    assert folder.name.startswith("events-1.")
    assert folder.name.endswith("-stray")
    assert len(folder.name) == len("events-1.") + 32 + len("-stray")
    assert (folder / f"{0:020d}.log").stat().st_size > 0
    assert folder.name in caplog.text
    new = manager.get_or_create(partition(1), Uuid.random())
    assert new.log_end_offset == 0
    manager = broker.restart()
    assert sorted(log.topic_partition for log in manager.all_logs()) == [partition(0), partition(1)]
    assert folder.exists()


def test_an_offline_log_that_nobody_knows_is_set_aside_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    fill(manager.get_or_create(partition(0), TOPIC_ID), 3)
    manager.take_offline(partition(0), "a bad sector")
    assert manager.set_aside_strays(lambda _, topic_id: topic_id != ZERO_UUID) == [partition(0)]
    assert manager.offline == {}
    assert manager.get_or_create(partition(0), TOPIC_ID).log_end_offset == 0


def test_found_partitions_are_listed_with_ids_and_epochs(broker: Broker) -> None:
    manager = broker.start()
    produce(manager.get_or_create(partition(1), ZERO_UUID), leader_epoch=7)
    produce(manager.get_or_create(partition(2), TOPIC_ID), leader_epoch=4)
    manager.get_or_create(partition(3), TOPIC_ID).cleaner_offset = 0
    manager.get_or_create(partition(4), TOPIC_ID)
    manager.take_offline(partition(4), "a bad sector")
    assert manager.found_partitions() == {
        partition(1): (ZERO_UUID, 7, False),
        partition(2): (TOPIC_ID, 4, False),
        partition(3): (TOPIC_ID, -1, True),
        partition(4): (ZERO_UUID, -1, False),
    }


def test_partitions_on_disk_are_known_before_they_are_loaded(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(partition(1), TOPIC_ID)
    directory = manager.directories.paths[0]
    for name in ("a-0.deadbeef-delete", "b-7.deadbeef-future", "c-2.deadbeef-stray"):
        (directory / name).mkdir()
    (directory / "__cluster_metadata-0").mkdir()
    assert manager.directories.hosted() == {partition(1), partition(7, "b")}


def test_a_log_taken_offline_is_neither_served_nor_closed_as_clean(broker: Broker) -> None:
    manager = broker.start()
    logs = [manager.get_or_create(partition(number), TOPIC_ID) for number in range(2)]
    for log in logs:
        fill(log, 3)
        log.flush()
        fill(log, 2)
    logs[1].roll()
    manager.take_offline(partition(1), "fsync failed")
    assert manager.get(partition(1)) is None
    assert manager.take_rolled_logs() == []
    with pytest.raises(StorageError, match="fsync failed"):
        manager.get_or_create(partition(1), TOPIC_ID)
    manager.shutdown()
    assert not has_clean_marker(broker)
    assert (logs[0].recovery_point, logs[1].recovery_point) == (5, 3)
    assert not (logs[1].directory / f"{5:020d}.log").stat().st_size
    checkpoint = (broker.paths[0] / "recovery-point-offset-checkpoint").read_text()
    assert "events 1 3\n" in checkpoint
    again = broker.start().get(partition(1))
    assert again is not None
    assert (again.log_end_offset, again.high_watermark) == (5, 5)


def test_a_log_taken_offline_can_be_deleted(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(partition(0), TOPIC_ID)
    manager.take_offline(partition(0), "fsync failed")
    manager.async_delete(partition(0))
    manager.get_or_create(partition(0), Uuid.random())
    manager.shutdown()
    assert has_clean_marker(broker)


def test_taking_a_log_offline_that_is_not_there_changes_nothing(broker: Broker) -> None:
    manager = broker.start()
    manager.take_offline(partition(0), "fsync failed")
    assert manager.offline == {}


def test_a_stop_without_a_start_leaves_everything_as_it_was(broker: Broker) -> None:
    fill(broker.start().get_or_create(partition(0), TOPIC_ID), 3)
    assert broker.manager is not None
    broker.manager.shutdown()
    before = {path.name: path.stat().st_ino for path in broker.paths[0].iterdir()}
    manager = LogManager(
        broker.paths,
        broker_config=BrokerConfig(),
        default_log_config=LogConfig(),
        clock=broker.clock,
    )
    manager.directories.lock()
    manager.shutdown()
    assert {path.name: path.stat().st_ino for path in broker.paths[0].iterdir()} == before


def test_a_stop_right_after_the_start_restores_the_marker_and_syncs_nothing_else(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    for number in range(8):
        fill(manager.get_or_create(partition(number), TOPIC_ID), 3)
    manager = broker.restart()
    synced = record_syncs(monkeypatch)
    manager.shutdown()
    assert has_clean_marker(broker)
    assert not [path for path in synced if "events-" in path]


def test_one_log_in_two_directories_leaves_the_markers(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=2)
    broker.start().shutdown()
    for path in broker.paths:
        (path / "events-0").mkdir(parents=True)
    with pytest.raises(StartupError, match="two log directories"):
        broker.start()
    assert has_clean_marker(broker)


def test_a_stop_syncs_what_the_marker_vouches_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start(LogConfig(index_interval_bytes=1))
    log = manager.get_or_create(partition(0), TOPIC_ID)
    fill(log, 5)
    log.flush()
    synced = record_syncs(monkeypatch)
    manager.shutdown()
    names = [Path(path).name for path in synced]
    marker = names.index(".kafka_cleanshutdown.tmp")
    for name in (
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        f"{5:020d}.snapshot",
        "events-0",
        "recovery-point-offset-checkpoint.tmp",
    ):
        assert name in names[:marker], name


@pytest.mark.parametrize(
    ("code", "rows"), [(errno.ENOSPC, ["events 0 3", "events 1 0"]), (errno.EIO, [])]
)
def test_a_log_that_cannot_be_synced_by_a_stop_costs_its_own_recovery_point_or_all(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, code: int, rows: list[str]
) -> None:
    """A full disk is one log's trouble, a dead one all logs'."""
    manager = broker.start()
    for number in range(2):
        fill(manager.get_or_create(partition(number), TOPIC_ID), 3)
    really = os.fdatasync

    def bad_sector(descriptor: int) -> None:
        if "events-1" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        really(descriptor)

    monkeypatch.setattr(os, "fdatasync", bad_sector)
    manager.shutdown()
    assert not has_clean_marker(broker)
    checkpoint = (broker.paths[0] / "recovery-point-offset-checkpoint").read_text()
    assert sorted(checkpoint.splitlines()[2:]) == rows


def test_a_log_that_could_not_be_made_can_be_made_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.log.log_loader.write_partition_metadata", disk_full)
        with pytest.raises(StorageError):
            manager.get_or_create(partition(0), TOPIC_ID)
    assert not (broker.paths[0] / "events-0").exists()
    assert manager.get_or_create(partition(0), TOPIC_ID).log_end_offset == 0


def many_logs(manager: LogManager, count: int) -> PendingLogs:
    return manager.pending_logs((partition(number), TOPIC_ID) for number in range(count))


def test_many_logs_are_made_in_a_thread_and_taken_in_afterwards(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=3)
    manager = broker.start()
    known = manager.get_or_create(partition(0), TOPIC_ID)
    pending = many_logs(manager, 10)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(pending.run).result()
    assert list(manager.all_logs()) == [known]
    manager.take_in(pending)
    assert manager.get(partition(0)) is known
    assert len(manager.all_logs()) == 10
    assert [len(list(path.glob("events-*"))) for path in broker.paths] == [4, 3, 3]
    manager = broker.restart()
    assert len(manager.all_logs()) == 10
    close_abruptly(manager)


def test_a_log_that_a_thread_could_not_make_is_made_by_whoever_asks_for_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    pending = many_logs(manager, 3)
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.log.log_loader.write_partition_metadata", disk_full)
        pending.run()
        manager.take_in(pending)
        assert not manager.all_logs()
        with pytest.raises(StorageError, match="No space left"):
            manager.get_or_create(partition(0), TOPIC_ID)
    assert manager.get_or_create(partition(0), TOPIC_ID).log_end_offset == 0


def test_a_log_made_in_a_directory_that_fails_meanwhile_is_made_elsewhere(tmp_path: Path) -> None:
    broker = Broker(tmp_path, directories=2)
    manager = broker.start()
    pending = many_logs(manager, 2)
    pending.run()
    manager.failures.fail(str(broker.paths[0]), "read", OSError(errno.EIO, "bad sector"))
    manager.close_directory(manager.directories[0])
    manager.take_in(pending)
    for number in range(2):
        log = manager.get_or_create(partition(number), TOPIC_ID)
        assert log.directory.parent == broker.paths[1]
    close_abruptly(manager)


def test_a_configuration_that_changes_while_a_log_is_made_holds_for_it(broker: Broker) -> None:
    manager = broker.start()
    pending = many_logs(manager, 1)
    pending.run()
    changed = LogConfig(segment_bytes=12345)
    manager._topic_config = lambda topic: changed
    manager.take_in(pending)
    log = manager.get(partition(0))
    assert log is not None
    assert log.config is changed


def test_identities_are_stored_and_checked(broker: Broker) -> None:
    manager = broker.start()
    assert manager.directories.stored_identity() is None
    manager.directories.confirm_identity(3, "abc")
    stored = manager.directories.stored_identity()
    assert stored is not None
    assert (stored.broker_id, stored.cluster_id) == (3, "abc")
    with pytest.raises(StartupError, match="belongs to broker"):
        manager.directories.confirm_identity(4, "abc")
