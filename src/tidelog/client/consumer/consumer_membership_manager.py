"""A consumer in a group of the consumer protocol (KIP-848): the broker assigns.

One task sends ConsumerGroupHeartbeat, at the broker's interval and at once when there is something
to say. `advance` walks to the assignment that the broker wants: it commits if commits are
automatic, tells the listener what is revoked, takes the partitions away, adds the new ones, tells
the listener again, and lets the next heartbeat say so. Fenced, or stale because polls were too far
apart, the member loses its partitions and joins again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.consumer_member import (
    ConsumerMember,
    ConsumerMemberState,
    Subscribed,
)
from tidelog.client.consumer.group import Listeners, PollInterval
from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
from tidelog.client.consumer.offset_commits import CommitIdentity, EpochMoved
from tidelog.client.errors import (
    ClientError,
    CommitFailed,
    ConnectionFailed,
    RequestTimedOut,
    UnsupportedByBroker,
)
from tidelog.client.network.backoff import Backoff, may_pass
from tidelog.client.network.cluster import Purpose
from tidelog.client.network.coordinators import COORDINATOR_MOVED, CoordinatorKind
from tidelog.clock import pause
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tidelog.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.consumer.consumer_member import Reconciliation
    from tidelog.client.consumer.group import Call
    from tidelog.client.consumer.offset_commits import OffsetCommits
    from tidelog.client.consumer.subscription_state import SubscriptionState
    from tidelog.client.network.cluster import Cluster

log = logging.getLogger(__name__)

REGEX_VERSION: Final = 1
# Before the broker has said how often.
FIRST_INTERVAL_S: Final = 5.0


class ConsumerMembershipManager:
    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        call: Call,
        on_news: Callable[[], None],
    ) -> None:
        config = cluster.config
        self._cluster = cluster
        self._subscription = subscription
        self._listeners = Listeners(subscription, call)
        self._on_news = on_news
        self._backoff = Backoff.of(config, "retry.backoff.ms")
        self.member = ConsumerMember(
            config.text("group.id"),
            member_id=str(Uuid.random()),
            group_instance_id=config.text_or_none("group.instance.id") or None,
            rack_id=config.text_or_none("client.rack") or None,
            server_assignor=config.text_or_none("group.remote.assignor") or None,
            rebalance_timeout_ms=config.integer("max.poll.interval.ms"),
        )
        self.commits: OffsetCommits | None = None  # set by who makes both
        self.consumed = subscription.consumed
        # A pattern that the broker evaluates.
        self.regex: str | None = None
        self._names: dict[Uuid, str] = {}
        self._last_commit: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        self.polls = PollInterval(config, cluster.clock)
        self._problem: ClientError | None = None

    # What the consumer asks

    @property
    def needs_attention(self) -> bool:
        if self._problem is not None:
            return True
        if not self._subscription.is_auto_assigned:
            return False
        return self.member.is_silent or self.member.state is ConsumerMemberState.RECONCILING

    def subscription_changed(self) -> None:
        wanted = Subscribed(
            self._subscription.topics if self.regex is None else frozenset(), self.regex
        )
        if self.member.subscribed != wanted:
            self.member.subscribed = wanted
            self._awake.set()

    def metadata_changed(self) -> None:
        """The assignment names topics by id, and metadata may know their names now."""

    def enforce_rebalance(self, reason: str) -> None:
        """The broker decides when to rebalance."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        member = self.member
        return ConsumerGroupMetadata(
            member.group_id, member.member_epoch, member.member_id, member.group_instance_id
        )

    def commit_identity(self) -> CommitIdentity:
        member = self.member
        if not self._subscription.is_auto_assigned:
            return CommitIdentity()
        if not member.is_member:
            raise self._commit_failed()
        return CommitIdentity(member.member_epoch, member.member_id, member.group_instance_id)

    def fetch_identity(self) -> CommitIdentity:
        if self._subscription.is_auto_assigned and self.member.is_member:
            return CommitIdentity(self.member.member_epoch, self.member.member_id)
        return CommitIdentity()

    def commit_refused(self, sent: CommitIdentity, code: int) -> ClientError:
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            if self.member.is_member:
                return EpochMoved(f"group {self._group_id}: the epoch has moved", code)
            return self._commit_failed(code)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            return self._commit_failed(code)
        return CommitFailed(
            f"group {self._group_id}: the commit was refused: {ErrorCode.of(code).text}", code
        )

    def _commit_failed(self, code: int = ErrorCode.UNKNOWN_MEMBER_ID) -> CommitFailed:
        return CommitFailed(
            f"group {self._group_id}: the consumer is no member any more and its partitions belong "
            "to others; polls were too far apart (max.poll.interval.ms, max.poll.records)",
            code,
        )

    # Assignments

    async def advance(self) -> bool:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if not self._subscription.is_auto_assigned:
            return True
        if self.member.is_silent:
            await self._join()
            return False
        step = self._next_step()
        if step is None:
            return self.member.is_member and self.member.is_reconciled
        if not self._is_committed(step):
            return False
        await self._reconcile(step)
        return self._next_step() is None

    async def _join(self) -> None:
        """Joins at first, and again after the broker fenced the member or it was stale. Its
        partitions are lost then."""
        if self.member.state is ConsumerMemberState.FATAL:
            return
        self._last_commit = None
        owned = self._subscription.assignment
        self.member.released()
        self.subscription_changed()
        try:
            if owned:
                await self._listeners.lost(owned)
        finally:
            if self._subscription.is_auto_assigned:
                self._subscription.assign_from_subscribed(())
                self.member.join()
                self._awake.set()
                if self._heartbeats is None:
                    self._heartbeats = asyncio.get_running_loop().create_task(self._heartbeating())

    def _next_step(self) -> Reconciliation | None:
        target = self.member.target
        if target is None:
            return None
        metadata = self._cluster.metadata
        for topic_id in target:
            if (name := metadata.name_or_none(topic_id)) is not None:
                self._names[topic_id] = name
        step = self.member.reconciliation_or_none(self._names)
        if any(topic_id not in self._names for topic_id in target):
            self._cluster.refresh_soon()
        return step

    def _is_committed(self, step: Reconciliation) -> bool:
        """Returns False while the commit before the reconciliation is under way."""
        commits = self.commits
        if commits is None or not commits.is_automatic:
            return True
        if self._last_commit is None:
            self._subscription.mark_pending_revocation(step.revoked)
            self._last_commit = asyncio.get_running_loop().create_task(self._commit(commits))
        if not self._last_commit.done():
            return False
        self._last_commit = None
        return True

    async def _commit(self, commits: OffsetCommits) -> None:
        try:
            await commits.commit_before_rebalance(self.consumed(), self.polls.maximum_s)
        finally:
            self._on_news()

    async def _reconcile(self, step: Reconciliation) -> None:
        subscription = self._subscription
        subscription.mark_pending_revocation(step.revoked)
        try:
            if step.revoked:
                await self._listeners.revoked(step.revoked)
        finally:
            if self.member.is_current(step):
                await self._take_over(step)

    async def _take_over(self, step: Reconciliation) -> None:
        subscription = self._subscription
        kept = [tp for tp in subscription.assignment if tp not in step.revoked]
        subscription.assign_from_subscribed(kept)
        if self.regex is not None:
            subscription.topics_came_assigned({tp.topic for tp in step.assigned})
        subscription.assign_from_subscribed(step.assigned)
        subscription.await_callback(step.added)
        try:
            await self._listeners.assigned(step.added)
        finally:
            subscription.callback_done(step.added)
            if self.member.is_current(step):
                self.member.reconciled(step)
                self._awake.set()

    # Heartbeats

    async def _heartbeating(self) -> None:
        clock = self._cluster.clock
        sent_at = 0.0
        while True:
            self._awake.clear()
            if self.member.is_silent:
                await self._awake.wait()
                continue
            now = clock.monotonic()
            if self.polls.is_over(now):
                await self._leave_stale()
                continue
            interval_s = self.member.heartbeat_interval_ms / 1000 or FIRST_INTERVAL_S
            due_s = sent_at + interval_s - now
            if due_s > 0 and not self.member.is_urgent:
                await self._awake_or_after(self.polls.pause_s(due_s, now))
                continue
            sent_at = now
            try:
                is_fine = await self._heartbeat()
            except ClientError as problem:
                self.member.fail()
                self._problem = problem
                self._on_news()
                continue
            if not is_fine:
                await pause(self._cluster.timer, self._backoff.next_s())
                sent_at = 0.0

    async def _awake_or_after(self, seconds: float) -> None:
        handle = self._cluster.timer.call_later(seconds, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            handle.cancel()

    async def _heartbeat(self) -> bool:
        """Sends one heartbeat. Returns whether the next one may wait for the interval; raises what
        ends the membership."""
        member = self.member
        try:
            response = await self._send_heartbeat()
        except (ConnectionFailed, RequestTimedOut):
            self._forget_coordinator()
            member.forget_sent()
            return False
        except UnsupportedByBroker as problem:
            raise UnsupportedByBroker(
                f"group {self._group_id}: the cluster does not offer the consumer protocol, set "
                f"group.protocol=classic ({problem})"
            ) from problem
        except ClientError as problem:
            member.forget_sent()
            if not may_pass(problem):
                raise
            return False
        if not response.error_code:
            before = member.state
            member.heartbeat_answered(response)
            self._backoff.reset()
            if member.state is not before:
                self._on_news()
            return True
        if response.error_code in COORDINATOR_MOVED:
            self._forget_coordinator()
        is_fenced = member.heartbeat_refused(response.error_code, response.error_message)
        if is_fenced:
            self._on_news()
        return is_fenced

    async def _send_heartbeat(self) -> ConsumerGroupHeartbeatResponse:
        node_id = await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)
        versions = await self._cluster.versions(node_id, Purpose.COORDINATION)
        version = versions.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if version < REGEX_VERSION and self.member.subscribed.regex is not None:
            raise UnsupportedByBroker(
                f"broker {node_id} evaluates no patterns; subscribe with a compiled pattern, which "
                "the consumer evaluates itself"
            )
        response = await self._cluster.call(
            node_id,
            self.member.heartbeat(version),
            at_most=version,
            purpose=Purpose.COORDINATION,
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse), response
        return response

    # Leaving

    async def _leave_stale(self) -> None:
        if self.member.leave():
            await self._tell_leave(5.0)
        self.member.left(is_stale=True)
        self._on_news()

    async def leave(self, timeout_s: float) -> None:
        subscription = self._subscription
        owned = subscription.assignment
        is_lost = not self.member.is_member
        try:
            if owned and subscription.is_auto_assigned:
                try:
                    await (self._listeners.lost if is_lost else self._listeners.revoked)(owned)
                finally:
                    subscription.assign_from_subscribed(())
        finally:
            await self._end_heartbeats()
            if self.member.leave():
                await self._tell_leave(timeout_s)
                self.member.left(is_stale=False)

    async def _tell_leave(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._send_heartbeat()
        except (ClientError, TimeoutError) as problem:
            log.debug("group %s: the broker was not told of the leave: %s", self._group_id, problem)

    async def _end_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await self._end_heartbeats()
        if self._last_commit is not None:
            self._last_commit.cancel()
            await asyncio.gather(self._last_commit, return_exceptions=True)

    @property
    def _group_id(self) -> str:
        return self.member.group_id

    def _forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorKind.GROUP, self._group_id)
