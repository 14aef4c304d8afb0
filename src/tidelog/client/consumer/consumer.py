"""Reading topics, alone or as a member of a group, on asyncio.

    async with AsyncConsumer(bootstrap_servers="127.0.0.1:9092", group_id="g") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            ...

Methods have the names and semantics of Kafka's consumer. A consumer belongs to one task at a time:
a second `poll` while one waits is refused. Records are fetched in the background; `poll` gives out
what is there, at most max.poll.records, and is the only place where the position moves, partitions
come and go, and listeners and commit callbacks are called.

What a poll does, in this order: commit callbacks; the group (rebalances, listeners); positions of
new partitions; an automatic commit, if one is due; records. If there are none it waits for news of
any of these, at most `timeout` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.consumer.consumer_coordinator import ConsumerCoordinator
from tidelog.client.consumer.consumer_membership_manager import ConsumerMembershipManager
from tidelog.client.consumer.fetch_buffer import (
    FetchBuffer,
    FetchFailure,
    RawBatch,
    take_raw_batches,
    take_records,
)
from tidelog.client.consumer.fetcher import Fetcher
from tidelog.client.consumer.iterated_records import Deserializer, IteratedRecords
from tidelog.client.consumer.offset_and_metadata import (
    OFFSET_MAX,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    known_epoch,
    wire_epoch,
)
from tidelog.client.consumer.offset_commits import OffsetCommits
from tidelog.client.consumer.offset_lookup import NO_OFFSET, list_offsets
from tidelog.client.consumer.offset_reset import EARLIEST, LATEST
from tidelog.client.consumer.positions import Positions
from tidelog.client.consumer.rebalance_listener import RebalanceListener, settled
from tidelog.client.consumer.subscription_state import (
    Position,
    SubscriptionState,
    SubscriptionType,
)
from tidelog.client.errors import (
    ClientError,
    Closed,
    IllegalState,
    Interrupted,
    refused,
)
from tidelog.client.network.cluster import Cluster
from tidelog.config.client import READ_COMMITTED, ConsumerConfig
from tidelog.errors import ErrorCode
from tidelog.protocol import listed_timestamps
from tidelog.record.kernel import ConsumerRecord
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.columns.fetched_columns import FetchedColumns
    from tidelog.client.consumer.assignors.assignor import Assignor
    from tidelog.client.consumer.group import Group, Told
    from tidelog.client.consumer.offset_commits import Offsets, OnCommit
    from tidelog.client.consumer.subscription_state import PartitionState
    from tidelog.client.network.metadata import Metadata, PartitionView
    from tidelog.client.tracing import ConsumerSpans
    from tidelog.config.client import OffsetResetPolicy

log = logging.getLogger(__name__)

Taken = TypeVar("Taken")
CallApplication = Callable[[Callable[[], Awaitable[None] | None]], Awaitable[None]]
CommitOffsets = Mapping[TopicPartition, "OffsetAndMetadata | int"]

_numbers = count(1)

CLOSE_TIMEOUT_S: Final = 30.0
ITERATION_POLL_S: Final = 60.0
RAW_BYTES_MAX: Final = 16 * 1024 * 1024

_TOPIC_ERRORS = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION))


class AsyncConsumer:
    """`config` has Kafka's keys; keywords are keys with underscores for their dots.

    Deserializers are called with the bytes of keys and values that are not null. `assignors`
    replaces partition.assignment.strategy by instances of `Assignor`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | ConsumerConfig | None = None,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        assignors: Iterable[Assignor] | None = None,
        **keywords: object,
    ) -> None:
        self.config = with_client_id(ConsumerConfig.of(config, keywords))
        self._cluster = Cluster(self.config)
        self._clock = self._cluster.clock
        self._subscription = SubscriptionState(self.config.offset_reset)
        self._buffer = FetchBuffer(self._subscription)
        self.iterated = IteratedRecords(self._subscription, key_deserializer, value_deserializer)
        self._news = asyncio.Event()
        self._has_news = True  # for the next poll to look at
        self._group: Group | None = None
        self._commits: OffsetCommits | None = None
        if self.config.group_id is not None:
            self._group, self._commits = self._make_group(assignors)
        self._positions = Positions(
            self._cluster, self._subscription, self._commits, self._note_news
        )
        self._fetcher = Fetcher(
            self._cluster, self._subscription, self._buffer, self._positions, self._news.set
        )
        self._cluster.metadata.add_listener(self._metadata_changed)
        # How listeners and commit callbacks are called; blocking consumers call them in the
        # thread of the application.
        self.call_application: CallApplication = _call_here
        self._max_poll_records = self.config.integer("max.poll.records")
        self._read_committed = self.config.isolation_level == READ_COMMITTED
        self._watched: frozenset[str] | None = frozenset()
        self._learning: set[asyncio.Task[None]] = set()
        self._columns: FetchedColumns | None = None
        self._spans: ConsumerSpans | None = None
        if self.config.flag("tidelog.tracing"):
            from tidelog.client.tracing import ConsumerSpans

            self._spans = ConsumerSpans(self.config)
        self._is_polling = False
        self._is_woken = False
        # A consumer that is closing polls no more; its listener may still commit.
        self._is_closing = False
        self._is_closed = False

    def _make_group(self, assignors: Iterable[Assignor] | None) -> tuple[Group, OffsetCommits]:
        group: ConsumerCoordinator | ConsumerMembershipManager
        if self.config.uses_consumer_protocol:
            if assignors is not None:
                raise IllegalState("with group.protocol=consumer the broker assigns partitions")
            group = ConsumerMembershipManager(
                self._cluster, self._subscription, self._call_listener, self._note_news
            )
        else:
            if assignors is None:
                from tidelog.client.consumer.assignors.strategy import assignors_named

                assignors = assignors_named(self.config.strings("partition.assignment.strategy"))
            group = ConsumerCoordinator(
                self._cluster,
                self._subscription,
                list(assignors),
                self._call_listener,
                self._note_news,
            )
        interval_s = self.config.seconds("auto.commit.interval.ms")
        commits = OffsetCommits(
            self._cluster,
            self.config.text("group.id"),
            group,
            self._note_news,
            interval_s=interval_s if self.config.auto_commits else None,
            requires_stable=self.config.flag("internal.throw.on.fetch.stable.offset.unsupported"),
        )
        group.commits = commits
        group.consumed = self.iterated.consumed
        return group, commits

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Names, or a pattern that whole names match; replaces an earlier subscription.

        With group.protocol=consumer the broker evaluates a pattern that is a string (RE2 syntax),
        and the consumer one that is compiled.
        """
        self._require_open()
        group = self._must_have_group("subscribe")
        if (topics is None) == (pattern is None):
            raise IllegalState("subscribe takes either topics or a pattern")
        regex: str | None = None
        if topics is not None:
            if isinstance(topics, str):
                raise IllegalState("topics are a list of names, not one string")
            names = list(topics)
            if not all(isinstance(name, str) and name.strip() for name in names):
                raise IllegalState("a topic to subscribe to has an empty name")
            if not names:
                raise IllegalState("subscribe without topics; unsubscribe gives topics up")
            self._subscription.subscribe(names, listener)
        elif isinstance(group, ConsumerMembershipManager) and isinstance(pattern, str):
            # The broker's syntax (RE2) is not that of `re`.
            regex = pattern
            self._subscription.subscribe_pattern(None, listener)
        else:
            assert pattern is not None
            self._subscription.subscribe_pattern(_compiled(pattern), listener)
        if isinstance(group, ConsumerMembershipManager):
            group.regex = regex
        self._follow_pattern()
        group.subscription_changed()
        self._note_news()

    async def unsubscribe(self) -> None:
        """Leaves the group; also ends an assignment by the user."""
        self._require_open()
        if self._group is not None and self._subscription.is_auto_assigned:
            await self._group.leave(self.config.seconds("request.timeout.ms"))
        self._subscription.unsubscribe()
        if isinstance(self._group, ConsumerMembershipManager):
            self._group.regex = None
        self.iterated.forget()
        self._buffer.clear()
        self._note_news()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, without a group."""
        self._require_open()
        self.iterated.forget()
        self._subscription.assign(TopicPartition(*partition) for partition in partitions)
        self._note_news()

    def assignment(self) -> frozenset[TopicPartition]:
        return self._subscription.assignment

    def subscription(self) -> frozenset[str]:
        return self._subscription.topics

    # Polling

    async def poll(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """The next records, in order within each partition; none after `timeout` seconds."""
        limit = self._record_limit(max_records)
        began_ns = 0 if self._spans is None else self._spans.now_ns()
        nothing: list[ConsumerRecord] = []
        records = await self._poll(timeout, lambda: self._take(limit), nothing)
        if self._spans is not None and records:
            self._spans.received(records, began_ns)
        return records

    async def poll_arrow(
        self,
        timeout: float = 1.0,  # noqa: ASYNC109
        max_records: int | None = None,
    ) -> pa.Table:
        """As `poll`, as columns; needs pyarrow. Deserializers do not apply.

        Without `max_records` it gives all that is there, up to some ten thousand rows.
        """
        columns = self._columns
        if columns is None:
            from tidelog.client.columns.fetched_columns import FetchedColumns

            columns = self._columns = FetchedColumns()
        self.iterated.give_back()
        if max_records is not None:
            self._record_limit(max_records)
        found = await self._poll(timeout, lambda: columns.take(self._buffer, max_records), None)
        return columns.schema.empty_table() if found is None else found

    async def poll_batches(self, timeout: float = 1.0) -> list[RawBatch]:  # noqa: ASYNC109
        """As `poll`, as batches as the log has them. A batch may begin before the position."""
        self.iterated.give_back()
        return await self._poll(timeout, lambda: take_raw_batches(self._buffer, RAW_BYTES_MAX), [])

    def take_ready(self, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records that are there if nothing else is due; for any thread that owns the consumer."""
        if self._is_closing or self._is_polling or self.iterated.is_deserializing:
            return []
        if self._needs_update():
            return []
        if self._group is not None:
            self._group.polls.polled()
        records = self._take(self._record_limit(max_records))
        if self._spans is not None and records:
            self._spans.received(records, self._spans.now_ns())
        return records

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while (record := self.iterated.next_or_none()) is None:
            if self._is_closing:
                raise StopAsyncIteration
            self.iterated.put(await self.poll(ITERATION_POLL_S))
        return record

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    @property
    def removed_count(self) -> int:
        """Grows whenever there is more to fetch."""
        return self._buffer.removed_count

    def wake_fetcher(self) -> None:
        """On the event loop: the application has taken records with `take_ready`."""
        if not self._is_closed:
            self._fetcher.wake()

    def wakeup(self) -> None:
        """On the event loop: the poll that waits, or the next one, raises Interrupted."""
        self._is_woken = True
        self._news.set()

    def _record_limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._max_poll_records
        if max_records < 1:
            raise IllegalState(f"max_records is at least 1, not {max_records}")
        return max_records

    async def _poll(self, timeout_s: float, take: Callable[[], Taken], nothing: Taken) -> Taken:
        self._require_not_closing()
        if self._subscription.type is SubscriptionType.NONE:
            raise IllegalState("the consumer is neither subscribed nor assigned to anything")
        if self._is_polling:
            raise IllegalState("the consumer is polled by another task already")
        deadline = self._clock.monotonic() + timeout_s
        self._is_polling = True
        try:
            # Other tasks get their turn, and a cancelled poll has taken nothing.
            await asyncio.sleep(0)
            while True:
                self._news.clear()
                self._require_not_woken()
                if self._group is not None:
                    self._group.polls.polled()
                if self._needs_update():
                    await self._update()
                self._act_on_failure()
                taken = take()
                self._fetcher.wake()
                if taken:
                    return taken
                if self._has_failure():
                    continue
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    return nothing
                await self._wait_for_news(self._until_next(left_s))
        finally:
            self._is_polling = False
            if self._group is not None:
                self._group.polls.polled()

    def _require_not_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise Interrupted("the poll was woken up")
        self._require_not_closing()

    def _until_next(self, left_s: float) -> float:
        """Seconds until something is due, unless news arrive earlier."""
        now = self._clock.monotonic()
        moments = [self._positions.next_try_at()]
        if self._commits is not None:
            moments.append(self._commits.next_auto_commit_or_none())
        due = [moment - now for moment in moments if moment is not None]
        return max(0.001, min([left_s, *due]))

    async def _wait_for_news(self, seconds: float) -> None:
        group = self._group
        if group is not None:
            group.polls.is_waiting = True
        handle = self._cluster.timer.call_later(seconds, self._news.set)
        try:
            await self._news.wait()
        finally:
            handle.cancel()
            if group is not None:
                group.polls.is_waiting = False

    def _needs_update(self) -> bool:
        if self._has_news:
            return True
        if self._group is not None and self._group.needs_attention:
            return True
        commits = self._commits
        if commits is not None and (commits.has_completed or commits.is_auto_commit_due()):
            return True
        due = self._positions.next_try_at() if self._positions.has_waiting else None
        return due is not None and due <= self._clock.monotonic()

    async def _update(self) -> None:
        """Everything that may have to happen before records are given out."""
        self._has_news = False
        if self._commits is not None:
            await self._or_again(self._commits.tell_completed(self._call_on_commit))
        self._follow_pattern()
        self._require_usable_topics()
        self._watch()
        if self._group is not None:
            self._group.metadata_changed()
            self._group.subscription_changed()
            await self._or_again(self._group.advance())
            self._watch()
        self._positions.update()
        if self._commits is not None and self._commits.is_auto_commit_due():
            self._commits.auto_commit(self.iterated.consumed())

    async def _or_again(self, work: Awaitable[object]) -> None:
        """If a callback raises, or the poll is cancelled, the next poll does what is left."""
        try:
            await work
        except BaseException:
            self._has_news = True
            raise

    def _take(self, limit: int) -> list[ConsumerRecord]:
        left = self.iterated.take(limit)
        if left:
            return left
        taken = take_records(self._buffer, limit)
        return self.iterated.deserialized(taken) if self.iterated.is_deserializing else taken

    def _has_failure(self) -> bool:
        return isinstance(self._buffer.next_entry(), FetchFailure)

    def _act_on_failure(self) -> None:
        """Handles the failures at the head of the buffer; raises those that the application must
        see."""
        while isinstance(entry := self._buffer.next_entry(), FetchFailure):
            entry.act(entry.state)
            if self._buffer.next_entry() is entry:
                self._buffer.remove(entry)
            self._has_news = True
            self._positions.update()

    # Positions

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record; looks for it where there is none yet."""
        partition = TopicPartition(*partition)
        self._require_open()
        patience = self._cluster.patience(f"position of {partition}")
        while True:
            self._news.clear()
            state = self._subscription.state(partition)
            if state.position is not None:
                return self.iterated.consumed()[partition].offset
            if patience.is_exhausted:
                raise patience.given_up(refused(f"{partition}", ErrorCode.REQUEST_TIMED_OUT))
            self._watch()
            self._positions.update()
            await self._wait_for_news(self._until_next(patience.left_s))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        partition = TopicPartition(*partition)
        state = self._subscription.state(partition)
        self.iterated.forget([partition])
        if isinstance(offset, OffsetAndMetadata):
            position = Position(_valid(offset.offset), wire_epoch(offset.leader_epoch))
            state.seek_validated(position, self._cluster.metadata.leader_or_none(partition))
        else:
            state.seek(Position(_valid(offset)))
        self._note_news()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Of these, or of all assigned ones."""
        self._seek_by(EARLIEST, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._seek_by(LATEST, partitions)

    def _seek_by(self, reset: OffsetResetPolicy, partitions: Iterable[TopicPartition]) -> None:
        states = self._states(partitions)
        self.iterated.forget([state.partition for state in states])
        for state in states:
            state.request_reset(reset)
        self._note_news()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing of these is given out until they are resumed; they stay assigned."""
        states = [self._subscription.state(TopicPartition(*row)) for row in partitions]
        self.iterated.give_back([state.partition for state in states])
        for state in states:
            state.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for row in partitions:
            self._subscription.state(TopicPartition(*row)).is_paused = False
        self._note_news()

    def paused(self) -> frozenset[TopicPartition]:
        states = self._subscription.partitions.values()
        return frozenset(state.partition for state in states if state.is_paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How far the position is behind what can be read, as last reported; None before that."""
        state = self._subscription.state(TopicPartition(*partition))
        end = state.readable_end(read_committed=self._read_committed)
        if state.position is None or end < 0:
            return None
        return max(0, end - self.iterated.consumed()[state.partition].offset)

    def _states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        wanted = [TopicPartition(*row) for row in partitions] or self._subscription.partitions
        return [self._subscription.state(partition) for partition in wanted]

    # Offsets

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        self._require_open()
        wanted = {TopicPartition(*row): time_ms for row, time_ms in timestamps.items()}
        for partition, time_ms in wanted.items():
            if time_ms < 0:
                raise IllegalState(f"partition {partition}: {time_ms} is no time")
        found = await list_offsets(self._cluster, wanted)
        return {
            partition: None
            if row.offset == NO_OFFSET
            else OffsetAndTimestamp(row.offset, row.timestamp, known_epoch(row.leader_epoch))
            for partition, row in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, listed_timestamps.EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record that can be read with this isolation.level."""
        return await self._offsets(partitions, listed_timestamps.LATEST)

    async def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        self._require_open()
        wanted = dict.fromkeys((TopicPartition(*row) for row in partitions), timestamp)
        found = await list_offsets(self._cluster, wanted)
        return {partition: row.offset for partition, row in found.items()}

    # Commits

    async def commit(self, offsets: CommitOffsets | None = None) -> None:
        """These, or the positions of all partitions; retries for default.api.timeout.ms."""
        self._require_open()
        commits = self._must_have_commits("commit")
        await commits.commit(self._to_commit(offsets))
        await commits.tell_completed(self._call_on_commit)

    def commit_soon(
        self, offsets: CommitOffsets | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Without waiting; a later poll, commit or close calls `on_commit` with the outcome."""
        self._require_open()
        self._must_have_commits("commit").commit_soon(self._to_commit(offsets), on_commit)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._require_open()
        commits = self._must_have_commits("ask for committed offsets")
        return await commits.committed(TopicPartition(*partition) for partition in partitions)

    def _to_commit(self, offsets: CommitOffsets | None) -> Offsets:
        if offsets is None:
            return self.iterated.consumed()
        return {
            TopicPartition(*partition): OffsetAndMetadata(row) if isinstance(row, int) else row
            for partition, row in offsets.items()
        }

    # Group

    def group_metadata(self) -> ConsumerGroupMetadata:
        """For `send_offsets_to_transaction` of a producer."""
        return self._must_have_group("ask for its metadata").group_metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        """The next poll joins the group again; without effect with group.protocol=consumer."""
        self._must_have_group("rebalance").enforce_rebalance(reason)
        self._note_news()

    # Metadata

    async def partitions_for(self, topic: str) -> dict[int, PartitionView]:
        self._require_open()
        may_create = self.config.flag("allow.auto.create.topics")
        view = await self._cluster.topic(
            topic, may_create=may_create, limit_key="default.api.timeout.ms"
        )
        return dict(view.partitions)

    async def list_topics(self) -> dict[str, dict[int, PartitionView]]:
        self._require_open()
        patience = self._cluster.patience("the list of topics", "default.api.timeout.ms")
        try:
            await patience.within(self._cluster.refresh(None))
        except ClientError as problem:
            if not patience.is_exhausted:
                raise
            raise patience.given_up(problem) from problem
        return {
            view.name: dict(view.partitions)
            for view in self._cluster.metadata.topics.values()
            if view.exists
        }

    # Closing

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Commits if commits are automatic, leaves the group, and closes all connections.

        As in Kafka, a member that stays (internal.leave.group.on.close=false) does not tell its
        listener: its partitions are its own until its session ends.

        At most `timeout` seconds (30) are spent on waiting for brokers.
        """
        if self._is_closing:
            return
        limit_s = CLOSE_TIMEOUT_S if timeout is None else timeout
        deadline = self._clock.monotonic() + limit_s
        self._is_closing = True
        self._news.set()
        try:
            await self._say_goodbye(deadline)
        finally:
            self._is_closed = True
            for task in list(self._learning):
                task.cancel()
            await self._fetcher.close()
            await self._positions.close()
            if self._commits is not None:
                await self._commits.close()
            if self._group is not None:
                await self._group.close()
            await self._cluster.close()
            self._buffer.clear()

    async def _say_goodbye(self, deadline: float) -> None:
        def left_s() -> float:
            return max(0.0, deadline - self._clock.monotonic())

        try:
            if self._commits is not None:
                try:
                    if self._commits.is_automatic:
                        await self._commits.commit_last(self.iterated.consumed(), left_s())
                except ClientError as problem:
                    log.warning("no commit while closing: %s", problem)
                await self._commits.settle(left_s())
                await self._commits.tell_completed(self._call_on_commit)
        finally:
            leaves = self.config.flag("internal.leave.group.on.close")
            if leaves and self._group is not None and self._subscription.is_auto_assigned:
                await self._group.leave(left_s())
            self._subscription.unsubscribe()

    # Below

    async def _call_listener(self, told: Told, partitions: Collection[TopicPartition]) -> None:
        await self.call_application(lambda: told(partitions))

    async def _call_on_commit(
        self, on_commit: OnCommit, offsets: Offsets, problem: ClientError | None
    ) -> None:
        await self.call_application(lambda: on_commit(offsets, problem))

    def _note_news(self) -> None:
        self._has_news = True
        self._news.set()

    def _metadata_changed(self, metadata: Metadata) -> None:
        self._note_news()
        if not self._is_closed:
            self._fetcher.wake()

    def _follow_pattern(self) -> None:
        """Selects the topics that match the pattern, unless the broker evaluates it."""
        if self._subscription.type is not SubscriptionType.PATTERN or self._has_regex:
            return
        leaves_out_internal = self.config.flag("exclude.internal.topics")
        self._subscription.topics_match(
            view.name
            for view in self._cluster.metadata.topics.values()
            if view.exists and not (view.is_internal and leaves_out_internal)
        )

    @property
    def _has_regex(self) -> bool:
        return isinstance(self._group, ConsumerMembershipManager) and self._group.regex is not None

    def _watch(self) -> None:
        """Keeps the metadata of the subscribed topics fresh, and asks at once for topics that are
        not known."""
        is_pattern = self._subscription.type is SubscriptionType.PATTERN
        wanted = None if is_pattern else self._subscription.watched_topics
        if wanted == self._watched:
            return
        self._watched = wanted
        known = self._cluster.metadata.topics
        if wanted is None or not wanted <= known.keys():
            task = asyncio.get_running_loop().create_task(self._learn(wanted))
            self._learning.add(task)
            task.add_done_callback(self._learning.discard)
        else:
            self._cluster.watch(wanted)

    async def _learn(self, topics: frozenset[str] | None) -> None:
        may_create = self.config.flag("allow.auto.create.topics") and topics is not None
        try:
            await self._cluster.refresh(topics, may_create=may_create)
        except ClientError as problem:
            log.debug("metadata: %s", problem)
        if not self._is_closed:
            self._cluster.watch(self._watched)

    def _require_usable_topics(self) -> None:
        for name in self._subscription.topics:
            view = self._cluster.metadata.topics.get(name)
            if view is not None and view.error_code in _TOPIC_ERRORS:
                self._cluster.refresh_soon()
                raise refused(f"topic {name}", view.error_code)

    def _require_not_closing(self) -> None:
        if self._is_closing:
            raise Closed("the consumer is closed")

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")

    def _must_have_group(self, what: str) -> Group:
        if self._group is None:
            raise IllegalState(f"to {what}, a consumer needs a group.id")
        return self._group

    def _must_have_commits(self, what: str) -> OffsetCommits:
        if self._commits is None:
            raise IllegalState(f"to {what}, a consumer needs a group.id")
        return self._commits


async def _call_here(call: Callable[[], Awaitable[None] | None]) -> None:
    await settled(call())


def with_client_id(config: ConsumerConfig) -> ConsumerConfig:
    """Fills in a client.id, numbered as Kafka's consumers number theirs."""
    if not config.text_or_none("client.id"):
        number = next(_numbers)
        config.values["client.id"] = (
            f"consumer-{number}"
            if config.group_id is None
            else f"consumer-{config.group_id}-{number}"
        )
    return config


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise IllegalState(f"{pattern!r} is no regular expression: {problem}") from problem


def _valid(offset: int) -> int:
    if not 0 <= offset <= OFFSET_MAX:
        raise IllegalState(f"an offset is from 0 to {OFFSET_MAX}, not {offset}")
    return offset
