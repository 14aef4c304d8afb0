"""What a leader remembers of a follower's fetcher (an incremental fetch session, KIP-227).

A session knows every partition that the fetcher copies, where it stands there, and which of them
have news. A request names only what has changed and an answer looks only at what has news, so idle
partitions cost nothing, however many there are. News is

- that the fetcher has named the partition: its position is noted, checked and read on from;
- that the partition has grown: this wakes a fetch that waits, once there are min_bytes;
- that it is led no more, or records were deleted: this is answered at once;
- that the high watermark has moved: told with the next answer, not worth an answer of its own.

Partitions where the follower is not in sync yet are looked at with every request, named or not:
what kept it out may have passed.

What a throttle withholds from a follower that is not in sync stays news, and is looked at again
with the next request. So does a partition whose next batch has no room in the answer: a follower
that is sent a piece of a batch, or nothing, does not name the partition again. It is among the
oldest news by then, and the first batch of an answer always has room.

A session ends with its connection. A fetcher that has lost its session begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.fetch_metadata import (
    FIRST_FETCH_WITH_TOPIC_IDS,
    NO_SESSION,
    SESSION_ID_MAX,
)
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest
from tidelog.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from tidelog.replication.partition import EpochEndOffset, LogReadInfo, Partition
    from tidelog.replication.partition_host import AlterPartition, FollowerBroker
    from tidelog.replication.remote_replica import RemoteReplica
    from tidelog.replication.replication_throttle import ReplicationThrottle

Key = tuple[str, Uuid, int]
FollowerRow = tuple[Key, "LogReadInfo | ErrorCode"]  # what a follower is told of a partition
Find = Callable[[str, Uuid, int], "Partition"]  # raises KafkaError


class SessionPartition:
    """One partition of a session: where the fetcher stands, as it last said."""

    __slots__ = (
        "_session",
        "current_leader_epoch",
        "divergence",
        "error",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "remote",
    )

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self._session = session
        self.key = key
        self.partition: Partition | None = None
        self.remote: RemoteReplica | None = None  # whose listener this is
        self.error = ErrorCode.NONE
        self.divergence: EpochEndOffset | None = None

    def want(self, row: FetchPartition) -> None:
        self.fetch_offset = row.fetch_offset
        self.log_start_offset = row.log_start_offset
        self.current_leader_epoch = max(row.current_leader_epoch, -1)
        self.last_fetched_epoch = row.last_fetched_epoch
        self.max_bytes = row.partition_max_bytes

    def has_news(self, size_bytes: int) -> None:
        self._session.news_of(self, size_bytes)

    def high_watermark_moved(self) -> None:
        self._session.news.setdefault(self, False)

    def leave(self) -> None:
        if self.remote is not None and self.remote.listener is self:
            self.remote.listener = None


class FollowerSession:
    """Touched only on the broker loop."""

    __slots__ = (
        "_bytes_missing",
        "_out_of_sync",
        "_throttle",
        "_wake",
        "epoch",
        "follower",
        "news",
        "partitions",
        "session_id",
    )

    def __init__(
        self, session_id: int, follower: FollowerBroker, throttle: ReplicationThrottle
    ) -> None:
        self.session_id = session_id
        self.follower = follower
        self._throttle = throttle
        self.epoch = 1  # that the next request must carry
        self.partitions: dict[Key, SessionPartition] = {}
        # To be looked at, oldest first, and whether it is to be told at once.
        self.news: dict[SessionPartition, bool] = {}
        self._out_of_sync: dict[SessionPartition, None] = {}
        self._wake: Callable[[], object] | None = None  # of a fetch that waits
        self._bytes_missing = 0

    # Requests

    def update(self, request: FetchRequest, version: int) -> list[SessionPartition]:
        """What the request names, in its order."""
        by_id = version >= FIRST_FETCH_WITH_TOPIC_IDS
        named = []
        for topic in request.topics:
            name, topic_id = ("", topic.topic_id) if by_id else (topic.topic, ZERO_UUID)
            for row in topic.partitions:
                key = (name, topic_id, row.partition)
                entry = self.partitions.get(key)
                if entry is None:
                    entry = self.partitions[key] = SessionPartition(self, key)
                entry.want(row)
                named.append(entry)
        for forgotten in request.forgotten_topics_data:
            name, topic_id = ("", forgotten.topic_id) if by_id else (forgotten.topic, ZERO_UUID)
            for index in forgotten.partitions:
                entry = self.partitions.pop((name, topic_id, index), None)
                if entry is not None:
                    self.news.pop(entry, None)
                    entry.leave()
        return named

    def note(self, entry: SessionPartition, find: Find, now_ms: int) -> None:
        """Checks where the fetcher stands and counts it, if that can be; it is news either way."""
        self.news.setdefault(entry, False)
        entry.error, entry.divergence = ErrorCode.NONE, None
        try:
            entry.partition = partition = find(*entry.key)
            partition.require_leader_epoch(entry.current_leader_epoch)
            if entry.last_fetched_epoch >= 0:
                entry.divergence = partition.divergence(
                    entry.fetch_offset, entry.last_fetched_epoch
                )
            if entry.divergence is None:
                partition.note_follower_fetch(self.follower.broker_id, entry, now_ms)
                assert partition.leadership is not None
                entry.remote = partition.leadership.remotes[self.follower.broker_id]
                entry.remote.listener = entry
                if not partition.leadership.is_surely_in_sync(self.follower.broker_id):
                    self._out_of_sync[entry] = None
        except KafkaError as error:
            entry.error = error.code

    def maybe_expand_isrs(self, alter_partition: AlterPartition) -> None:
        """Ask for a larger ISR where the follower has come far enough."""
        for entry in tuple(self._out_of_sync):
            partition, remote = entry.partition, entry.remote
            leadership = None if partition is None else partition.leadership
            if (
                partition is None
                or remote is None
                or leadership is None
                or leadership.remotes.get(remote.broker_id) is not remote
                or leadership.is_surely_in_sync(remote.broker_id)
                or remote.listener is not entry
            ):
                del self._out_of_sync[entry]
            elif leadership.maybe_expand_isr(remote):
                alter_partition(partition)

    def close(self) -> None:
        for entry in self.partitions.values():
            entry.leave()
        self.partitions.clear()
        self.news.clear()
        self._out_of_sync.clear()
        self._wake = None

    # Waiting

    def wait(self, bytes_missing: int, wake: Callable[[], object]) -> None:
        self._bytes_missing = bytes_missing
        self._wake = wake

    def stop_waiting(self) -> None:
        self._wake = None

    def news_of(self, entry: SessionPartition, size_bytes: int) -> None:
        if not size_bytes:
            self.news[entry] = True
        else:
            self.news.setdefault(entry, False)
        if self._wake is not None:
            self._bytes_missing -= size_bytes
            if self._bytes_missing <= 0 or not size_bytes:
                wake, self._wake = self._wake, None
                wake()

    # Answers

    def read_news(self, max_bytes: int) -> FollowerAnswer:
        answer, throttle = FollowerAnswer(), self._throttle
        told: list[SessionPartition] = []
        for entry, is_urgent in tuple(self.news.items()):
            if self._is_withheld(entry):
                continue
            row = _read(entry, answer, max_bytes)
            if row is None:
                answer.is_full = True
                continue  # it stays news
            told.append(entry)
            answer.is_urgent = answer.is_urgent or is_urgent
            answer.add(entry, row)
            if (
                not isinstance(row, ErrorCode)
                and row.records
                and entry.partition is not None
                and throttle.covers(entry.partition)
            ):
                answer.throttled_bytes += len(row.records)
        answer.told = told
        return answer

    def tell(self, answer: FollowerAnswer) -> list[FollowerRow]:
        """The answer leaves: what it tells is no news any more."""
        for entry in answer.told:
            self.news.pop(entry, None)
        if answer.throttled_bytes:
            self._throttle.quota.spend(answer.throttled_bytes)
        return answer.rows

    def _is_withheld(self, entry: SessionPartition) -> bool:
        partition = entry.partition
        leadership = None if partition is None else partition.leadership
        if partition is None or leadership is None or entry.divergence is not None:
            return False
        return self.follower.broker_id not in leadership.isr and self._throttle.withholds(partition)


class FollowerAnswer:
    """What a follower is to be told, the oldest news first."""

    __slots__ = ("bytes_read", "is_full", "is_urgent", "rows", "throttled_bytes", "told")

    def __init__(self) -> None:
        self.rows: list[FollowerRow] = []
        self.told: list[SessionPartition] = []
        self.bytes_read = 0
        self.throttled_bytes = 0  # of them, those that count for the throttle
        self.is_urgent = False  # holds what must not wait
        self.is_full = False  # there is news for which it had no room

    def add(self, entry: SessionPartition, row: LogReadInfo | ErrorCode) -> None:
        if isinstance(row, ErrorCode):
            self.is_urgent = True
        else:
            if row.diverging_epoch is not None:
                self.is_urgent = True
            self.bytes_read += len(row.records)
        self.rows.append((entry.key, row))


def _read(
    entry: SessionPartition, answer: FollowerAnswer, max_bytes: int
) -> LogReadInfo | ErrorCode | None:
    """None where the answer has no room for the next batch."""
    partition = entry.partition
    if entry.error is ErrorCode.NONE and (partition is None or not partition.is_leader):
        entry.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if entry.error is not ErrorCode.NONE or partition is None:
        return entry.error
    if entry.current_leader_epoch != partition.leader_epoch:
        # Others may have led since the fetcher said where it stands: this log may have been cut.
        try:
            partition.require_leader_epoch(entry.current_leader_epoch)
        except KafkaError as error:
            entry.error = error.code
            return entry.error
    if entry.divergence is not None:
        return partition.tell_divergence(entry.divergence)
    room = max(max_bytes - answer.bytes_read, 0)
    is_first = answer.bytes_read == 0
    is_behind = entry.fetch_offset < partition.log.log_end_offset
    if is_behind and not room and not is_first:
        return None
    try:
        row = partition.read_for_follower(
            entry.fetch_offset, min(entry.max_bytes, room), min_one_batch=is_first
        )
    except KafkaError as error:
        entry.error = error.code
        return entry.error
    if is_behind and not row.records and not is_first:
        return None
    return row


class FollowerSessions:
    """The sessions of all followers, by id; touched only on the broker loop."""

    def __init__(self, random_below: Callable[[int], int], throttle: ReplicationThrottle) -> None:
        self._random_below = random_below
        self._throttle = throttle
        self._sessions: dict[int, FollowerSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FollowerSession | None:
        return self._sessions.get(session_id)

    def open(self, follower: FollowerBroker) -> FollowerSession:
        session_id = 1 + self._random_below(SESSION_ID_MAX - 1)
        while session_id in self._sessions:
            session_id = 1 + self._random_below(SESSION_ID_MAX - 1)
        session = self._sessions[session_id] = FollowerSession(session_id, follower, self._throttle)
        return session

    def unnumbered(self, follower: FollowerBroker) -> FollowerSession:
        """For one request, and forgotten after it."""
        return FollowerSession(NO_SESSION, follower, self._throttle)

    def close(self, session_ids: Iterable[int]) -> None:
        for session_id in session_ids:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                session.close()
