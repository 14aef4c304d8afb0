"""What a broker still knows after a clean stop, a kill, and a change of its files."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest
from kafka.protocol.admin import DeleteTopicsRequest

from tests.conftest import StartBroker
from tests.support.eventually import eventually
from tests.support.raw_admin import SET, TOPIC, delete_before, incremental, value_of
from tests.support.raw_batch import batch, read_batches
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    RawClient,
    create_topic,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    topic_metadata,
)
from tests.support.segment_check import check_partition, segment_paths


def numbered(producer: tuple[int, int], sequence: int) -> bytes:
    return batch(
        b"%d" % sequence,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
    )


@pytest.fixture(params=["clean stop", "kill -9"])
def stop_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_topics_records_configs_and_ids_survive(start_broker: StartBroker, stop_kind: str) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept", partitions=3, configs={"retention.ms": "12345678"})
        before = topic_metadata(client, "kept")
        assert incremental(client, TOPIC, "kept", [("segment.ms", SET, "99999999")]) == 0
        for partition in range(3):
            produce(client, "kept", batch(b"a", b"b"), partition)
    cluster_id = broker.cluster_id
    broker.stop() if stop_kind == "clean stop" else broker.kill()
    broker.start()
    assert broker.cluster_id == cluster_id
    with RawClient(broker.bootstrap) as client:
        after = topic_metadata(client, "kept")
        assert after.topic_id == before.topic_id
        assert [p.partition_index for p in after.partitions] == [0, 1, 2]
        assert value_of(client, "kept", "retention.ms") == "12345678"
        assert value_of(client, "kept", "segment.ms") == "99999999"
        for partition in range(3):
            assert list_offset(client, "kept", LATEST, partition).offset == 2
        assert produce(client, "kept", batch(b"c")).base_offset == 2


def test_a_repeated_batch_after_a_restart_gets_its_old_offset(
    start_broker: StartBroker, stop_kind: str
) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        producer = new_producer_id(client)
        for sequence in range(3):
            produce(client, "kept", numbered(producer, sequence))
    broker.stop() if stop_kind == "clean stop" else broker.kill()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        for sequence in range(3):
            repeated = produce(client, "kept", numbered(producer, sequence))
            assert (repeated.error_code, repeated.base_offset) == (0, sequence)
        assert produce(client, "kept", numbered(producer, 4)).error_code == 45
        assert produce(client, "kept", numbered(producer, 3)).base_offset == 3
        assert new_producer_id(client)[0] > producer[0]


def test_a_restart_without_producer_snapshots_rebuilds_their_state(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        producer = new_producer_id(client)
        produce(client, "kept", numbered(producer, 0))
    broker.stop()
    for snapshot in (broker.data_directory / "kept-0").glob("*.snapshot"):
        snapshot.unlink()
    broker.start()
    with RawClient(broker.bootstrap) as client:
        assert produce(client, "kept", numbered(producer, 0)).base_offset == 0
        assert list_offset(client, "kept", LATEST).offset == 1


def test_deleted_records_stay_deleted(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        produce(client, "kept", batch(b"a", b"b", b"c"))
        assert delete_before(client, "kept", 2) == (0, 2)
    broker.restart()
    with RawClient(broker.bootstrap) as client:
        assert list_offset(client, "kept", EARLIEST).offset == 2


def test_a_restart_begins_a_new_leader_epoch(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        produce(client, "kept", batch(b"old"))
        old_epoch = topic_metadata(client, "kept").partitions[0].leader_epoch
    broker.restart()
    with RawClient(broker.bootstrap) as client:
        new_epoch = topic_metadata(client, "kept").partitions[0].leader_epoch
        assert new_epoch > old_epoch
        produce(client, "kept", batch(b"new"))
        epochs = [b.leader_epoch for b in read_batches(fetch(client, "kept").records)]
        assert epochs == [old_epoch, new_epoch]
    checkpoint = broker.data_directory / "kept-0" / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == f"0\n2\n{old_epoch} 0\n{new_epoch} 1\n"


def test_deleted_or_damaged_indexes_are_rebuilt(start_broker: StartBroker, stop_kind: str) -> None:
    broker = start_broker({"log.index.interval.bytes": "100", "log.segment.bytes": "20000"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "kept")
        for i in range(60):
            produce(client, "kept", batch(b"x" * 1000, base_timestamp=1_700_000_000_000 + i))
    broker.stop() if stop_kind == "clean stop" else broker.kill()
    directory = broker.data_directory / "kept-0"
    paths = segment_paths(directory)
    assert len(paths) >= 3
    for path in paths:
        path.with_suffix(".index").unlink()
    paths[-1].with_suffix(".timeindex").write_bytes(struct.pack(">qi", 2**60, 7) * 3 + b"odd")
    broker.start()
    with RawClient(broker.bootstrap) as client:
        for offset in (0, 17, 33, 59):
            assert read_batches(fetch(client, "kept", offset).records)[0].base_offset == offset
            found = list_offset(client, "kept", 1_700_000_000_000 + offset)
            assert found.offset == offset
    broker.stop()
    segments = check_partition(directory)
    assert all(segment.offset_entries for segment in segments[:-1])


def test_the_files_of_a_partition_have_kafkas_names_and_agree(start_broker: StartBroker) -> None:
    broker = start_broker({"log.segment.bytes": "20000", "log.index.interval.bytes": "4096"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "named")
        for i in range(50):
            produce(client, "named", batch(b"x" * 1000, base_timestamp=1_700_000_000_000 + i))
        identity = topic_metadata(client, "named").topic_id
    broker.stop()
    directory = broker.data_directory / "named-0"
    segments = check_partition(directory)
    assert len(segments) == 3
    bases = [segment.base_offset for segment in segments]
    expected = {
        f"{base:020}.{suffix}" for base in bases for suffix in ("log", "index", "timeindex")
    }
    expected |= {f"{base:020}.snapshot" for base in [*bases[1:], 50]}
    expected |= {"leader-epoch-checkpoint", "partition.metadata"}
    assert {path.name for path in directory.iterdir()} == expected
    for segment in segments[:-1]:
        positions = [position for _, position in segment.offset_entries]
        assert positions, "a full segment has index entries"
        steps = [b - a for a, b in zip([0, *positions], positions, strict=False)]
        assert all(4096 < step < 4096 + 2 * 1100 for step in steps), steps
        assert segment.time_entries[-1] == (
            segment.batches[-1].max_timestamp,
            segment.batches[-1].last_offset - segment.base_offset,
        )
    metadata_text = (directory / "partition.metadata").read_text()
    assert metadata_text.startswith("version: 0\ntopic_id: ")
    assert len(metadata_text.split()[-1]) == 22
    assert identity.int != 0


def test_partitions_spread_over_log_dirs_and_are_found_again(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    broker = start_broker({"log.dirs": f"{first},{second}"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "spread", partitions=6)
        for partition in range(6):
            produce(client, "spread", batch(b"a"), partition)
    counts = [len(list(directory.glob("spread-*"))) for directory in (first, second)]
    assert counts == [3, 3]
    broker.restart()
    with RawClient(broker.bootstrap) as client:
        for partition in range(6):
            assert list_offset(client, "spread", LATEST, partition).offset == 1
    for directory in (first, second):
        text = (directory / "meta.properties").read_text()
        assert "cluster.id=" in text
        assert "broker.id=0" in text
        assert "version=0" in text


def test_a_directory_written_by_apache_kafka_is_adopted(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Topics come from the folders, ids from partition.metadata, producer ids go on above."""
    data = tmp_path / "kafka"
    for partition in range(2):
        folder = data / f"from-kafka-{partition}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: MkU3OEVBNTcwNTJENDM2Qg")
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
        first = batch(
            b"a", b"b", leader_epoch=4, producer_id=7001, producer_epoch=0, base_sequence=0
        )
        second = batch(b"c", base_offset=2, leader_epoch=4)
        (folder / f"{0:020}.log").write_bytes(first + second)
    broker = start_broker({"log.dirs": str(data)})
    with RawClient(broker.bootstrap) as client:
        row = topic_metadata(client, "from-kafka")
        assert (row.error_code, len(row.partitions)) == (0, 2)
        assert row.topic_id.bytes == base64.urlsafe_b64decode("MkU3OEVBNTcwNTJENDM2Qg==")
        assert row.partitions[0].leader_epoch > 4
        values = [
            r.value for b in read_batches(fetch(client, "from-kafka").records) for r in b.records()
        ]
        assert values == [b"a", b"b", b"c"]
        assert produce(client, "from-kafka", batch(b"d"), partition=1).base_offset == 3
        assert new_producer_id(client)[0] > 7001


def test_old_segments_are_deleted_by_size_and_by_time(start_broker: StartBroker) -> None:
    broker = start_broker(
        {
            "log.segment.bytes": "10000",
            "log.retention.check.interval.ms": "200",
            "log.segment.delete.delay.ms": "100",
        }
    )
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "by-size", configs={"retention.bytes": "30000"})
        create_topic(client, "by-time", configs={"retention.ms": "1000000"})
        create_topic(client, "kept")
        for i in range(100):
            for topic in ("by-size", "kept"):
                produce(client, topic, batch(b"%d " % i + b"x" * 1000))
            old = 1_600_000_000_000 if i < 50 else None
            produce(client, "by-time", batch(b"x" * 1000, base_timestamp=old))
        eventually(lambda: list_offset(client, "by-size", EARLIEST).offset > 60)
        eventually(lambda: list_offset(client, "by-time", EARLIEST).offset >= 40)
        assert list_offset(client, "by-time", EARLIEST).offset <= 50
        assert list_offset(client, "kept", EARLIEST).offset == 0
        directory = broker.data_directory / "by-size-0"
        eventually(lambda: size_of_log(directory) < 30_000 + 10_000)
        eventually(lambda: not list(directory.glob("*.deleted")))
        start = list_offset(client, "by-size", EARLIEST).offset
        assert int(segment_paths(directory)[0].stem) == start
        assert fetch(client, "by-size", start - 1).error_code == 1
        assert fetch(client, "by-size", start).error_code == 0


def size_of_log(directory: Path) -> int:
    return sum(path.stat().st_size for path in segment_paths(directory) if path.exists())


def test_segments_roll_by_the_time_of_their_records(start_broker: StartBroker) -> None:
    broker = start_broker()
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "rolled", configs={"segment.ms": "60000"})
        for minutes in (0, 0.5, 2, 2.5, 5):
            stamp = 1_700_000_000_000 + int(minutes * 60_000)
            produce(client, "rolled", batch(b"x", base_timestamp=stamp))
    bases = [int(path.stem) for path in segment_paths(broker.data_directory / "rolled-0")]
    assert bases == [0, 2, 4]


def test_a_deleted_topics_files_go_after_the_delay(start_broker: StartBroker) -> None:
    broker = start_broker({"log.segment.delete.delay.ms": "300"})
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "gone", configs={"file.delete.delay.ms": "300"})
        produce(client, "gone", batch(b"a"))
        response = client.call(
            DeleteTopicsRequest(version=5, topic_names=["gone"], timeout_ms=10_000)
        )
        assert response.responses[0].error_code == 0
    assert not (broker.data_directory / "gone-0").exists()
    eventually(lambda: not list(broker.data_directory.glob("gone-*")))
