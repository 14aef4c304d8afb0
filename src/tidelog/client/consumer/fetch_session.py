"""A fetch session with one broker (KIP-227): only what changed since the last request is sent. No
I/O.

    epoch  0           asks for a new session: every partition is named
    epoch  1, 2, ...   partitions that are new or have moved are named, and those to forget
    epoch -1           ends the session: every partition is named, nothing is remembered

The broker answers a full request with a session id, or with 0 when it keeps no session. An answer
to an incremental request leaves out partitions without news; an answer that names a partition which
is not in the session, or a full one that leaves one out, is refused and the next request is full.
A topic whose id changed, and a change between names and ids, also make the next request full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.errors import ErrorCode
from tidelog.types import ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.protocol.messages.fetch import FetchResponse

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
LAST_EPOCH: Final = 2**31 - 1

_SESSION_ERRORS = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
)


class SessionPartition(NamedTuple):
    """One partition of a request, all that the session remembers of it."""

    topic_id: Uuid
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    partition_max_bytes: int


class SessionRequest(NamedTuple):
    session_id: int
    session_epoch: int
    sent: dict[TopicPartition, SessionPartition]
    forgotten: dict[TopicPartition, Uuid]
    uses_topic_ids: bool


class FetchSession:
    """One for each broker; `prepare` a request, then tell how it went."""

    __slots__ = ("_epoch", "_id", "_partitions", "_used_topic_ids")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        # What the broker remembers.
        self._partitions: dict[TopicPartition, SessionPartition] = {}
        self._used_topic_ids = False

    @property
    def partitions(self) -> Mapping[TopicPartition, SessionPartition]:
        """Those of the request in flight, whether it named them or not."""
        return self._partitions

    @property
    def session_id(self) -> int:
        return self._id

    def prepare(
        self, wanted: dict[TopicPartition, SessionPartition], *, can_have_session: bool = True
    ) -> SessionRequest:
        uses_topic_ids = all(row.topic_id != ZERO_UUID for row in wanted.values())
        if not can_have_session:
            self._partitions = wanted
            return SessionRequest(NO_SESSION, FINAL_EPOCH, wanted, {}, uses_topic_ids)
        if wanted and uses_topic_ids != self._used_topic_ids and self._epoch != INITIAL_EPOCH:
            # The broker can keep a session by name or by id, not by both.
            self._epoch = INITIAL_EPOCH
        if self._epoch == INITIAL_EPOCH:
            session_id, self._partitions = self._id, wanted
            self._used_topic_ids = uses_topic_ids
            return SessionRequest(session_id, INITIAL_EPOCH, wanted, {}, uses_topic_ids)
        forgotten: dict[TopicPartition, Uuid] = {}
        for partition, row in self._partitions.items():
            now = wanted.get(partition)
            if now is None or now.topic_id != row.topic_id:
                forgotten[partition] = row.topic_id
        changed = {
            partition: row
            for partition, row in wanted.items()
            if self._partitions.get(partition) != row
        }
        self._partitions = wanted
        return SessionRequest(self._id, self._epoch, changed, forgotten, self._used_topic_ids)

    def closing(self) -> SessionRequest | None:
        """The request that ends the session, if there is one."""
        if self._id == NO_SESSION:
            return None
        request = SessionRequest(self._id, FINAL_EPOCH, {}, {}, self._used_topic_ids)
        self._restart(NO_SESSION)
        return request

    def answered(
        self, request: SessionRequest, response: FetchResponse, named: Iterable[TopicPartition]
    ) -> bool:
        """Whether the answer fits the request; `named` are the partitions in it."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._restart(NO_SESSION)
            elif response.error_code in _SESSION_ERRORS:
                # The id goes along, so that the broker drops the session.
                self._restart(self._id)
            return False
        names = set(named)
        if not names <= self._partitions.keys():
            self._restart(self._id)
            return False
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if names != self._partitions.keys() and names:
                self._restart(NO_SESSION)
                return False
            self._id = response.session_id
            self._epoch = INITIAL_EPOCH if response.session_id == NO_SESSION else 1
        elif response.session_id == NO_SESSION:
            self._restart(NO_SESSION)
        else:
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """No answer came, so nobody knows what the broker remembers of the session."""
        self._restart(self._id)

    def _restart(self, session_id: int) -> None:
        self._id = session_id
        self._epoch = INITIAL_EPOCH
