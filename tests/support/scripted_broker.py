"""Brokers on loopback that answer as a test says: from the codec, late, torn, wrong, or not at all.

    async with ScriptedCluster(topics={"t": 2}) as cluster:
        cluster.broker(0).on(FetchRequest, FetchResponse(...), HangUp(), lambda request, v: ...)

Answers given to `on` are used up one by one, the last one for ever. A function is called with the
request and its version. Without a script, ApiVersions, Metadata and FindCoordinator are answered
from what the cluster holds, and any other request is a failure of the test (the broker hangs up and
`unexpected` names it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from struct import Struct
from typing import Any, NamedTuple, Self

from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import VERSIONS, ApiKey
from tidelog.protocol.header import decode_request_header, encode_response_header
from tidelog.protocol.message import Message
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.registry import request_class
from tidelog.types import TopicPartition, Uuid

_length = Struct(">i")


class Received(NamedTuple):
    """A request as it came; `connection` numbers the connections of a broker from 0."""

    request: Message
    version: int
    connection: int
    client_id: str | None


class HangUp:
    """Closes the connection instead of an answer."""


class NoAnswer:
    """Says nothing; the connection stays, and what is asked later waits behind it."""


class Late(NamedTuple):
    """The answer comes once `when` is set; later requests of the connection wait behind it."""

    when: asyncio.Event
    answer: Answer


class Torn(NamedTuple):
    """The first `size` bytes of the answer's frame, then the end of the connection."""

    answer: Message
    size: int


class Misnumbered(NamedTuple):
    """The answer under the correlation id of no request."""

    answer: Message


class Raw(NamedTuple):
    """These bytes as they are."""

    data: bytes


Answer = Message | HangUp | NoAnswer | Late | Torn | Misnumbered | Raw
Script = Answer | Callable[[Any, int], Answer]


class ScriptedBroker:
    """`versions` are the ranges it offers, the codec's unless given."""

    def __init__(
        self,
        cluster: ScriptedCluster,
        node_id: int,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = "127.0.0.1"
        self.port = -1
        self.rack: str | None = None
        self.versions = (
            {key: (row.min_version, row.max_version) for key, row in VERSIONS.items()}
            if versions is None
            else dict(versions)
        )
        self.received: list[Received] = []
        self.connections = 0  # ever made
        self.unexpected: list[str] = []
        self._scripts: dict[int, list[Script]] = {}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def on(self, request: type[Message], *answers: Script) -> None:
        self._scripts[request.API_KEY] = list(answers)

    def requests(self, kind: type[Message]) -> list[Any]:
        return [each.request for each in self.received if isinstance(each.request, kind)]

    async def start(self) -> None:
        """On a free port, or on the one it had before."""
        self._server = await asyncio.start_server(
            self._serve, self.host, max(self.port, 0), start_serving=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuses connections, and ends those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hang_up(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            while await self._serve_one(reader, writer, number):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._open.discard(writer)
            writer.transport.abort()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        (length,) = _length.unpack(await reader.readexactly(4))
        frame = memoryview(await reader.readexactly(length))
        header = decode_request_header(frame)
        kind = request_class(header.api_key)
        request = kind.decode(frame, header.body_position, header.api_version)
        self.received.append(Received(request, header.api_version, number, header.client_id))
        answer = self._answer(request, header.api_version)
        while isinstance(answer, Late):
            await answer.when.wait()
            answer = answer.answer
        if isinstance(answer, NoAnswer):
            await asyncio.Event().wait()
            return False
        if isinstance(answer, HangUp):
            return False
        if isinstance(answer, Raw):
            writer.write(answer.data)
            return True
        correlation_id = header.correlation_id
        message = answer.answer if isinstance(answer, Torn | Misnumbered) else answer
        if isinstance(answer, Misnumbered):
            correlation_id += 1_000
        version = header.api_version
        if isinstance(message, ApiVersionsResponse) and message.error_code:
            version = 0
        body = encode_response_header(correlation_id, header.api_key, header.api_version)
        data = body + bytes(message.encode(version))
        data = _length.pack(len(data)) + data
        writer.write(data[: answer.size] if isinstance(answer, Torn) else data)
        await writer.drain()
        return not isinstance(answer, Torn)

    def _answer(self, request: Message, version: int) -> Answer:
        script = self._scripts.get(request.API_KEY)
        if script:
            step = script.pop(0) if len(script) > 1 else script[0]
            return step(request, version) if callable(step) else step
        if isinstance(request, ApiVersionsRequest):
            return self.offered(version)
        if isinstance(request, MetadataRequest):
            return self.cluster.metadata(request)
        if isinstance(request, FindCoordinatorRequest):
            return self.cluster.find_coordinator(request, version)
        self.unexpected.append(f"{type(request).__name__} v{version}")
        return HangUp()

    def offered(self, version: int) -> ApiVersionsResponse:
        low, high = self.versions[ApiKey.API_VERSIONS]
        known = low <= version <= high
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(api_key=key, min_version=row[0], max_version=row[1])
                for key, row in self.versions.items()
                if known or key == ApiKey.API_VERSIONS
            ],
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.cluster.features.items()
            ],
            finalized_features_epoch=1,
        )


class ScriptedCluster:
    """`topics` gives the number of partitions of each; a partition's leader is its index modulo the
    brokers unless `lead` says otherwise. Tests change everything as they go."""

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        self.brokers = {
            node_id: ScriptedBroker(self, node_id, versions) for node_id in range(brokers)
        }
        self.topics: dict[str, int] = dict(topics or {})
        self.topic_ids: dict[str, Uuid] = {name: Uuid.random() for name in self.topics}
        self.topic_errors: dict[str, ErrorCode] = {}
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.controller_id = 0
        self.cluster_id = "scripted"
        self.coordinator_id = 0
        self.creates_topics = False
        self.features: dict[str, int] = {}
        self.named: list[int] = list(self.brokers)  # those that metadata tells of

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(broker.stop() for broker in self.brokers.values()))
        unexpected = [name for broker in self.brokers.values() for name in broker.unexpected]
        assert not unexpected or exc[0] is not None, unexpected

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def broker(self, node_id: int = 0) -> ScriptedBroker:
        return self.brokers[node_id]

    def lead(self, partition: TopicPartition, node_id: int, epoch: int) -> None:
        self.leaders[partition] = (node_id, epoch)

    def create(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions
        self.topic_ids[topic] = Uuid.random()

    def leader(self, partition: TopicPartition) -> tuple[int, int]:
        return self.leaders.get(partition, (partition.partition % len(self.brokers), 0))

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            names = list(self.topics)
        else:
            names = [row.name or "" for row in request.topics]
        if self.creates_topics and request.allow_auto_topic_creation and request.topics is not None:
            for name in names:
                if name not in self.topics:
                    self.create(name, 1)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in self.brokers.values()
                if broker.node_id in self.named
            ],
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        error = self.topic_errors.get(name, ErrorCode.NONE)
        if not error and name not in self.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if error:
            return MetadataResponseTopic(name=name, error_code=error)
        partitions = []
        for index in range(self.topics[name]):
            leader_id, epoch = self.leader(TopicPartition(name, index))
            partitions.append(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader_id,
                    leader_epoch=epoch,
                    replica_nodes=list(self.brokers),
                    isr_nodes=list(self.brokers),
                )
            )
        return MetadataResponseTopic(
            name=name, topic_id=self.topic_ids[name], partitions=partitions
        )

    def find_coordinator(
        self, request: FindCoordinatorRequest, version: int
    ) -> FindCoordinatorResponse:
        broker = self.brokers[self.coordinator_id]
        if version >= 4:
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
                    for key in request.coordinator_keys
                ]
            )
        return FindCoordinatorResponse(node_id=broker.node_id, host=broker.host, port=broker.port)


def run(story: Callable[[], Coroutine[Any, Any, None]], within_s: float = 60.0) -> None:
    """Runs an asynchronous test; nothing it began may be left over."""

    async def bounded() -> None:
        async with asyncio.timeout(within_s):
            await story()
        # Handlers of connections that have just closed end in their own time.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=30)
        left = [task for task in others if not task.done()]
        assert not left, left

    asyncio.run(bounded())
