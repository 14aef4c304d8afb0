"""The offsets a group has committed, those that wait for their transaction to end, and the records
of both.

    type 0, 1  OffsetCommitKey (group, topic, partition)  -> OffsetCommitValue

Offsets are written as version 3, or as version 1 where the commit named its own expiry, as Kafka
3.9 does. Versions that only newer Kafkas know (4, with topic ids) are read but not written: Kafka
3.9 can take over the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from tidelog.coordinator.stored_record import CoordinatorRecord, EncodedRecord
from tidelog.protocol.errors import EncodeError
from tidelog.protocol.message import ENCODE_FAILURES
from tidelog.protocol.messages.classic_group_records import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.primitives import encode_string

NO_EXPIRY: Final = -1
PIECE: Final = 50
NOT_WRITTEN: Final = -1  # log_offset of an offset that is being decided on

_RECORD_VERSION: Final = 3
_RECORD_VERSION_WITH_EXPIRY: Final = 1
_RECORD_TYPE: Final = OffsetCommitKey.RECORD_TYPE.to_bytes(2, "big")
_pack_partition: Final = Struct(">i").pack
_pack_value_start: Final = Struct(">hqi").pack  # version, offset, leader epoch; then the metadata
_pack_value_end: Final = Struct(">q").pack  # commit timestamp
_pack_value_without_metadata: Final = Struct(">hqihq").pack


class CommittedOffset:
    """Never changed once it is written. No NamedTuple, because a commit makes one for each
    partition.
    """

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
        expire_timestamp_ms: int = NO_EXPIRY,
        log_offset: int = NOT_WRITTEN,
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

    def written_at(self, log_offset: int) -> CommittedOffset:
        """As its record tells it. One that is NOT_WRITTEN becomes that itself; a commit that is
        written once more leaves alone what may be known by now.
        """
        expire_timestamp_ms = self.expire_timestamp_ms
        if self.log_offset == NOT_WRITTEN and expire_timestamp_ms == NO_EXPIRY:
            self.log_offset = log_offset
            return self
        return CommittedOffset(
            self.offset,
            self.leader_epoch if expire_timestamp_ms == NO_EXPIRY else -1,  # v1 has none
            self.metadata,
            self.commit_timestamp_ms,
            expire_timestamp_ms,
            log_offset,
        )


NewOffset = tuple[str, int, CommittedOffset]  # topic, partition


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


def offset_commit(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> CoordinatorRecord:
    expire_timestamp_ms = committed.expire_timestamp_ms
    if expire_timestamp_ms == NO_EXPIRY:
        version, leader_epoch = _RECORD_VERSION, committed.leader_epoch
    else:
        version, leader_epoch = _RECORD_VERSION_WITH_EXPIRY, -1  # it has no leader epoch
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, value, version)


class OffsetRecords:
    """The records of one commit as bytes, encoded as they come: thousands take longer than the loop
    may be held. They are those of `offset_commit`, made without its messages, and with what the
    keys of a topic have in common encoded once. An EncodeError waits for whoever asks for the
    bytes.
    """

    __slots__ = ("_encoded", "_error", "_group_id", "_key_start", "_topic")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._topic: str | None = None  # of the last record
        self._key_start = b""  # of the records of that topic
        self._encoded: list[EncodedRecord] = []
        self._error: EncodeError | None = None

    def add(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        try:
            if committed.expire_timestamp_ms != NO_EXPIRY:
                record = offset_commit(self._group_id, topic, partition, committed)
                self._encoded.append(record.encoded())
                return
            if topic != self._topic:
                self._begin_topic(topic)
            if committed.metadata:
                out = bytearray(
                    _pack_value_start(_RECORD_VERSION, committed.offset, committed.leader_epoch)
                )
                encode_string(out, committed.metadata)
                value = bytes(out + _pack_value_end(committed.commit_timestamp_ms))
            else:
                value = _pack_value_without_metadata(
                    _RECORD_VERSION,
                    committed.offset,
                    committed.leader_epoch,
                    0,
                    committed.commit_timestamp_ms,
                )
            self._encoded.append((self._key_start + _pack_partition(partition), value))
        except EncodeError as error:
            self._error = error
        except ENCODE_FAILURES as error:
            self._error = EncodeError(f"an offset of {topic}-{partition}: {error}")

    def _begin_topic(self, topic: str) -> None:
        out = bytearray(_RECORD_TYPE)
        encode_string(out, self._group_id)
        encode_string(out, topic)
        self._key_start, self._topic = bytes(out), topic

    def encoded(self) -> list[EncodedRecord]:
        if self._error is not None:
            raise self._error
        return self._encoded


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
