"""Committing offsets and asking for committed ones.

Commits leave in the order in which they were made, over the coordinator's connection, so a later
one always wins. `commit` retries until its time is up; `commit_soon` sends once, because a retry
could overtake a later commit, and its outcome is told by the next poll, commit or close. An
automatic commit that failed for a passing reason is made again, with the positions of then, after
retry.backoff.ms.

Who commits (`Committer`) is the group's business: a generation or a member epoch, or neither for
partitions that were assigned by the user.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.client.consumer.offset_and_metadata import (
    NO_GENERATION_ID,
    NO_MEMBER_ID,
    OffsetAndMetadata,
    known_epoch,
    require_committable,
    wire_epoch,
)
from tidelog.client.consumer.offset_lookup import names_of
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    ConnectionFailed,
    FencedInstance,
    RequestTimedOut,
    UnknownTopic,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.client.network.cluster import Purpose
from tidelog.client.network.coordinators import COORDINATOR_MOVED, CoordinatorKind
from tidelog.client.network.versions import LAST_BY_NAME
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.network.cluster import Cluster

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, ClientError | None], Awaitable[None] | None]

_ASK_ANOTHER = COORDINATOR_MOVED | {ErrorCode.REQUEST_TIMED_OUT}
_OF_THE_MEMBERSHIP = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    )
)
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_MEMBER = 9
_FIRST_STABLE = 7


class CommitIdentity(NamedTuple):
    generation_id_or_member_epoch: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


class EpochMoved(BrokerRefused):
    """The member has a newer epoch by now and may commit with it."""


def may_commit_later(problem: ClientError) -> bool:
    return isinstance(problem, EpochMoved) or may_pass(problem)


class Committer(Protocol):
    """The member that commits."""

    def commit_identity(self) -> CommitIdentity:
        """Raises CommitFailed or RebalanceInProgress when the member may not commit."""

    def commit_refused(self, sent: CommitIdentity, code: int) -> ClientError:
        """The error for a refusal that concerns the membership."""

    def fetch_identity(self) -> CommitIdentity:
        """What committed offsets are asked for with."""


class _Completed(NamedTuple):
    on_commit: OnCommit | None
    offsets: Offsets
    problem: ClientError | None


class _Turn(NamedTuple):
    """Waits until the commit before was sent, and lets the next one go."""

    before: asyncio.Future[None] | None
    sent: asyncio.Future[None]

    async def __aenter__(self) -> None:
        if self.before is not None and not self.before.done():
            try:
                await asyncio.shield(self.before)
            except asyncio.CancelledError:
                self.before.add_done_callback(lambda _: self.sent.set_result(None))
                raise

    async def __aexit__(self, *exc: object) -> None:
        self.sent.set_result(None)


class OffsetCommits:
    """Of one group. `committer` may be changed between commits."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        committer: Committer,
        on_news: Callable[[], None],
        *,
        interval_s: float | None = None,
        requires_stable: bool = False,
    ) -> None:
        """`interval_s` is the interval of automatic commits; None turns them off. With
        `requires_stable`, a broker that gives offsets of open transactions is an error."""
        self._cluster = cluster
        self._group_id = group_id
        self._on_news = on_news
        self.committer = committer
        self._interval_s = interval_s
        self._oldest_fetch = _FIRST_STABLE if requires_stable else 0
        self._next_auto_commit = self._from_now(interval_s or 0)
        # Done when the commit made last has been sent.
        self._last_turn: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._completed: deque[_Completed] = deque()
        self._fenced: FencedInstance | None = None

    # Automatic commits

    @property
    def is_automatic(self) -> bool:
        return self._interval_s is not None

    def is_auto_commit_due(self) -> bool:
        return self.is_automatic and self._cluster.clock.monotonic() >= self._next_auto_commit

    def next_auto_commit_or_none(self) -> float | None:
        return self._next_auto_commit if self.is_automatic else None

    def restart_interval(self) -> None:
        self._next_auto_commit = self._from_now(self._interval_s or 0)

    def auto_commit(self, offsets: Offsets) -> None:
        self.restart_interval()
        if offsets:
            self.commit_soon(offsets, self._auto_committed)

    def _auto_committed(self, offsets: Offsets, problem: ClientError | None) -> None:
        if problem is None:
            return
        if may_commit_later(problem):
            retry_s = self._cluster.config.integer("retry.backoff.ms") / 1000
            self._next_auto_commit = min(self._next_auto_commit, self._from_now(retry_s))
            log.debug("automatic commit of %s will be tried again: %s", names_of(offsets), problem)
        else:
            log.warning("automatic commit of %s failed: %s", names_of(offsets), problem)

    def _from_now(self, seconds: float) -> float:
        return self._cluster.clock.monotonic() + seconds

    # Commits

    async def commit_last(self, offsets: Offsets, timeout_s: float) -> None:
        """Commits before partitions go to others. Does not wait for a topic that was deleted."""
        await self.commit(offsets, timeout_s, awaits_topics=False)

    async def commit_before_rebalance(self, offsets: Offsets, timeout_s: float) -> None:
        """As `commit_last`. The rebalance goes on without a commit that fails."""
        try:
            await self.commit_last(offsets, timeout_s)
        except ClientError as problem:
            log.warning("group %s: no commit before the rebalance: %s", self._group_id, problem)

    async def commit(
        self, offsets: Offsets, timeout_s: float | None = None, *, awaits_topics: bool = True
    ) -> None:
        """Returns when the offsets are committed and all earlier commits have their outcome."""
        require_committable(offsets)
        what = f"commit of {names_of(offsets)} to group {self._group_id}"
        patience = self._cluster.patience(what)
        if timeout_s is not None:
            patience.deadline = min(patience.deadline, self._from_now(timeout_s))
        while offsets:
            try:
                await self._commit_once(offsets, self._take_turn(), patience.left_s)
                break
            except ClientError as problem:
                is_final = isinstance(problem, CommitFailed) or (
                    isinstance(problem, UnknownTopic) and not awaits_topics
                )
                if is_final or not may_commit_later(problem):
                    raise
                await patience.wait_after(problem)
        await self.settle(patience.left_s)

    def commit_soon(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        require_committable(offsets)
        work = self._commit_and_note(offsets, on_commit, self._take_turn())
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Waits for commits in flight."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_s)

    @property
    def has_completed(self) -> bool:
        """Whether a commit callback is waiting to be called."""
        return bool(self._completed) or self._fenced is not None

    async def tell_completed(
        self, call: Callable[[OnCommit, Offsets, ClientError | None], Awaitable[None]]
    ) -> None:
        while self._completed:
            on_commit, offsets, problem = self._completed.popleft()
            if on_commit is not None:
                await call(on_commit, offsets, problem)
            elif problem is not None:
                log.error("commit of %s failed: %s", names_of(offsets), problem)
        if self._fenced is not None:
            raise self._fenced

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take_turn(self) -> _Turn:
        """Takes a place in the order of commits now, not when the request can be made."""
        turn = _Turn(self._last_turn, asyncio.get_running_loop().create_future())
        self._last_turn = turn.sent
        return turn

    async def _commit_and_note(
        self, offsets: Offsets, on_commit: OnCommit | None, turn: _Turn
    ) -> None:
        problem: ClientError | None = None
        try:
            await self._commit_once(offsets, turn)
        except ClientError as failed:
            problem = failed
            if isinstance(failed, FencedInstance):
                self._fenced = failed
        if on_commit == self._auto_committed:
            self._auto_committed(offsets, problem)
        else:
            self._completed.append(_Completed(on_commit, offsets, problem))
            self._on_news()

    async def _commit_once(
        self, offsets: Offsets, turn: _Turn, timeout_s: float | None = None
    ) -> None:
        limit_s = self._cluster.config.integer("request.timeout.ms") / 1000
        timeout_s = limit_s if timeout_s is None else min(limit_s, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self._send_commit(offsets, turn)
        except TimeoutError:
            self._forget_coordinator()
            raise RequestTimedOut(
                f"commit of {names_of(offsets)} to group {self._group_id}: no answer in "
                f"{round(timeout_s * 1000)} ms"
            ) from None

    async def _send_commit(self, offsets: Offsets, turn: _Turn) -> None:
        async with turn:
            if not offsets:
                return
            node_id = await self._coordinator()
            identity = self.committer.commit_identity()
            version = (await self._cluster.versions(node_id, Purpose.COORDINATION)).version(
                ApiKey.OFFSET_COMMIT, LAST_BY_NAME[ApiKey.OFFSET_COMMIT]
            )
            answer = self._cluster.send(
                node_id,
                _commit_request(self._group_id, identity, offsets, version),
                at_most=version,
                purpose=Purpose.COORDINATION,
            )
        try:
            response = await answer
        except (ConnectionFailed, RequestTimedOut):
            self._forget_coordinator()
            raise
        assert isinstance(response, OffsetCommitResponse), response
        self._check(offsets, identity, response)

    def _check(
        self, offsets: Offsets, identity: CommitIdentity, response: OffsetCommitResponse
    ) -> None:
        unauthorized: BrokerRefused | None = None
        answered: set[TopicPartition] = set()
        for topic in response.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                answered.add(partition)
                code = row.error_code
                if not code:
                    continue
                if code in _OF_THE_MEMBERSHIP:
                    raise self.committer.commit_refused(identity, code)
                problem = refused(f"commit of {partition} to group {self._group_id}", code)
                if code in _ASK_ANOTHER:
                    self._forget_coordinator()
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    unauthorized = problem
                    continue
                raise problem
        if unauthorized is not None:
            raise unauthorized
        if not offsets.keys() <= answered:
            raise refused(
                f"commit to group {self._group_id}",
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "The answer lacks partitions.",
            )

    # Committed offsets

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """As `fetch`, with retries for default.api.timeout.ms."""
        wanted = list(partitions)
        if not wanted:
            return {}
        patience = self._cluster.patience(
            f"committed offsets of {names_of(dict.fromkeys(wanted))} in group {self._group_id}"
        )
        while True:
            try:
                async with asyncio.timeout(patience.left_s):
                    return await self.fetch(wanted)
            except TimeoutError:
                raise patience.given_up(
                    refused(f"group {self._group_id}", ErrorCode.REQUEST_TIMED_OUT)
                ) from None
            except ClientError as problem:
                if not may_commit_later(problem):
                    raise
                await patience.wait_after(problem)

    async def fetch(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """One try. None for partitions without a committed offset."""
        node_id = await self._coordinator()
        version = (await self._cluster.versions(node_id, Purpose.COORDINATION)).version(
            ApiKey.OFFSET_FETCH, LAST_BY_NAME[ApiKey.OFFSET_FETCH], self._oldest_fetch
        )
        identity = self.committer.fetch_identity()
        request = _fetch_request(self._group_id, identity, partitions, version)
        try:
            response = await self._cluster.call(
                node_id, request, at_most=version, purpose=Purpose.COORDINATION
            )
        except (ConnectionFailed, RequestTimedOut):
            self._forget_coordinator()
            raise
        assert isinstance(response, OffsetFetchResponse), response
        return self._committed_of(response, version, partitions)

    def _committed_of(
        self, response: OffsetFetchResponse, version: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        topics: Iterable[_FetchedTopic] = response.topics
        code = response.error_code
        if version >= _FIRST_WITH_GROUPS:
            groups = [group for group in response.groups if group.group_id == self._group_id]
            if not groups:
                raise refused(f"group {self._group_id}", ErrorCode.UNKNOWN_SERVER_ERROR)
            topics, code = groups[0].topics, groups[0].error_code
        if code:
            raise self._fetch_refused(f"committed offsets of group {self._group_id}", code)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for topic in topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    what = f"committed offset of {partition} in group {self._group_id}"
                    raise self._fetch_refused(what, row.error_code)
                if row.committed_offset >= 0 and partition in found:
                    found[partition] = OffsetAndMetadata(
                        row.committed_offset,
                        known_epoch(row.committed_leader_epoch),
                        row.metadata or "",
                    )
        return found

    def _fetch_refused(self, what: str, code: int) -> BrokerRefused:
        if code in _ASK_ANOTHER:
            self._forget_coordinator()
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            return EpochMoved(f"{what}: the next heartbeat brings the epoch", code)
        return refused(what, code)

    async def _coordinator(self) -> int:
        return await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)

    def _forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorKind.GROUP, self._group_id)


class _FetchedPartition(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class _FetchedTopic(Protocol):
    name: str

    @property
    def partitions(self) -> Iterable[_FetchedPartition]: ...


def _commit_request(
    group_id: str, identity: CommitIdentity, offsets: Offsets, version: int
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, offset in offsets.items():
        row = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset.offset,
            committed_metadata=offset.metadata,
        )
        if version >= 6:
            row.committed_leader_epoch = wire_epoch(offset.leader_epoch)
        topics.setdefault(partition.topic, []).append(row)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation_id_or_member_epoch,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()],
    )


def _fetch_request(
    group_id: str, identity: CommitIdentity, partitions: Iterable[TopicPartition], version: int
) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    if version < _FIRST_WITH_GROUPS:
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=rows)
                for name, rows in topics.items()
            ],
        )
    else:
        group = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=[
                OffsetFetchRequestTopics(name=name, partition_indexes=rows)
                for name, rows in topics.items()
            ],
        )
        if version >= _FIRST_WITH_MEMBER and identity.member_id:
            group.member_id = identity.member_id
            group.member_epoch = identity.generation_id_or_member_epoch
        request = OffsetFetchRequest(groups=[group])
    if version >= _FIRST_STABLE:
        # Offsets in an open transaction are waited for (KIP-447).
        request.require_stable = True
    return request
