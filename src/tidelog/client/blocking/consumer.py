"""The consumer with blocking calls, for scripts.

    with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            ...

Everything is done by an AsyncConsumer on an event loop in another thread. `poll` takes what has
been fetched already without asking that thread, unless there is something to do first. Listeners
and commit callbacks are called in the thread that polls, and may call the consumer.

A consumer belongs to one thread; only `wakeup` may be called by others.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client.blocking.loop_thread import LoopThread
from tidelog.client.consumer.consumer import ITERATION_POLL_S, AsyncConsumer
from tidelog.client.consumer.rebalance_listener import settled
from tidelog.config.client import ConsumerConfig

if TYPE_CHECKING:
    import re

    import pyarrow as pa

    from tidelog.client.consumer.assignors.assignor import Assignor
    from tidelog.client.consumer.consumer import CommitOffsets
    from tidelog.client.consumer.fetch_buffer import RawBatch
    from tidelog.client.consumer.iterated_records import Deserializer
    from tidelog.client.consumer.offset_and_metadata import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
    )
    from tidelog.client.consumer.offset_commits import OnCommit
    from tidelog.client.consumer.rebalance_listener import RebalanceListener
    from tidelog.client.network.metadata import PartitionView
    from tidelog.record.kernel import ConsumerRecord
    from tidelog.types import TopicPartition

T = TypeVar("T")

Application = Callable[[], Awaitable[None] | None]


class _Calls:
    """Callbacks of the application that a blocking call must run in its own thread before it can
    end."""

    __slots__ = ("arrived", "waiting")

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.waiting: list[tuple[Application, asyncio.Future[None]]] = []


class Consumer:
    """Close it, or use it with `with`. The arguments are those of AsyncConsumer."""

    def __init__(
        self,
        config: Mapping[str, object] | ConsumerConfig | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        assignors: Iterable[Assignor] | None = None,
        **keywords: object,
    ) -> None:
        self._consumer = AsyncConsumer(
            ConsumerConfig.of(config, keywords),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            assignors=assignors,
        )
        self._consumer.call_application = self._call_application
        self._thread = LoopThread.shared()
        # Blocking calls that wait, the innermost last: a listener may call the consumer.
        self._calls: list[_Calls] = []

    @property
    def config(self) -> ConsumerConfig:
        return self._consumer.config

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self._do(lambda: self._consumer.subscribe(topics, pattern=pattern, listener=listener))

    def unsubscribe(self) -> None:
        self._run(lambda: self._consumer.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._do(lambda: self._consumer.assign(partitions))

    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment()

    def subscription(self) -> frozenset[str]:
        return self._consumer.subscription()

    # Polling

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        consumer = self._consumer
        removed = consumer.removed_count
        records = consumer.take_ready(max_records)
        if not records:
            return self._run(lambda: consumer.poll(timeout, max_records))
        if consumer.removed_count != removed:
            self._thread.call_soon(consumer.wake_fetcher)
        # The event loop gets the interpreter now, not when it may take it away in 5 ms.
        time.sleep(0)
        return records

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> pa.Table:
        return self._run(lambda: self._consumer.poll_arrow(timeout, max_records))

    def poll_batches(self, timeout: float = 1.0) -> list[RawBatch]:
        return self._run(lambda: self._consumer.poll_batches(timeout))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Ends when the consumer is closed."""
        consumer = self._consumer
        while not consumer.is_closed:
            consumer.iterated.put(self.poll(ITERATION_POLL_S))
            while (record := consumer.iterated.next_or_none()) is not None:
                yield record

    def wakeup(self) -> None:
        """From any thread: the poll that waits, or the next one, raises Interrupted."""
        self._thread.call_soon(self._consumer.wakeup)

    # Positions

    def position(self, partition: TopicPartition) -> int:
        return self._run(lambda: self._consumer.position(partition))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._do(lambda: self._consumer.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._do(lambda: self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._do(lambda: self._consumer.seek_to_end(partitions))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._do(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._do(lambda: self._consumer.resume(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused()

    def lag(self, partition: TopicPartition) -> int | None:
        return self._consumer.lag(partition)

    # Offsets

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._run(lambda: self._consumer.offsets_for_times(timestamps))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(lambda: self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run(lambda: self._consumer.end_offsets(partitions))

    # Commits

    def commit(self, offsets: CommitOffsets | None = None) -> None:
        self._run(lambda: self._consumer.commit(offsets))

    def commit_soon(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        self._do(lambda: self._consumer.commit_soon(offsets, on_commit))

    def commit_async(
        self, offsets: CommitOffsets | None = None, callback: OnCommit | None = None
    ) -> None:
        """`commit_soon` by the name that Kafka has for it."""
        self.commit_soon(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._run(lambda: self._consumer.committed(partitions))

    # Group and metadata

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        self._do(lambda: self._consumer.enforce_rebalance(reason))

    def partitions_for(self, topic: str) -> dict[int, PartitionView]:
        return self._run(lambda: self._consumer.partitions_for(topic))

    def list_topics(self) -> dict[str, dict[int, PartitionView]]:
        return self._run(lambda: self._consumer.list_topics())

    def close(self, timeout: float | None = None) -> None:
        self._run(lambda: self._consumer.close(timeout))

    # Between the threads

    def _do(self, call: Callable[[], None]) -> None:
        """Runs a plain method of the consumer on its event loop."""

        async def work() -> None:
            call()

        self._thread.run(work)

    def _run(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of the consumer on its event loop, and its callbacks in this thread."""
        calls = _Calls()
        self._calls.append(calls)
        task: asyncio.Task[T] | None = None
        try:
            task = self._thread.run(lambda: self._begin(begin, calls))
            self._serve(task, calls)
            return task.result()
        finally:
            self._calls.remove(calls)
            if task is not None and task.done() and not task.cancelled():
                task.exception()  # the application has it already if its own callback raised it

    def _serve(self, task: asyncio.Task[T], calls: _Calls) -> None:
        """Calls what is wanted until the task has ended. What a callback raises is raised in the
        task, which may have more to call before it ends with that."""
        if not calls.waiting:
            return
        call, called = calls.waiting.pop(0)
        try:
            result = call()
            if result is not None:
                self._thread.run(lambda: settled(result))
        finally:
            problem = sys.exc_info()[1]
            self._thread.call_soon(lambda: _settle(called, problem))
            self._thread.run(lambda: self._go_on(task, calls))
            self._serve(task, calls)

    async def _begin(
        self, begin: Callable[[], Coroutine[Any, Any, T]], calls: _Calls
    ) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(begin())
        await self._go_on(task, calls)
        return task

    async def _go_on(self, task: asyncio.Task[T], calls: _Calls) -> None:
        """Waits until the task has ended or has a callback for the application's thread."""
        calls.arrived.clear()
        task.add_done_callback(lambda _: calls.arrived.set())
        try:
            if not calls.waiting:
                await calls.arrived.wait()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise

    async def _call_application(self, call: Application) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = self._calls[-1]
        calls.waiting.append((call, called))
        calls.arrived.set()
        await called


def _settle(called: asyncio.Future[None], problem: BaseException | None) -> None:
    if called.done():
        return
    if problem is None:
        called.set_result(None)
    else:
        called.set_exception(problem)
