"""A log copied into another directory piece by piece, and replaced by the copy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import raw_batch
from tests.support.failing_disk import FailingDisk
from tests.support.log_broker import LogBroker, close_abruptly
from tests.support.log_builder import ABORT, COMMIT, end_txn, fill, offsets, produce, read_all
from tests.support.message_sets import message_set_of
from tidelog.config.topic import LogConfig
from tidelog.log.directory.checkpoints import CLEANER_FILE, RECOVERY_POINT_FILE
from tidelog.log.directory.log_directory import remove_paths
from tidelog.log.future_log import FutureLog
from tidelog.log.log_errors import StorageError
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.record.batch import Codec
from tidelog.record.legacy import LegacyRecord
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid(bytes(range(16)))
PARTITION = TopicPartition("events", 0)
PIECE_BYTES = 300
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LogBroker]:
    broker = LogBroker(tmp_path, directories=2)
    yield broker
    if broker.manager is not None:
        close_abruptly(broker.manager)


def log_of(manager: LogManager) -> PartitionLog:
    return manager.get_or_create(PARTITION, TOPIC_ID)


def begin(manager: LogManager) -> FutureLog:
    return manager.create_future(PARTITION, manager.directories[1])


def copy_all(future: FutureLog) -> None:
    while (piece := future.next_piece(PIECE_BYTES)) is not None:
        future.copy(piece)


def swap(manager: LogManager, future: FutureLog) -> OSError | None:
    future.make_ready()
    future.catch_up_on_disk(flush_under_way=False)
    future.save_state()
    return manager.replace_with_future(future)


def move(manager: LogManager) -> None:
    future = begin(manager)
    copy_all(future)
    swap(manager, future)


def folders(path: Path) -> list[str]:
    """Names without the unique part."""
    return sorted(
        "-".join((p.name.partition(".")[0], p.name.rpartition("-")[2])) if "." in p.name else p.name
        for p in path.iterdir()
        if p.is_dir()
    )


def content(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(row.offset, row.value) for batch in read_all(log) for row in batch.records()]


class TestCopying:
    def test_a_copy_grows_beside_the_log(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        log = log_of(manager)
        fill(log, 40)
        future = begin(manager)
        assert folders(broker.paths[1]) == ["events-0-future"]
        assert future.offset_lag == 40
        piece = future.next_piece(PIECE_BYTES)
        assert piece is not None
        assert 0 < piece.size_bytes <= PIECE_BYTES
        future.copy(piece)
        assert 0 < future.offset_lag < 40
        copy_all(future)
        assert future.offset_lag == 0
        assert future.log.size_bytes == log.size_bytes
        assert len(future.log.segments) > 1
        assert content(future.log) == content(log)
        assert future.log.topic_id == TOPIC_ID

    def test_it_follows_what_is_appended(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        log = log_of(manager)
        future = begin(manager)
        for _ in range(5):
            fill(log, 3)
            copy_all(future)
        assert content(future.log) == content(log)

    def test_a_batch_larger_than_a_piece_is_copied(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        produce(log, b"x" * 5 * PIECE_BYTES)
        future = begin(manager)
        copy_all(future)
        assert content(future.log) == content(log)

    def test_producers_and_aborted_transactions_come_along(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        log = log_of(manager)
        for sequence, control in enumerate((ABORT, COMMIT, ABORT)):
            produce(log, producer_id=7, producer_epoch=0, sequence=sequence, transactional=True)
            end_txn(log, control, producer_id=7)
        produce(log, producer_id=8, producer_epoch=0, sequence=0, transactional=True)
        future = begin(manager)
        copy_all(future)
        assert future.log.aborted_before(100) == log.aborted_before(100)
        assert len(log.aborted_before(100)) == 2
        assert list(future.log.producers.rows()) == list(log.producers.rows())
        assert future.log.last_stable_offset == log.last_stable_offset == 6

    def test_leader_epochs_come_along(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        for epoch in (0, 3, 4):
            produce(log, leader_epoch=epoch)
        future = begin(manager)
        copy_all(future)
        assert future.log.epochs.entries == [(0, 0), (3, 1), (4, 2)]

    def test_a_log_that_begins_inside_a_batch(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        produce(log, b"a", b"b", b"c")
        produce(log, b"d")
        log.maybe_increment_log_start_offset(2)
        future = begin(manager)
        copy_all(future)
        assert future.log.log_start_offset == 2
        assert content(future.log) == content(log)

    def test_a_log_whose_start_overtakes_the_copy(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 10)
        future = begin(manager)
        piece = future.next_piece(PIECE_BYTES)
        assert piece is not None
        future.copy(piece)
        log.maybe_increment_log_start_offset(8)
        copy_all(future)
        assert (future.log.log_start_offset, future.log.log_end_offset) == (8, 10)
        assert content(future.log) == content(log)

    def test_an_emptied_log(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 3)
        future = begin(manager)
        copy_all(future)
        fill(log, 3)
        log.maybe_increment_log_start_offset(6)
        log.roll()
        log.delete_old_segments()
        copy_all(future)
        assert (future.log.log_start_offset, future.log.log_end_offset) == (6, 6)
        swap(manager, future)
        assert produce(log).base_offset == 6

    def test_a_log_that_is_cut_cuts_its_copy(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        produce(log, b"a", leader_epoch=0)
        produce(log, b"b", leader_epoch=1, committed=False)
        produce(log, b"c", leader_epoch=1, committed=False)
        future = begin(manager)
        copy_all(future)
        log.truncate_to(1)
        for value in (b"d", b"e", b"f"):
            produce(log, value, leader_epoch=2)
        copy_all(future)
        assert content(future.log) == content(log) == [(0, b"a"), (1, b"d"), (2, b"e"), (3, b"f")]

    def test_a_piece_that_was_planned_but_not_copied_loses_nothing(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        produce(log, b"a", leader_epoch=0)
        produce(log, b"b", leader_epoch=1, committed=False)
        future = begin(manager)
        copy_all(future)
        log.truncate_to(1)
        produce(log, b"c", leader_epoch=2)
        assert future.next_piece(PIECE_BYTES) is not None
        copy_all(future)
        assert content(future.log) == content(log)

    @pytest.mark.parametrize("log_start_offset", [0, 4])
    def test_messages_of_old_formats(self, broker: LogBroker, log_start_offset: int) -> None:
        manager = broker.start()
        log = log_of(manager)
        for first, magic, codec in ((0, 0, Codec.NONE), (3, 1, Codec.GZIP), (6, 1, Codec.NONE)):
            rows = [LegacyRecord(first + n, 1_000, None, b"old") for n in range(3)]
            log.append_as_follower(memoryview(message_set_of(rows, magic, codec=codec)))
        fill(log, 2)
        log.maybe_increment_log_start_offset(log_start_offset)
        future = begin(manager)
        copy_all(future)
        assert future.log.log_start_offset == log_start_offset
        assert future.log.log_end_offset == log.log_end_offset == 11
        for offset in range(log_start_offset, 11):
            found = [
                each.read(offset, 1, up_to_offset=11, min_one_batch=True).records
                for each in (log, future.log)
            ]
            assert found[0] is not None
            assert found[1] is not None
            assert found[0].read() == found[1].read()

    def test_the_configuration_follows(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        future = begin(manager)
        log.update_config(SMALL)
        fill(log, 40)
        copy_all(future)
        assert len(future.log.segments) > 2

    def test_a_full_disk_is_one_pieces_trouble(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 10)
        future = begin(manager)
        piece = future.next_piece(PIECE_BYTES)
        assert piece is not None
        with monkeypatch.context() as patch:
            FailingDisk(broker.paths[1], patch).fail(errno.ENOSPC, "pwrite")
            with pytest.raises(StorageError):
                future.copy(piece)
        copy_all(future)
        assert content(future.log) == content(log)

    @pytest.mark.parametrize(("at_fault", "reads"), [(0, True), (1, False)])
    def test_a_disk_that_dies_is_the_one_that_is_blamed(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch, at_fault: int, reads: bool
    ) -> None:
        manager = broker.start()
        fill(log_of(manager), 10)
        future = begin(manager)
        piece = future.next_piece(PIECE_BYTES)
        assert piece is not None
        FailingDisk(broker.paths[at_fault], monkeypatch).fail(errno.EIO, reads=reads)
        with pytest.raises(StorageError):
            future.copy(piece)
        assert str(broker.paths[at_fault]) in manager.failures
        assert str(broker.paths[1 - at_fault]) not in manager.failures


class TestTheSwap:
    def test_the_log_goes_on_in_the_other_directory(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        log = log_of(manager)
        fill(log, 30)
        before = content(log)
        move(manager)
        assert manager.get(PARTITION) is log
        assert log.directory == broker.paths[1] / "events-0"
        assert folders(broker.paths[0]) == ["events-0-delete"]
        assert content(log) == before
        fill(log, 5)
        assert offsets(log) == list(range(35))
        assert log.high_watermark == 35

    def test_the_old_folder_goes_after_its_delay(self, broker: LogBroker) -> None:
        manager = broker.start()
        log_of(manager)
        move(manager)
        assert manager.take_due_deletions() == []
        broker.clock.advance(ms=60_001)
        (path,) = manager.take_due_deletions()
        assert path.startswith(f"{broker.paths[0]}/events-0.")
        assert path.endswith("-delete")

    def test_whoever_has_begun_to_read_reads_on(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 3)
        records = log.read(0, 10_000, up_to_offset=3, min_one_batch=True).records
        assert records is not None
        move(manager)
        assert [batch.base_offset for batch in raw_batch.read_batches(records.read())] == [0, 1, 2]

    def test_a_flush_under_way_proves_nothing_any_more(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 3)
        future = begin(manager)
        copy_all(future)
        future.make_ready()
        fill(log, 2)
        ticket = log.flush_begin()
        copy_all(future)
        swap(manager, future)
        ticket.run()
        log.flush_done(ticket)
        assert log.recovery_point == 5
        fill(log, 1)
        log.flush_done(ticket)
        assert log.recovery_point == 5

    def test_what_was_on_disk_is_on_disk(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        log = log_of(manager)
        future = begin(manager)
        future.make_ready()
        fill(log, 3)
        log.flush()
        copy_all(future)
        assert future.log.recovery_point == 0
        future.catch_up_on_disk(flush_under_way=False)
        assert future.log.recovery_point == 3

    def test_producers_of_records_that_are_gone_stay_known(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        log = log_of(manager)
        produce(log, producer_id=9, producer_epoch=0, sequence=0)
        log.roll()
        fill(log, 2)
        log.maybe_increment_log_start_offset(1)
        log.delete_old_segments()
        move(manager)
        again = broker.restart(SMALL).get(PARTITION)
        assert again is not None
        assert again.directory.parent == broker.paths[1]
        assert 9 in again.producers.producers

    def test_it_survives_a_clean_stop_and_a_kill(self, broker: LogBroker) -> None:
        manager = broker.start(SMALL)
        fill(log_of(manager), 30)
        move(manager)
        manager = broker.restart(SMALL)
        log = log_of(manager)
        assert log.directory.parent == broker.paths[1]
        assert log.high_watermark == 30
        fill(log, 2)
        again = broker.kill_and_start(SMALL).get(PARTITION)
        assert again is not None
        assert again.log_end_offset == 32

    def test_it_may_go_there_and_back(self, broker: LogBroker) -> None:
        manager = broker.start()
        log = log_of(manager)
        for home in (1, 0, 1):
            fill(log, 3)
            future = manager.create_future(PARTITION, manager.directories[home])
            copy_all(future)
            swap(manager, future)
            assert log.directory == broker.paths[home] / "events-0"
        again = broker.kill_and_start().get(PARTITION)
        assert again is not None
        assert again.log_end_offset == 9

    def test_new_logs_are_placed_by_where_the_old_ones_are_now(self, broker: LogBroker) -> None:
        manager = broker.start()
        log_of(manager)
        move(manager)
        new = manager.get_or_create(TopicPartition("other", 0), TOPIC_ID)
        assert new.directory.parent == broker.paths[0]

    def test_a_first_renaming_that_fails_leaves_the_log_where_it_was(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 3)
        future = begin(manager)
        copy_all(future)
        with monkeypatch.context() as patch:
            FailingDisk(broker.paths[1], patch).fail(errno.EIO, "rename")
            with pytest.raises(StorageError):
                manager.replace_with_future(future)
        assert log.directory.parent == broker.paths[0]
        assert str(broker.paths[1]) in manager.failures
        fill(log, 1)
        assert offsets(log) == [0, 1, 2, 3]

    def test_a_second_renaming_that_fails_costs_the_old_directory(
        self, broker: LogBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = broker.start()
        log = log_of(manager)
        fill(log, 3)
        future = begin(manager)
        copy_all(future)
        with monkeypatch.context() as patch:
            FailingDisk(broker.paths[0], patch).fail(errno.EIO, "rename")
            assert swap(manager, future) is not None
        assert log.directory.parent == broker.paths[1]
        assert str(broker.paths[0]) in manager.failures
        fill(log, 1)
        assert offsets(log) == [0, 1, 2, 3]


class TestRestarts:
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_copy_is_found_again_and_completed(self, broker: LogBroker, clean: bool) -> None:
        manager = broker.start(SMALL)
        fill(log_of(manager), 30)
        future = begin(manager)
        for _ in range(3):
            piece = future.next_piece(PIECE_BYTES)
            assert piece is not None
            future.copy(piece)
        copied = future.log.log_end_offset
        manager = broker.restart(SMALL) if clean else broker.kill_and_start(SMALL)
        again = manager.futures.get(PARTITION)
        assert again is not None
        assert again.log.log_end_offset == copied
        copy_all(again)
        swap(manager, again)
        log = log_of(manager)
        log.update_high_watermark(30)
        assert offsets(log) == list(range(30))

    def test_its_recovery_point_is_kept(self, broker: LogBroker) -> None:
        manager = broker.start()
        fill(log_of(manager), 3)
        future = begin(manager)
        copy_all(future)
        future.log.flush()
        for write in manager.pending_checkpoints(RECOVERY_POINT_FILE):
            write.run()
        path = broker.paths[1] / "recovery-point-offset-checkpoint"
        assert "events 0 3\n" in path.read_text()

    def test_a_copy_that_knows_more_than_its_log_is_cut(self, broker: LogBroker) -> None:
        """The log has lost its unsynced tail, the copy has not."""
        manager = broker.start()
        log = log_of(manager)
        fill(log, 5)
        copy_all(begin(manager))
        close_abruptly(manager)
        path = broker.paths[0] / "events-0" / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 5])
        manager = broker.start()
        log = log_of(manager)
        assert log.log_end_offset == 3
        produce(log, b"another", leader_epoch=1)
        log.update_high_watermark(4)
        future = manager.futures.get(PARTITION)
        assert future is not None
        copy_all(future)
        assert content(future.log) == content(log)

    def test_a_copy_of_a_log_that_is_not_there_is_left_alone(self, broker: LogBroker) -> None:
        manager = broker.start()
        fill(log_of(manager), 3)
        copy_all(begin(manager))
        close_abruptly(manager)
        (broker.paths[0] / "events-0").rename(broker.paths[0].parent / "gone")
        manager = broker.start()
        assert manager.futures.get(PARTITION) is None
        assert folders(broker.paths[1]) == ["events-0-future"]

    def test_a_copy_of_another_topic_of_the_name_goes(self, broker: LogBroker) -> None:
        manager = broker.start()
        log_of(manager)
        begin(manager)
        close_abruptly(manager)
        for path in (broker.paths[0] / "events-0").iterdir():
            path.unlink()
        (broker.paths[0] / "events-0").rmdir()
        (broker.paths[1] / "events-0").mkdir()
        (broker.paths[1] / "events-0").rename(broker.paths[0] / "events-0")
        manager = broker.start()
        assert manager.futures.get(PARTITION) is None
        assert folders(broker.paths[1]) == ["events-0-delete"]

    def test_of_two_copies_in_one_directory_one_goes(self, broker: LogBroker) -> None:
        manager = broker.start()
        fill(log_of(manager), 3)
        copy_all(begin(manager))
        manager.futures.pop(PARTITION)
        copy_all(begin(manager))
        manager = broker.kill_and_start()
        assert folders(broker.paths[1]) == ["events-0-future"] * 2
        remove_paths(manager.take_due_deletions())
        assert folders(broker.paths[1]) == ["events-0-future"]

    def test_a_log_with_gaps_is_not_taken_for_a_damaged_one(self, broker: LogBroker) -> None:
        """Compacted once, and not any more by its configuration."""
        manager = broker.start(SMALL)
        log = log_of(manager)
        for first_offset in (0, 10, 20):
            data = raw_batch.batch(b"value" * 100, base_offset=first_offset)
            log.append_as_follower(memoryview(data))
        log.cleaner_offset = 20
        future = begin(manager)
        copy_all(future)
        for write in manager.pending_checkpoints(CLEANER_FILE):
            write.run()
        manager = broker.kill_and_start(SMALL)
        again = manager.futures.get(PARTITION)
        assert again is not None
        assert again.log.log_end_offset == 21
        copy_all(again)
        swap(manager, again)
        moved = broker.kill_and_start(SMALL).get(PARTITION)
        assert moved is not None
        assert moved.log_end_offset == 21

    def test_the_copy_of_a_log_that_nobody_knows_goes(self, broker: LogBroker) -> None:
        """Its topic was deleted while it moved, and the broker died before the folders went."""
        manager = broker.start()
        fill(log_of(manager), 3)
        copy_all(begin(manager))
        manager = broker.kill_and_start()
        assert manager.set_aside_strays(lambda *_: False) == [PARTITION]
        assert folders(broker.paths[1]) == ["events-0-delete"]
        assert manager.directories[1].partition_count == 0
        remove_paths(manager.take_due_deletions())
        assert folders(broker.paths[1]) == []
        assert folders(broker.paths[0]) == ["events-0-stray"]

    def test_of_two_copies_one_goes(self, tmp_path: Path) -> None:
        broker = LogBroker(tmp_path, directories=3)
        manager = broker.start()
        fill(log_of(manager), 3)
        copy_all(begin(manager))
        manager.futures.pop(PARTITION)
        copy_all(manager.create_future(PARTITION, manager.directories[2]))
        manager = broker.kill_and_start()
        assert manager.futures.get(PARTITION) is not None
        assert folders(broker.paths[1]) + folders(broker.paths[2]) == [
            "events-0-future",
            "events-0-delete",
        ]
        close_abruptly(manager)

    def test_a_deleted_log_forgets_its_copy(self, broker: LogBroker) -> None:
        manager = broker.start()
        log_of(manager)
        begin(manager)
        manager.async_delete(PARTITION)
        assert manager.futures.get(PARTITION) is None
