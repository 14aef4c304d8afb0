"""Metadata logs that Apache Kafka 3.9 and 4.3 wrote: the topics as Kafka described them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.support.adoption_data import KRAFT, METADATA_FOLDER, Recorded, recorded, unpack
from tests.support.kraft_log import image_of
from tidelog.controller.kraft.cluster_image import ClusterImage
from tidelog.controller.kraft.metadata_log import MetadataLog, UnreadableMetadata


@pytest.fixture(params=KRAFT)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    return unpack(name, tmp_path) / METADATA_FOLDER


def assert_is_as_described(image: ClusterImage, expected: Recorded) -> None:
    by_name = {topic.name: topic for topic in image.topics.values()}
    assert {name: str(topic.topic_id) for name, topic in by_name.items()} == expected.topic_ids
    counts = {name: len(topic.partitions) for name, topic in by_name.items()}
    assert counts == expected.partition_counts
    for name in by_name:
        assert image.topic_configs.get(name, {}) == expected.overrides(name), name
    assert image.broker_configs[""]["log.retention.ms"] == "1209600000"
    assert image.broker_configs["1"] == {"message.max.bytes": "2000000"}
    assert image.next_producer_id == 1000


def test_a_snapshot_and_the_log_after_it(name: str, folder: Path) -> None:
    assert len(list(folder.glob("*.checkpoint"))) > 1
    log = MetadataLog(folder)
    assert log.snapshot is not None
    image = image_of(folder)
    assert_is_as_described(image, recorded(name))
    assert image.features["metadata.version"] >= 21


def test_the_log_alone(name: str, folder: Path) -> None:
    for path in folder.glob("*.checkpoint"):
        path.unlink()
    assert_is_as_described(image_of(folder), recorded(name))


def test_a_snapshot_alone_is_what_the_log_below_it_led_to(folder: Path) -> None:
    """Every snapshot that Kafka made, against the records that it stands for."""
    for snapshot in sorted(folder.glob("*.checkpoint")):
        alone = snapshot.parent.parent / snapshot.stem / METADATA_FOLDER
        alone.mkdir(parents=True)
        (alone / snapshot.name).write_bytes(snapshot.read_bytes())
        end_offset = int(snapshot.name[:20])
        log = MetadataLog(folder)
        log.snapshot = None
        below = ClusterImage()
        below.replay(
            record for record in log.records() if int(record.place.rpartition(" ")[2]) < end_offset
        )
        assert summary(image_of(alone)) == summary(below)


def test_a_log_that_is_cut_in_its_last_batch_is_read_up_to_there(name: str, folder: Path) -> None:
    """The last batches of a broker that stops tell of its stop."""
    (path,) = folder.glob("*.log")
    path.write_bytes(path.read_bytes()[:-20])
    assert_is_as_described(image_of(folder), recorded(name))


def test_damage_is_refused_or_cut_off_and_never_believed(name: str, folder: Path) -> None:
    """A bit anywhere in the files that count; only a last batch may be taken for cut off."""
    sound = summary(image_of(folder))
    (log,) = folder.glob("*.log")
    paths = [log, max(folder.glob("*.checkpoint"))]
    dice = Random(name)
    refused = 0
    for _ in range(150):
        path = dice.choice(paths)
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        path.chmod(0o600)
        path.write_bytes(damaged)
        try:
            assert summary(image_of(folder)) == sound
        except UnreadableMetadata:
            refused += 1
        path.write_bytes(content)
    assert refused > 75


def test_hostile_records_are_refused_and_nothing_else_is_raised(name: str, folder: Path) -> None:
    """With checksums that are right: what a bug elsewhere could write."""
    records = list(MetadataLog(folder).records())
    dice = Random(name)
    for _ in range(2000):
        record = dice.choice(records)
        body = bytearray(record.body)
        for _ in range(dice.randrange(1, 4)):
            if body:
                body[dice.randrange(len(body))] = dice.randrange(256)
        changed = record._replace(
            type=dice.choice((record.type, dice.randrange(40))),
            version=dice.choice((record.version, dice.randrange(6))),
            body=memoryview(bytes(body[: dice.randrange(len(body) + 1)])),
        )
        with suppress(UnreadableMetadata):
            ClusterImage().replay([*records, changed])


def summary(image: ClusterImage) -> object:
    topics = {
        topic.name: (
            topic.topic_id,
            {
                number: (each.replicas, each.isr, each.leader_epoch, each.directories)
                for number, each in topic.partitions.items()
            },
        )
        for topic in image.topics.values()
    }
    configs = {name: texts for name, texts in image.topic_configs.items() if texts}
    return topics, configs, image.broker_configs, image.next_producer_id, image.features
