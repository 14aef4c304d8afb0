"""A fetcher: copies partitions from one leader, over one connection of its own.

One Fetch is under way at a time, for all partitions, in an incremental session (KIP-227): a request
names what has changed since the last one. What arrives is appended in the turn it arrived in,
straight from the receive buffer, and the next request leaves in that turn too; its offsets tell
the leader what this broker holds now. An answer that takes longer than a slice is copied, as far as
it is left, and appended in the turns after; the next request leaves when all of it is.

    the leader answers for a partition            then
    records, offsets                              append, take over high watermark and log start
    diverging epoch                               truncate there, ask again; if much has to be read
                                                  first, let a thread read, and ask before as well
    OFFSET_OUT_OF_RANGE                           ask where its log begins and ends; truncate,
                                                  begin anew or go on
    FENCED_LEADER_EPOCH                           stop: LeaderAndIsr will tell of the new epoch
    UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, pause, and ask again
    other errors, and records that are not good,
    or cannot be written

A pause is RETRY_MS at first, twice as long each time, and replica.fetch.backoff.ms at most: when
leadership moves, the new leader often hears of it a moment later than its followers. After a lost
connection, and the same pause, the session begins anew. So it does when a partition is to be asked
for while the leader lets a Fetch without it wait: the leader would not hear of it before that ends.
Where logs demand a flush (flush.messages) the next Fetch waits for it: the leader counts what it is
told. Partitions that a throttle holds back are left out of the session until it lets them on.

No error ends a fetcher. One that nobody expected is logged (`supervisor`); if it is a partition's,
that one is paused, otherwise the fetcher is, and begins a new session on a new connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.protocol.fetch_metadata import INITIAL_EPOCH, NO_SESSION, next_epoch
from tidelog.protocol.listed_timestamps import EARLIEST, LATEST
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.replication.followed_partition import FollowedPartition
from tidelog.slices import SLICE_S
from tidelog.supervisor import attempt, attempted
from tidelog.types import Uuid

if TYPE_CHECKING:
    from tidelog.clock import Timer, TimerHandle
    from tidelog.config.broker import BrokerConfig
    from tidelog.log.segment.segment_walk import Walk
    from tidelog.network.peer_connection import PeerConnection
    from tidelog.network.peer_directory import PeerDirectory
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition
    from tidelog.replication.replication_throttle import ReplicationThrottle

logger = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
LIST_OFFSETS_VERSION: Final = 9
RETRY_MS: Final = 10
IMPATIENCE_MS: Final = 10
THROTTLED_PAUSE_S: Final = (0.05, 1.0)  # at least and at most

Key = tuple[Uuid, int]
Row = tuple[Key, PartitionData]


class FetcherSettings(NamedTuple):
    """Kafka's replica.* keys, and who this broker is."""

    broker_id: int
    broker_epoch: Callable[[], int]
    fetchers: int  # num.replica.fetchers: towards each leader
    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_ms: int
    socket_timeout_ms: int

    @classmethod
    def of(
        cls, config: BrokerConfig, broker_id: int, broker_epoch: Callable[[], int]
    ) -> FetcherSettings:
        return cls(
            broker_id,
            broker_epoch,
            config.get_int("num.replica.fetchers"),
            config.get_int("replica.fetch.wait.max.ms"),
            config.get_int("replica.fetch.min.bytes"),
            config.get_int("replica.fetch.max.bytes"),
            config.get_int("replica.fetch.response.max.bytes"),
            config.get_int("replica.fetch.backoff.ms"),
            config.get_int("replica.socket.timeout.ms"),
        )


class ReplicaFetcher:
    """Touched only on the broker loop. Idle while it follows nothing."""

    def __init__(
        self,
        leader_id: int,
        settings: FetcherSettings,
        peers: PeerDirectory,
        flusher: LogFlusher,
        throttle: ReplicationThrottle,
        *,
        loop: asyncio.AbstractEventLoop,
        timer: Timer,
    ) -> None:
        self.leader_id = leader_id
        self._settings = settings
        self._peers = peers
        self._flusher = flusher
        self._throttle = throttle
        self._loop = loop
        self._timer = timer
        self._followed: dict[Key, FollowedPartition] = {}
        self._changed: dict[Key, None] = {}  # to be named in the next request
        self._forgotten: dict[Key, None] = {}  # in the session, to be taken out of it
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[PeerConnection] | None = None
        self._is_under_way = False  # a Fetch is not answered, or its answer not taken, yet
        self._fetch_count = 0
        self._impatient_of = -1  # the Fetch that is not waited for much longer
        self._backoff: TimerHandle | None = None
        self._failures = 0  # to reach the leader, one after another
        self._flushing = 0  # logs; the next Fetch waits for them
        self._walking = asyncio.Lock()  # one at a time: flushes use the same threads
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # What to follow

    @property
    def followed(self) -> Collection[FollowedPartition]:
        return self._followed.values()

    def follow(self, partition: Partition) -> None:
        """From its log end on, under the epoch it has now."""
        key = _key(partition)
        self._followed[key] = FollowedPartition(partition)
        self._name_soon(key)

    def unfollow(self, partition: Partition) -> None:
        key = _key(partition)
        if self._followed.pop(key, None) is not None:
            self._leave_out(key)

    def close(self) -> None:
        self._closed = True
        self._followed.clear()
        if self._backoff is not None:
            self._backoff.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks:
            task.cancel()
        if self._connection is not None:
            self._connection.close()

    def _leave_out(self, key: Key) -> None:
        self._changed.pop(key, None)
        if self._session_id != NO_SESSION:
            self._forgotten[key] = None

    def _name_soon(self, key: Key) -> None:
        """Ask for the partition, even if the leader lets a Fetch without it wait."""
        self._changed[key] = None
        self._forgotten.pop(key, None)
        if not self._is_under_way:
            self._go_on()
        elif self._impatient_of != self._fetch_count:
            self._impatient_of = self._fetch_count
            waiting = partial(self._start_over, self._fetch_count)
            self._timer.call_later(IMPATIENCE_MS / 1000, waiting)

    def _start_over(self, fetch_count: int) -> None:
        """Begin a new session, unless the Fetch under way has been answered meanwhile."""
        if self._is_under_way and self._fetch_count == fetch_count and self._connection is not None:
            connection, self._connection = self._connection, None
            self._is_under_way = False
            self._fetch_count += 1
            connection.close()
            self._end_session()
            self._go_on()

    # Asking

    def _go_on(self) -> None:
        if self._closed or self._is_under_way or self._flushing or not self._followed:
            return
        if self._backoff is not None:
            return
        if self._connection is not None and self._connection.open:
            fetch = partial(self._fetch, self._connection)
            if attempt(f"a Fetch from broker {self.leader_id}", fetch) is not None:
                self._start_anew()
        elif self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
            self._connecting.add_done_callback(self._connected)

    async def _connect(self) -> PeerConnection:
        return await self._peers.open_connection(
            self.leader_id, self._settings.socket_timeout_ms / 1000
        )

    def _connected(self, done: asyncio.Task[PeerConnection]) -> None:
        self._connecting = None
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._lost(error)
            return
        self._connection = done.result()
        self._failures = 0
        self._end_session()
        if self._closed:
            self._connection.close()
        self._go_on()

    def _start_anew(self) -> None:
        """Begin a new session after an unexpected error, because what is known of the old one may
        be wrong.
        """
        connection, self._connection = self._connection, None
        self._is_under_way = False
        self._fetch_count += 1
        if connection is not None:
            connection.close()
        self._end_session()
        self._pause_all()

    def _fetch(self, connection: PeerConnection) -> None:
        settings = self._settings
        if self._throttle.quota.is_exceeded:
            self._hold_back()
        if all(followed.is_paused for followed in self._followed.values()):
            return  # whoever goes on first asks
        topics = self._named()
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=settings.broker_id, replica_epoch=settings.broker_epoch()
            ),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten_topics_data=_by_topic(self._forgotten),
        )
        self._changed.clear()
        self._forgotten.clear()
        self._is_under_way = True
        self._fetch_count += 1
        connection.send(
            request,
            FETCH_VERSION,
            settings.socket_timeout_ms / 1000,
            self._answered,
            partial(self._broken, self._fetch_count),
        )

    def _named(self) -> list[FetchTopic]:
        topics: dict[Uuid, FetchTopic] = {}
        wanted = self._followed if self._session_epoch == INITIAL_EPOCH else self._changed
        max_bytes = self._settings.max_bytes
        for key in tuple(wanted):
            followed = self._followed[key]
            if followed.is_paused or not self._is_ready(key, followed):
                continue
            followed.told = position = followed.position()
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0])
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=min(max_bytes, followed.partition.log.config.segment_bytes),
                )
            )
        return list(topics.values())

    def _is_ready(self, key: Key, followed: FollowedPartition) -> bool:
        prepare = partial(self._prepare, key, followed)
        if attempt(f"following {followed.partition.topic_partition}", prepare) is not None:
            self._pause(key, followed)
        return not followed.is_paused

    def _prepare(self, key: Key, followed: FollowedPartition) -> None:
        try:
            followed.prepare()
        except WalkDue as due:
            self._walk_first(key, followed, due.walk)

    # Answers

    def _answered(self, response: FetchResponse) -> None:
        if self._closed:
            self._is_under_way = False
            return
        rows: deque[Row] = deque()
        if self._attempt(partial(self._take_answer, response, rows)):
            self._take_slice(rows)
        for _, waiting in rows:
            if waiting.records:
                waiting.records = memoryview(bytes(waiting.records))  # the buffer is used again

    def _take_slice(self, rows: deque[Row]) -> None:
        if not self._attempt(partial(self._take_some, rows)):
            return
        if rows:
            self._timer.call_later(0.0, partial(self._take_more, rows, self._fetch_count))
            return
        self._is_under_way = False
        self._go_on()

    def _take_more(self, rows: deque[Row], fetch_count: int) -> None:
        """Drop the rows if the session has begun anew meanwhile, because it asks for them again."""
        if not self._closed and self._fetch_count == fetch_count:
            self._take_slice(rows)

    def _attempt(self, step: Callable[[], object]) -> bool:
        if attempt(f"taking a Fetch answer of broker {self.leader_id}", step) is None:
            return True
        self._start_anew()
        return False

    def _take_some(self, rows: deque[Row]) -> None:
        until = perf_counter() + SLICE_S
        while rows:
            key, row = rows.popleft()
            followed = self._followed.get(key)
            if followed is not None:
                self._take_row_or_pause(key, followed, row)
            if perf_counter() >= until:
                return

    def _take_answer(self, response: FetchResponse, rows: deque[Row]) -> None:
        if response.error_code:
            logger.info(
                "fetch session begins anew",
                extra={"leader": self.leader_id, "error": ErrorCode.of(response.error_code).name},
            )
            self._end_session()
            if response.error_code not in _SESSION_ERRORS:
                self._pause_all()
                return
        else:
            self._continue_session(response.session_id)
            for topic in response.responses:
                for row in topic.partitions:
                    rows.append(((topic.topic_id, row.partition_index), row))

    def _continue_session(self, session_id: int) -> None:
        if self._session_epoch == INITIAL_EPOCH:
            self._session_id = session_id
        if self._session_id == NO_SESSION:
            return
        self._session_epoch = next_epoch(self._session_epoch)

    def _end_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._changed.clear()
        self._forgotten.clear()

    def _take_row_or_pause(self, key: Key, followed: FollowedPartition, row: PartitionData) -> None:
        take = partial(self._take_row, key, followed, row)
        error = attempt(f"following {followed.partition.topic_partition}", take)
        if error is not None and self._followed.get(key) is followed and not followed.is_paused:
            self._pause(key, followed)

    def _take_row(self, key: Key, followed: FollowedPartition, row: PartitionData) -> None:
        partition = followed.partition
        if followed.told is None or followed.told.fetch_offset != partition.log.log_end_offset:
            self._changed[key] = None
            return  # an answer to what was asked before the log was cut
        try:
            if row.error_code:
                self._take_error(key, followed, ErrorCode.of(row.error_code))
                return
            if row.diverging_epoch is not None and row.diverging_epoch.epoch >= 0:
                followed.truncate(row.diverging_epoch)
                if followed.position() == followed.told:
                    self._pause(key, followed)  # asking the same again would not end
                    return
            else:
                size_bytes = followed.append(row)
                followed.failures = 0
                if size_bytes and self._throttle.covers(partition):
                    self._throttle.quota.spend(size_bytes)
        except WalkDue as due:
            self._walk_first(key, followed, due.walk)
            return
        except KafkaError as error:
            logger.error(
                "cannot follow",
                extra={
                    "partition": str(partition.topic_partition),
                    "leader": self.leader_id,
                    "error": error.message or error.code.name,
                },
            )
            self._pause(key, followed)
            return
        if partition.must_flush_before_ack:
            self._flush(key, followed)
        elif followed.position() != followed.told:
            self._changed[key] = None

    def _take_error(self, key: Key, followed: FollowedPartition, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave_out(key)
            followed.is_paused = True
            self._run(self._find_range(key, followed))
            return
        logger.info(
            "the leader does not answer for a partition",
            extra={
                "partition": str(followed.partition.topic_partition),
                "leader": self.leader_id,
                "error": code.name,
            },
        )
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            del self._followed[key]
            self._leave_out(key)
        else:
            self._pause(key, followed)

    # Pauses

    def _walk_first(self, key: Key, followed: FollowedPartition, walk: Walk) -> None:
        """A thread reads what a cut needs. Then the leader is asked again, and if it still wants
        the cut, there is no more to be read.
        """
        followed.is_paused = True
        self._leave_out(key)
        self._run(self._walk(key, followed, walk))

    async def _walk(self, key: Key, followed: FollowedPartition, walk: Walk) -> None:
        async def made() -> None:
            async with self._walking:
                await self._loop.run_in_executor(None, walk.run)

        if await attempted(f"reading {walk.path} before it is cut", made) is None:
            self._resume(key, followed)
        elif self._followed.get(key) is followed:
            self._pause(key, followed)

    def _pause(self, key: Key, followed: FollowedPartition) -> None:
        followed.is_paused = True
        self._leave_out(key)
        delay_s = self._pause_s(followed.failures)
        followed.failures += 1
        self._timer.call_later(delay_s, partial(self._resume, key, followed))

    def _pause_s(self, failures: int) -> float:
        return min(RETRY_MS << min(failures, 20), self._settings.backoff_ms) / 1000

    def _resume(self, key: Key, followed: FollowedPartition) -> None:
        followed.is_paused = False
        if self._followed.get(key) is followed:
            self._name_soon(key)

    def _hold_back(self) -> None:
        """The quota is exceeded: those that are behind have to wait, if they are throttled."""
        least_s, most_s = THROTTLED_PAUSE_S
        delay_s = min(max(self._throttle.quota.wait_s(), least_s), most_s)
        for key, followed in self._followed.items():
            is_asked_for = followed.is_behind and not followed.is_paused
            if is_asked_for and self._throttle.covers(followed.partition):
                followed.is_paused = True
                self._leave_out(key)
                self._timer.call_later(delay_s, partial(self._let_on, key, followed))

    def _let_on(self, key: Key, followed: FollowedPartition) -> None:
        """With the next Fetch; one that waits at the leader is not given up for it."""
        followed.is_paused = False
        if self._followed.get(key) is followed:
            self._changed[key] = None
            self._forgotten.pop(key, None)
            self._go_on()

    def _flush(self, key: Key, followed: FollowedPartition) -> None:
        """The leader counts what it is told as held, so flush first where that is demanded."""

        def flushed(error: OSError | None) -> None:
            self._flushing -= 1
            if self._followed.get(key) is followed:
                if error is None:
                    self._changed[key] = None
                else:
                    self._pause(key, followed)
            self._go_on()

        self._flushing += 1
        try:
            self._flusher.flush(followed.partition.log, flushed)
        except BaseException:
            self._flushing -= 1
            raise

    def _pause_all(self) -> None:
        if self._backoff is None and not self._closed:
            delay_s = self._pause_s(self._failures)
            self._failures += 1
            self._backoff = self._timer.call_later(delay_s, self._try_again)

    def _try_again(self) -> None:
        self._backoff = None
        self._go_on()

    def _broken(self, fetch_count: int, error: OSError) -> None:
        if self._fetch_count == fetch_count:  # else given up by ourselves
            self._is_under_way = False
            self._lost(error)

    def _lost(self, error: BaseException) -> None:
        if self._closed:
            return
        logger.info(
            "the leader cannot be reached",
            exc_info=None if isinstance(error, OSError) else error,
            extra={"leader": self.leader_id, "error": str(error), "partitions": len(self)},
        )
        self._end_session()
        self._pause_all()

    # Out of range

    async def _find_range(self, key: Key, followed: FollowedPartition) -> None:
        settle = partial(self._settle_range, key, followed)
        if await attempted(f"the range of {followed.partition.topic_partition}", settle) is None:
            return
        if self._followed.get(key) is followed:
            self._pause(key, followed)

    async def _settle_range(self, key: Key, followed: FollowedPartition) -> None:
        """Where the leader's log begins and ends, and what that means for this one."""
        log = followed.partition.log
        try:
            leader_end_offset = await self._leader_offset(followed, LATEST)
            if leader_end_offset >= log.log_end_offset:
                leader_start_offset = await self._leader_offset(followed, EARLIEST)
        except (OSError, KafkaError) as error:
            logger.info(
                "the leader does not tell its range",
                extra={"partition": str(log.topic_partition), "error": str(error)},
            )
            if self._followed.get(key) is followed:
                self._pause(key, followed)
            return
        if self._followed.get(key) is not followed:
            return  # led otherwise by now
        try:
            if leader_end_offset < log.log_end_offset:
                followed.truncate_to_leader_end(leader_end_offset)
            elif leader_start_offset > log.log_end_offset:
                followed.start_over_at(leader_start_offset)
            else:  # it was out of range, and is not any more
                self._pause(key, followed)
                return
        except WalkDue as due:
            self._walk_first(key, followed, due.walk)
            return
        except KafkaError:
            self._pause(key, followed)
            return
        self._resume(key, followed)

    async def _leader_offset(self, followed: FollowedPartition, timestamp: int) -> int:
        if self._connection is None:
            raise ConnectionError("not connected")
        topic, index = followed.partition.topic_partition
        row = ListOffsetsPartition(
            partition_index=index,
            current_leader_epoch=followed.leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._settings.broker_id,
            topics=[ListOffsetsTopic(name=topic, partitions=[row])],
        )
        response = await self._connection.call(
            request, LIST_OFFSETS_VERSION, self._settings.socket_timeout_ms / 1000
        )
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(ErrorCode.of(found.error_code))
        offset: int = found.offset
        return offset

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def _key(partition: Partition) -> Key:
    return (partition.topic_id, partition.topic_partition.partition)


def _by_topic(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(index)
    return list(topics.values())
