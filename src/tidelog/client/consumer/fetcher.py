"""Fetching in the background while the application works on what it was given.

Every broker that leads assigned partitions (or is the replica to read from, KIP-392) has a task
with one Fetch request in flight. It asks for all partitions that the application may read, each
from where the last answer ended, and stops when the application falls behind:

- of one partition at most two answers wait to be given out, and
- no request is sent while more than fetch.max.bytes wait over all partitions.

A request that left out a partition for the first reason would keep the connection busy for
fetch.max.wait.ms while the application waits for that very partition, so it is not sent at all.

What can happen to a partition in an answer
    records                   appended to the buffer; the next fetch goes on after them
    a cut batch only          asked for again with its size
    another replica to read   asked for there, until metadata.max.age.ms or an error
    OFFSET_OUT_OF_RANGE       from a follower: asked for at the leader; else, once everything before
                              is given out, auto.offset.reset decides
    a diverging epoch         the log was truncated: the same, at the offset where it parts
    not the leader and so on  metadata is refreshed and the partition asked for again
    anything else             raised by poll, once everything before is given out
A lost connection is waited out with retry.backoff.ms; nothing comes twice, because the next request
starts where the last answer ended.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.client.columns.batch_selection import select_batches
from tidelog.client.consumer.fetch_buffer import FetchedPartition, FetchFailure
from tidelog.client.consumer.fetch_session import FetchSession, SessionPartition
from tidelog.client.consumer.subscription_state import Position
from tidelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    CorruptRecordsFetched,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.backoff import Backoff
from tidelog.client.network.cluster import Purpose
from tidelog.client.network.metadata import LeaderAndEpoch, Node
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.clock import pause
from tidelog.config.client import READ_COMMITTED
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.types import NO_LEADER, ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.consumer.fetch_buffer import FetchBuffer
    from tidelog.client.consumer.fetch_session import SessionRequest
    from tidelog.client.consumer.positions import Positions
    from tidelog.client.consumer.subscription_state import PartitionState, SubscriptionState
    from tidelog.client.network.cluster import Cluster

log = logging.getLogger(__name__)

BUFFERED_MAX: Final = 2

_ISOLATION_VERSION = 4
_SESSION_VERSION = 7
_LEADER_EPOCH_VERSION = 9
_RACK_VERSION = 11
_LAST_EPOCH_VERSION = 12
_TOPIC_ID_VERSION = 13

_PASSING = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)


class Fetcher:
    """Owns the tasks of the brokers; lives on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        positions: Positions,
        on_news: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.subscription = subscription
        self.buffer = buffer
        self.positions = positions
        self.on_news = on_news
        self._brokers: dict[int, BrokerFetcher] = {}
        config = cluster.config
        self.bytes_max = config.integer("fetch.max.bytes")
        self.partition_bytes_max = config.integer("max.partition.fetch.bytes")
        self.min_bytes = config.integer("fetch.min.bytes")
        self.max_wait_ms = config.integer("fetch.max.wait.ms")
        self.check_crcs = config.flag("check.crcs")
        self.rack_id = config.text_or_none("client.rack") or ""
        self.isolation_level = config.isolation_level

    def wake(self) -> None:
        """Something may be fetched that could not before."""
        for node_id in self._wanted_nodes():
            if node_id not in self._brokers:
                self._brokers[node_id] = BrokerFetcher(self, node_id)
        for broker in self._brokers.values():
            broker.wake()

    def _wanted_nodes(self) -> set[int]:
        return {
            node_id
            for state in self.subscription.partitions.values()
            if state.is_fetchable and (node_id := self.node_of(state)) is not None
        }

    def node_of(self, state: PartitionState) -> int | None:
        """The broker to read from. If there is none, asks for metadata and returns None."""
        metadata = self.cluster.metadata
        preferred = state.preferred_replica_or_none(self.cluster.clock.monotonic())
        if preferred is not None:
            if preferred in metadata.brokers:
                return preferred
            state.forget_preferred_replica()
            self.cluster.refresh_soon()
        leader = metadata.leader_or_none(state.partition)
        if leader is None:
            self.cluster.refresh_soon()
            return None
        return leader.leader_id

    async def close(self) -> None:
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))


class BrokerFetcher:
    """One task, one request at a time, one fetch session."""

    def __init__(self, fetcher: Fetcher, node_id: int) -> None:
        self._fetcher = fetcher
        self._node_id = node_id
        self._cluster = fetcher.cluster
        self._session = FetchSession()
        self._awake = asyncio.Event()
        self._backoff = Backoff.of(fetcher.cluster.config, "retry.backoff.ms")
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._awake.set()

    async def close(self) -> None:
        """Ends the session, over a connection on which no fetch waits for records."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        closing = self._session.closing()
        if closing is None or self._node_id not in self._cluster.metadata.brokers:
            return
        try:
            async with asyncio.timeout(1.0):
                versions = await self._cluster.versions(self._node_id, Purpose.COORDINATION)
                version = versions.version(ApiKey.FETCH)
                await self._cluster.call(
                    self._node_id,
                    self._request(closing, version),
                    at_most=version,
                    purpose=Purpose.COORDINATION,
                )
        except (ClientError, TimeoutError) as problem:
            log.debug("fetch session with broker %d was not closed: %s", self._node_id, problem)

    async def _run(self) -> None:
        while True:
            self._awake.clear()
            asked = self._collect()
            if not asked:
                await self._awake.wait()
                continue
            try:
                is_fine = await self._fetch()
            except (AuthenticationFailed, UnsupportedByBroker) as problem:
                self._fail_all(asked, problem)
                await self._awake.wait()
                is_fine = False
            except ClientError as problem:
                self._lost(asked, problem)
                is_fine = False
            if is_fine:
                self._backoff.reset()
            else:
                await pause(self._cluster.timer, self._backoff.next_s())

    # Asking

    def _collect(self) -> dict[TopicPartition, PartitionState]:
        """All partitions to ask this broker for now; none while the application is behind."""
        fetcher = self._fetcher
        if fetcher.buffer.bytes >= max(fetcher.bytes_max, 1):
            return {}
        asked: dict[TopicPartition, PartitionState] = {}
        for partition, state in fetcher.subscription.partitions.items():
            if not state.is_fetchable or state.is_halted:
                continue
            if fetcher.node_of(state) != self._node_id:
                continue
            if state.buffered >= BUFFERED_MAX:
                return {}
            asked[partition] = state
        return asked

    async def _fetch(self) -> bool:
        """Sends one request. Returns whether the next one may follow at once."""
        versions = await self._cluster.versions(self._node_id)
        # A connection takes its time: meanwhile a partition may have lost its position, or have one
        # that is to be validated. What came of such a one would be dropped, and then be missing.
        asked = self._collect()
        if not asked:
            return True
        rows = {partition: self._row(state) for partition, state in asked.items()}
        has_ids = all(row.topic_id != ZERO_UUID for row in rows.values())
        at_most = None if has_ids else LAST_BY_NAME[ApiKey.FETCH]
        version = versions.version(ApiKey.FETCH, at_most)
        if version < _TOPIC_ID_VERSION:
            rows = {partition: row._replace(topic_id=ZERO_UUID) for partition, row in rows.items()}
        stretches = {partition: state.stretch for partition, state in asked.items()}
        prepared = self._session.prepare(rows, can_have_session=version >= _SESSION_VERSION)
        try:
            response = await self._cluster.call(
                self._node_id, self._request(prepared, version), at_most=version
            )
        except ClientError:
            self._session.failed()
            raise
        assert isinstance(response, FetchResponse), response
        return self._take(asked, rows, stretches, prepared, response)

    def _row(self, state: PartitionState) -> SessionPartition:
        position, leader = state.fetch_position, state.leader
        assert position is not None
        return SessionPartition(
            self._cluster.metadata.topic_id(state.partition.topic),
            position.offset,
            -1 if leader is None else leader.leader_epoch,
            position.offset_epoch,
            max(self._fetcher.partition_bytes_max, state.size_min),
        )

    def _request(self, prepared: SessionRequest, version: int) -> FetchRequest:
        fetcher = self._fetcher
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=fetcher.max_wait_ms,
            min_bytes=fetcher.min_bytes,
            topics=_topics_of(prepared, version),
        )
        if version >= 3:
            request.max_bytes = fetcher.bytes_max
        if version >= _ISOLATION_VERSION:
            request.isolation_level = fetcher.isolation_level
        if version >= _SESSION_VERSION:
            request.session_id = prepared.session_id
            request.session_epoch = prepared.session_epoch
            request.forgotten_topics_data = _forgotten_of(prepared, version)
        if version >= _RACK_VERSION:
            request.rack_id = fetcher.rack_id
        return request

    # Answers

    def _take(
        self,
        asked: dict[TopicPartition, PartitionState],
        rows: dict[TopicPartition, SessionPartition],
        stretches: dict[TopicPartition, int],
        prepared: SessionRequest,
        response: FetchResponse,
    ) -> bool:
        names = {row.topic_id: partition.topic for partition, row in rows.items()}
        answered: list[tuple[TopicPartition, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            answered += [
                (TopicPartition(name, row.partition_index), row) for row in topic.partitions
            ]
        is_fitting = self._session.answered(
            prepared, response, (partition for partition, _ in answered)
        )
        if not is_fitting:
            log.debug(
                "fetch session with broker %d begins anew, error code %d",
                self._node_id,
                response.error_code,
            )
            if response.error_code:
                self._cluster.refresh_soon()
            # A session that the broker has forgotten costs nothing; anything else may go on.
            return response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if response.node_endpoints:
            self._cluster.metadata.learn_nodes(
                Node(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints
            )
        is_fine = True
        has_news = False
        partitions = self._fetcher.subscription.partitions
        for partition, row in answered:
            state = asked[partition]
            if partitions.get(partition) is not state or state.stretch != stretches[partition]:
                continue
            before = state.fetched_count
            is_fine = self._take_partition(state, row) and is_fine
            has_news = has_news or state.fetched_count > before
        if has_news:
            self._fetcher.on_news()
        return is_fine

    def _take_partition(self, state: PartitionState, row: PartitionData) -> bool:
        if row.error_code:
            return self._take_error(state, row)
        if row.high_watermark >= 0:
            state.high_watermark = row.high_watermark
        if row.last_stable_offset >= 0:
            state.last_stable_offset = row.last_stable_offset
        if row.log_start_offset >= 0:
            state.log_start_offset = row.log_start_offset
        if row.diverging_epoch is not None and row.diverging_epoch.end_offset >= 0:
            self._halt(state, self._truncation(row))
            return True
        if row.preferred_read_replica >= 0:
            max_age_s = self._cluster.config.integer("metadata.max.age.ms") / 1000
            until = self._cluster.clock.monotonic() + max_age_s
            state.prefer_replica(row.preferred_read_replica, until)
            self._fetcher.wake()
        if row.records:
            self._take_records(state, row)
        return True

    def _take_records(self, state: PartitionState, row: PartitionData) -> None:
        position = state.fetch_position
        assert position is not None
        aborted = None
        if self._fetcher.isolation_level == READ_COMMITTED:
            aborted = row.aborted_transactions or ()
        try:
            selection = select_batches(
                state.partition, row.records, position.offset, 1 << 63, aborted
            )
            if selection.next_offset is None:
                state.size_min = max(selection.size_needed, 2 * state.size_min)
                self._fetcher.subscription.move_to_end(state.partition)
                return
            if selection.next_offset <= position.offset:
                raise CorruptRecordsFetched(
                    f"partition {state.partition}: a fetch from offset {position.offset} brought "
                    "only batches that end before it"
                )
        except CorruptRecordsFetched as problem:
            self._halt(state, _raising(problem))
            return
        end = Position(selection.next_offset, selection.last_epoch)
        state.fetched_to(end)
        self._fetcher.buffer.append(
            FetchedPartition(state, selection, end, check_crcs=self._fetcher.check_crcs)
        )

    def _take_error(self, state: PartitionState, row: PartitionData) -> bool:
        code = row.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.forget_preferred_replica() == NO_LEADER:
                self._halt(state, self._fetcher.positions.out_of_range)
            else:
                self._fetcher.wake()
            return True
        if code in _PASSING:
            self._learn_leader(state, row)
            state.forget_preferred_replica()
            self._fetcher.subscription.move_to_end(state.partition)
            return False
        self._halt(state, _raising(refused(f"fetch of partition {state.partition}", code)))
        return True

    def _learn_leader(self, state: PartitionState, row: PartitionData) -> None:
        """The broker may have named the new leader (KIP-951)."""
        told = row.current_leader
        if told is not None and told.leader_id != NO_LEADER:
            leader = LeaderAndEpoch(told.leader_id, told.leader_epoch)
            if self._cluster.metadata.learn_leader(state.partition, leader):
                self._fetcher.on_news()
                return
        self._cluster.refresh_soon()

    def _truncation(self, row: PartitionData) -> Callable[[PartitionState], None]:
        assert row.diverging_epoch is not None
        epoch, end_offset = row.diverging_epoch.epoch, row.diverging_epoch.end_offset

        def act(state: PartitionState) -> None:
            position = state.position
            if position is None or position.offset <= end_offset:
                # What is gone had been fetched and not been given out.
                state.seek(position or Position(end_offset, epoch))
            else:
                self._fetcher.positions.truncated(state, epoch, end_offset)

        return act

    def _halt(self, state: PartitionState, act: Callable[[PartitionState], None]) -> None:
        state.is_halted = True
        self._fetcher.buffer.append(FetchFailure(state, act))

    def _fail_all(self, asked: dict[TopicPartition, PartitionState], problem: ClientError) -> None:
        for state in asked.values():
            self._halt(state, _raising(problem))
        self._fetcher.on_news()

    def _lost(self, asked: dict[TopicPartition, PartitionState], problem: ClientError) -> None:
        log.debug("fetch from broker %d failed: %s", self._node_id, problem)
        for state in asked.values():
            if state.preferred_read_replica == self._node_id:
                state.forget_preferred_replica()
        self._cluster.refresh_soon()
        self._fetcher.wake()


def _raising(problem: ClientError) -> Callable[[PartitionState], None]:
    def act(state: PartitionState) -> None:
        # The next poll asks again, because rights may be granted and records mended.
        if state.position is not None:
            state.give_back(state.position)
        raise problem

    return act


def _topics_of(prepared: SessionRequest, version: int) -> list[FetchTopic]:
    topics: dict[tuple[str, Uuid], FetchTopic] = {}
    by_id = version >= _TOPIC_ID_VERSION
    for partition, row in prepared.sent.items():
        key = partition.topic, row.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = FetchTopic(partitions=[])
            if by_id:
                topic.topic_id = row.topic_id
            else:
                topic.topic = partition.topic
            topics[key] = topic
        asked = FetchPartition(
            partition=partition.partition,
            fetch_offset=row.fetch_offset,
            partition_max_bytes=row.partition_max_bytes,
        )
        if version >= _LEADER_EPOCH_VERSION:
            asked.current_leader_epoch = row.current_leader_epoch
        if version >= _LAST_EPOCH_VERSION:
            asked.last_fetched_epoch = row.last_fetched_epoch
        topic.partitions.append(asked)
    return list(topics.values())


def _forgotten_of(prepared: SessionRequest, version: int) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for partition, topic_id in prepared.forgotten.items():
        topic = topics.get((partition.topic, topic_id))
        if topic is None:
            topic = ForgottenTopic(partitions=[])
            if version >= _TOPIC_ID_VERSION:
                topic.topic_id = topic_id
            else:
                topic.topic = partition.topic
            topics[partition.topic, topic_id] = topic
        topic.partitions.append(partition.partition)
    return list(topics.values())
