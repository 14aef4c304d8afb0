"""The topics of a cluster, as this broker is told of them, and how it has them changed.

The image is what the controller says (UpdateMetadata); this broker writes nothing into it. A change
is made by the active controller's broker: it writes what is wanted into the metadata store, the
controller acts on that, and the change is done when the image shows it. Another broker that needs a
topic (auto-creation) asks the controller's broker with CreateTopics.

Unlike a lone broker's catalogue, a change that was written may still be under way when its caller
gives up; it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tidelog.controller import znodes
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
from tidelog.controller.placement import PlacementBroker
from tidelog.controller.topic_names import collision_form
from tidelog.controller.topics import (
    NO_LEADER,
    NO_STATE,
    PartitionImage,
    Settings,
    TopicCatalogue,
    TopicChange,
    TopicImage,
    increase,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.types import ZERO_UUID, Uuid

LEADER_DURING_DELETE: Final = -2
CREATION_TIMEOUT_MS: Final = 10_000
CHANGE_TIMEOUT_S: Final = 30.0

AskController = Callable[[CreateTopicsRequest], Awaitable[CreateTopicsResponse]]


class ClusterTopics(TopicCatalogue):
    """Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        settings: Settings,
        rack: str | None,
        is_controller: Callable[[], bool],
        ask_controller: AskController,
    ) -> None:
        super().__init__(store, broker_id, settings=settings, rack=rack)
        self._is_controller = is_controller
        self._ask_controller = ask_controller
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    # What the controller says

    def apply(self, request: UpdateMetadataRequest) -> None:
        self.brokers = [
            PlacementBroker(broker.id, broker.rack)
            for broker in sorted(request.live_brokers, key=lambda broker: broker.id)
        ]
        for topic in request.topic_states:
            self._apply_topic(topic)
        self._wake()

    def _apply_topic(self, topic: UpdateMetadataTopicState) -> None:
        before = self.topics.get(topic.topic_name)
        if before is not None and topic.topic_id not in (ZERO_UUID, before.topic_id):
            self._forget(before)
            before = None
        partitions = dict(enumerate(before.partitions)) if before else {}
        for row in topic.partition_states:
            if row.leader == LEADER_DURING_DELETE:
                partitions.pop(row.partition_index, None)
            else:
                partitions[row.partition_index] = _image_of(row)
        if not partitions:
            if before is not None:
                self._forget(before)
            return
        images = [partitions.get(n) or _unknown(n) for n in range(max(partitions) + 1)]
        topic_id = topic.topic_id if before is None else before.topic_id
        image = TopicImage(topic.topic_name, topic_id, images, {})
        self._put(image)
        if before is None:
            self._tell(TopicChange.CREATED, image)
        elif len(before.partitions) < len(images):
            self._tell(TopicChange.PARTITIONS_ADDED, image)

    def _forget(self, image: TopicImage) -> None:
        del self.topics[image.name], self.by_id[image.topic_id]
        del self._names_by_form[collision_form(image.name)]
        self._tell(TopicChange.DELETED, image)

    # Changes

    async def _create(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> TopicImage:
        self.must_be_creatable(name)
        topic_id = Uuid.random()
        config_path = znodes.config_path("topics", name)
        has_configs = await self._exists(config_path)
        config_operation = SetData if has_configs else Create
        try:
            await self._write(
                [
                    config_operation(config_path, znodes.encode_config(configs)),
                    Create(znodes.topic_path(name), znodes.encode_topic(topic_id, assignment)),
                ]
            )
        except NodeExists:
            raise KafkaError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
            ) from None
        await self._until(lambda: self._is_led(topic_id, len(assignment)))
        return self.by_id[topic_id]

    def _is_led(self, topic_id: Uuid, partition_count: int) -> bool:
        image = self.by_id.get(topic_id)
        return (
            image is not None
            and len(image.partitions) >= partition_count
            and all(partition.leader >= 0 for partition in image.partitions)
        )

    async def _auto_create(self, name: str) -> TopicImage:
        if name in self.topics:
            return self.topics[name]
        self.must_be_creatable(name)
        assignment, configs = self._plan(name)
        if self._is_controller():
            return await self._create(name, assignment, configs)
        await self._have_created(name, assignment, configs)
        await self._until(lambda: name in self.topics)
        return self.topics[name]

    async def _have_created(
        self, name: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=n, broker_ids=list(replicas))
                for n, replicas in enumerate(assignment)
            ],
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
        )
        try:
            response = await self._ask_controller(
                CreateTopicsRequest(topics=[wanted], timeout_ms=CREATION_TIMEOUT_MS)
            )
        except OSError as error:
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"The controller cannot be reached: {error}"
            ) from error
        code = ErrorCode.of(response.topics[0].error_code if response.topics else 0)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            if code is ErrorCode.NOT_CONTROLLER:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            raise KafkaError(code, response.topics[0].error_message)

    async def _delete(self, name: str, topic_id: Uuid | None) -> TopicImage:
        if topic_id is not None:
            known = self.by_id.get(topic_id)
            if known is None or known.name != name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        image = self.must_get(name)
        with contextlib.suppress(NodeExists):  # somebody else has asked for it
            await self._write([Create(znodes.delete_topic_path(name), make_parents=True)])
        await self._until(lambda: image.topic_id not in self.by_id)
        return image

    async def _add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]]
    ) -> TopicImage:
        before = self.must_get(name)
        if increase(before, count) != len(assignment):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic has been given partitions meanwhile and has {len(before.partitions)} now.",
            )
        await self._write_more_partitions(before, count, assignment)
        await self._until(lambda: self._is_led(before.topic_id, count))
        return self.must_get(name)

    async def _write_more_partitions(
        self, before: TopicImage, count: int, assignment: Sequence[Sequence[int]]
    ) -> None:
        path = znodes.topic_path(before.name)
        try:
            data, stat = await self._store.get(path)
            stored = znodes.decode_topic(data)
            if len(stored.partitions) + len(assignment) != count:
                raise BadVersion(path)
            replicas = [stored.partitions[n] for n in sorted(stored.partitions)]
            encoded = znodes.encode_topic(before.topic_id, [*replicas, *assignment])
            await self._write([SetData(path, encoded, stat.version)])
        except (BadVersion, NoNode):
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Topic has been changed meanwhile."
            ) from None
        except StoreError as error:
            raise _not_written() from error

    # The store

    async def _exists(self, path: str) -> bool:
        try:
            return await self._store.exists(path) is not None
        except StoreError as error:
            raise _not_written() from error

    async def _write(self, operations: Sequence[Operation]) -> None:
        try:
            await self._store.multi(operations)
        except (NodeExists, NoNode, BadVersion):
            raise
        except StoreError as error:
            raise _not_written() from error

    # Waiting

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Until the controller has said so; KafkaError if it does not."""
        if is_so():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (is_so, future)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(future, CHANGE_TIMEOUT_S)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        finally:
            self._waiting.remove(entry)

    def _wake(self) -> None:
        for is_so, future in self._waiting:
            if not future.done() and is_so():
                future.set_result(None)


def _image_of(row: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        row.partition_index,
        row.leader,
        row.leader_epoch,
        row.replicas,
        row.isr,
        row.zk_version,
        tuple(row.offline_replicas),
    )


def _unknown(partition: int) -> PartitionImage:
    """A partition that the controller has not told of yet, below one that it has."""
    return PartitionImage(partition, NO_LEADER, -1, [], [], NO_STATE)


def _not_written() -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata could not be written.")
