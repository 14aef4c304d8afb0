"""Records that a poll has taken from the buffer and the application has not been given yet.

An iteration polls many records and gives them out one by one. Until a record is given out it does
not count as consumed: a commit stops before it, and a pause or another kind of poll gives it back
to its partition. A seek, or the loss of the partition, drops it.

Deserializers are called here too, because a record that they cannot read goes back the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.consumer.subscription_state import Position
from tidelog.client.errors import Serialization
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.subscription_state import SubscriptionState
    from tidelog.record.kernel import ConsumerRecord

Deserializer = Callable[[bytes], Any]


class IteratedRecords:
    """Touched by the task or thread that owns the consumer."""

    def __init__(
        self,
        subscription: SubscriptionState,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> None:
        self._subscription = subscription
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self.is_deserializing = key_deserializer is not None or value_deserializer is not None
        self._records: list[ConsumerRecord] = []
        self._at = 0  # the first that has not been given out

    def put(self, records: list[ConsumerRecord]) -> None:
        """Replaces what is left."""
        self._records, self._at = records, 0

    def next_or_none(self) -> ConsumerRecord | None:
        at = self._at
        if at == len(self._records):
            return None
        self._at = at + 1
        return self._records[at]

    def take(self, limit: int) -> list[ConsumerRecord]:
        taken = self._records[self._at : self._at + limit]
        self._at += len(taken)
        return taken

    def forget(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Drops the records of these partitions, or all records."""
        self._records = [
            record
            for record in self._left()
            if partitions is not None and (record.topic, record.partition) not in partitions
        ]
        self._at = 0

    def give_back(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Lets the next poll take the records of these partitions, or all, again."""
        self._rewind(
            record
            for record in self._left()
            if partitions is None or (record.topic, record.partition) in partitions
        )
        self.forget(partitions)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the application has come in each partition."""
        consumed = self._subscription.consumed()
        for record in reversed(self._left()):
            partition = TopicPartition(record.topic, record.partition)
            if partition in consumed:
                consumed[partition] = OffsetAndMetadata(record.offset)
        return consumed

    def deserialized(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records before the first unreadable one. Raises Serialization if that is the first of
        all."""
        done: list[ConsumerRecord] = []
        of_key, of_value = self._key_deserializer, self._value_deserializer
        for record in records:
            key, value = record.key, record.value
            try:
                if of_key is not None and key is not None:
                    key = of_key(key)
                if of_value is not None and value is not None:
                    value = of_value(value)
            except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as problem:
                self._rewind(records[len(done) :])
                if done:
                    break
                raise Serialization(
                    f"partition {record.topic}-{record.partition}, offset {record.offset}: "
                    f"{type(problem).__name__}: {problem}"
                ) from problem
            done.append(record._replace(key=key, value=value))
        return done

    def _left(self) -> list[ConsumerRecord]:
        return self._records[self._at :]

    def _rewind(self, records: Iterable[ConsumerRecord]) -> None:
        """Puts each partition back to the first of its records among these."""
        seen: set[TopicPartition] = set()
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            state = self._subscription.partitions.get(partition)
            if partition not in seen and state is not None and state.has_valid_position:
                state.give_back(Position(record.offset))
            seen.add(partition)
