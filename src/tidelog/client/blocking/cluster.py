"""`BlockingCluster`: a `Cluster` for one thread that waits, and the event loop it lives on.

The Spark connector reads with it. Its worker processes are as many as there are cores, so there is
no thread beside the caller's: the loop runs while the caller waits in `run`, and stands still while
he works. What was asked before goes on all the same, since the broker answers and the operating
system receives.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tidelog.client.errors import ClientError, Closed
from tidelog.client.network.backoff import may_pass
from tidelog.client.network.cluster import Cluster, unknown_partition
from tidelog.client.network.metadata import TopicView
from tidelog.config.client import AdminConfig, ConsumerConfig
from tidelog.errors import ErrorCode
from tidelog.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from tidelog.client.consumer.offset_lookup import FoundOffset
    from tidelog.clock import Clock
    from tidelog.types import TopicPartition

T = TypeVar("T")


class BlockingCluster:
    """For one thread, in which no other event loop runs. Close it, or use it in a `with`."""

    def __init__(
        self, config: Mapping[str, object] | ConsumerConfig, clock: Clock | None = None
    ) -> None:
        self.config = ConsumerConfig.of(config)
        self.network = Cluster(self.config, clock=clock)
        self._is_closed = False
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._is_closed:
            self.run(self.network.close())
            self._runner.close()
            self._is_closed = True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises; whoever is interrupted (Ctrl-C) cancels it."""
        self._must_be_open(work)
        loop = self._runner.get_loop()
        task = loop.create_task(work)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    loop.run_until_complete(task)
            raise

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, but first it is seen which connections brokers closed while nothing ran."""
        self._must_be_open(work)
        return self.run(_after_news(work))

    def _must_be_open(self, work: Coroutine[Any, Any, object]) -> None:
        if self._is_closed:
            work.close()
            raise Closed("the client is closed")

    # Topics

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicView]:
        """Fresh views of the named topics, or of all (None). One that is not there has its code."""
        wanted = None if names is None else sorted(set(names))
        return self._ask(self._topics(wanted))

    async def _topics(self, names: list[str] | None) -> dict[str, TopicView]:
        what = "metadata of all topics" if names is None else f"metadata of {', '.join(names)}"
        patience = self.network.patience(what)
        last: ClientError | None = None
        while True:
            try:
                await patience.within(self.network.refresh(names), last)
                break
            except ClientError as problem:
                last = problem
                if not may_pass(problem):
                    raise
                await patience.wait_after(problem)
        known = self.network.metadata.topics
        if names is None:
            return dict(known)
        return {name: known.get(name) or _missing(name) for name in names}

    def topic(self, name: str) -> TopicView:
        """A view, from memory if there is one; raises UnknownTopic."""
        return self._ask(self.network.topic(name))

    def known_topics(self) -> Iterable[TopicView]:
        """Those that metadata has told of, as it was last asked."""
        return self.network.metadata.topics.values()

    def forget(self, topics: Iterable[str]) -> None:
        """The next look at these topics asks the brokers."""
        self.network.metadata.forget(topics)

    # Offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """EARLIEST, LATEST or a timestamp for each; raises UnknownTopic when one is not there."""
        return self._ask(self._list_offsets(wanted))

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        from tidelog.client.consumer.offset_lookup import list_offsets

        for partition in wanted:
            topic = await self.network.topic(partition.topic)
            if partition.partition not in topic.partitions:
                # It may have been added since.
                self.network.metadata.forget([partition.topic])
                topic = await self.network.topic(partition.topic)
            if partition.partition not in topic.partitions:
                raise unknown_partition(partition, topic)
        return await list_offsets(self.network, wanted)

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        from tidelog.protocol.listed_timestamps import EARLIEST

        found = self.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {partition: row.offset for partition, row in found.items()}

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """With isolation.level=read_committed the last stable offsets."""
        from tidelog.protocol.listed_timestamps import LATEST

        found = self.list_offsets(dict.fromkeys(partitions, LATEST))
        return {partition: row.offset for partition, row in found.items()}

    async def bounds_of(self, partition: TopicPartition) -> tuple[int, int]:
        """Its earliest and its latest offset."""
        from tidelog.protocol.listed_timestamps import EARLIEST, LATEST

        earliest = await self._list_offsets({partition: EARLIEST})
        latest = await self._list_offsets({partition: LATEST})
        return earliest[partition].offset, latest[partition].offset

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the offset to read next of each partition, for a group without members.

        Raises UnsupportedByBroker when the broker has no group coordinator, CommitRefused when the
        group does not take it (it has members, say).
        """
        from tidelog.client.admin.groups import GroupCalls

        given = self.config.options
        known = {name: text for name, text in given.items() if AdminConfig.TABLE.get(name)}
        calls = GroupCalls(AdminConfig(known), self.network)
        for result in self._ask(calls.alter_group_offsets(group_id, offsets)).values():
            result.get()


async def _after_news(work: Coroutine[Any, Any, T]) -> T:
    try:
        await asyncio.sleep(0)
    except BaseException:
        work.close()
        raise
    return await work


def _missing(name: str) -> TopicView:
    return TopicView(name, ZERO_UUID, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})
