"""A consumer in a classic group: joins, assigns as the leader, heartbeats, leaves.

A rebalance, seen from the application's polls
    1. `advance` finds that a join is needed. It marks the partitions (eager), commits if commits
       are automatic, and tells the listener what is revoked: everything (eager), what is no longer
       subscribed (cooperative), or everything as lost if the generation is gone.
    2. A task finds the coordinator and sends JoinGroup; the leader asks for metadata of all topics
       of the group, runs the assignor and sends the result with SyncGroup.
    3. `advance` takes the assignment, tells the listener what is revoked (cooperative) and what has
       come, and joins again if something was revoked.

The leader follows the topics of all members, and joins again when their partitions change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.assignor import RebalanceProtocol, Subscription
from tidelog.client.consumer.assignors.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.client.consumer.classic_member import (
    PROTOCOL_TYPE,
    ClassicMember,
    Generation,
    MemberState,
    Next,
)
from tidelog.client.consumer.group import Listeners, PollInterval
from tidelog.client.consumer.offset_and_metadata import NO_GENERATION_ID, ConsumerGroupMetadata
from tidelog.client.consumer.offset_commits import CommitIdentity
from tidelog.client.errors import (
    ClientError,
    ConnectionFailed,
    IllegalState,
    RequestTimedOut,
    UnreadableAnswer,
    UnsupportedByBroker,
)
from tidelog.client.network.backoff import Backoff, may_pass
from tidelog.client.network.cluster import Purpose
from tidelog.client.network.coordinators import CoordinatorKind
from tidelog.clock import pause
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from tidelog.client.consumer.assignors.assignor import Assignment, Assignor, PartitionRacks
    from tidelog.client.consumer.group import Call
    from tidelog.client.consumer.offset_commits import OffsetCommits
    from tidelog.client.consumer.subscription_state import SubscriptionState
    from tidelog.client.network.cluster import Cluster
    from tidelog.types import TopicPartition

log = logging.getLogger(__name__)

JOIN_LAPSE_S: Final = 5.0  # that an answer may be later than the rebalance timeout
REASON_LENGTH_MAX: Final = 255

_REBALANCE_TIMEOUT_VERSION = 1
_INSTANCE_ID_VERSION = 5
_REASON_VERSION = 8
_SYNC_INSTANCE_ID_VERSION = 3
_SYNC_PROTOCOL_VERSION = 5
_LEAVE_MEMBERS_VERSION = 3
_LEAVE_REASON_VERSION = 5


class ConsumerCoordinator:
    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        assignors: Sequence[Assignor],
        call: Call,
        on_news: Callable[[], None],
    ) -> None:
        config = cluster.config
        group_id = config.text("group.id")
        self._cluster = cluster
        self._subscription = subscription
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = highest_common_protocol(assignors)
        self._listeners = Listeners(subscription, call)
        self._on_news = on_news
        self._instance_id = config.text_or_none("group.instance.id") or None
        self._rack_id = config.text_or_none("client.rack") or None
        self._session_timeout_s = config.seconds("session.timeout.ms")
        self._heartbeat_interval_s = config.seconds("heartbeat.interval.ms")
        self._backoff = Backoff.of(config, "retry.backoff.ms")
        self.member = ClassicMember(group_id, self._instance_id)
        self.commits: OffsetCommits | None = None  # set by who makes both
        self.consumed = subscription.consumed
        self._is_leader = False
        # Topics and partitions that the assignment was made of, None unless this member made it.
        self._assigned_from: dict[str, int] | None = None
        self._joined_topics: frozenset[str] | None = None
        self._join: asyncio.Task[bytes | None] | None = None
        self._last_commit: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._heartbeat_news = asyncio.Event()
        self._heard_at = 0.0  # when the coordinator last answered a heartbeat
        self.polls = PollInterval(config, cluster.clock)
        self._problem: ClientError | None = None
        self._leaves: set[asyncio.Task[None]] = set()

    # What the consumer asks

    @property
    def needs_attention(self) -> bool:
        if self._problem is not None:
            return True
        if not self._subscription.is_auto_assigned:
            return False
        return self.member.rejoin_needed or self._join is not None

    def subscription_changed(self) -> None:
        if self._joined_topics is not None and self._joined_topics != self._subscription.topics:
            self._request_rejoin("subscription has changed")

    def metadata_changed(self) -> None:
        if self._assigned_from is not None and self._assigned_from != self._partition_counts(
            self._subscription.group_topics
        ):
            self._request_rejoin("cached metadata has changed")

    def enforce_rebalance(self, reason: str) -> None:
        self.member.request_rejoin(reason or "rebalance enforced by user")

    def _request_rejoin(self, reason: str) -> None:
        if not self.member.rejoin_needed:
            self.member.request_rejoin(reason)

    def group_metadata(self) -> ConsumerGroupMetadata:
        generation = self.member.generation
        return ConsumerGroupMetadata(
            self.member.group_id,
            generation.generation_id,
            generation.member_id,
            self._instance_id,
        )

    def commit_identity(self) -> CommitIdentity:
        if not self._subscription.is_auto_assigned:
            return CommitIdentity()
        generation = self.member.commit_generation()
        return CommitIdentity(generation.generation_id, generation.member_id, self._instance_id)

    def fetch_identity(self) -> CommitIdentity:
        return CommitIdentity()

    def commit_refused(self, sent: CommitIdentity, code: int) -> ClientError:
        generation = self.member.generation
        is_unchanged = sent[:2] == generation[:2]
        judged = generation if is_unchanged else Generation(*sent[:2])
        problem = self.member.commit_refused(judged, code)
        self._on_news()
        return problem

    # Rebalances

    async def advance(self) -> bool:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if not self._subscription.is_auto_assigned:
            return True
        while self.member.rejoin_needed or self._join is not None:
            if self._join is None:
                if self.member.needs_prepare and not await self._prepare():
                    return False
                self._start_join()
            assert self._join is not None
            if not self._join.done():
                return False
            join, self._join = self._join, None
            assignment = join.result()
            if assignment is None:
                continue
            if self.member.state is not MemberState.STABLE or self.member.generation.is_reset:
                self.member.reset("the generation was given up", keep_member_id=False)
                continue
            self.member.needs_prepare = True
            await self._complete(assignment)
        return True

    async def _prepare(self) -> bool:
        """Whether the member may join now; False while the last commit is under way."""
        commits = self.commits
        if commits is not None and commits.is_automatic:
            if self._last_commit is None:
                if self._protocol is RebalanceProtocol.EAGER:
                    self._subscription.mark_pending_revocation(self._subscription.assignment)
                self._last_commit = self._task(self._commit_before_rebalance(commits))
            if not self._last_commit.done():
                return False
            self._last_commit = None
        # Not again, even if the listener raises.
        self.member.needs_prepare = False
        self._is_leader = False
        self._assigned_from = None
        subscription = self._subscription
        owned = subscription.assignment
        if self.member.has_lost_partitions:
            if owned:
                try:
                    await self._listeners.lost(owned)
                finally:
                    subscription.assign_from_subscribed(())
        elif self._protocol is RebalanceProtocol.EAGER:
            try:
                if owned:
                    await self._listeners.revoked(owned)
            finally:
                subscription.assign_from_subscribed(())
        else:
            dropped = {tp for tp in owned if tp.topic not in subscription.topics}
            if dropped:
                subscription.mark_pending_revocation(dropped)
                try:
                    await self._listeners.revoked(dropped)
                finally:
                    subscription.assign_from_subscribed(owned - dropped)
        subscription.group_topics = frozenset()
        return True

    async def _commit_before_rebalance(self, commits: OffsetCommits) -> None:
        try:
            await commits.commit_before_rebalance(self.consumed(), self.polls.maximum_s)
        finally:
            self._on_news()

    def _start_join(self) -> None:
        self._join = asyncio.get_running_loop().create_task(self._joining())
        self._join.add_done_callback(lambda _: self._on_news())
        if self._heartbeats is None:
            self._heartbeats = self._task(self._keep_heartbeating())

    async def _joining(self) -> bytes | None:
        """One rebalance: this member's assignment, or None if it has to begin anew."""
        while True:
            try:
                joined = await self._join_and_sync()
            except (ConnectionFailed, RequestTimedOut) as problem:
                self._forget_coordinator()
                self.member.join_failed(problem)
                joined = Next.RETRY
            except ClientError as problem:
                self.member.join_failed(problem)
                if not may_pass(problem):
                    raise
                joined = Next.RETRY
            if isinstance(joined, bytes):
                self._backoff.reset()
                return joined
            if joined is Next.FIND_COORDINATOR:
                self._forget_coordinator()
            if joined is not Next.JOIN_AGAIN:
                await pause(self._cluster.timer, self._backoff.next_s())
            if self.member.needs_prepare or not self._subscription.is_auto_assigned:
                return None

    async def _join_and_sync(self) -> bytes | Next:
        node_id = await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)
        versions = await self._cluster.versions(node_id, Purpose.COORDINATION)
        sent = self.member.joining()
        self._joined_topics = self._subscription.topics
        version = versions.version(ApiKey.JOIN_GROUP)
        rebalance_s = self.polls.maximum_s + JOIN_LAPSE_S
        response = await self._call(
            node_id,
            self._join_request(version),
            version,
            max(rebalance_s, self._cluster.config.seconds("request.timeout.ms")),
        )
        assert isinstance(response, JoinGroupResponse), response
        outcome = self.member.join_answered(sent, response)
        if outcome is not Next.GO_ON:
            return outcome
        self._heard_at = self._cluster.clock.monotonic()
        self._heartbeat_news.set()
        assignments: list[SyncGroupRequestAssignment] = []
        if response.leader == response.member_id:
            assignments = await self._assign(response)
        sent = self.member.generation
        version = versions.version(ApiKey.SYNC_GROUP)
        answer = await self._call(node_id, self._sync_request(version, assignments), version)
        assert isinstance(answer, SyncGroupResponse), answer
        outcome = self.member.sync_answered(sent, answer)
        return bytes(answer.assignment) if outcome is Next.GO_ON else outcome

    def _join_request(self, version: int) -> JoinGroupRequest:
        topics = sorted(self._subscription.topics)
        generation_id = self.member.generation.generation_id
        owned = sorted(self._subscription.assignment)
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=round(self._session_timeout_s * 1000),
            member_id=self.member.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=encode_subscription(
                        Subscription(
                            topics,
                            assignor.subscription_user_data(topics),
                            owned,
                            None if generation_id == NO_GENERATION_ID else generation_id,
                            self._instance_id,
                            self._rack_id,
                        )
                    ),
                )
                for name, assignor in self._assignors.items()
            ],
        )
        if version >= _REBALANCE_TIMEOUT_VERSION:
            request.rebalance_timeout_ms = round(self.polls.maximum_s * 1000)
        if self._instance_id is not None:
            if version < _INSTANCE_ID_VERSION:
                raise UnsupportedByBroker(
                    f"group {self._group_id}: group.instance.id needs brokers from 2.3 on"
                )
            request.group_instance_id = self._instance_id
        if version >= _REASON_VERSION:
            request.reason = self.member.rejoin_reason[:REASON_LENGTH_MAX]
        return request

    def _sync_request(
        self, version: int, assignments: list[SyncGroupRequestAssignment]
    ) -> SyncGroupRequest:
        generation = self.member.generation
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            assignments=assignments,
        )
        if version >= _SYNC_INSTANCE_ID_VERSION:
            request.group_instance_id = self._instance_id
        if version >= _SYNC_PROTOCOL_VERSION:
            request.protocol_type = PROTOCOL_TYPE
            request.protocol_name = generation.protocol_name
        return request

    # As the leader

    async def _assign(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        assignor = self._must_get_assignor(response.protocol_name)
        try:
            subscriptions = {
                row.member_id: decode_subscription(bytes(row.metadata), row.group_instance_id)
                for row in response.members
            }
        except DecodeError as problem:
            raise UnreadableAnswer(
                f"group {self._group_id}: the subscription of a member: {problem}"
            ) from problem
        topics = {topic for row in subscriptions.values() for topic in row.topics}
        await self._follow(topics)
        self._is_leader = True
        if response.skip_assignment:
            self._assigned_from = self._partition_counts(topics)
            return []
        counts = self._partition_counts(topics)
        assignments = assignor.assign(self._racks(topics), subscriptions)
        if self._protocol is RebalanceProtocol.COOPERATIVE and assignor.name not in _TRUSTED:
            require_nothing_moves_at_once(subscriptions, assignments)
        assigned_topics = {
            tp.topic for assignment in assignments.values() for tp in assignment.partitions
        }
        if not assigned_topics <= topics:
            topics |= assigned_topics
            await self._follow(topics)
            counts = self._partition_counts(topics)
        self._assigned_from = counts
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(assignment)
            )
            for member_id, assignment in assignments.items()
        ]

    async def _follow(self, topics: set[str]) -> None:
        self._subscription.group_topics = frozenset(topics)
        self._on_news()
        await self._cluster.refresh(topics)

    def _racks(self, topics: Iterable[str]) -> PartitionRacks:
        metadata = self._cluster.metadata
        racks = {node.id: node.rack for node in metadata.brokers.values() if node.rack}
        found: dict[str, list[frozenset[str]]] = {}
        for name in topics:
            view = metadata.topic_or_none(name)
            if view is not None:
                found[name] = [
                    frozenset(
                        racks[node] for node in view.partitions[index].replicas if node in racks
                    )
                    for index in sorted(view.partitions)
                ]
        return found

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        views = (self._cluster.metadata.topic_or_none(name) for name in topics)
        return {view.name: len(view.partitions) for view in views if view is not None}

    def _must_get_assignor(self, name: str | None) -> Assignor:
        assignor = self._assignors.get(name or "")
        if assignor is None:
            raise IllegalState(
                f"group {self._group_id}: the broker chose assignor {name!r}, which this consumer "
                f"did not offer: it has {', '.join(self._assignors)}"
            )
        return assignor

    # As a member

    async def _complete(self, data: bytes) -> None:
        if not self._is_leader:
            self._assigned_from = None
        assignor = self._must_get_assignor(self.member.generation.protocol_name)
        try:
            assignment = decode_assignment(data)
        except DecodeError as problem:
            self.member.request_rejoin("the assignment cannot be read")
            raise UnreadableAnswer(
                f"group {self._group_id}: the assignment that the leader made: {problem}"
            ) from problem
        assigned = set(assignment.partitions)
        subscription = self._subscription
        if not subscription.matches(assigned):
            self.member.request_rejoin("received assignment does not match the subscription")
            return
        owned = subscription.assignment
        added = assigned - owned
        revoked = owned - assigned if self._protocol is RebalanceProtocol.COOPERATIVE else set()
        try:
            if revoked:
                subscription.mark_pending_revocation(revoked)
                self.member.request_rejoin("need to revoke partitions and re-join")
                await self._listeners.revoked(revoked)
        finally:
            await self._take_over(assignor, assignment, added)

    async def _take_over(
        self, assignor: Assignor, assignment: Assignment, added: set[TopicPartition]
    ) -> None:
        if self.commits is not None:
            self.commits.restart_interval()
        self._subscription.assign_from_subscribed(sorted(assignment.partitions))
        self._subscription.await_callback(added)
        try:
            assignor.on_assignment(assignment, self.group_metadata())
            await self._listeners.assigned(added)
        finally:
            self._subscription.callback_done(added)

    # Heartbeats

    async def _keep_heartbeating(self) -> None:
        clock = self._cluster.clock
        sent_at = clock.monotonic()
        while True:
            if not self.member.sends_heartbeats:
                self._heartbeat_news.clear()
                await self._heartbeat_news.wait()
                sent_at = clock.monotonic()
                continue
            now = clock.monotonic()
            if self.polls.is_over(now):
                self._leave_soon("consumer poll timeout has expired.")
                continue
            if now - self._heard_at > self._session_timeout_s:
                # The coordinator may have moved without a word.
                self._forget_coordinator()
                self._heard_at = now
            due_s = sent_at + self._heartbeat_interval_s - now
            if due_s > 0:
                await self._sleep(self.polls.pause_s(due_s, now))
                continue
            sent_at = now
            if not await self._heartbeat():
                await self._sleep(self._backoff.next_s())
                sent_at = 0.0

    async def _sleep(self, seconds: float) -> None:
        await pause(self._cluster.timer, seconds)

    async def _heartbeat(self) -> bool:
        """Sends one heartbeat. Returns whether the next one may wait for the interval."""
        sent = self.member.generation
        try:
            node_id = await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)
            versions = await self._cluster.versions(node_id, Purpose.COORDINATION)
            version = versions.version(ApiKey.HEARTBEAT)
            request = HeartbeatRequest(
                group_id=self._group_id,
                generation_id=sent.generation_id,
                member_id=sent.member_id,
            )
            if version >= 3:
                request.group_instance_id = self._instance_id
            response = await self._call(node_id, request, version, self._session_timeout_s)
        except (ConnectionFailed, RequestTimedOut):
            self._forget_coordinator()
            return False
        except ClientError as problem:
            if may_pass(problem):
                return False
            self._fail(problem)
            return True
        assert isinstance(response, HeartbeatResponse), response
        self._heard_at = self._cluster.clock.monotonic()
        was_needed = self.member.rejoin_needed
        try:
            outcome = self.member.heartbeat_answered(sent, response.error_code)
        except ClientError as problem:
            self._fail(problem)
            return True
        if outcome is Next.FIND_COORDINATOR:
            self._forget_coordinator()
        if self.member.rejoin_needed and not was_needed:
            self._on_news()
        return outcome is Next.GO_ON

    def _fail(self, problem: ClientError) -> None:
        self._problem = problem
        self._on_news()

    # Leaving

    def _leave_soon(self, reason: str) -> None:
        """Sends LeaveGroup without waiting for the answer."""
        left = self.member.leaving()
        self._on_news()
        if left is not None:
            task = self._task(self._send_leave(left.member_id, reason, 5.0))
            self._leaves.add(task)
            task.add_done_callback(self._leaves.discard)

    async def leave(self, timeout_s: float) -> None:
        """The application unsubscribes or closes: the listener hears of it, then the broker."""
        subscription = self._subscription
        owned = subscription.assignment
        is_lost = self.member.has_lost_partitions or self.member.is_rebalancing
        await self._end_join()
        try:
            if owned and subscription.is_auto_assigned:
                try:
                    await (self._listeners.lost if is_lost else self._listeners.revoked)(owned)
                finally:
                    subscription.assign_from_subscribed(())
        finally:
            left = self.member.leaving()
            self._joined_topics = None
            self._assigned_from = None
            if left is not None:
                await self._send_leave(left.member_id, "the consumer is leaving", timeout_s)

    async def _end_join(self) -> None:
        join, self._join = self._join, None
        if join is not None:
            join.cancel()
            await asyncio.gather(join, return_exceptions=True)

    async def _send_leave(self, member_id: str, reason: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                node_id = await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)
                versions = await self._cluster.versions(node_id, Purpose.COORDINATION)
                version = versions.version(ApiKey.LEAVE_GROUP)
                request = LeaveGroupRequest(group_id=self._group_id)
                if version >= _LEAVE_MEMBERS_VERSION:
                    identity = MemberIdentity(member_id=member_id)
                    if version >= _LEAVE_REASON_VERSION:
                        identity.reason = reason
                    request.members = [identity]
                else:
                    request.member_id = member_id
                response = await self._call(node_id, request, version)
                assert isinstance(response, LeaveGroupResponse), response
        except (ClientError, TimeoutError) as problem:
            log.debug("group %s: the broker was not told of the leave: %s", self._group_id, problem)

    async def close(self) -> None:
        await self._end_join()
        tasks = [task for task in (self._heartbeats, self._last_commit) if task is not None]
        tasks += self._leaves
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Requests

    @property
    def _group_id(self) -> str:
        return self.member.group_id

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def _forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorKind.GROUP, self._group_id)

    async def _call(
        self, node_id: int, request: _Request, version: int, timeout_s: float | None = None
    ) -> object:
        return await self._cluster.call(
            node_id,
            request,
            at_most=version,
            timeout_s=timeout_s,
            purpose=Purpose.COORDINATION,
        )


_Request = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest

_TRUSTED = frozenset(("cooperative-sticky",))


def highest_common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Raises IllegalState if the assignors have no protocol in common."""
    if not assignors:
        raise IllegalState("partition.assignment.strategy names no assignor")
    common = set(assignors[0].protocols)
    for assignor in assignors[1:]:
        common &= set(assignor.protocols)
    if not common:
        raise IllegalState(
            "the assignors have no rebalance protocol in common: "
            + ", ".join(assignor.name for assignor in assignors)
        )
    return max(common)


def require_nothing_moves_at_once(
    subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """A cooperative assignor gives a partition to somebody else only after its owner let it go."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in assignments.items():
        owned = set(subscriptions[member_id].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned - set(assignment.partitions)
    if added & revoked:
        names = ", ".join(map(str, sorted(added & revoked)))
        raise IllegalState(
            f"the cooperative assignor gave partitions away that others still own: {names}"
        )
