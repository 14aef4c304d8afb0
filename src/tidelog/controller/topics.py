"""The topics: an image in memory of what the metadata store says, and the only way to change it.

A change is one atomic multi. It reaches the image, and those who asked with `on_change`, on the
loop once it is durable; a reader of the image therefore never sees a topic that a crash could
take back. Then the broker carries it out, so a topic in the image may have partitions that are not
hosted yet, and after that the change is over. Changes of one topic, and of topics whose names
collide, happen one after another in the order asked for. A caller that is
cancelled or gives up does not stop a change that has begun.

Images are replaced and never altered, so whoever holds one has a consistent view.

Two kinds share what reads the image (`TopicImages`): the catalogue here is that of a lone broker
with its own store, of which it is the only writer; a broker in a cluster has `ClusterTopics`.

Leader epochs: a broker that starts leads its partitions with an epoch one higher than before, so
that clients and logs can tell what was written before and after.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from tidelog.controller import znodes
from tidelog.controller.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    Operation,
    SetData,
    StoreUnavailable,
)
from tidelog.controller.placement import (
    PlacementBroker,
    RandomBelow,
    place_more_partitions,
    place_new_topic,
)
from tidelog.controller.topic_names import (
    collision_form,
    is_internal,
    must_be_valid,
    must_not_be_reserved,
    reason_invalid,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.slices import Slices
from tidelog.types import (
    CONSUMER_OFFSETS,
    NO_LEADER,
    NO_LEADER_EPOCH,
    TRANSACTION_STATE,
    ZERO_UUID,
    TopicPartition,
    Uuid,
)

PARTITIONS_PER_REQUEST_MAX: Final = 10_000  # what KRaft's controller takes in one go

NO_STATE: Final = -1  # partition_epoch while there is no state node

T = TypeVar("T")


class Settings(Protocol):
    """The broker's configuration, by Kafka's key."""

    def __getitem__(self, key: str, /) -> Any: ...


class PartitionImage(NamedTuple):
    partition: int
    leader: int  # NO_LEADER if there is none
    leader_epoch: int
    replicas: list[int]  # the first is the preferred leader
    isr: list[int]
    partition_epoch: int  # version of the state node, as in Kafka over ZooKeeper
    offline_replicas: Sequence[int] = ()  # on brokers, or disks, that are not there


class TopicImage:
    __slots__ = ("configs", "is_internal", "name", "partitions", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        partitions: list[PartitionImage],
        configs: Mapping[str, str],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions  # the one numbered n at index n
        self.configs = configs  # the overrides that the topic was created or loaded with
        self.is_internal = is_internal(name)

    @property
    def assignment(self) -> list[list[int]]:
        return [partition.replicas for partition in self.partitions]


class TopicChange(Enum):
    CREATED = "created"
    DELETED = "deleted"
    PARTITIONS_ADDED = "partitions added"


Listener = Callable[[TopicChange, TopicImage], None]
CarryOut = Callable[[TopicChange, TopicImage], Awaitable[None]]


class TopicPlan(NamedTuple):
    """What a topic is like when nobody has said anything about it."""

    partition_count: int
    replication_factor: int
    configs: dict[str, str]


def _random_below(bound: int) -> int:
    return int.from_bytes(os.urandom(8), "big") % bound


class TopicImages:
    """The image and what can be told from it. Touched only on the broker's loop."""

    def __init__(
        self,
        broker_id: int,
        *,
        settings: Settings,
        rack: str | None = None,
        random_below: RandomBelow = _random_below,
    ) -> None:
        self._settings = settings
        self._random_below = random_below
        self._listeners: list[Listener] = []
        self._names_by_form: dict[str, str] = {}
        self._latest_change: dict[str, asyncio.Task[Any]] = {}  # by collision form
        self.brokers: list[PlacementBroker] = [PlacementBroker(broker_id, rack)]  # by id
        self.topics: dict[str, TopicImage] = {}
        self.by_id: dict[Uuid, TopicImage] = {}
        self.changes = 0  # grows with every change of the image

    def on_change(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def must_be_creatable(self, name: str) -> None:
        must_not_be_reserved(name)
        must_be_valid(name)
        if name in self.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._names_by_form.get(collision_form(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def must_get(self, name: str) -> TopicImage:
        image = self.topics.get(name)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return image

    def has_partition(self, name: str, index: int) -> bool:
        image = self.topics.get(name)
        return image is not None and 0 <= index < len(image.partitions)

    def missing_topic_error(self, name: str) -> ErrorCode:
        """What a client is told of a topic that is not there."""
        if reason_invalid(name) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.INVALID_TOPIC_EXCEPTION

    def place(self, partition_count: int = -1, replication_factor: int = -1) -> list[list[int]]:
        """Replicas for the partitions of a new topic; -1 means the broker's default."""
        if partition_count == -1:
            partition_count = self._settings["num.partitions"]
        if replication_factor == -1:
            replication_factor = self._settings["default.replication.factor"]
        return place_new_topic(
            self.brokers, partition_count, replication_factor, self._random_below
        )

    def place_more(self, image: TopicImage, additional: int) -> list[list[int]]:
        return place_more_partitions(self.brokers, image.assignment, additional)

    def plan(self, name: str) -> TopicPlan:
        if name == CONSUMER_OFFSETS:
            return self._consumer_offsets()
        if name == TRANSACTION_STATE:
            return self._transaction_state()
        settings = self._settings
        return TopicPlan(settings["num.partitions"], settings["default.replication.factor"], {})

    def _consumer_offsets(self) -> TopicPlan:
        settings = self._settings
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings["offsets.topic.segment.bytes"]),
        }
        return TopicPlan(
            settings["offsets.topic.num.partitions"],
            self._possible_factor(settings["offsets.topic.replication.factor"]),
            configs,
        )

    def _transaction_state(self) -> TopicPlan:
        settings = self._settings
        factor = self._possible_factor(settings["transaction.state.log.replication.factor"])
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(settings["transaction.state.log.min.isr"], factor)),
            "segment.bytes": str(settings["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        }
        return TopicPlan(settings["transaction.state.log.num.partitions"], factor, configs)

    def _possible_factor(self, wanted: int) -> int:
        return wanted

    def _put(self, image: TopicImage) -> None:
        self.changes += 1
        self.topics[image.name] = image
        self.by_id[image.topic_id] = image
        self._names_by_form[collision_form(image.name)] = image.name

    def _drop(self, image: TopicImage) -> None:
        self.changes += 1
        del self.topics[image.name], self.by_id[image.topic_id]
        del self._names_by_form[collision_form(image.name)]

    def _tell(self, change: TopicChange, image: TopicImage) -> None:
        for listener in self._listeners:
            listener(change, image)

    async def _in_turn(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs the work after all earlier changes of this name, in a task of its own."""
        form = collision_form(name)
        earlier = self._latest_change.get(form)
        task = asyncio.get_running_loop().create_task(_after(earlier, work))
        self._latest_change[form] = task
        task.add_done_callback(lambda done: self._change_done(form, done))
        return await asyncio.shield(task)

    def _change_done(self, form: str, task: asyncio.Task[Any]) -> None:
        if self._latest_change.get(form) is task:
            del self._latest_change[form]
        if not task.cancelled():
            task.exception()  # marks it as seen: the caller may have gone


class TopicCatalogue(TopicImages):
    """The topics of a broker that is the only one. Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        settings: Settings,
        rack: str | None = None,
        random_below: RandomBelow = _random_below,
    ) -> None:
        super().__init__(broker_id, settings=settings, rack=rack, random_below=random_below)
        self._store = store
        self._broker_id = broker_id
        self._slices = Slices()
        # What the broker does about a change once it is durable. The change is over when this is.
        self.carry_out: CarryOut = _do_nothing
        self._given_an_id: set[str] = set()  # topics whose new id is not in the store yet
        self.controller_epoch = 0  # written into the state of partitions

    def load(self) -> None:
        """Reads all topics, blocking; for start-up."""
        configs = {
            path.rpartition("/")[2]: znodes.decode_config(data)
            for path, data, _ in self._store.subtree(znodes.TOPIC_CONFIGS)
            if path != znodes.TOPIC_CONFIGS
        }
        assignments: dict[str, znodes.TopicAssignment] = {}
        states: dict[str, dict[int, tuple[znodes.LeaderIsrAndControllerEpoch, int]]] = {}
        for path, data, stat in self._store.subtree(znodes.TOPICS):
            parts = path.split("/")  # "", brokers, topics, T, partitions, P, state
            if len(parts) == 4:
                assignments[parts[3]] = znodes.decode_topic(data)
                states[parts[3]] = {}
            elif len(parts) == 7:
                states[parts[3]][int(parts[5])] = (znodes.decode_state(data), stat.version)
        for name, assignment in assignments.items():
            topic_id = assignment.topic_id
            if topic_id is None:  # made by a Kafka before 2.8
                topic_id = Uuid.random()
                self._given_an_id.add(name)
            partitions = _partition_images(assignment.partitions, states[name])
            self._put(TopicImage(name, topic_id, partitions, configs.get(name, {})))

    def hosts(self, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        """Whether a log belongs to a partition of this broker; the zero uuid is any id."""
        topic, partition = topic_partition
        if not self.has_partition(topic, partition):
            return False
        image = self.topics[topic]
        replicas = image.partitions[partition].replicas
        return self._broker_id in replicas and topic_id in (image.topic_id, ZERO_UUID)

    def start_broker_epoch(self) -> None:
        """Leads every partition that this broker may lead, with a new epoch, in one durable multi.

        The others have no leader, for this is the only broker. Blocking; for start-up. It takes
        about 10 us a partition.
        """
        operations: list[Operation] = []
        for image in list(self.topics.values()):
            led = [self._led(partition) for partition in image.partitions]
            operations += self._lead_operations(image, led)
            self._put(TopicImage(image.name, image.topic_id, led, image.configs))
        if operations:
            self._store.multi_now(operations)
        self._given_an_id.clear()

    def _led(self, before: PartitionImage) -> PartitionImage:
        if self._broker_id not in (before.isr or before.replicas):
            return before._replace(leader=NO_LEADER)
        return PartitionImage(
            before.partition,
            self._broker_id,
            before.leader_epoch + 1,
            before.replicas,
            [self._broker_id],
            before.partition_epoch + 1,
        )

    def _lead_operations(
        self, before: TopicImage, led: Sequence[PartitionImage]
    ) -> Iterable[Operation]:
        if before.name in self._given_an_id:
            encoded = znodes.encode_topic(before.topic_id, before.assignment)
            yield SetData(znodes.topic_path(before.name), encoded)
        for partition in led:
            if partition.leader == NO_LEADER:
                continue
            path = znodes.state_path(before.name, partition.partition)
            state = self._encode_state(partition)
            if partition.partition_epoch == NO_STATE + 1:
                yield Create(path, state, make_parents=True)
            else:
                yield SetData(path, state)

    def adopt(self, images: Iterable[TopicImage], others: Sequence[Operation]) -> None:
        """Takes in topics that are not in the store, in one multi with other operations.

        For a directory that comes from an Apache Kafka. Blocking; for start-up, between load and
        start_broker_epoch, which then goes on from the epochs of the images.
        """
        operations: list[Operation] = []
        for image in images:
            config_path = znodes.config_path("topics", image.name)
            has_configs = any(True for _ in self._store.subtree(config_path))
            operations += self._create_operations(image, SetData if has_configs else Create)
            self._put(image)
        self._store.multi_now([*operations, *others])

    async def create(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> TopicImage:
        """The assignment lists the replicas of partition 0, 1, ...; see `place`."""
        return await self._in_turn(name, lambda: self._create(name, assignment, configs or {}))

    async def auto_create(self, name: str) -> TopicImage:
        """The topic, made with the broker's defaults if there is none yet."""
        if name in self.topics:
            return self.topics[name]
        return await self._in_turn(name, lambda: self._auto_create(name))

    async def delete(self, name: str, topic_id: Uuid | None = None) -> TopicImage:
        """The image as it was. With an id, only the topic that has it."""
        return await self._in_turn(name, lambda: self._delete(name, topic_id))

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> TopicImage:
        """Grows the topic to count partitions; the assignment lists the replicas of the new ones.

        The assignment comes from `place_more` or from a client. It is refused if the topic has
        been given other partitions since it was made.
        """
        return await self._in_turn(name, lambda: self._add_partitions(name, count, assignment))

    async def wait_for_changes(self) -> None:
        """Until the changes under way are over; for a broker that stops."""
        while self._latest_change:
            await asyncio.wait(list(self._latest_change.values()))
            await asyncio.sleep(0)

    async def _create(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> TopicImage:
        self.must_be_creatable(name)
        partitions = self._new_partitions(assignment, 0)
        image = TopicImage(name, Uuid.random(), partitions, dict(configs))
        # Overrides may be left from a topic that another Kafka deleted halfway.
        has_configs = await self._store.exists(znodes.config_path("topics", name)) is not None
        await self._commit(self._create_operations(image, SetData if has_configs else Create))
        self._put(image)
        self._tell(TopicChange.CREATED, image)
        await self.carry_out(TopicChange.CREATED, image)
        return image

    async def _auto_create(self, name: str) -> TopicImage:
        if name in self.topics:
            return self.topics[name]
        self.must_be_creatable(name)
        plan = self.plan(name)
        assignment = self.place(plan.partition_count, plan.replication_factor)
        return await self._create(name, assignment, plan.configs)

    def _possible_factor(self, wanted: int) -> int:
        # Kafka's default of 3 would keep groups and transactions from working on a lone broker.
        return min(wanted, len(self.brokers))

    async def _delete(self, name: str, topic_id: Uuid | None) -> TopicImage:
        if topic_id is not None:
            known = self.by_id.get(topic_id)
            if known is None or known.name != name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        image = self.must_get(name)
        config_path = znodes.config_path("topics", name)
        has_configs = await self._store.exists(config_path) is not None
        await self._commit(self._delete_operations(image, [config_path] if has_configs else []))
        self._drop(image)
        self._tell(TopicChange.DELETED, image)
        await self.carry_out(TopicChange.DELETED, image)
        return image

    def _delete_operations(
        self, image: TopicImage, more_paths: Iterable[str]
    ) -> Iterable[Operation]:
        name = image.name
        for partition in image.partitions:
            yield Delete(znodes.state_path(name, partition.partition))
            yield Delete(znodes.partition_path(name, partition.partition))
        yield Delete(znodes.partitions_path(name))
        yield Delete(znodes.topic_path(name))
        for path in more_paths:
            yield Delete(path)

    async def _add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> TopicImage:
        before = self.must_get(name)
        if increase(before, count) != len(assignment):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic has been given partitions meanwhile and has {len(before.partitions)} now.",
            )
        added = self._new_partitions(assignment, len(before.partitions))
        image = TopicImage(name, before.topic_id, before.partitions + added, before.configs)
        topic = znodes.encode_topic(image.topic_id, image.assignment)
        await self._commit(
            chain(
                [SetData(znodes.topic_path(name), topic)], self._partition_operations(name, added)
            )
        )
        self._put(image)
        self._tell(TopicChange.PARTITIONS_ADDED, image)
        await self.carry_out(TopicChange.PARTITIONS_ADDED, image)
        return image

    def _new_partitions(
        self, assignment: Sequence[Sequence[int]], first: int
    ) -> list[PartitionImage]:
        live = {broker.id for broker in self.brokers}
        made = []
        for partition, replicas in enumerate(assignment, first):
            isr = [broker_id for broker_id in replicas if broker_id in live]
            leader = isr[0] if isr else NO_LEADER
            made.append(PartitionImage(partition, leader, 0, list(replicas), isr, 0))
        return made

    def _create_operations(
        self, image: TopicImage, config_operation: type[Create] | type[SetData]
    ) -> Iterable[Operation]:
        yield config_operation(
            znodes.config_path("topics", image.name), znodes.encode_config(image.configs)
        )
        yield Create(
            znodes.topic_path(image.name), znodes.encode_topic(image.topic_id, image.assignment)
        )
        yield Create(znodes.partitions_path(image.name))
        yield from self._partition_operations(image.name, image.partitions)

    def _partition_operations(
        self, name: str, partitions: Iterable[PartitionImage]
    ) -> Iterable[Operation]:
        for image in partitions:
            yield Create(znodes.partition_path(name, image.partition))
            yield Create(znodes.state_path(name, image.partition), self._encode_state(image))

    def _encode_state(self, image: PartitionImage) -> bytes:
        return znodes.encode_state(
            image.leader, image.leader_epoch, self.controller_epoch, image.isr
        )

    async def _commit(self, operations: Iterable[Operation]) -> None:
        listed: list[Operation] = []
        for operation in operations:
            await self._slices.breathe()
            listed.append(operation)
        try:
            await self._store.multi(listed)
        except StoreUnavailable as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "The metadata could not be written."
            ) from error


async def _do_nothing(change: TopicChange, image: TopicImage) -> None:
    pass


def increase(image: TopicImage, count: int) -> int:
    """How many partitions more than now; refused unless there are more."""
    present = len(image.partitions)
    if count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    if count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic has {present} partitions, which is higher than the requested {count}.",
        )
    return count - present


async def _after(
    earlier: asyncio.Task[Any] | None, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    if earlier is not None:
        await asyncio.wait([earlier])
    return await work()


async def within(timeout_ms: int, change: Coroutine[Any, Any, T]) -> T:
    """The result of an admin request's change, or REQUEST_TIMED_OUT after its `timeout_ms`.

    The change goes on; only the answer comes early. A timeout of 0 or less starts the change and
    answers at once (KIP-4).
    """
    task = asyncio.get_running_loop().create_task(change)
    await asyncio.wait([task], timeout=max(timeout_ms, 0) / 1000)
    if task.done():
        return task.result()
    task.add_done_callback(_mark_seen)
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _mark_seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _partition_images(
    replicas: Mapping[int, Sequence[int]],
    states: Mapping[int, tuple[znodes.LeaderIsrAndControllerEpoch, int]],
) -> list[PartitionImage]:
    images = []
    for partition in sorted(replicas):
        known = states.get(partition)
        if known is None:
            image = PartitionImage(
                partition, NO_LEADER, NO_LEADER_EPOCH, list(replicas[partition]), [], NO_STATE
            )
        else:
            state, version = known
            image = PartitionImage(
                partition,
                state.leader,
                state.leader_epoch,
                list(replicas[partition]),
                list(state.isr),
                version,
            )
        images.append(image)
    return images
