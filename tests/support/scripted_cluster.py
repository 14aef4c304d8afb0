"""A small model of a Kafka cluster on loopback that fails exactly as a test tells it to.

Brokers keep the partitions' logs in common, so leadership may move without replication. The model
does what a client may rely on: it answers in order, checks leadership, numbers batches, and knows
an idempotent producer's last five batches (duplicates get their old offset, gaps get 45).

`on_request` is asked before every request and may answer with a `Fault`; `versions` are the API
versions it offers, so that an old release can be played.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.header import decode_request_header, encode_response_header
from tidelog.protocol.messages import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from tidelog.protocol.registry import request_class
from tidelog.record.batch import BatchHeader
from tidelog.testing.error_answers import READING, error_answer, with_error
from tidelog.types import Uuid

ALL_VERSIONS: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (0, 18),
    ApiKey.LIST_OFFSETS: (0, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (0, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
}
VERSIONS_OF_0_11: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 3),
    ApiKey.FETCH: (0, 5),
    ApiKey.LIST_OFFSETS: (0, 2),
    ApiKey.METADATA: (0, 4),
    ApiKey.OFFSET_COMMIT: (0, 3),
    ApiKey.FIND_COORDINATOR: (0, 1),
    ApiKey.API_VERSIONS: (0, 1),
    ApiKey.INIT_PRODUCER_ID: (0, 0),
}
REMEMBERED_BATCHES = 5


class Fault(NamedTuple):
    """What goes wrong with a request.

    applied: whether the broker does what was asked all the same.
    code: answered for every partition; None closes the connection instead.
    silent: neither an answer nor a close.
    """

    applied: bool = False
    code: ErrorCode | None = None
    silent: bool = False


CLOSE = Fault()
CLOSE_AFTER = Fault(applied=True)
SILENCE = Fault(silent=True)

OnRequest = Callable[[int, int, Any], Fault | None]


class Partition:
    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.next_offset = 0
        self.producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = {}  # epoch, batches

    def append(self, data: bytes, max_bytes: int) -> tuple[int, int]:
        """Error code and base offset."""
        if len(data) > max_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        header = BatchHeader(data)
        sequence, count = header.base_sequence, header.records_count
        if header.producer_id >= 0:
            epoch, known = self.producers.get(header.producer_id, (header.producer_epoch, []))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                known = []
            for first, last, base_offset in known:
                if (first, last) == (sequence, sequence + count - 1):
                    return ErrorCode.NONE, base_offset
            expected = known[-1][1] + 1 if known else 0
            if sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((sequence, sequence + count - 1, self.next_offset))
            self.producers[header.producer_id] = (header.producer_epoch, known)
            del known[:-REMEMBERED_BATCHES]
        batch = bytearray(data)
        base_offset = self.next_offset
        struct.pack_into(">qii", batch, 0, base_offset, header.batch_length, 0)
        self.batches.append(bytes(batch))
        self.next_offset += header.last_offset_delta + 1
        return ErrorCode.NONE, base_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = bytearray()
        for batch in self.batches:
            if BatchHeader(batch).last_offset >= offset and (
                not found or len(found) + len(batch) <= max_bytes
            ):
                found += batch
        return bytes(found)


class ScriptedCluster:
    def __init__(
        self,
        brokers: int = 1,
        *,
        versions: Mapping[ApiKey, tuple[int, int]] = ALL_VERSIONS,
        max_message_bytes: int = 1 << 20,
    ) -> None:
        self.versions = versions
        self.max_message_bytes = max_message_bytes
        self.topics: dict[str, list[Partition]] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.requests: list[tuple[int, int]] = []  # (broker, api key), in the order of arrival
        self.on_request: OnRequest = lambda broker_id, api_key, request: None
        self._lock = threading.Lock()
        self._next_producer_id = 100
        self._sockets: list[socket.socket] = []
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(brokers)]
        for broker_id in range(brokers):
            threading.Thread(target=self._accept, args=(broker_id,), daemon=True).start()

    def __enter__(self) -> ScriptedCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        for sock in [*self._listeners, *self._sockets]:
            close(sock)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{sock.getsockname()[1]}" for sock in self._listeners)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        brokers = len(self._listeners)
        self.topics[name] = [Partition(index % brokers) for index in range(partitions)]
        self.topic_ids[name] = Uuid.random()

    def hang_up(self) -> None:
        """Closes every connection."""
        for sock in self._sockets:
            close(sock)
        self._sockets.clear()

    def count(self, api_key: ApiKey) -> int:
        return sum(key == api_key for _, key in self.requests)

    def _accept(self, broker_id: int) -> None:
        while True:
            try:
                sock, _ = self._listeners[broker_id].accept()
            except OSError:
                return
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(broker_id, sock), daemon=True).start()

    def _serve(self, broker_id: int, sock: socket.socket) -> None:
        try:
            while frame := read_frame(sock):
                with self._lock:
                    answer = self._handle(broker_id, memoryview(frame))
                if answer is None:
                    break
                if answer:
                    self._send(sock, struct.pack(">i", len(answer)) + answer)
        except OSError:
            pass
        finally:
            close(sock)

    def _send(self, sock: socket.socket, frame: bytes) -> None:
        sock.sendall(frame)

    def _handle(self, broker_id: int, frame: memoryview) -> bytes | None:
        """The answer, b"" for none at all, None to close."""
        header = decode_request_header(frame)
        api_key, version = header.api_key, header.api_version
        low, high = self.versions.get(ApiKey(api_key), (1, 0))
        lead = encode_response_header(header.correlation_id, api_key, version)
        if not low <= version <= high:
            if api_key != ApiKey.API_VERSIONS:
                return None
            refusal = api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            return lead + bytes(refusal.encode(0))
        request = request_class(api_key).decode(frame, header.body_position, version)
        self.requests.append((broker_id, api_key))
        fault = self.on_request(broker_id, api_key, request)
        if fault is not None and fault.silent:
            return b""
        response: Any = None
        if fault is None or fault.applied:
            response = self._answer(broker_id, ApiKey(api_key), request)
        if fault is not None:
            if fault.code is None:
                return None
            response = self._failure(broker_id, ApiKey(api_key), request, fault.code)
        return lead + bytes(response.encode(version)) if response is not None else b""

    def _failure(self, broker_id: int, api_key: ApiKey, request: Any, code: ErrorCode) -> Any:
        """An answer with the same code for every partition asked for."""
        if api_key in READING:
            return with_error(self._answer(broker_id, api_key, request), code)
        return error_answer(api_key, request, code)

    def _answer(self, broker_id: int, api_key: ApiKey, request: Any) -> Any:
        return getattr(self, f"_{api_key.name.lower()}")(broker_id, request)

    def _partition(self, broker_id: int, name: str, topic_id: Uuid, index: int) -> Any:
        """The partition, or the error code of this broker for it."""
        if not name:
            names = [known for known, its_id in self.topic_ids.items() if its_id == topic_id]
            if not names:
                return ErrorCode.UNKNOWN_TOPIC_ID
            name = names[0]
        if name not in self.topics or index >= len(self.topics[name]):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self.topics[name][index]
        if partition.leader != broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition

    def _api_versions(self, broker_id: int, request: Any) -> Any:
        rows = [
            api_versions.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return api_versions.ApiVersionsResponse(api_keys=rows)

    def _metadata(self, broker_id: int, request: Any) -> Any:
        names = list(self.topics) if request.topics is None else [t.name for t in request.topics]
        topics = []
        for name in names:
            if name not in self.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(metadata.MetadataResponseTopic(error_code=code, name=name))
                continue
            rows = [
                metadata.MetadataResponsePartition(
                    partition_index=index, leader_id=partition.leader, leader_epoch=0
                )
                for index, partition in enumerate(self.topics[name])
            ]
            topics.append(
                metadata.MetadataResponseTopic(
                    name=name, topic_id=self.topic_ids[name], partitions=rows
                )
            )
        brokers = [
            metadata.MetadataResponseBroker(
                node_id=index, host="127.0.0.1", port=sock.getsockname()[1]
            )
            for index, sock in enumerate(self._listeners)
        ]
        return metadata.MetadataResponse(brokers=brokers, topics=topics, controller_id=0)

    def _init_producer_id(self, broker_id: int, request: Any) -> Any:
        self._next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            producer_id=self._next_producer_id, producer_epoch=0
        )

    def _produce(self, broker_id: int, request: Any) -> Any:
        topics = []
        for topic in request.topic_data:
            rows = []
            for row in topic.partition_data:
                found = self._partition(broker_id, topic.name, topic.topic_id, row.index)
                code, base_offset = found, -1
                if isinstance(found, Partition):
                    code, base_offset = found.append(bytes(row.records), self.max_message_bytes)
                rows.append(
                    produce.PartitionProduceResponse(
                        index=row.index, error_code=code, base_offset=base_offset
                    )
                )
            topics.append(
                produce.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            )
        return produce.ProduceResponse(responses=topics) if request.acks else None

    def _fetch(self, broker_id: int, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                found = self._partition(broker_id, topic.topic, topic.topic_id, row.partition)
                rows.append(self._fetch_row(found, row))
            topics.append(
                fetch.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=rows
                )
            )
        return fetch.FetchResponse(responses=topics)

    def _fetch_row(self, found: Any, row: Any) -> Any:
        index = row.partition
        if not isinstance(found, Partition):
            return fetch.PartitionData(partition_index=index, error_code=found, high_watermark=-1)
        if not found.log_start_offset <= row.fetch_offset <= found.next_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            return fetch.PartitionData(partition_index=index, error_code=code, high_watermark=-1)
        return fetch.PartitionData(
            partition_index=index,
            high_watermark=found.next_offset,
            last_stable_offset=found.next_offset,
            log_start_offset=found.log_start_offset,
            records=found.read(row.fetch_offset, row.partition_max_bytes),
        )

    def _list_offsets(self, broker_id: int, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                found = self._partition(broker_id, topic.name, Uuid(bytes(16)), row.partition_index)
                answer = list_offsets.ListOffsetsPartitionResponse(
                    partition_index=row.partition_index
                )
                if isinstance(found, Partition):
                    answer.offset = (
                        found.log_start_offset if row.timestamp == -2 else found.next_offset
                    )
                else:
                    answer.error_code = found
                rows.append(answer)
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _find_coordinator(self, broker_id: int, request: Any) -> Any:
        port = self._listeners[-1].getsockname()[1]
        if request.coordinator_keys:
            rows = [
                find_coordinator.Coordinator(key=key, node_id=0, host="127.0.0.1", port=port)
                for key in request.coordinator_keys
            ]
            return find_coordinator.FindCoordinatorResponse(coordinators=rows)
        return find_coordinator.FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=port)

    def _offset_commit(self, broker_id: int, request: Any) -> Any:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                place = request.group_id, topic.name, row.partition_index
                self.committed[place] = row.committed_offset
                rows.append(
                    offset_commit.OffsetCommitResponsePartition(partition_index=row.partition_index)
                )
            topics.append(offset_commit.OffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return offset_commit.OffsetCommitResponse(topics=topics)


def read_frame(sock: socket.socket) -> bytearray | None:
    lead = read_exactly(sock, 4)
    return None if lead is None else read_exactly(sock, struct.unpack(">i", lead)[0])


def read_exactly(sock: socket.socket, count: int) -> bytearray | None:
    data = bytearray()
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def close(sock: socket.socket) -> None:
    """Wakes whoever is blocked on it, too."""
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
