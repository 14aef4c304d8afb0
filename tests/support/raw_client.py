"""A client of one socket that sends exactly the bytes a test wants and shows exactly what came
back.

Requests are built with kafka-python's message classes, a stranger's codec with every version, or
packed by hand. Nothing is retried and nothing is hidden: a closed connection raises
`ClosedByBroker`.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from tidelog.protocol.header import encode_request_header, response_header_version
from tidelog.protocol.message import Message
from tidelog.protocol.primitives import skip_tags

Answer = TypeVar("Answer", bound=Message)

TIMEOUT_S = 60.0
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


class ClosedByBroker(ConnectionError):
    """The broker closed the connection instead of answering."""


class RawClient:
    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str | None = "raw",
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.correlation_id = 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def frame_of(self, request: Any) -> bytes:
        """The whole frame of a request, with a new correlation id."""
        self.correlation_id += 1
        request.with_header(correlation_id=self.correlation_id, client_id=self.client_id)
        return bytes(request.encode(header=True, framed=True))

    def send(self, request: Any) -> int:
        frame = self.frame_of(request)
        self.send_bytes(frame)
        return self.correlation_id

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ClosedByBroker(str(error)) from error

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def read_frame(self) -> bytes:
        return self._read_exactly(struct.unpack(">i", self._read_exactly(4))[0])

    def receive(self, request: Any) -> Any:
        """The answer to `request`, which must be the oldest one not answered yet."""
        frame = self.read_frame()
        response_class = request.header.get_response_class()
        response = response_class.decode(frame, header=True)
        assert response.header.correlation_id == request.header.correlation_id
        return response

    def call(self, request: Any) -> Any:
        self.send(request)
        return self.receive(request)

    def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        """By tidelog's own codec, for versions that the stranger's does not have."""
        self.correlation_id += 1
        header = encode_request_header(
            request.API_KEY, version, self.correlation_id, self.client_id
        )
        self.send_frame(bytes(header + request.encode(version)))
        frame = memoryview(self.read_frame())
        position = 4
        if response_header_version(request.API_KEY, version):
            position = skip_tags(frame, position)
        return response.decode(frame, position, version)

    def is_closed_by_broker(self, within_s: float = TIMEOUT_S) -> bool:
        """True once the broker closes; an answer instead is a failure of the test."""
        self.socket.settimeout(within_s)
        try:
            data = self.socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        assert data == b"", "the broker answered instead of closing"
        return True

    def _read_exactly(self, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            try:
                chunk = self.socket.recv(count - len(chunks))
            except ConnectionResetError as error:
                raise ClosedByBroker(str(error)) from error
            if not chunk:
                raise ClosedByBroker(f"after {len(chunks)} of {count} bytes")
            chunks += chunk
        return bytes(chunks)


def produce_request(
    topic: str,
    records: bytes | Mapping[int, bytes | None] | Sequence[tuple[int, bytes | None]] | None,
    *,
    acks: int = 1,
    version: int = 9,
    transactional_id: str | None = None,
    timeout_ms: int = 10_000,
) -> Any:
    """Records for partition 0, or for each partition of a mapping or a list of pairs."""
    if records is None or isinstance(records, bytes):
        records = [(0, records)]
    pairs = records.items() if isinstance(records, Mapping) else records
    partitions = [
        ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=data)
        for index, data in pairs
    ]
    return ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=partitions)],
    )


def produce(
    client: RawClient, topic: str, records: bytes | None, partition: int = 0, **options: Any
) -> Any:
    """The answer's row of the one partition."""
    response = client.call(produce_request(topic, {partition: records}, **options))
    (row,) = response.responses
    (partition_row,) = row.partition_responses
    return partition_row


def fetch_partition(partition: int, offset: int, *, max_bytes: int = 1 << 20, **fields: Any) -> Any:
    return FetchRequest.FetchTopic.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **fields
    )


def fetch_request(
    topic: str,
    offset: int | Sequence[Any] = 0,
    *,
    version: int = 11,
    topic_id: Any = None,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
    forgotten: Sequence[int] = (),
    current_leader_epoch: int = -1,
    no_topics: bool = False,
) -> Any:
    """A Fetch of partition 0 from `offset`, or of the rows given."""
    if isinstance(offset, int):
        rows = [
            fetch_partition(
                0, offset, max_bytes=partition_max_bytes, current_leader_epoch=current_leader_epoch
            )
        ]
    else:
        rows = list(offset)
    names = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
    forgotten_topics = (
        [FetchRequest.ForgottenTopic(partitions=list(forgotten), **names)] if forgotten else []
    )
    return FetchRequest(
        version=version,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[] if no_topics else [FetchRequest.FetchTopic(partitions=rows, **names)],
        forgotten_topics_data=forgotten_topics,
    )


def fetch(client: RawClient, topic: str, offset: int = 0, **options: Any) -> Any:
    """The answer's row of partition 0."""
    response = client.call(fetch_request(topic, offset, **options))
    (row,) = response.responses
    (partition_row,) = row.partitions
    return partition_row


def list_offset(
    client: RawClient, topic: str, timestamp: int, partition: int = 0, version: int = 7
) -> Any:
    request = ListOffsetsRequest(
        version=version,
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                        partition_index=partition, timestamp=timestamp, current_leader_epoch=-1
                    )
                ],
            )
        ],
    )
    return client.call(request).topics[0].partitions[0]


def create_topic(
    client: RawClient, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Creates the topic and returns when every partition has a leader."""
    kind = CreateTopicsRequest.CreatableTopic
    rows = [kind.CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
    response = client.call(
        CreateTopicsRequest(
            version=5,
            topics=[
                kind(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=rows,
                )
            ],
            timeout_ms=20_000,
            validate_only=False,
        )
    )
    assert response.topics[0].error_code == 0, response
    wait_for_leaders(client, topic, partitions)


def wait_for_leaders(
    client: RawClient, topic: str, partitions: int, timeout_s: float = TIMEOUT_S
) -> None:
    """Apache Kafka answers CreateTopics before its metadata, and then its log, know the topic."""
    deadline = time.monotonic() + timeout_s
    while True:
        row = topic_metadata(client, topic)
        known = row.error_code == 0 and len(row.partitions) == partitions
        if known and all(
            list_offset(client, topic, LATEST, index).error_code == 0 for index in range(partitions)
        ):
            return
        assert time.monotonic() < deadline, row
        time.sleep(0.02)


def metadata(
    client: RawClient, topics: Sequence[str] | None, *, version: int = 10, auto_create: bool = False
) -> Any:
    kind = MetadataRequest.MetadataRequestTopic
    rows = None if topics is None else [kind(name=name) for name in topics]
    return client.call(
        MetadataRequest(version=version, topics=rows, allow_auto_topic_creation=auto_create)
    )


def topic_metadata(client: RawClient, topic: str) -> Any:
    return metadata(client, [topic]).topics[0]


def topic_id(client: RawClient, topic: str) -> Any:
    return topic_metadata(client, topic).topic_id


def api_versions(client: RawClient) -> dict[int, tuple[int, int]]:
    response = client.call(ApiVersionsRequest(version=0))
    return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}


def new_producer_id(client: RawClient) -> tuple[int, int]:
    response = client.call(
        InitProducerIdRequest(version=2, transactional_id=None, transaction_timeout_ms=60_000)
    )
    assert response.error_code == 0, response
    return response.producer_id, response.producer_epoch
