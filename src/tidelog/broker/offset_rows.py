"""The rows of an OffsetCommit or TxnOffsetCommit: which offsets are to be written, and the errors.

Many rows are checked, and their records encoded, in slices; all are still written in one append. A
topic may be deleted between two slices. All rows are then checked again, because offsets must not
outlive their topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from tidelog.broker.bulky_answers import EncodedAnswer, answer_in_slices
from tidelog.coordinator.group.offsets import NO_EXPIRY, OffsetRecords
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.message import Message

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.controller.topics import TopicImage
    from tidelog.coordinator.group.offsets import NewOffset
    from tidelog.types import Uuid

ROWS_AT_ONCE: Final = 100  # more are looked at in slices
ROWS_PER_STEP: Final = 20


class HasErrorCode(Protocol):
    error_code: Any


class HasPartitions(Protocol):
    @property
    def partitions(self) -> Sequence[object]: ...


Row = TypeVar("Row", bound=HasErrorCode)
Response = TypeVar("Response", bound=Message)


class OffsetRows(Generic[Row, Response]):
    """Of one request; the handler's own class says how they are looked at and written."""

    __slots__ = (
        "_expire_timestamp_ms",
        "_group_id",
        "_metadata_max",
        "_now_ms",
        "_partition_count",
        "_topic",
        "_topic_ids",
        "context",
        "known",
        "offsets",
        "records",
    )

    def __init__(self, context: RequestContext, group_id: str, retention_ms: int = -1) -> None:
        broker = context.broker
        self.context = context
        self._group_id = group_id
        self._now_ms = broker.clock.time_ms()
        self._metadata_max = broker.groups.settings.offset_metadata_max_bytes
        self._expire_timestamp_ms = NO_EXPIRY
        if retention_ms != -1:
            self._expire_timestamp_ms = self._now_ms + retention_ms
        self.known: list[Row] = []  # of partitions that exist
        self.offsets: list[NewOffset] = []
        self.records: OffsetRecords | None = None  # those of `offsets`, if they are many
        self._topic_ids: dict[str, Uuid] = {}  # of the topics of `records`
        self._topic = ""  # whose rows are looked at
        self._partition_count = 0

    def look(self) -> Iterator[None]:
        """Looks at all rows; with `records`, there is a pause after each row and topic."""
        raise NotImplementedError

    def write(self) -> Response | Pending[Response]:
        """All that `look` has added, at once."""
        raise NotImplementedError

    def answer(
        self, topics: Sequence[HasPartitions]
    ) -> Response | Pending[Response] | Pending[EncodedAnswer]:
        count = len(topics)
        for topic in topics:
            count += len(topic.partitions)
        if count > ROWS_AT_ONCE:
            return answer_in_slices(self.context, self._look_in_slices(), self.write)
        for _ in self.look():
            pass
        return self.write()

    def _look_in_slices(self) -> Iterator[None]:
        self.records = OffsetRecords(self._group_id)
        while True:
            for count, _ in enumerate(self.look(), 1):
                if count % ROWS_PER_STEP == 0:
                    yield
            if not self._is_outdated():
                return
            self._forget()

    def look_again(self) -> None:
        """After a wait; that a topic goes just then is rare, so that this is done at once."""
        if self.records is None or self._is_outdated():
            self._forget()
            for _ in self.look():
                pass

    def _forget(self) -> None:
        self.known, self.offsets = [], []
        if self.records is not None:
            self.records, self._topic_ids = OffsetRecords(self._group_id), {}

    def _is_outdated(self) -> bool:
        topics = self.context.broker.topics.topics
        for name, topic_id in self._topic_ids.items():
            image = topics.get(name)
            if image is None or image.topic_id != topic_id:
                return True
        return False

    def begin_topic(self, image: TopicImage | None) -> None:
        """The rows that follow are of this topic, or of one that does not exist."""
        if image is None:
            self._partition_count = 0
            return
        self._topic = image.name
        self._partition_count = len(image.partitions)
        if self.records is not None:
            self._topic_ids[image.name] = image.topic_id

    def exists(self, index: int) -> bool:
        """The partition of the topic at hand."""
        return 0 <= index < self._partition_count

    def add(
        self,
        row: Row,
        index: int,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        commit_timestamp_ms: int = -1,
    ) -> None:
        """The row of a partition that `exists`."""
        self.known.append(row)
        metadata = metadata or ""
        if len(metadata) > self._metadata_max:
            row.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return
        if commit_timestamp_ms == -1:
            commit_timestamp_ms = self._now_ms
        new = (
            self._topic,
            index,
            offset,
            leader_epoch,
            metadata,
            commit_timestamp_ms,
            self._expire_timestamp_ms,
        )
        self.offsets.append(new)
        if self.records is not None:
            self.records.add(new)

    def fail(self, code: ErrorCode) -> None:
        for row in self.known:
            row.error_code = code
