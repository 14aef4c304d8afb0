"""Replicas of one partition on several brokers, without sockets: fetches travel as encoded messages
through a network that delivers, delays and loses them when a test says so.

Logs, partitions, fetchers, fetch sessions and the AlterPartitionManager are the real ones. The
controller is a few lines: it keeps the state of the partition, elects from the ISR and answers
AlterPartition.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from tests.support.clock import FakeClock
from tests.support.log_builder import TOPIC_ID, TOPIC_PARTITION, LogWorkshop
from tests.support.pending import unexpected
from tidelog.broker import follower_fetch
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.partition_log import PartitionLog
from tidelog.pending import Pending
from tidelog.protocol.message import Message
from tidelog.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.replication.alter_partition_manager import AlterPartitionManager
from tidelog.replication.follower_session import FollowerSessions
from tidelog.replication.partition import Partition, PartitionRegistration
from tidelog.replication.partition_host import PartitionHost
from tidelog.replication.replica_fetcher import FetcherSettings
from tidelog.replication.replica_fetcher_manager import ReplicaFetcherManager
from tidelog.replication.replication_throttle import ReplicationThrottles

LAG_MAX_MS = 5_000


class Link:
    """A follower's connection to its leader; mail on it is lost when it closes."""

    def __init__(self, cluster: ReplicaCluster, leader_id: int, follower_id: int) -> None:
        self._cluster = cluster
        self._leader_id = leader_id
        self._follower_id = follower_id
        self._failed: Callable[[OSError], object] | None = None
        self._closed_callbacks: list[Callable[[Any], object]] = []
        self.listener_name = "PLAINTEXT"
        self.open = True

    def add_close_callback(self, callback: Callable[[Any], object]) -> None:
        self._closed_callbacks.append(callback)

    def send(
        self,
        request: Message,
        version: int,
        timeout_s: float,
        answered: Callable[[Any], object],
        failed: Callable[[OSError], object],
    ) -> None:
        encoded = bytes(request.encode(version))
        self._failed = failed
        self._cluster.post(lambda: self._arrive(encoded, version, answered))

    def _arrive(self, encoded: bytes, version: int, answered: Callable[[Any], object]) -> None:
        leader = self._cluster.nodes[self._leader_id]
        if not self.open or not leader.is_up:
            self.break_off()
            return
        request = FetchRequest.decode(memoryview(encoded), 0, version)
        answer = leader.serve_fetch(request, self, self._follower_id, version)

        def respond(response: FetchResponse) -> None:
            parts = [
                bytes(part) if isinstance(part, (bytes, bytearray, memoryview)) else part.read()
                for part in response.encode_parts(version)
            ]
            frame = memoryview(bytearray(b"".join(parts)))

            def deliver() -> None:
                if self.open and self._cluster.nodes[self._follower_id].is_up:
                    self._failed = None
                    answered(FetchResponse.decode(frame, 0, version))

            self._cluster.post(deliver)

        if isinstance(answer, Pending):
            answer.then(respond, unexpected)
            self._closed_callbacks.append(lambda _: answer.abandon())
        else:
            respond(answer)

    async def call(self, request: Any, version: int, timeout_s: float) -> Any:
        leader = self._cluster.nodes[self._leader_id]
        if not self.open or not leader.is_up:
            raise ConnectionError("the leader is gone")
        return leader.list_offsets(request)

    def break_off(self) -> None:
        if self.open:
            self.close()
            failed, self._failed = self._failed, None
            if failed is not None and self._cluster.nodes[self._follower_id].is_up:
                failed(ConnectionError("the link broke"))

    def close(self, reason: str = "") -> None:
        self.open = False
        self._cluster.links.discard(self)
        callbacks, self._closed_callbacks = self._closed_callbacks, []
        for callback in callbacks:
            callback(self)


class Links:
    """The peers of one node."""

    def __init__(self, cluster: ReplicaCluster, follower_id: int) -> None:
        self._cluster = cluster
        self._follower_id = follower_id

    async def open_connection(self, broker_id: int, timeout_s: float) -> Link:
        if not self._cluster.nodes[broker_id].is_up:
            raise ConnectionError(f"broker {broker_id} is down")
        link = Link(self._cluster, broker_id, self._follower_id)
        self._cluster.links.add(link)
        return link


class NoFlusher:
    def flush(self, log: PartitionLog, callback: Callable[[OSError | None], object]) -> None:
        log.flush()
        callback(None)


class Node:
    """One broker with its replica; `crash` loses everything but the files."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int, directory: Path) -> None:
        self._cluster = cluster
        self.broker_id = broker_id
        self._workshop = LogWorkshop(directory, cluster.clock)
        directory.mkdir(exist_ok=True)
        self.is_up = False
        self.broker_epoch = -1
        self.partition: Partition
        self.host: PartitionHost

    def start(self) -> None:
        clock, loop = self._cluster.clock, asyncio.get_running_loop()
        is_new = not self._workshop.folder.exists()
        config = self._cluster.config
        log = self._workshop.create(config) if is_new else self._workshop.load(config)
        self.alter_partition_manager = AlterPartitionManager(
            self._cluster.alter_partition, lambda: -1, loop=loop, timer=clock
        )
        self.host = self.alter_partition_manager.host = PartitionHost(
            self.broker_id,
            clock,
            self.alter_partition_manager.submit,
            replica_lag_time_max_ms=LAG_MAX_MS,
        )
        self.throttles = ReplicationThrottles(BrokerConfig(), self.broker_id, clock)
        self.sessions = FollowerSessions(self._cluster.random_below, self.throttles.leader)
        settings = FetcherSettings(
            self.broker_id,
            lambda: self.broker_epoch,
            1,
            500,
            1,
            self._cluster.fetch_bytes,
            10 << 20,
            1000,
            30_000,
        )
        self.fetchers = ReplicaFetcherManager(
            settings,
            cast(Any, Links(self._cluster, self.broker_id)),
            cast(Any, NoFlusher()),
            self.throttles.follower,
            loop=loop,
            timer=clock,
        )
        self.partition = Partition(
            TOPIC_PARTITION,
            TOPIC_ID,
            log,
            leader_id=-1,
            leader_epoch=-1,
            replicas=(),
            isr=(),
            is_leader=False,
        )
        self.is_up = True

    def crash(self) -> None:
        self.is_up = False
        self.alter_partition_manager.close()
        self.fetchers.close()
        for link in [each for each in self._cluster.links if self.broker_id in each_end(each)]:
            link.break_off()

    def lose_its_disk(self) -> None:
        shutil.rmtree(self._workshop.folder)

    def obey(self, state: PartitionRegistration) -> None:
        """LeaderAndIsr."""
        if not self.is_up or state.leader_epoch <= self.partition.leader_epoch:
            return
        self.host.set_alive({node.broker_id for node in self._cluster.nodes.values() if node.is_up})
        if state.leader == self.broker_id:
            self.fetchers.unfollow(self.partition)
            self.partition.make_leader(state, self.host)
        else:
            self.partition.make_follower(state)
            if state.leader >= 0:
                self.fetchers.follow(self.partition)
            else:
                self.fetchers.unfollow(self.partition)

    def serve_fetch(
        self, request: FetchRequest, link: Link, follower_id: int, version: int
    ) -> FetchResponse | Pending[FetchResponse]:
        broker = SimpleNamespace(
            clock=self._cluster.clock,
            timer=self._cluster.clock,
            config=self._cluster.broker_config,
            topics=SimpleNamespace(by_id={TOPIC_ID: SimpleNamespace(name=TOPIC_PARTITION.topic)}),
            replicas=SimpleNamespace(leader=self._leader, replication_bytes_out=0),
        )
        context = SimpleNamespace(broker=broker, connection=link, api_version=version)
        cluster = SimpleNamespace(host=self.host, follower_sessions=self.sessions)
        return follower_fetch.handle(cast(Any, context), request, follower_id, cast(Any, cluster))

    def _leader(self, topic: str, index: int) -> Partition:
        if not self.partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.partition

    def list_offsets(self, request: Any) -> ListOffsetsResponse:
        row = request.topics[0].partitions[0]
        log = self.partition.log
        answer = ListOffsetsPartitionResponse(partition_index=row.partition_index)
        if not self.partition.is_leader:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            answer.offset = log.log_end_offset if row.timestamp == -1 else log.log_start_offset
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=TOPIC_PARTITION.topic, partitions=[answer])]
        )

    def bytes_up_to(self, offset: int) -> bytes:
        """The batches below `offset`, as they lie on disk."""
        log = self.partition.log
        position, data = log.log_start_offset, b""
        while position < offset:
            read = log.read(position, 1 << 20, up_to_offset=offset, min_one_batch=True)
            if read.records is None:
                break
            chunk = read.records.read()
            data += chunk
            position = next_offset(chunk)
        return data


def each_end(link: Link) -> tuple[int, int]:
    return link._leader_id, link._follower_id


def next_offset(batches: bytes) -> int:
    """The offset after the last whole batch."""
    position, end = 0, 0
    while position + 61 <= len(batches):
        size = 12 + int.from_bytes(batches[position + 8 : position + 12], "big")
        if position + size > len(batches):
            break
        base = int.from_bytes(batches[position : position + 8], "big")
        end = base + int.from_bytes(batches[position + 23 : position + 27], "big") + 1
        position += size
    return end


def values_in(batches: bytes) -> list[tuple[int, bytes]]:
    """(offset, value) of every record of batches that `ReplicaCluster.produce` made."""
    from tidelog.record import kernel
    from tidelog.record.columns import columns_of, part_of

    data = memoryview(batches)
    found: list[tuple[int, bytes]] = []
    _, _, rows = kernel.list_batches(data, 0, len(data), 1 << 31)
    for row in rows:
        batch = data[row.position : row.position + row.size]
        columns = columns_of([part_of(batch, row.attributes, row.base_offset, row.records_count)])
        for index in range(len(columns)):
            value = columns.value(index)
            assert value is not None
            found.append((columns.offsets[index], bytes(value)))
    return found


class ReplicaCluster:
    """Call it inside a running loop, and `await settle()` after whatever sets tasks going."""

    def __init__(
        self,
        directory: Path,
        *,
        broker_count: int = 3,
        config: LogConfig | None = None,
        random: Random | None = None,
        fetch_bytes: int = 1 << 20,
        broker_config: BrokerConfig | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.fetch_bytes = fetch_bytes  # replica.fetch.max.bytes
        self.broker_config = broker_config or BrokerConfig()
        self.config = config or LogConfig(min_insync_replicas=2)
        self.random_below = (random or Random(7)).randrange
        self.links: set[Link] = set()
        self.mail: list[Callable[[], object]] = []  # on its way, oldest first
        self.nodes = {
            number: Node(self, number, directory / f"broker-{number}")
            for number in range(1, broker_count + 1)
        }
        ids = tuple(self.nodes)
        self.state = PartitionRegistration(ids[0], 0, ids, ids, 0)

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.tell()

    # The network

    def post(self, delivery: Callable[[], object]) -> None:
        self.mail.append(delivery)

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def run(self, rounds: int = 50, advance_ms: int = 1) -> None:
        """Deliver everything, in order, for a while."""
        for _ in range(rounds):
            self.clock.advance(ms=advance_ms)
            mail, self.mail = self.mail, []
            for delivery in mail:
                delivery()
            await self.settle()

    # The controller

    @property
    def leader(self) -> Node:
        return self.nodes[self.state.leader]

    def tell(self) -> None:
        for node in self.nodes.values():
            node.obey(self.state)

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        state = self.state
        self.state = PartitionRegistration(
            leader,
            state.leader_epoch + 1,
            state.replicas,
            state.isr if isr is None else isr,
            state.partition_epoch + 1,
        )

    def fail_over(self, *, unclean: bool = False) -> None:
        """After a crash: the next replica of the ISR that is up; the last ISR stays if none is."""
        up = [number for number, node in self.nodes.items() if node.is_up]
        isr = tuple(number for number in self.state.isr if number in up)
        if isr:
            leader = self.state.leader if self.state.leader in isr else isr[0]
            self.elect(leader, isr)
        elif unclean and up:
            self.elect(up[0], (up[0],))
        else:
            self.elect(-1)

    def alter_partition(self, request: AlterPartitionRequest) -> Awaitable[AlterPartitionResponse]:
        """The answer comes with the mail."""
        future: asyncio.Future[AlterPartitionResponse]
        future = asyncio.get_running_loop().create_future()

        def decide() -> None:
            response = self._decide(request)
            self.post(lambda: None if future.done() else future.set_result(response))

        self.post(decide)
        return future

    def _decide(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        row = request.topics[0].partitions[0]
        answer = AlterPartitionResponsePartitionData(partition_index=row.partition_index)
        state = self.state
        isr = tuple(member.broker_id for member in row.new_isr_with_epochs)
        if row.leader_epoch != state.leader_epoch:
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif row.partition_epoch != state.partition_epoch:
            answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self.nodes[member].is_up for member in isr):
            answer.error_code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.commit_isr(isr)
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = list(isr), self.state.partition_epoch
        topic = AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=[answer])
        return AlterPartitionResponse(topics=[topic])

    def commit_isr(self, isr: tuple[int, ...]) -> None:
        self.state = self.state._replace(isr=isr, partition_epoch=self.state.partition_epoch + 1)

    # Clients

    def produce(self, values: list[bytes], outcomes: list[ErrorCode] | None = None) -> int:
        """With acks=all; the base offset. The outcome comes with the high watermark."""
        partition = self.leader.partition
        partition.require_enough_in_sync()
        now_ms = self.clock.time_ms()
        batch = batch_of([(None, value, (), now_ms) for value in values], codec=Codec.NONE)
        info = partition.append(memoryview(batch), 11)
        if outcomes is not None:
            partition.when_committed(info.last_offset + 1, outcomes.append)
        return info.base_offset
