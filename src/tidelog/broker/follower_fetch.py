"""Fetch as followers send it: what this broker leads, up to the log end.

The offset a follower asks for says what it holds: it moves the high watermark and the in-sync set
before anything is read, so the answer carries the newest high watermark. Without news the fetch
waits, up to max_wait_ms. Records leave as slices of the segment file, as for consumers, and
fetch.max.bytes bounds the answer as it does theirs: both as in Kafka. A former
life of the follower, whose session is over and whose id another has by now, is not listened to:
STALE_BROKER_EPOCH; Kafka over ZooKeeper would take its position for the other's.
See `replication.follower_session` for what is looked at, and how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.fetch_metadata import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.replication.follower_session import FollowerAnswer, FollowerRow, FollowerSession
from tidelog.replication.partition import LogReadInfo, Partition
from tidelog.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.broker.cluster_member import ClusterMember
    from tidelog.broker.context import ClientConnection, RequestContext
    from tidelog.clock import TimerHandle

LATE_S = 0.001  # to the deadline: not worth waiting for


def handle(
    context: RequestContext, request: FetchRequest, replica_id: int, cluster: ClusterMember
) -> FetchResponse | Pending[FetchResponse]:
    now_ms = cluster.host.now_ms()
    follower = cluster.host.follower(replica_id)
    try:
        if request.replica_state is not None:
            follower.note_fetch(request.replica_state.replica_epoch)
        session = _session(context, request, replica_id, cluster)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    named = session.update(request, context.api_version)
    finder = _Finder(context.broker)
    for entry in named:
        session.note(entry, finder.find, now_ms)
    session.maybe_expand_isrs(cluster.host.alter_partition)
    follower.last_fetch_ms = now_ms
    fetch = _FollowerFetch(context, request, session)
    answer = session.read_news(fetch.max_bytes)
    if fetch.is_satisfied(answer):
        return fetch.response(answer)
    return fetch.wait(answer.bytes_read)


def _session(
    context: RequestContext, request: FetchRequest, replica_id: int, cluster: ClusterMember
) -> FollowerSession:
    sessions = cluster.follower_sessions
    follower = cluster.host.follower(replica_id)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close([request.session_id])
        if request.session_epoch == FINAL_EPOCH:
            return sessions.unnumbered(follower)
        session = sessions.open(follower)
        session_id = session.session_id

        def connection_closed(_: ClientConnection) -> None:
            sessions.close([session_id])

        context.connection.add_close_callback(connection_closed)
        return session
    known = sessions.get(request.session_id)
    if known is None or known.follower is not follower:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if known.epoch != request.session_epoch:
        raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    known.epoch = next_epoch(known.epoch)
    return known


class _Finder:
    __slots__ = ("_broker",)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def find(self, topic: str, topic_id: Uuid, index: int) -> Partition:
        if topic_id != ZERO_UUID:
            image = self._broker.topics.by_id.get(topic_id)
            if image is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = image.name
        partition = self._broker.replicas.leader(topic, index)
        if topic_id not in (ZERO_UUID, partition.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition


class _FollowerFetch:
    """One request, which may have to wait."""

    __slots__ = (
        "_answer",
        "_broker",
        "_deadline",
        "_handle",
        "_min_bytes",
        "_request",
        "_session",
        "max_bytes",
    )

    def __init__(
        self, context: RequestContext, request: FetchRequest, session: FollowerSession
    ) -> None:
        self._broker: Broker = context.broker
        self._request = request
        self._session = session
        self._handle: TimerHandle | None = None
        self.max_bytes = min(request.max_bytes, self._broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self.max_bytes)  # more would never come

    def is_satisfied(self, answer: FollowerAnswer) -> bool:
        return (
            answer.is_urgent
            or answer.is_full
            or answer.bytes_read >= max(self._min_bytes, 1)
            or self._request.max_wait_ms <= 0
            or not self._session.partitions
        )

    def response(self, answer: FollowerAnswer) -> FetchResponse:
        self._broker.replicas.replication_bytes_out += answer.bytes_read
        return FetchResponse(
            session_id=self._session.session_id, responses=_by_topic(self._session.tell(answer))
        )

    def wait(self, bytes_read: int) -> Pending[FetchResponse]:
        self._answer: Pending[FetchResponse] = Pending(self._give_up, self._hurry)
        self._deadline = self._broker.clock.monotonic() + self._request.max_wait_ms / 1000
        self._park(bytes_read)
        return self._answer

    def _park(self, bytes_read: int) -> None:
        remaining_s = max(self._deadline - self._broker.clock.monotonic(), 0.0)
        self._handle = self._broker.timer.call_later(remaining_s, self._look_again)
        self._session.wait(self._min_bytes - bytes_read, self._wake)

    def _wake(self) -> None:
        """On the next turn of the loop: a run of appends is answered once, its producers first."""
        assert self._handle is not None
        self._handle.cancel()
        self._handle = self._broker.timer.call_later(0.0, self._look_again)

    def _hurry(self) -> None:
        self._deadline = 0.0
        self._session.stop_waiting()
        self._wake()

    def _give_up(self) -> None:
        self._session.stop_waiting()
        if self._handle is not None:
            self._handle.cancel()

    def _look_again(self) -> None:
        self._answer.guard(self._look)

    def _look(self) -> None:
        self._session.stop_waiting()
        answer = self._session.read_news(self.max_bytes)
        late = self._deadline - self._broker.clock.monotonic() < LATE_S
        if late or self.is_satisfied(answer):
            self._answer.complete(self.response(answer))
        else:
            self._park(answer.bytes_read)


def _by_topic(rows: list[FollowerRow]) -> list[FetchableTopicResponse]:
    """Neighbours of one topic stand together."""
    topics: list[FetchableTopicResponse] = []
    for (name, topic_id, index), read in rows:
        row = _row(index, read)
        if topics and topics[-1].topic_id == topic_id and topics[-1].topic == name:
            topics[-1].partitions.append(row)
        else:
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[row]))
    return topics


def _row(index: int, read: LogReadInfo | ErrorCode) -> PartitionData:
    if isinstance(read, ErrorCode):
        return PartitionData(
            partition_index=index,
            error_code=read,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=b"",
        )
    row = PartitionData(
        partition_index=index,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        records=read.records,
    )
    if read.diverging_epoch is not None:
        epoch, end_offset = read.diverging_epoch
        row.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return row
