"""The offsets a group has committed, those that wait for their transaction to end, and the records
of both.

    type 0, 1  OffsetCommitKey (group, topic, partition)  -> OffsetCommitValue

Offsets are written as version 3, or as version 1 where the commit named its own expiry, as Kafka
3.9 does. Versions that only newer Kafkas know (4, with topic ids) are read but not written: Kafka
3.9 can take over the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.protocol.errors import EncodeError
from tidelog.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE

NO_EXPIRY: Final = -1
PIECE: Final = 50

_ROWS_AT_ONCE: Final = 100


class CommittedOffset:
    """Never changed. No NamedTuple, because a commit makes one for each partition."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "log_offset",
        "metadata",
        "offset",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int,
        log_offset: int,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch  # -1 if the client did not say
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms  # only old clients (v2-v4) set it
        self.log_offset = log_offset  # where its record lies: the later one of two counts

    def _fields(self) -> tuple[int, int, str, int, int, int]:
        return (
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.commit_timestamp_ms,
            self.expire_timestamp_ms,
            self.log_offset,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommittedOffset):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"CommittedOffset{self._fields()}"


# An offset that is being decided on, as the kernel takes it: topic, partition, offset, leader
# epoch, metadata, commit and expiry timestamp.
NewOffset = tuple[str, int, int, int, str, int, int]


def written_at(log_offset: int, new: NewOffset) -> CommittedOffset:
    """As its record tells it."""
    _, _, offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = new
    if expire_timestamp_ms != NO_EXPIRY:
        leader_epoch = -1  # version 1 has none
    return CommittedOffset(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, log_offset
    )


class OffsetCommitter:
    """Who commits offsets, as the request names itself. No NamedTuple, because every commit makes
    one.
    """

    __slots__ = (
        "generation_id",
        "group_instance_id",
        "in_transaction",
        "knows_member_epochs",
        "member_id",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        knows_member_epochs: bool,
        in_transaction: bool = False,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.generation_id = generation_id  # of a member of a consumer group: its epoch
        self.knows_member_epochs = knows_member_epochs  # it may speak for such a member
        self.in_transaction = in_transaction


class GroupOffsets:
    """Changed by replaying alone."""

    __slots__ = ("_by_topic", "_unstable")

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}
        self._unstable: dict[int, dict[tuple[str, int], CommittedOffset]] = {}  # by producer id

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_topic.values())

    def copy(self) -> GroupOffsets:
        """As they are now, for a reader that takes its time."""
        copy = GroupOffsets()
        copy._by_topic = {topic: dict(rows) for topic, rows in self._by_topic.items()}
        copy._unstable = {producer: dict(rows) for producer, rows in self._unstable.items()}
        return copy

    @property
    def is_empty(self) -> bool:
        return not self._by_topic and not self._unstable

    def topics(self) -> dict[str, dict[int, CommittedOffset]]:
        return self._by_topic

    def pieces(self, topic: str) -> Iterator[dict[int, CommittedOffset]]:
        """Of a topic, a few partitions at a time, each piece as it is when it is asked for: some
        may have been removed or committed since the piece before. Where an offset waits for its
        transaction to end, the newest one counts.
        """
        partitions = dict.fromkeys(self._by_topic.get(topic, ()))
        partitions.update((n, None) for name, n in self.unstable_partitions() if name == topic)
        numbers = tuple(partitions)
        for start in range(0, len(numbers), PIECE):
            newest = ((n, self._newest(topic, n)) for n in numbers[start : start + PIECE])
            yield {n: committed for n, committed in newest if committed is not None}

    def _newest(self, topic: str, partition: int) -> CommittedOffset | None:
        """Committed or not."""
        newest = self.get(topic, partition)
        for staged in self._unstable.values():
            waiting = staged.get((topic, partition))
            if waiting is not None and (newest is None or newest.log_offset < waiting.log_offset):
                newest = waiting
        return newest

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(partition)

    def holds(self, topic: str, partition: int) -> bool:
        """Committed, or waiting for its transaction to end."""
        return self.get(topic, partition) is not None or self.is_unstable(topic, partition)

    def put_all(self, commit: list[NewOffset], log_offset: int) -> list[str]:
        """The records of these lie from `log_offset` on. Returns the topics of which it is the
        first.
        """
        new_topics: list[str] = []
        last_topic: str | None = None
        partitions: dict[int, CommittedOffset] = {}
        for new in commit:
            topic = new[0]
            if topic != last_topic:
                found = self._by_topic.get(topic)
                if found is None:
                    found = self._by_topic[topic] = {}
                    new_topics.append(topic)
                partitions, last_topic = found, topic
            partitions[new[1]] = written_at(log_offset, new)
            log_offset += 1
        return new_topics

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> bool:
        """Whether it is the first of its topic."""
        partitions = self._by_topic.get(topic)
        if partitions is None:
            self._by_topic[topic] = {partition: committed}
            return True
        partitions[partition] = committed
        return False

    def remove(self, topic: str, partition: int) -> bool:
        """Whether it was the last of its topic. Those that wait for a transaction go too, as in
        Kafka.
        """
        for producer_id in tuple(self._unstable):
            self.unstage(producer_id, topic, partition)
        partitions = self._by_topic.get(topic)
        if partitions is None:
            return False
        partitions.pop(partition, None)
        if partitions:
            return False
        del self._by_topic[topic]
        return True

    # Transactions

    def stage(
        self, producer_id: int, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Committed with the transaction, or not at all."""
        self._unstable.setdefault(producer_id, {})[topic, partition] = committed

    def unstage(self, producer_id: int, topic: str, partition: int) -> None:
        staged = self._unstable.get(producer_id)
        if staged is not None:
            staged.pop((topic, partition), None)
            if not staged:
                del self._unstable[producer_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> list[str]:
        """The topics of which it has committed the first offset."""
        staged = self._unstable.pop(producer_id, {})
        new_topics: list[str] = []
        if not committed:
            return new_topics
        for (topic, partition), offset in staged.items():
            present = self.get(topic, partition)
            if (present is None or present.log_offset < offset.log_offset) and self.put(
                topic, partition, offset
            ):
                new_topics.append(topic)
        return new_topics

    def is_unstable(self, topic: str, partition: int) -> bool:
        return bool(self._unstable) and any(
            (topic, partition) in staged for staged in self._unstable.values()
        )

    def unstable_partitions(self) -> Iterator[tuple[str, int]]:
        for staged in self._unstable.values():
            yield from staged


# Records


def commit_payload(group_id: str, commit: list[NewOffset], first_delta: int = 0) -> bytearray:
    """The records of a commit, or those from `first_delta` on. The first has the spare bytes of a
    batch's header before it.
    """
    try:
        return kernel.encode_offset_commits(
            group_id, commit, first_delta, 0 if first_delta else HEADER_SIZE
        )
    except ValueError as error:
        raise EncodeError(f"an offset of group {group_id}: {error}") from error


class OffsetRecords:
    """The records of one commit as they stand in a batch. The kernel encodes them as they come,
    because thousands take longer than the loop may be held. An EncodeError waits for whoever asks
    for the bytes.
    """

    __slots__ = ("_error", "_group_id", "_payload", "_rows", "count")

    def __init__(self, group_id: str) -> None:
        self.count = 0
        self._group_id = group_id
        self._rows: list[NewOffset] = []  # not encoded yet
        self._payload: bytearray | None = None  # those before them, if there are any
        self._error: EncodeError | None = None

    def add(self, new: NewOffset) -> None:
        self.count += 1
        self._rows.append(new)
        if len(self._rows) == _ROWS_AT_ONCE:
            self._encode()

    def _encode(self) -> None:
        rows, self._rows = self._rows, []
        try:
            encoded = commit_payload(self._group_id, rows, self.count - len(rows))
        except EncodeError as error:
            self._error = error
            return
        if self._payload is None:
            self._payload = encoded
        else:
            self._payload += encoded

    def payload(self) -> bytearray:
        """As `commit_payload` of all; gone from here."""
        if self._rows:
            self._encode()
        if self._error is not None:
            raise self._error
        payload, self._payload = self._payload, None
        assert payload is not None
        return payload


def committed_offset(value: OffsetCommitValue, log_offset: int) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        log_offset,
    )


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), None
    )
