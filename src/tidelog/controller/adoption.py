"""Adoption: the topics of a directory that Apache Kafka wrote become topics of the store.

A lone broker, whose store lies in its first log directory, looks at every start:

    the directories hold                 the topics come from
    KRaft's metadata log                 that log: ids, partitions, configurations
      the same as at the last adoption   the store; only a retention that was guessed may change
    folders, and no metadata log         the folders; only at the first start

The broker reads Kafka's metadata log and never writes it, so Kafka can have the directory back. If
Kafka has written since the last adoption, its metadata counts again: its topics replace those of
the same name in the store, and topics without a folder leave the store. Topics made here stay as
long as their folders do.

The broker deletes nothing that Kafka would have kept:

- It does not start (StartupError) if it cannot read the metadata log or does not understand a
  record in it, if a setting that decides which records go has no meaning here, if a log directory
  is offline, or if Kafka names a log directory that log.dirs do not.
- Kafka's server.properties are not in the directory. If the broker was started without them, and
  topics follow the retention of brokers, it sets that to keep everything, and logs a warning. A
  later start with them takes that back.
- Without a metadata log it gives every topic overrides that delete nothing and compact nothing,
  and logs a warning. (Kafka over ZooKeeper keeps configurations in ZooKeeper.) Internal topics get
  the settings that Kafka always gives them.
- Kafka's access control lists, users with SCRAM credentials and quotas go into the store
  (`adopted_security`). Delegation tokens do not: the key to them is not in the directory.
- It sets folders that belong to no topic aside as `-stray`, with their data, as Kafka does.

A partition whose data is on other brokers of the old cluster gets no leader, and no empty log.

`prepare` runs before the logs are loaded, because loading needs their configurations; `finish` runs
after. A mark in the store says what was adopted. The first step removes the mark and the last one
writes it, so that an adoption that a crash interrupts starts again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.config.broker import ROLES, BrokerConfig
from tidelog.config.topic import TOPIC_TABLE
from tidelog.controller import znodes
from tidelog.controller.metadata_store import Create, MetadataStore, Operation, SetData
from tidelog.controller.topic_names import CLUSTER_METADATA
from tidelog.controller.topics import PartitionImage, TopicCatalogue, TopicImage
from tidelog.controller.znodes import AdoptionMark, ProducerIdBlock
from tidelog.errors import StartupError
from tidelog.log.directory.log_directory import KRAFT_METADATA_FOLDER
from tidelog.log.directory.meta_properties import read_meta_properties
from tidelog.log.log_manager import FoundPartition, LogManager
from tidelog.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid

logger = logging.getLogger(__name__)

# For a topic whose settings nobody knows: these delete nothing and compact nothing.
KEEP_EVERYTHING: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
# Who starts with one of these has said how long records stay, or uses Kafka's own file.
TELLING_OF_RETENTION: Final = frozenset(
    (ROLES, *(synonym for synonym, _ in TOPIC_TABLE["retention.ms"].synonyms))
)
KEEP_FOR_EVER: Final = {"log.retention.ms": "-1"}
# Where Kafka's metadata says how long records stay, yet not that they are deleted at all.
NEITHER_DELETE_NOR_COMPACT: Final = {"log.cleanup.policy": ""}
GUESSES: Final = KEEP_FOR_EVER | NEITHER_DELETE_NOR_COMPACT

Texts = Mapping[str, str]


def metadata_folder_or_none(config: BrokerConfig, logs: LogManager) -> Path | None:
    """Where Kafka keeps it: metadata.log.dir, or else one of log.dirs."""
    named = config["metadata.log.dir"]
    places = [Path(named)] if named else logs.directories.paths
    found = (place / KRAFT_METADATA_FOLDER for place in places)
    return next((each for each in found if each.is_dir()), None)


def adoption_or_none(
    store: MetadataStore, logs: LogManager, config: BrokerConfig, broker_id: int
) -> Adoption | None:
    """What there is to take in; StartupError if that cannot be done without loss."""
    folder = metadata_folder_or_none(config, logs)
    known = {path.rpartition("/")[2] for path, _ in _children(store, znodes.TOPICS)}
    mark = next((data for _, data, _ in store.subtree(znodes.ADOPTION)), None)
    if folder is None:
        if mark is not None or known:
            return None
        found = {each for each in logs.directories.hosted() if each.topic != CLUSTER_METADATA}
        if not _all_online(logs, bool(found)):
            return None
        if found and config["metadata.log.dir"]:
            raise StartupError(
                f"metadata.log.dir: there is no {KRAFT_METADATA_FOLDER} in "
                f"{config['metadata.log.dir']}, and topics of a Kafka are to be adopted by it"
            )
        return FolderAdoption(store, config, broker_id, found)
    # No other start pays for these.
    from tidelog.controller.kraft.metadata_log import MetadataLog
    from tidelog.controller.kraft_adoption import KraftAdoption

    log = MetadataLog(folder)
    known_mark = None if mark is None else znodes.decode_adoption(mark)
    if known_mark is not None and known_mark.metadata_log == log.fingerprint:
        is_told = not config.originals.keys().isdisjoint(TELLING_OF_RETENTION)
        if not (known_mark.is_retention_guessed and is_told):
            return None
        return ToldRetention(store, config, broker_id, log.fingerprint)
    _all_online(logs, True)
    _must_be_ours(folder.parent, logs)
    adoption = KraftAdoption(store, config, broker_id, logs, log)
    adoption.check(known)
    return adoption


def _all_online(logs: LogManager, has_something: bool) -> bool:
    offline = [path for path in logs.directories.paths if str(path) in logs.failures]
    if offline and has_something:
        raise StartupError(
            "topics of an Apache Kafka cannot be adopted while a log directory is offline: "
            + ", ".join(map(str, offline))
        )
    return not offline


def _must_be_ours(directory: Path, logs: LogManager) -> None:
    theirs, ours = read_meta_properties(str(directory)), logs.directories.stored_identity()
    if theirs is not None and ours is not None and theirs[:2] != ours[:2]:
        raise StartupError(
            f"the metadata log in {directory} belongs to node {theirs.broker_id} of cluster "
            f"{theirs.cluster_id}, the log directories to node {ours.broker_id} of cluster "
            f"{ours.cluster_id}"
        )


class Adoption(ABC):
    """Topics on their way into the store. Used once, while the broker starts."""

    def __init__(self, store: MetadataStore, config: BrokerConfig, broker_id: int) -> None:
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._mark = AdoptionMark("", is_retention_guessed=False)

    def prepare(self, topics: TopicCatalogue) -> None:
        """Writes the configurations, by which the logs are loaded."""
        self._store.multi_now(list(self._preparations(topics)))

    def finish(self, topics: TopicCatalogue, logs: LogManager) -> None:
        """Makes the topics. The logs are loaded, and the catalogue is as well."""
        found = logs.found_partitions()
        images = list(self._images(topics, found))
        last_id = max(logs.highest_producer_id(), self._last_producer_id())
        mark = self._write(znodes.ADOPTION, znodes.encode_adoption(self._mark))
        topics.adopt(images, [*self._producer_ids_above(last_id), mark])
        self._report(images, found)

    @abstractmethod
    def _preparations(self, topics: TopicCatalogue) -> Iterator[Operation]: ...

    @abstractmethod
    def _images(
        self, topics: TopicCatalogue, found: Mapping[TopicPartition, FoundPartition]
    ) -> Iterator[TopicImage]: ...

    def _last_producer_id(self) -> int:
        return -1

    @abstractmethod
    def _report(
        self, images: Sequence[TopicImage], found: Mapping[TopicPartition, FoundPartition]
    ) -> None: ...

    def _producer_ids_above(self, last_id: int) -> Iterator[Operation]:
        """Ids that are in the logs, or that Kafka has given out, are not given out again."""
        path = znodes.PRODUCER_ID_BLOCK
        stored = next((data for _, data, _ in self._store.subtree(path)), b"")
        block = znodes.decode_producer_id_block(stored)
        if last_id > (block.last if block else -1):
            taken = ProducerIdBlock(self._broker_id, 0, last_id)
            yield self._write(path, znodes.encode_producer_id_block(taken))

    def _configure(self, entity_type: str, name: str, texts: Texts) -> Operation:
        return self._write(znodes.config_path(entity_type, name), znodes.encode_config(texts))

    def _write(self, path: str, data: bytes) -> Operation:
        if any(True for _ in self._store.subtree(path)):
            return SetData(path, data)
        return Create(path, data, make_parents=True)

    def _led_here(self, number: int, leader_epoch: int) -> PartitionImage:
        brokers = [self._broker_id]
        return PartitionImage(number, self._broker_id, leader_epoch, brokers, brokers, 0)


class FolderAdoption(Adoption):
    """From the folders alone: names, and ids where there is a partition.metadata."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        broker_id: int,
        found: set[TopicPartition],
    ) -> None:
        super().__init__(store, config, broker_id)
        self._names = sorted({each.topic for each in found})

    def _preparations(self, topics: TopicCatalogue) -> Iterator[Operation]:
        for name in self._names:
            yield self._configure("topics", name, self._configs(topics, name))

    def _configs(self, topics: TopicCatalogue, name: str) -> Texts:
        return topics.plan(name).configs or KEEP_EVERYTHING

    def _images(
        self, topics: TopicCatalogue, found: Mapping[TopicPartition, FoundPartition]
    ) -> Iterator[TopicImage]:
        """Partitions missing between those found are made anew."""
        for name in self._names:
            mine = {key.partition: each for key, each in found.items() if key.topic == name}
            if not mine:
                continue
            ids = [each.topic_id for each in mine.values() if each.topic_id != ZERO_UUID]
            partitions = [
                self._led_here(n, mine[n].leader_epoch if n in mine else NO_LEADER_EPOCH)
                for n in range(max(mine) + 1)
            ]
            topic_id = ids[0] if ids else Uuid.random()
            yield TopicImage(name, topic_id, partitions, self._configs(topics, name))

    def _report(
        self, images: Sequence[TopicImage], found: Mapping[TopicPartition, FoundPartition]
    ) -> None:
        if not images:
            return
        logger.warning(
            "adopting %d topics of an Apache Kafka by their folders alone: there is no metadata "
            "log of KRaft, and configurations of Kafka over ZooKeeper are in ZooKeeper. If the "
            "metadata log is elsewhere, stop, set metadata.log.dir and start again",
            len(images),
        )
        for image in images:
            mine = [key.partition for key in found if key.topic == image.name]
            missing = sorted(set(range(len(image.partitions))) - set(mine))
            if missing:
                logger.warning("%s: partitions %s have no folder: new ones", image.name, missing)
            if image.configs is KEEP_EVERYTHING:
                was_cleaned = any(found[TopicPartition(image.name, n)].was_cleaned for n in mine)
                logger.warning(
                    "%s: retention and compaction are off until you set cleanup.policy, "
                    "retention.ms and retention.bytes to what they were%s, for example with "
                    "kafka-configs.sh --alter --entity-type topics --entity-name %s",
                    image.name,
                    " (it was compacted)" if was_cleaned else "",
                    image.name,
                )


class ToldRetention(Adoption):
    """The directory was adopted before; this start is the first with the settings of its broker."""

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, broker_id: int, metadata_log: str
    ) -> None:
        super().__init__(store, config, broker_id)
        self._mark = AdoptionMark(metadata_log, is_retention_guessed=False)

    def _preparations(self, topics: TopicCatalogue) -> Iterator[Operation]:
        """Unless somebody has set another value meanwhile."""
        path = znodes.config_path("brokers", znodes.DEFAULT_ENTITY)
        for _, data, _ in self._store.subtree(path):
            texts = znodes.decode_config(data)
            kept = {key: text for key, text in texts.items() if GUESSES.get(key) != text}
            yield self._configure("brokers", znodes.DEFAULT_ENTITY, kept)

    def _images(
        self, topics: TopicCatalogue, found: Mapping[TopicPartition, FoundPartition]
    ) -> Iterator[TopicImage]:
        return iter(())

    def _report(
        self, images: Sequence[TopicImage], found: Mapping[TopicPartition, FoundPartition]
    ) -> None:
        logger.info("the retention of brokers is no longer guessed: it is as configured")


def _children(store: MetadataStore, path: str) -> Iterator[tuple[str, bytes]]:
    for below, data, _ in store.subtree(path):
        if below.rpartition("/")[0] == path:
            yield below, data
