"""The topics of a broker in a cluster: the image comes from the controller, changes by the store.

The image is what UpdateMetadata has told this broker: `put` and `drop` are for whoever receives it,
and so is keeping `brokers` up to date. A change writes only the nodes that Kafka's admin manager
writes:

    create             /config/topics/T and /brokers/topics/T
    delete             /admin/delete_topics/T
    add partitions     /brokers/topics/T

The controller finds them by its watches and does the rest. The change is done when the image shows
it, every partition with a leader. Creating and deleting is for the active controller's broker;
auto-creation works on every broker, which asks the controller. What auto-creation cannot bring
about soon, such as a topic whose name is still being deleted, is LEADER_NOT_AVAILABLE: the client
asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.controller import znodes
from tidelog.controller.cluster.controller_channel_manager import PeerDirectory
from tidelog.controller.cluster.kafka_controller import KafkaController
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    StoreError,
)
from tidelog.controller.placement import RandomBelow
from tidelog.controller.topic_names import collision_form
from tidelog.controller.topics import (
    Settings,
    TopicChange,
    TopicImage,
    TopicImages,
    TopicPlan,
    increase,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.types import NO_CONTROLLER, NO_LEADER, Uuid

AUTO_CREATION_TIMEOUT_MS: Final = 5_000
# Answers to auto-creation that asking again resolves.
MADE_OR_LEAVING: Final = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)

Settled = Callable[[TopicImage | None], bool]


class ClusterTopics(TopicImages):
    """Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        controller: KafkaController,
        *,
        settings: Settings,
        peers: PeerDirectory,
        rack: str | None = None,
        random_below: RandomBelow | None = None,
    ) -> None:
        if random_below is None:
            super().__init__(broker_id, settings=settings, rack=rack)
        else:
            super().__init__(broker_id, settings=settings, rack=rack, random_below=random_below)
        self._store = store
        self._controller = controller
        self._peers = peers
        # By topic: what is waited for, and who waits.
        self._waiting: dict[str, list[tuple[Settled, asyncio.Future[TopicImage | None]]]] = {}
        self._auto_created: dict[str, asyncio.Task[TopicImage]] = {}

    def put(self, image: TopicImage) -> None:
        """The topic as the controller says that it is now."""
        before = self.topics.get(image.name)
        if before is not None and before.topic_id != image.topic_id:
            self.drop(image.name)
            before = None
        self._put(image)
        if before is None:
            self._tell(TopicChange.CREATED, image)
        elif len(image.partitions) > len(before.partitions):
            self._tell(TopicChange.PARTITIONS_ADDED, image)
        self._wake(image.name)

    def drop(self, name: str) -> None:
        """The topic is being deleted, or gone."""
        image = self.topics.get(name)
        if image is not None:
            self._drop(image)
            self._tell(TopicChange.DELETED, image)
            self._wake(name)

    async def create(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> TopicImage:
        """The assignment lists the replicas of partition 0, 1, ...; see `place`."""
        topic_id = await self._in_turn(name, lambda: self._ask_for(name, assignment, configs or {}))

        def is_there(image: TopicImage | None) -> bool:
            return image is not None and image.topic_id == topic_id and _all_led(image)

        image = await self._until(name, is_there)
        assert image is not None
        return image

    async def auto_create(self, name: str) -> TopicImage:
        """The topic, made with the broker's defaults if there is none yet."""
        if name in self.topics:
            return self.topics[name]
        task = self._auto_created.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._auto_create(name))
            self._auto_created[name] = task
            task.add_done_callback(lambda done: self._auto_creation_done(name, done))
        return await asyncio.shield(task)

    async def delete(self, name: str, topic_id: Uuid | None = None) -> TopicImage:
        """The image as it was. With an id, only the topic that has it."""
        image = await self._ask_to_delete(name, topic_id)
        await self._until(name, lambda now: now is None or now.topic_id != image.topic_id)
        return image

    async def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> TopicImage:
        """Grows the topic to count partitions; the assignment lists those that are new."""
        await self._in_turn(name, lambda: self._ask_for_more(name, count, assignment))

        def is_there(image: TopicImage | None) -> bool:
            return image is not None and len(image.partitions) >= count and _all_led(image)

        image = await self._until(name, is_there)
        assert image is not None
        return image

    # Creation

    async def _ask_for(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> Uuid:
        self.must_be_creatable(name)
        try:
            await self._require_free(name)
            topic_id = Uuid.random()
            config_path = znodes.config_path("topics", name)
            has_configs = await self._store.exists(config_path) is not None
            write_configs = SetData if has_configs else Create
            operations: list[Operation] = [
                write_configs(config_path, znodes.encode_config(configs)),
                Create(znodes.topic_path(name), znodes.encode_topic(topic_id, assignment)),
            ]
            await self._store.multi(operations)
        except NodeExists as error:
            raise already_exists(name) from error
        except StoreError as error:
            raise not_written() from error
        return topic_id

    async def _require_free(self, name: str) -> None:
        """In the store: the image may not show the latest."""
        if await self._store.exists(znodes.delete_topic_path(name)) is not None:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion."
            )
        form = collision_form(name)
        for other in await self._store.children(znodes.TOPICS):
            if other == name:
                raise already_exists(name)
            if collision_form(other) == form:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topic: {other}",
                )

    async def _auto_create(self, name: str) -> TopicImage:
        try:
            self.must_be_creatable(name)
            async with asyncio.timeout(AUTO_CREATION_TIMEOUT_MS / 1000):
                return await self._create_by_plan(name, self.plan(name))
        except TimeoutError as error:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) from error
        except KafkaError as error:
            if error.code in MADE_OR_LEAVING:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) from error
            raise

    async def _create_by_plan(self, name: str, plan: TopicPlan) -> TopicImage:
        if self._controller.is_active:
            assignment = self.place(plan.partition_count, plan.replication_factor)
            return await self.create(name, assignment, plan.configs)
        await self._ask_controller(
            CreatableTopic(
                name=name,
                num_partitions=plan.partition_count,
                replication_factor=plan.replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in plan.configs.items()
                ],
            )
        )
        image = await self._until(name, lambda image: image is not None and _all_led(image))
        assert image is not None
        return image

    async def _ask_controller(self, topic: CreatableTopic) -> None:
        controller_id = self._controller.active_id
        if controller_id == NO_CONTROLLER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=AUTO_CREATION_TIMEOUT_MS)
        try:
            response = await self._peers.call(
                controller_id, request, timeout_s=AUTO_CREATION_TIMEOUT_MS / 1000
            )
        except OSError as error:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE) from error
        row = response.topics[0]
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(row.error_code), row.error_message)

    def _auto_creation_done(self, name: str, task: asyncio.Task[TopicImage]) -> None:
        del self._auto_created[name]
        if not task.cancelled():
            task.exception()  # marks it as seen: the caller may have gone

    # Deletion

    async def _ask_to_delete(self, name: str, topic_id: Uuid | None) -> TopicImage:
        if topic_id is not None:
            known = self.by_id.get(topic_id)
            if known is None or known.name != name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        image = self.must_get(name)
        try:
            await self._store.create(znodes.delete_topic_path(name))
        except NodeExists:
            pass  # others have asked for it: wait with them
        except StoreError as error:
            raise not_written() from error
        return image

    # Partitions

    async def _ask_for_more(
        self, name: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> None:
        if self._controller.is_queued_for_deletion(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        increase(self.must_get(name), count)
        try:
            while not await self._add(name, count, assignment):
                pass
        except NoNode as error:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
        except StoreError as error:
            raise not_written() from error

    async def _add(self, name: str, count: int, assignment: Sequence[Sequence[int]]) -> bool:
        """Whether it could be written: the controller may have changed the node meanwhile."""
        data, stat = await self._store.get(znodes.topic_path(name))
        stored = znodes.decode_topic(data)
        if stored.adding_replicas or stored.removing_replicas:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        present = len(stored.partitions)
        if count - present != len(assignment):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic has been given partitions meanwhile and has {present} now.",
            )
        added = dict(enumerate(assignment, present))
        grown = stored._replace(partitions={**stored.partitions, **added})
        try:
            await self._store.set(
                znodes.topic_path(name), znodes.encode_assignment(grown), stat.version
            )
        except BadVersion:
            return False
        return True

    # Waiting

    async def _until(self, name: str, settled: Settled) -> TopicImage | None:
        image = self.topics.get(name)
        if settled(image):
            return image
        future: asyncio.Future[TopicImage | None] = asyncio.get_running_loop().create_future()
        entry = (settled, future)
        self._waiting.setdefault(name, []).append(entry)
        try:
            return await future
        finally:
            waiting = self._waiting.get(name, [])
            if entry in waiting:
                waiting.remove(entry)
            if not waiting:
                self._waiting.pop(name, None)

    def _wake(self, name: str) -> None:
        image = self.topics.get(name)
        for settled, future in self._waiting.get(name, []):
            if not future.done() and settled(image):
                future.set_result(image)


def _all_led(image: TopicImage) -> bool:
    return all(partition.leader != NO_LEADER for partition in image.partitions)


def already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def not_written() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata could not be written.")
