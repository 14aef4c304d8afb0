"""A real broker over two log directories, one of them on a disk that really dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess, run_serve
from tests.support.eventually import eventually
from tests.support.log_dirs import directory_errors, home, move
from tests.support.mounted_disk import MountedDisk, mounted_disk_or_skip
from tests.support.raw_admin import delete_before
from tests.support.raw_batch import batch
from tests.support.raw_client import (
    LATEST,
    RawClient,
    create_topic,
    fetch_partition,
    fetch_request,
    list_offset,
    produce,
    topic_metadata,
)
from tidelog.errors import ErrorCode
from tidelog.log.directory.checkpoints import LOG_START_FILE

TOPIC = "t"
PARTITIONS = 4
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    disk = mounted_disk_or_skip(tmp_path)
    yield disk
    disk.discard()


@pytest.fixture
def broker(start_broker: StartBroker, tmp_path: Path, disk: MountedDisk) -> BrokerProcess:
    """The metadata is on the good disk."""
    return start_broker({"log.dirs": f"{tmp_path / 'good'},{disk.path}"})


def by_directory(client: RawClient) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"good": [], "disk": []}
    for index in range(PARTITIONS):
        found[home(client, TOPIC, index)].append(index)
    return found


def fill(client: RawClient, count: int = 20) -> dict[str, list[int]]:
    """The partitions by directory, each with `count` records."""
    create_topic(client, TOPIC, PARTITIONS, {"index.interval.bytes": "10", "flush.messages": "1"})
    for index in range(PARTITIONS):
        for number in range(count):
            assert produce(client, TOPIC, batch(b"%d" % number), index).error_code == 0
    return by_directory(client)


def test_a_disk_that_dies_takes_its_partitions_offline_and_no_others(
    broker: BrokerProcess, disk: MountedDisk, tmp_path: Path
) -> None:
    with RawClient(broker.bootstrap) as client:
        partitions = fill(client)
        assert len(partitions["good"]) == len(partitions["disk"]) == 2
        disk.die()
        first_bad, other_bad = partitions["disk"]
        assert produce(client, TOPIC, batch(b"x"), first_bad).error_code == STORAGE_ERROR
        eventually(lambda: directory_errors(client) == {"good": 0, "disk": STORAGE_ERROR})

        for index in partitions["disk"]:
            assert produce(client, TOPIC, batch(b"x"), index).error_code == STORAGE_ERROR
            assert list_offset(client, TOPIC, LATEST, index).error_code == STORAGE_ERROR
        request = fetch_request(TOPIC, [fetch_partition(n, 0) for n in range(PARTITIONS)])
        rows = client.call(request).responses[0].partitions
        assert {row.partition_index: row.error_code for row in rows} == {
            index: 0 if index in partitions["good"] else STORAGE_ERROR
            for index in range(PARTITIONS)
        }
        for row in topic_metadata(client, TOPIC).partitions:
            if row.partition_index in partitions["disk"]:
                assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
                assert (row.leader_id, row.offline_replicas) == (-1, [broker.broker_id])
            else:
                assert (row.error_code, row.leader_id) == (0, broker.broker_id)

        for index in partitions["good"]:
            assert produce(client, TOPIC, batch(b"20"), index).base_offset == 20
        create_topic(client, "new", 3)
        assert [home(client, "new", index) for index in range(3)] == ["good"] * 3
        assert move(client, disk.path, "new") == STORAGE_ERROR
        assert move(client, tmp_path / "good", TOPIC, other_bad) == STORAGE_ERROR
    assert "disk has failed: cannot append" in broker.log_text()

    assert broker.stop() == 0
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert directory_errors(client) == {"good": 0, "disk": STORAGE_ERROR}
        assert list_offset(client, TOPIC, LATEST, partitions["good"][0]).offset == 21
        assert list_offset(client, TOPIC, LATEST, first_bad).error_code == STORAGE_ERROR

    assert broker.stop() == 0
    disk.revive()
    assert not (disk.path / ".kafka_cleanshutdown").exists()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert directory_errors(client) == {"good": 0, "disk": 0}
        for index in partitions["disk"]:
            assert list_offset(client, TOPIC, LATEST, index).offset == 20
            assert produce(client, TOPIC, batch(b"20"), index).base_offset == 20


def test_a_roll_on_a_dead_disk_is_an_error_and_not_the_end(
    broker: BrokerProcess, disk: MountedDisk
) -> None:
    """Closing an index writes to a mapped file, which on a dead disk would kill the process."""
    with RawClient(broker.bootstrap) as client:
        create_topic(client, TOPIC, PARTITIONS, {"segment.bytes": "100000"})
        bad, *_ = by_directory(client)["disk"]
        good, *_ = by_directory(client)["good"]
        for _ in range(9):
            assert produce(client, TOPIC, batch(b"x" * 10_000), bad).error_code == 0
        disk.die()
        assert produce(client, TOPIC, batch(b"x" * 50_000), bad).error_code == STORAGE_ERROR
        assert produce(client, TOPIC, batch(b"x"), good).error_code == 0
    assert broker.is_alive()


def test_a_checkpoint_finds_a_dead_disk_that_nobody_writes_to(
    start_broker: StartBroker, tmp_path: Path, disk: MountedDisk
) -> None:
    """Deleting records changes nothing on disk but, some time later, a checkpoint."""
    settings = {
        "log.dirs": f"{tmp_path / 'good'},{disk.path}",
        "log.flush.start.offset.checkpoint.interval.ms": "50",
        "replica.high.watermark.checkpoint.interval.ms": "600000",  # must not come first
        "log.flush.offset.checkpoint.interval.ms": "600000",
    }
    broker = start_broker(settings)
    with RawClient(broker.bootstrap) as client:
        bad, *_ = fill(client, 3)["disk"]
        eventually((disk.path / LOG_START_FILE).exists)  # the first one is written anyway
        disk.die()
        assert delete_before(client, TOPIC, 2, bad) == (0, 2)
        eventually(lambda: directory_errors(client)["disk"] == STORAGE_ERROR)
    assert "cannot write a checkpoint" in broker.log_text()


def test_without_the_disk_of_the_metadata_the_broker_stops_with_1(
    start_broker: StartBroker, tmp_path: Path, disk: MountedDisk
) -> None:
    broker = start_broker({"log.dirs": f"{disk.path},{tmp_path / 'good'}"})
    with RawClient(broker.bootstrap) as client:
        partitions = fill(client, 1)
        disk.die()
        produce(client, TOPIC, batch(b"x"), partitions["disk"][0])
    eventually(lambda: not broker.is_alive())
    assert broker.process is not None
    assert broker.process.returncode == 1
    assert "which holds the metadata" in broker.log_text()
    assert (tmp_path / "good" / ".kafka_cleanshutdown").exists()


def test_a_topic_that_cannot_be_kept_finds_the_dead_disk_of_the_metadata(
    start_broker: StartBroker, disk: MountedDisk
) -> None:
    broker = start_broker({"log.dirs": str(disk.path)})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, TOPIC)
        disk.die()
        with pytest.raises((AssertionError, ConnectionError)):
            create_topic(client, "new")
    eventually(lambda: not broker.is_alive())
    assert broker.process is not None
    assert broker.process.returncode == 1
    assert "all log directories have failed" in broker.log_text()


def test_a_disk_mounted_read_only_is_left_out(
    broker: BrokerProcess, disk: MountedDisk, tmp_path: Path
) -> None:
    with RawClient(broker.bootstrap) as client:
        partitions = fill(client, 2)
    assert broker.stop() == 0
    disk.unmount()
    disk.mount("ro")
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert directory_errors(client) == {"good": 0, "disk": STORAGE_ERROR}
        assert list_offset(client, TOPIC, LATEST, partitions["disk"][0]).error_code == STORAGE_ERROR
        assert produce(client, TOPIC, batch(b"x"), partitions["good"][0]).error_code == 0
    assert "Read-only file system" in broker.log_text()
    assert broker.stop() == 0


def test_a_broker_without_any_directory_does_not_start(disk: MountedDisk) -> None:
    disk.unmount()
    disk.mount("ro")
    ended = run_serve({"log.dirs": str(disk.path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    assert ended.returncode != 0
    assert "no log directory can be used" in ended.stderr
