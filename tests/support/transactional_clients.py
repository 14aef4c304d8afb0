"""Transactional producers of confluent-kafka and of tidelog, blocking and asyncio, behind one face.

A story of transactions is told by each of them. What one refuses is a `TransactionFailed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import confluent_kafka

from tidelog.client.blocking.producer import Producer
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
from tidelog.client.errors import ClientError, ProducerFenced
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.types import TopicPartition

T = TypeVar("T")

WITHIN_S = 30.0


class TransactionFailed(Exception):
    def __init__(self, problem: Exception, *, is_fenced: bool, requires_abort: bool) -> None:
        super().__init__(repr(problem))
        self.is_fenced = is_fenced
        self.requires_abort = requires_abort


class TransactionalClient(Protocol):
    """A producer whose transactions are initialized."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...

    def flush(self) -> None: ...

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Of partition 0, for a group that has no members."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


# bootstrap, transactional id, transaction.timeout.ms
OpenClient = Callable[[str, str, int], TransactionalClient]


class ConfluentTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        # librdkafka forgets its group coordinator for good when it bootstraps anew.
        patient = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 200}
        self._servers = {"bootstrap.servers": bootstrap, **patient}
        self._producer = confluent_kafka.Producer(
            {
                **self._servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        self._producer.init_transactions(WITHIN_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(WITHIN_S) == 0

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = confluent_kafka.Consumer({**self._servers, "group.id": group})
        place = confluent_kafka.TopicPartition(topic, 0, offset)
        try:
            with _confluent_failures():
                self._producer.send_offsets_to_transaction(
                    [place], consumer.consumer_group_metadata(), WITHIN_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with _confluent_failures():
            self._producer.commit_transaction(WITHIN_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WITHIN_S)

    def close(self) -> None:
        pass


class TidelogTransactions:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = Producer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(WITHIN_S)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        with _tidelog_failures():
            self._producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): offset}, ConsumerGroupMetadata(group)
            )

    def commit(self) -> None:
        with _tidelog_failures():
            self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


class TidelogAsyncTransactions:
    """On an event loop that runs only within its calls."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()
        self._producer = self._do(self._opened(bootstrap, transactional_id, timeout_ms))

    async def _opened(
        self, bootstrap: str, transactional_id: str, timeout_ms: int
    ) -> AsyncProducer:
        producer = AsyncProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await producer.init_transactions()
        return producer

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._do(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._do(self._producer.flush(WITHIN_S))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): offset}
        with _tidelog_failures():
            self._do(
                self._producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
            )

    def commit(self) -> None:
        with _tidelog_failures():
            self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())

    def close(self) -> None:
        self._do(self._producer.close())
        self._runner.close()


@contextmanager
def _confluent_failures() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as problem:
        error = problem.args[0]
        raise TransactionFailed(
            problem,
            is_fenced=error.code() == confluent_kafka.KafkaError._FENCED,
            requires_abort=error.txn_requires_abort(),
        ) from problem


@contextmanager
def _tidelog_failures() -> Iterator[None]:
    try:
        yield
    except ClientError as problem:
        is_fenced = isinstance(problem, ProducerFenced)
        raise TransactionFailed(
            problem, is_fenced=is_fenced, requires_abort=not is_fenced
        ) from problem


OWN_CLIENTS: tuple[OpenClient, ...] = (TidelogTransactions, TidelogAsyncTransactions)
TRANSACTIONAL_CLIENTS: tuple[OpenClient, ...] = (ConfluentTransactions, *OWN_CLIENTS)
