"""Adoption of a directory that holds KRaft's metadata log: it says what there is to adopt."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidelog.config.broker import BrokerConfig, find_key
from tidelog.config.definition import ConfigError
from tidelog.config.topic import TOPIC_TABLE, log_config
from tidelog.controller import znodes
from tidelog.controller.adopted_security import AdoptedSecurity
from tidelog.controller.adoption import (
    KEEP_FOR_EVER,
    NEITHER_DELETE_NOR_COMPACT,
    TELLING_OF_RETENTION,
    Adoption,
    Texts,
)
from tidelog.controller.kraft.cluster_image import ClusterImage, KraftPartition, KraftTopic
from tidelog.controller.kraft.metadata_log import MetadataLog, UnreadableMetadata
from tidelog.controller.metadata_store import Delete, MetadataStore, Operation
from tidelog.controller.topics import PartitionImage, TopicCatalogue, TopicImage
from tidelog.controller.znodes import AdoptionMark
from tidelog.errors import StartupError
from tidelog.log.directory.meta_properties import read_meta_properties
from tidelog.log.log_manager import FoundPartition, LogManager
from tidelog.types import NO_LEADER, NO_LEADER_EPOCH, ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

# Settings that decide which records go.
DECIDING: Final = frozenset(
    (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
    )
)
DECIDING_OF_BROKERS: Final = frozenset(
    synonym for key in DECIDING for synonym, _ in TOPIC_TABLE[key].synonyms
)
RESERVED_DIRECTORY_IDS: Final = 100  # numbers that stand for no directory: unassigned, lost, ...


class KraftAdoption(Adoption):
    """From KRaft's metadata log."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        broker_id: int,
        logs: LogManager,
        log: MetadataLog,
    ) -> None:
        super().__init__(store, config, broker_id)
        self._log = log
        self._image = _replayed(log)
        self._security = AdoptedSecurity(self._image.security)
        self._topics = {topic.name: topic for topic in self._image.topics.values()}
        self._guessed_for, self._guess = self._guesses()
        self._mark = AdoptionMark(log.fingerprint, bool(self._guess))
        self._hosted = logs.directories.hosted()
        identities = (read_meta_properties(str(path)) for path in logs.directories.paths)
        self._directory_ids = {each.directory_id for each in identities if each is not None}
        self._gone: list[str] = []  # topics of the store that go
        self._elsewhere: dict[str, list[int]] = {}  # partitions that others have, by topic
        self._lagging: list[str] = []  # partitions whose last records others have
        self._empty: dict[str, list[int]] = {}  # partitions that are made anew, by topic

    def check(self, known: set[str]) -> None:
        """Before anything is written. `known` are the topics of the store."""
        self._must_understand()
        self._must_have_all_directories()
        here = {each.topic for each in self._hosted}
        self._gone = sorted(name for name in known if name in self._topics or name not in here)

    def _must_understand(self) -> None:
        image = self._image
        of_brokers: dict[str, str] = {}
        for name in ("", str(self._broker_id)):
            texts = image.broker_configs.get(name, {})
            of_brokers |= {key: texts[key] for key in DECIDING_OF_BROKERS & texts.keys()}
        try:
            config = self._config.with_overrides(of_brokers)
        except ConfigError as error:
            raise _not_understood("brokers", error) from error
        for name in self._topics:
            texts = image.topic_configs.get(name, {})
            try:
                log_config(config, {key: texts[key] for key in DECIDING & texts.keys()})
            except ConfigError as error:
                raise _not_understood(f"topic {name}", error) from error

    def _must_have_all_directories(self) -> None:
        missing = [
            f"{topic.name}-{number}"
            for topic in self._topics.values()
            for number, partition in topic.partitions.items()
            if TopicPartition(topic.name, number) not in self._hosted
            and self._is_in_another_directory(partition)
        ]
        if missing:
            raise StartupError(
                "Kafka keeps these partitions in a log directory that log.dirs do not name: "
                f"{', '.join(sorted(missing))}; name all directories that Kafka had"
            )

    def _is_in_another_directory(self, partition: KraftPartition) -> bool:
        directory_id = partition.directory_of(self._broker_id)
        return (
            directory_id is not None
            and int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS
            and directory_id not in self._directory_ids
        )

    def _preparations(self, topics: TopicCatalogue) -> Iterator[Operation]:
        if any(True for _ in self._store.subtree(znodes.ADOPTION)):
            yield Delete(znodes.ADOPTION)
        for name in self._gone:
            below = [path for path, _, _ in self._store.subtree(znodes.topic_path(name))]
            yield from (Delete(path) for path in sorted(below, key=len, reverse=True))
            if name not in self._topics:
                config_path = znodes.config_path("topics", name)
                yield from (Delete(path) for path, _, _ in self._store.subtree(config_path))
        for name in self._topics:
            yield self._configure("topics", name, self._configs(name))
        of_all = dict(self._broker_configs("")) | self._guess
        yield self._configure("brokers", znodes.DEFAULT_ENTITY, of_all)
        own_name = str(self._broker_id)
        yield self._configure("brokers", own_name, dict(self._broker_configs(own_name)))
        yield from self._security.operations(self._store)

    def _broker_configs(self, name: str) -> Iterator[tuple[str, str]]:
        """Without passwords: other users may read the store's files, and not Kafka's."""
        for key_name, text in self._image.broker_configs.get(name, {}).items():
            key = find_key(key_name)
            if key is None or key.sensitive:
                logger.warning("%s, a setting of brokers, is not adopted", key_name)
            else:
                yield key_name, text

    def _configs(self, name: str) -> Texts:
        return self._image.topic_configs.get(name, {})

    def _guesses(self) -> tuple[list[str], dict[str, str]]:
        """The topics whose records may go by a setting that nobody told, and what keeps them."""
        if self._config.originals.keys() & TELLING_OF_RETENTION:
            return [], {}
        brokers = self._image.broker_configs
        dynamic = brokers.get("", {}) | brokers.get(str(self._broker_id), {})
        is_retention_told = bool(dynamic.keys() & TELLING_OF_RETENTION)
        if is_retention_told and "log.cleanup.policy" in dynamic:
            return [], {}
        if is_retention_told:
            names = [name for name in self._topics if "cleanup.policy" not in self._configs(name)]
            return names, NEITHER_DELETE_NOR_COMPACT if names else {}
        names = [
            name
            for name in self._topics
            if "retention.ms" not in (texts := self._configs(name))
            and "delete" in texts.get("cleanup.policy", "delete")
        ]
        return names, KEEP_FOR_EVER if names else {}

    def _images(
        self, topics: TopicCatalogue, found: Mapping[TopicPartition, FoundPartition]
    ) -> Iterator[TopicImage]:
        for topic in self._topics.values():
            partitions = [
                self._partition(topic, number, found.get(TopicPartition(topic.name, number)))
                for number in range(max(topic.partitions, default=-1) + 1)
            ]
            yield TopicImage(topic.name, topic.topic_id, partitions, self._configs(topic.name))

    def _partition(
        self, topic: KraftTopic, number: int, found: FoundPartition | None
    ) -> PartitionImage:
        partition = topic.partitions.get(number)
        if partition is None:
            raise UnreadableMetadata(f"{self._log.folder}: {topic.name} has no partition {number}")
        others = [each for each in partition.replicas if each != self._broker_id]
        is_ours = self._broker_id in partition.replicas
        is_here = found is not None and found.topic_id in (topic.topic_id, ZERO_UUID)
        if is_ours and (is_here or not others):
            if others and self._broker_id not in (*partition.isr, *partition.elr):
                self._lagging.append(f"{topic.name}-{number}")
            if not is_here:
                self._empty.setdefault(topic.name, []).append(number)
            epoch = found.leader_epoch if found is not None and is_here else NO_LEADER_EPOCH
            return self._led_here(number, max(epoch, partition.leader_epoch))
        self._elsewhere.setdefault(topic.name, []).append(number)
        return PartitionImage(number, NO_LEADER, partition.leader_epoch, others, others, 0)

    def _last_producer_id(self) -> int:
        return self._image.next_producer_id - 1

    def _report(
        self, images: Sequence[TopicImage], found: Mapping[TopicPartition, FoundPartition]
    ) -> None:
        image = self._image
        logger.info(
            "adopted %d topics of an Apache Kafka by its metadata log up to offset %d (%s)",
            len(images),
            self._log.end_offset,
            ", ".join(f"{name} {level}" for name, level in sorted(image.features.items())),
        )
        for name in self._gone:
            if name not in self._topics:
                logger.warning("%s is gone: Kafka does not know it, and has no folder of it", name)
        for name, numbers in self._elsewhere.items():
            logger.warning(
                "%s: partitions %s have no leader, because their data is on other brokers",
                name,
                numbers,
            )
        for name, numbers in self._empty.items():
            logger.warning("%s: partitions %s have no folder: new ones", name, numbers)
        if self._lagging:
            logger.warning(
                "the last records of %s are missing, because this broker was not in sync with "
                "the others",
                ", ".join(self._lagging),
            )
        if self._log.voters > 1:
            logger.warning(
                "the metadata log is one of %d: what the others have decided after its end, "
                "offset %d, is not known here",
                self._log.voters,
                self._log.end_offset,
            )
        if image.unfinished:
            logger.warning(
                "%d records of an unfinished metadata transaction were passed over, as Kafka would",
                image.unfinished,
            )
        self._security.report(has_authorizer=self._config.has_authorizer)
        if image.tokens > 0:
            logger.warning("%d delegation tokens are not adopted; make them anew", image.tokens)
        for key, text in self._guess.items():
            logger.warning(
                "topics without a %s of their own: %d. This broker was started without the "
                "server.properties of Kafka, so %s is %s until you start with them, or set it "
                "with kafka-configs.sh --alter --entity-type brokers --entity-default",
                key.removeprefix("log."),
                len(self._guessed_for),
                key,
                text or "empty",
            )


def _replayed(log: MetadataLog) -> ClusterImage:
    image = ClusterImage()
    try:
        image.replay(log.records())
    except UnreadableMetadata as error:
        raise UnreadableMetadata(
            f"the metadata log of Apache Kafka cannot be read, and without it nobody knows which "
            f"records are to be kept: {error}. To adopt the topics with retention and compaction "
            f"off, move {log.folder} away"
        ) from error
    return image


def _not_understood(whose: str, error: ConfigError) -> StartupError:
    return StartupError(
        f"a setting of {whose} in Kafka's metadata log decides what is deleted, and is not "
        f"understood here: {error}"
    )
