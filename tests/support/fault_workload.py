"""Clients that go on through faults and note down everything (`cluster_history`).

    PlainProducer          idempotent, acks=all, many records in flight
    TransactionalProducer  reads what others have committed, writes, commits or aborts
    Follower               a consumer that reads along from the beginning
    Deleter                deletes records below offsets that may lie inside of a batch

Requests time out sooner than faults end, so that they are sent again on new connections while the
first ones are held up on their way. Each is a thread; what ends one of them early is told by
`require_well`. Their threads leave all processors but one to the brokers: those of librdkafka spin
at times while an idempotent producer waits for answers, which then come all the later.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.cluster_history import History, Outcome, Poll, Seen, Send, Transaction

CLIENT = {
    "socket.timeout.ms": 2_500,
    "socket.connection.setup.timeout.ms": 1_500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}
PRODUCER = {
    **CLIENT,
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
}
PLAIN = {**PRODUCER, "message.timeout.ms": 0}
TRANSACTIONAL = {**PRODUCER, "transaction.timeout.ms": 30_000}
CONSUMER = {
    **CLIENT,
    "group.id": "followers",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 200,
    "isolation.level": "read_committed",
}
PADDING = b"."  # to the length that is asked for
PADDING_BYTES = 80
TICK_S = 0.02
LARGE_BYTES = 100_000
CALL_TIMEOUT_S = 10.0
DELETION_INTERVAL_S = 0.1
FLUSH_TIMEOUT_S = 60.0
POLL_RECORDS_MAX = 2_000
TRANSACTION_RECORDS = (50, 400)
ABORTED_SHARE = 0.2
TRANSACTION_READS_MAX = 50


class Worker(ABC):
    """A thread that runs until it is told to stop."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._has_ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """How long a client takes to say goodbye is its own affair."""
        self.stopping.set()
        assert self._has_ended.wait(4 * FLUSH_TIMEOUT_S), f"{self} does not end"
        self.require_well()

    def require_well(self) -> None:
        assert self._failure is None, f"{self} has failed: {self._failure!r}"

    def _guarded(self) -> None:
        os.sched_setaffinity(threading.get_native_id(), {max(os.sched_getaffinity(0))})
        try:
            self.run()
        except (AssertionError, KafkaException, BufferError) as failure:
            self._failure = failure
        finally:
            self._has_ended.set()
            self.close()

    @abstractmethod
    def run(self) -> None:
        """Makes its clients as well, so that their threads run where this one does."""

    @abstractmethod
    def close(self) -> None:
        """Of what `run` has made."""


class Due(Protocol):
    def due(self) -> int:
        """How many records each producer should have sent by now."""


class Bursts:
    """So many records each time, and none between."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._due = 0

    def burst(self) -> None:
        self._due += self._size

    def due(self) -> int:
        return self._due


class Pace:
    """So many records a second, the same for everybody; lost time is made up for."""

    def __init__(self, records_per_s: float) -> None:
        self._records_per_s = records_per_s
        self._started = time.monotonic()

    def due(self) -> int:
        return int((time.monotonic() - self._started) * self._records_per_s)


class PlainProducer(Worker):
    def __init__(
        self,
        keys: Mapping[str, Any],
        topic: str,
        partitions: int,
        number: int,
        history: History,
        pace: Due,
        padding_bytes: int = PADDING_BYTES,
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}  # besides the usual ones
        self._padding = PADDING * padding_bytes
        self._keys = keys
        self._producer: Producer
        self._topic = topic
        self._partitions = partitions
        self._number = number
        self._history = history
        self._delivered = delivered(history)
        self._pace = pace

    def run(self) -> None:
        settings = {**PLAIN, **self.settings}
        if len(self._padding) > LARGE_BYTES:  # a burst of them takes its time
            settings |= {"socket.timeout.ms": 15_000, "batch.size": len(self._padding)}
        self._producer = Producer({**self._keys, **settings})
        sent = 0
        while not self.stopping.is_set():
            due = self._pace.due()
            while sent < due:
                self._send(sent)
                sent += 1
            self._producer.poll(TICK_S)
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert not left, f"{left} records are not answered {FLUSH_TIMEOUT_S} s after the last fault"

    def close(self) -> None:
        """A producer that is flushed needs none."""

    def _send(self, count: int) -> None:
        partition = count % self._partitions
        value = b"%d-%d" % (self._number, count)
        self._history.sends.append(Send(self._number, partition, value))
        self._producer.produce(
            self._topic, value + self._padding, partition=partition, on_delivery=self._delivered
        )


class TransactionalProducer(Worker):
    """One transaction after another. A client that is beyond help is replaced by one of the same
    transactional id, which ends what the first had left open.
    """

    def __init__(
        self,
        keys: Mapping[str, Any],
        topic: str,
        partitions: int,
        number: int,
        history: History,
        pace: Due,
        padding_bytes: int = PADDING_BYTES,
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}  # besides the usual ones
        self._padding = PADDING * padding_bytes
        self._keys = keys
        self._topic = topic
        self._partitions = partitions
        self._number = number
        self._history = history
        self._delivered = delivered(history)
        self._pace = pace
        self._dice = random.Random(number)
        self._sent = 0
        self._name = f"transactional-{number}"
        self.replaced = 0
        self._consumer: Consumer
        self._producer: Producer

    def run(self) -> None:
        self._consumer = assigned_consumer(self._keys, self._topic, self._partitions)
        self._begin_anew()
        while not self.stopping.is_set():
            if self._sent >= self._pace.due():
                time.sleep(TICK_S)
                continue
            self._transact()

    def close(self) -> None:
        self._consumer.close()

    def _begin_anew(self) -> None:
        self._producer = Producer(
            {
                **self._keys,
                **TRANSACTIONAL,
                **self.settings,
                "transactional.id": self._name,
            }
        )
        self._insist(self._producer.init_transactions)

    def _transact(self) -> None:
        number = self._history.new_transaction()
        transaction = self._history.transactions[number]
        try:
            self._producer.begin_transaction()
            self._read(transaction)
            self._write(number)
            if self._dice.random() < ABORTED_SHARE:
                self._insist(self._producer.abort_transaction)
                transaction.outcome = Outcome.ABORTED
                return
            transaction.commit_begun_at = time.monotonic()
            self._insist(self._producer.commit_transaction)
            transaction.outcome = Outcome.COMMITTED
        except KafkaException as failure:
            self._recover(transaction, failure.args[0])

    def _recover(self, transaction: Transaction, error: KafkaError) -> None:
        if error.txn_requires_abort():
            try:
                self._insist(self._producer.abort_transaction)
            except KafkaException:
                pass
            else:
                transaction.outcome = Outcome.ABORTED
                return
        self.replaced += 1
        self._begin_anew()
        if transaction.commit_begun_at is None:
            transaction.outcome = Outcome.ABORTED

    def _read(self, transaction: Transaction) -> None:
        poll = read_some(self._consumer, self._name, TRANSACTION_READS_MAX, 0.0)
        if poll.records:
            self._history.polls.append(poll)
            transaction.reads += [seen.value for seen in poll.records]

    def _write(self, transaction: int) -> None:
        for _ in range(self._dice.randint(*TRANSACTION_RECORDS)):
            partition = self._dice.randrange(self._partitions)
            value = b"%d-%d" % (self._number, self._sent)
            self._sent += 1
            self._history.sends.append(Send(self._number, partition, value, transaction))
            self._producer.produce(
                self._topic,
                value + self._padding,
                partition=partition,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)

    def _insist(self, call: Callable[[float], object]) -> None:
        """Again while the client says that it may be called again."""
        while True:
            try:
                call(CALL_TIMEOUT_S)
                return
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise


class Follower(Worker):
    def __init__(
        self, keys: Mapping[str, Any], topic: str, partitions: int, name: str, history: History
    ) -> None:
        super().__init__()
        self._keys = keys
        self._topic = topic
        self._partitions = partitions
        self._name = name
        self._history = history
        self._consumer: Consumer

    def run(self) -> None:
        self._consumer = assigned_consumer(self._keys, self._topic, self._partitions)
        while not self.stopping.is_set():
            poll = read_some(self._consumer, self._name, POLL_RECORDS_MAX, 0.2)
            if poll.records:
                self._history.polls.append(poll)

    def close(self) -> None:
        self._consumer.close()


class Deleter(Worker):
    """Of acked records, in one partition after another. A deletion that is not answered may have
    been made or not.
    """

    def __init__(
        self, keys: Mapping[str, Any], topic: str, partitions: int, history: History, seed: float
    ) -> None:
        super().__init__()
        self.is_resting = threading.Event()  # while it is set, nothing is deleted
        self._admin = AdminClient({**keys, **CLIENT})
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._dice = random.Random(seed)
        self.answered = 0

    def run(self) -> None:
        while not self.stopping.wait(DELETION_INTERVAL_S):
            if not self.is_resting.is_set():
                self._delete(self._dice.randrange(self._partitions))

    def close(self) -> None:
        """An admin client needs none."""

    def _delete(self, partition: int) -> None:
        before = self._history.deleted.get(partition, 0)
        last_offset = self._history.last_acked.get(partition, -1)
        if last_offset <= before:
            return
        offset = self._dice.randint(before + 1, last_offset)
        self._history.deleted[partition] = offset
        place = TopicPartition(self._topic, partition, offset)
        asked = self._admin.delete_records([place], request_timeout=CALL_TIMEOUT_S)
        for deletion in asked.values():
            try:
                deletion.result(2 * CALL_TIMEOUT_S)
            except KafkaException:
                continue
            self.answered += 1


def delivered(history: History) -> Callable[[KafkaError | None, Message], None]:
    def note(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition = message.partition()
            assert partition is not None
            history.acked(partition, message.offset(), value_of(message), time.monotonic())

    return note


def as_seen(message: Message) -> Seen:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Seen(partition, offset, value_of(message))


def value_of(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value.rstrip(PADDING)


def assigned_consumer(
    keys: Mapping[str, Any], topic: str, partitions: int, **settings: Any
) -> Consumer:
    consumer = Consumer({**keys, **CONSUMER, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    return consumer


def read_some(consumer: Consumer, name: str, records_max: int, timeout_s: float) -> Poll:
    messages = consumer.consume(records_max, timeout_s)
    records = [as_seen(message) for message in messages if message.error() is None]
    return Poll(name, time.monotonic(), records)


def read_to_the_end(
    keys: Mapping[str, Any], topic: str, partitions: int, within_s: float
) -> list[Poll]:
    """Everything, by a consumer of its own."""
    consumer = assigned_consumer(keys, topic, partitions, **{"enable.partition.eof": True})
    polls = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + within_s
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"only {ended} read to the end"
        messages = consumer.consume(POLL_RECORDS_MAX, 0.5)
        errors = [(message.partition(), message.error()) for message in messages]
        ended |= {p for p, error in errors if error and error.code() == KafkaError._PARTITION_EOF}
        records = [as_seen(message) for message in messages if message.error() is None]
        polls.append(Poll("final reader", time.monotonic(), records))
    consumer.close()
    return polls
