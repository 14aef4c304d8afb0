"""Finding positions: committed offsets, resets, and whether a new leader knows them.

`update` is called by every poll. It looks at the assigned partitions and starts what is missing;
answers are taken in as they come, by tasks on the event loop, and `on_news` tells the poll that
waits. What can only be told to the application is kept and raised by the next `update`.

    INITIALIZING       OffsetFetch to the coordinator; partitions without an offset await a reset
    AWAIT_RESET        ListOffsets to the leader
    AWAIT_VALIDATION   OffsetForLeaderEpoch to the leader (KIP-320): an end of the position's epoch
                       before the position means that the log was truncated meanwhile

An answer counts only if the partition is still in the stretch for which it was asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.client.consumer.offset_and_metadata import wire_epoch
from tidelog.client.consumer.offset_commits import may_commit_later
from tidelog.client.consumer.offset_lookup import ask_leaders, no_leader
from tidelog.client.consumer.offset_reset import NONE, reset_timestamp
from tidelog.client.consumer.subscription_state import FetchState, Position
from tidelog.client.errors import (
    ClientError,
    LogTruncation,
    NotAuthorized,
    OffsetOutOfRange,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.backoff import Backoff, may_pass
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.listed_timestamps import LATEST
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
    from tidelog.client.consumer.offset_commits import OffsetCommits
    from tidelog.client.consumer.subscription_state import PartitionState, SubscriptionState
    from tidelog.client.network.cluster import Cluster

_VALIDATION_VERSION = 3  # the first that a client may use without rights on the cluster

Asked = list[tuple["PartitionState", int]]  # with the stretch in which it was asked


class Positions:
    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        commits: OffsetCommits | None,
        on_news: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._commits = commits
        self._on_news = on_news
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problem: ClientError | None = None
        self._has_waiting = False
        self._backoff = Backoff.of(cluster.config, "retry.backoff.ms")

    def update(self) -> None:
        """Starts the look-ups that are due. Raises the error of an earlier one that no retry can
        mend."""
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        self._cluster.raise_refusal()
        self._follow_leaders()
        now = self._cluster.clock.monotonic()
        if self._commits is None:
            self._subscription.reset_missing()
        else:
            self._start("committed", FetchState.INITIALIZING, now, self._take_committed)
        self._start("reset", FetchState.AWAIT_RESET, now, self._reset)
        self._start("validate", FetchState.AWAIT_VALIDATION, now, self._validate)
        self._has_waiting = any(
            state.state is not FetchState.FETCHING
            for state in self._subscription.partitions.values()
        )

    def next_try_at(self) -> float | None:
        """When `update` has something to try again."""
        waiting = [
            state.retry_at
            for state in self._subscription.partitions.values()
            if state.state is not FetchState.FETCHING and state.retry_at > 0
        ]
        return min(waiting, default=None)

    @property
    def has_waiting(self) -> bool:
        """Whether a partition has no valid position yet."""
        return self._has_waiting

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def truncated(self, state: PartitionState, epoch: int, end_offset: int) -> None:
        """The leader's log has `end_offset` as the end of `epoch`, before the position."""
        position = state.position
        assert position is not None
        if self._subscription.default_reset == NONE:
            state.retry_at = float("inf")
            raise LogTruncation(
                f"partition {state.partition}: records before offset {position.offset} were read "
                f"and have gone from the log since; it parts at offset {end_offset}"
                if end_offset >= 0
                else f"partition {state.partition}: the log does not know epoch "
                f"{position.offset_epoch} of the position {position.offset}",
            )
        if end_offset < 0:
            state.request_reset(self._subscription.default_reset)
        else:
            state.seek(Position(end_offset, epoch))

    def out_of_range(self, state: PartitionState) -> None:
        position = state.position
        assert position is not None
        if self._subscription.default_reset == NONE:
            raise OffsetOutOfRange(
                f"partition {state.partition}: position {position.offset} is outside the log, and "
                "auto.offset.reset=none",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        state.request_reset(self._subscription.default_reset)

    def _follow_leaders(self) -> None:
        metadata = self._cluster.metadata
        for state in self._subscription.partitions.values():
            leader = metadata.leader_or_none(state.partition)
            if leader is not None and state.leader != leader:
                state.leader_changed(leader, may_validate=True)

    def _start(
        self,
        name: str,
        wanted: FetchState,
        now: float,
        work: Callable[[Asked], Coroutine[None, None, None]],
    ) -> None:
        if name in self._tasks:
            return
        asked = [
            (state, state.stretch)
            for state in self._subscription.in_state(wanted)
            if state.retry_at <= now
        ]
        if asked:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, work, asked))

    async def _run(
        self, name: str, work: Callable[[Asked], Coroutine[None, None, None]], asked: Asked
    ) -> None:
        try:
            await work(asked)
        except ClientError as problem:
            self._failed(asked, problem)
        finally:
            del self._tasks[name]
            self._on_news()

    def _failed(self, asked: Asked, problem: ClientError) -> None:
        """Tries all of `asked` again later. `update` raises the error if it will not pass."""
        if not may_commit_later(problem):
            self._problem = problem
        retry_at = self._cluster.clock.monotonic() + self._backoff.next_s()
        for state, stretch in asked:
            if state.stretch == stretch:
                state.retry_at = retry_at
        self._cluster.refresh_soon()

    def _is_current(self, state: PartitionState, stretch: int) -> bool:
        return (
            self._subscription.partitions.get(state.partition) is state and state.stretch == stretch
        )

    async def _take_committed(self, asked: Asked) -> None:
        assert self._commits is not None
        committed = await self._commits.fetch([state.partition for state, _ in asked])
        self._backoff.reset()
        self._seek_committed(asked, committed)

    def _seek_committed(
        self, asked: Asked, committed: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        for state, stretch in asked:
            if not self._is_current(state, stretch) or state.state is not FetchState.INITIALIZING:
                continue
            offset = committed.get(state.partition)
            if offset is not None:
                position = Position(offset.offset, wire_epoch(offset.leader_epoch))
                leader = self._cluster.metadata.leader_or_none(state.partition)
                state.seek_validated(position, leader)
            elif self._subscription.default_reset != NONE:
                state.request_reset(self._subscription.default_reset)
        if self._subscription.default_reset == NONE:
            try:
                self._subscription.reset_missing()
            except ClientError as problem:
                self._problem = problem

    async def _reset(self, asked: Asked) -> None:
        now_ms = self._cluster.clock.time_ms()
        wanted = {state.partition: reset_timestamp(state.reset, now_ms) for state, _ in asked}
        answers = await ask_leaders(self._cluster, wanted)
        nowhere = {
            partition: LATEST for partition, found in answers.found.items() if found.offset < 0
        }
        if nowhere:
            # No record is as young as by_duration asks for: the next one will be.
            ends = await ask_leaders(self._cluster, nowhere)
            answers.found.update(ends.found)
            for partition, problem in ends.failed.items():
                del answers.found[partition]
                answers.failed[partition] = problem
        for state, stretch in asked:
            found = answers.found.get(state.partition)
            if found is not None and self._is_current(state, stretch):
                state.seek(Position(found.offset, found.leader_epoch))
        self._retry_failed(asked, answers.failed)

    def _retry_failed(self, asked: Asked, failed: Mapping[TopicPartition, ClientError]) -> None:
        if not failed:
            self._backoff.reset()
            return
        worst = next(
            (problem for problem in failed.values() if not may_pass(problem)),
            next(iter(failed.values())),
        )
        self._failed([row for row in asked if row[0].partition in failed], worst)

    async def _validate(self, asked: Asked) -> None:
        failed: dict[TopicPartition, ClientError] = {}
        by_leader: dict[int, Asked] = {}
        for state, stretch in asked:
            leader = self._cluster.metadata.leader_or_none(state.partition)
            if leader is None:
                failed[state.partition] = no_leader(self._cluster, state.partition)
            else:
                by_leader.setdefault(leader.leader_id, []).append((state, stretch))
        await asyncio.gather(
            *(self._validate_at(node_id, rows, failed) for node_id, rows in by_leader.items())
        )
        self._retry_failed(asked, failed)

    async def _validate_at(
        self, node_id: int, asked: Asked, failed: dict[TopicPartition, ClientError]
    ) -> None:
        try:
            versions = await self._cluster.versions(node_id)
            version = versions.version_or_none(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            if version is None or version < _VALIDATION_VERSION:
                self._confirm(asked)
                return
            response = await self._cluster.call(node_id, _epochs_request(asked), at_most=version)
        except UnsupportedByBroker:
            self._confirm(asked)
            return
        except NotAuthorized:
            # As in Kafka: without the right to ask, the position is taken as it is.
            self._confirm(asked)
            return
        except ClientError as problem:
            failed.update({state.partition: problem for state, _ in asked})
            return
        assert isinstance(response, OffsetForLeaderEpochResponse), response
        rows = {
            TopicPartition(topic.topic, row.partition): row
            for topic in response.topics
            for row in topic.partitions
        }
        for state, stretch in asked:
            row = rows.get(state.partition)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if row is None else row.error_code
            if row is None or code:
                failed[state.partition] = refused(f"epochs of {state.partition}", code)
                continue
            if not self._is_current(state, stretch) or state.position is None:
                continue
            if row.end_offset < 0 or row.leader_epoch == NO_LEADER_EPOCH:
                self._note_truncation(state, row.leader_epoch, -1)
            elif row.end_offset < state.position.offset:
                self._note_truncation(state, row.leader_epoch, row.end_offset)
            else:
                state.validated()

    def _note_truncation(self, state: PartitionState, epoch: int, end_offset: int) -> None:
        try:
            self.truncated(state, epoch, end_offset)
        except LogTruncation as problem:
            self._problem = problem

    def _confirm(self, asked: Asked) -> None:
        for state, stretch in asked:
            if self._is_current(state, stretch) and state.state is FetchState.AWAIT_VALIDATION:
                state.validated()


def _epochs_request(asked: Asked) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for state, _ in asked:
        assert state.position is not None
        assert state.leader is not None
        topics.setdefault(state.partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=state.partition.partition,
                current_leader_epoch=state.leader.leader_epoch,
                leader_epoch=state.position.offset_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=rows) for name, rows in topics.items()],
    )
