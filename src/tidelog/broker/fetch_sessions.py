"""Incremental fetch sessions (KIP-227): the broker remembers what a client reads.

A full fetch (epoch 0) opens a session; later fetches of that session (epoch 1, 2, ...) name only
what changed, and the answers hold only partitions with something new. Epoch -1 wants no session.

| request            | session known, epoch right | otherwise                         |
|--------------------|----------------------------|-----------------------------------|
| epoch -1           | close it, answer in full   | answer in full                    |
| epoch 0            | close it, open a new one   | open a new one                    |
| epoch n > 0        | answer what changed        | FETCH_SESSION_ID_NOT_FOUND, or    |
|                    |                            | INVALID_FETCH_SESSION_EPOCH       |

The cache is bounded by max.incremental.fetch.session.cache.slots. A new session evicts one
unused for EVICTION_MS, or one that is older than that and no larger. Without room the client
gets session id 0 and goes on with full fetches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from tidelog.errors import ErrorCode
from tidelog.protocol.fetch_metadata import (
    FINAL_EPOCH,
    FIRST_FETCH_WITH_TOPIC_IDS,
    INITIAL_EPOCH,
    NO_SESSION,
    SESSION_ID_MAX,
    next_epoch,
)
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.types import ZERO_UUID, Uuid

EVICTION_MS: Final = 120_000

Key = tuple[str | Uuid, int]


class FetchedPartition:
    """What a client wants of one partition, and what it was last told."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, wanted: FetchPartition) -> None:
        self.topic = topic  # "" when the client names topics by id
        self.topic_id = topic_id
        self.index = wanted.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.want(wanted)

    def want(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        # As in Kafka, any epoch below 0 is none; other requests know -1 alone.
        self.current_leader_epoch = max(wanted.current_leader_epoch, -1)
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def tell(self, row: PartitionData) -> bool:
        """Remember what the client is told; False when it holds nothing new."""
        news = (
            bool(row.records)
            or row.error_code != 0
            or row.high_watermark != self.high_watermark
            or row.log_start_offset != self.log_start_offset
            or row.preferred_read_replica != -1
            or row.diverging_epoch is not None
        )
        self.high_watermark = row.high_watermark
        self.log_start_offset = row.log_start_offset
        if row.error_code:
            self.high_watermark = -1  # so that the next answer tells it again
        return news


FetchedRow = tuple[FetchedPartition, PartitionData]


class FetchSession:
    __slots__ = (
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, FetchedPartition],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions  # in the order in which they are to be read
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = 1  # the epoch that the next request must carry


class FetchPlan:
    """One request, resolved: which partitions to read and how to put the answer."""

    __slots__ = ("_sessions", "_uses_topic_ids", "error", "opens_session", "partitions", "session")

    def __init__(
        self,
        sessions: FetchSessions,
        partitions: list[FetchedPartition],
        *,
        uses_topic_ids: bool,
        session: FetchSession | None = None,
        opens_session: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self._sessions = sessions
        self._uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        self.session = session
        self.opens_session = opens_session
        self.error = error

    def answer(self, rows: list[FetchedRow]) -> FetchResponse:
        session_id = NO_SESSION
        if self.opens_session:
            session_id = self._sessions.open(self.partitions, rows, self._uses_topic_ids)
        elif self.session is not None:
            session_id = self.session.session_id
            rows = self._news(self.session, rows)
        return FetchResponse(
            error_code=self.error, session_id=session_id, responses=_by_topic(rows)
        )

    def throttled(self) -> FetchResponse:
        """The answer to a client that is to have nothing now.

        Its session goes on; a session that it wanted to open does not begin.
        """
        session_id = NO_SESSION if self.session is None else self.session.session_id
        return FetchResponse(error_code=self.error, session_id=session_id, responses=[])

    def _news(self, session: FetchSession, rows: list[FetchedRow]) -> list[FetchedRow]:
        news = [entry for entry in rows if entry[0].tell(entry[1])]
        for wanted, row in news:
            # What got records goes to the end of the line, so that no partition starves.
            key = _key(wanted, session.uses_topic_ids)
            if row.records and key in session.partitions:
                session.partitions[key] = session.partitions.pop(key)
        return news


class FetchSessions:
    """The cache of sessions; touched only on the broker loop."""

    def __init__(self, slots_max: int, time_ms: int = 0) -> None:
        self.slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}
        self._now_ms = time_ms

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int, now_ms: int) -> FetchPlan:
        self._now_ms = now_ms
        by_id = version >= FIRST_FETCH_WITH_TOPIC_IDS
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            partitions = list(_named(request, by_id).values())
            opens = request.session_epoch == INITIAL_EPOCH
            return FetchPlan(self, partitions, uses_topic_ids=by_id, opens_session=opens)
        session = self._sessions.get(request.session_id)
        if session is None:
            return self._refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return self._refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != by_id:
            return self._refuse(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request)
        if not session.partitions:
            del self._sessions[session.session_id]
            return FetchPlan(self, [], uses_topic_ids=by_id)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        partitions = list(session.partitions.values())
        return FetchPlan(self, partitions, uses_topic_ids=by_id, session=session)

    def _refuse(self, error: ErrorCode) -> FetchPlan:
        return FetchPlan(self, [], uses_topic_ids=False, error=error)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        known = session.partitions
        for key, wanted in _named(request, session.uses_topic_ids).items():
            cached = known.get(key)
            if cached is None:
                known[key] = wanted
            else:
                wanted.high_watermark = cached.high_watermark
                wanted.log_start_offset = cached.log_start_offset
                known[key] = wanted
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if session.uses_topic_ids else topic.topic
            for index in topic.partitions:
                known.pop((name, index), None)

    def open(
        self, partitions: list[FetchedPartition], rows: list[FetchedRow], uses_topic_ids: bool
    ) -> int:
        """The id of a new session that remembers this answer; NO_SESSION where there is no room."""
        for wanted, row in rows:
            wanted.tell(row)
        if not self._try_evict(len(partitions)):
            return NO_SESSION
        session_id = random.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = random.randint(1, SESSION_ID_MAX)
        by_key = {_key(wanted, uses_topic_ids): wanted for wanted in partitions}
        self._sessions[session_id] = FetchSession(session_id, by_key, uses_topic_ids, self._now_ms)
        return session_id

    def _try_evict(self, size: int) -> bool:
        """Whether there is room for a session of this size, now or after an eviction."""
        if len(self._sessions) < self.slots_max:
            return True
        stalest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        if stalest is None:
            return False
        if self._now_ms - stalest.last_used_ms <= EVICTION_MS:
            settled = [
                session
                for session in self._sessions.values()
                if self._now_ms - session.created_ms > EVICTION_MS
            ]
            stalest = min(settled, key=lambda s: len(s.partitions), default=None)
            if stalest is None or len(stalest.partitions) > size:
                return False
        del self._sessions[stalest.session_id]
        return True


def _key(wanted: FetchedPartition, uses_topic_ids: bool) -> Key:
    return (wanted.topic_id if uses_topic_ids else wanted.topic, wanted.index)


def _named(request: FetchRequest, uses_topic_ids: bool) -> dict[Key, FetchedPartition]:
    """The partitions the request names; of one named twice the last counts."""
    named: dict[Key, FetchedPartition] = {}
    for topic in request.topics:
        name, topic_id = ("", topic.topic_id) if uses_topic_ids else (topic.topic, ZERO_UUID)
        for row in topic.partitions:
            wanted = FetchedPartition(name, topic_id, row)
            named[_key(wanted, uses_topic_ids)] = wanted
    return named


def _by_topic(rows: Iterable[FetchedRow]) -> list[FetchableTopicResponse]:
    """Group neighbours of one topic, keeping the order in which partitions were read."""
    topics: list[FetchableTopicResponse] = []
    for wanted, row in rows:
        if topics and topics[-1].topic == wanted.topic and topics[-1].topic_id == wanted.topic_id:
            topics[-1].partitions.append(row)
        else:
            topics.append(
                FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=[row]
                )
            )
    return topics
