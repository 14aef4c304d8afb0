"""A member of a classic group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). No I/O, no clock.

    state                  meaning                                    left by
    UNJOINED               no generation                              JoinGroup sent
    PREPARING_REBALANCE    JoinGroup is in flight                     its answer, a reset
    COMPLETING_REBALANCE   SyncGroup is in flight; heartbeats run     its answer, a reset
    STABLE                 the assignment is known; heartbeats run    rejoining, leaving, a reset

Whatever happens to the member arrives as an answer to one of its requests. Each answer is judged
against the generation that its request was sent with, because heartbeats, commits and joins are in
flight at the same time. A *reset* gives up the generation: with ILLEGAL_GENERATION the member id is
kept, with UNKNOWN_MEMBER_ID and when leaving it is given up as well. `needs_prepare` says that the
listener has to hear of the coming rebalance before the next JoinGroup.

`rejoin_needed` is what makes the next poll join; a reset always sets it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.consumer.offset_and_metadata import NO_GENERATION_ID, NO_MEMBER_ID
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    CommitFailed,
    FencedInstance,
    RebalanceInProgress,
    refused,
)
from tidelog.client.network.coordinators import COORDINATOR_MOVED
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.protocol.messages.join_group import JoinGroupResponse
    from tidelog.protocol.messages.sync_group import SyncGroupResponse

PROTOCOL_TYPE: Final = "consumer"


class MemberState(Enum):
    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class Generation(NamedTuple):
    generation_id: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None

    @property
    def is_reset(self) -> bool:
        return self.generation_id == NO_GENERATION_ID and self.protocol_name is None


NO_GENERATION: Final = Generation()


class Next(Enum):
    """What to do after an answer."""

    GO_ON = "go on"
    JOIN_AGAIN = "join again at once"
    RETRY = "join again after a while"
    FIND_COORDINATOR = "find the coordinator, then join again"


class ClassicMember:
    def __init__(self, group_id: str, group_instance_id: str | None = None) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.needs_prepare = True

    # Views

    @property
    def member_id(self) -> str:
        return self.generation.member_id

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def sends_heartbeats(self) -> bool:
        return self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)

    @property
    def has_lost_partitions(self) -> bool:
        """Whether others may own what this member was assigned."""
        return self.generation.generation_id == NO_GENERATION_ID or not self.generation.member_id

    # Joining

    def joining(self) -> Generation:
        """JoinGroup is about to be sent; gives what it is sent with."""
        self.state = MemberState.PREPARING_REBALANCE
        return self.generation

    def join_answered(self, sent: Generation, response: JoinGroupResponse) -> Next:
        """Returns GO_ON when SyncGroup is next. Raises errors that no retry can mend."""
        code = response.error_code
        if code == ErrorCode.NONE:
            if response.protocol_type not in (None, PROTOCOL_TYPE):
                raise self._refusal("joining", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is not MemberState.PREPARING_REBALANCE:
                self.request_rejoin("the member left while it was joining")
                return Next.JOIN_AGAIN
            self.state = MemberState.COMPLETING_REBALANCE
            self.generation = Generation(
                response.generation_id, response.member_id, response.protocol_name
            )
            return Next.GO_ON
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(NO_GENERATION_ID, response.member_id)
            self.request_rejoin("need to re-join with the given member-id: " + response.member_id)
            return Next.JOIN_AGAIN
        self.request_rejoin(f"rebalance failed due to {ErrorCode.of(code).name}")
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            if self.generation == sent:
                self.reset("JoinGroup answered UNKNOWN_MEMBER_ID", keep_member_id=False)
            return Next.JOIN_AGAIN
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.JOIN_AGAIN
        return self._common(code, "joining")

    def sync_answered(self, sent: Generation, response: SyncGroupResponse) -> Next:
        """Returns GO_ON when the answer holds this member's assignment."""
        code = response.error_code
        if code == ErrorCode.NONE:
            if response.protocol_type not in (None, PROTOCOL_TYPE):
                raise self._refusal("syncing with", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.generation.is_reset or self.state is not MemberState.COMPLETING_REBALANCE:
                self.request_rejoin("the generation was given up during the rebalance")
                return Next.JOIN_AGAIN
            if response.protocol_name not in (None, self.generation.protocol_name):
                raise self._refusal("syncing with", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.state = MemberState.STABLE
            self.rejoin_needed = False
            self.rejoin_reason = ""
            return Next.GO_ON
        self.request_rejoin(f"rebalance failed due to {ErrorCode.of(code).name}")
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.JOIN_AGAIN
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if self.generation == sent:
                self._reset_after("SyncGroup", code)
            return Next.JOIN_AGAIN
        return self._common(code, "syncing with")

    def _common(self, code: int, doing: str) -> Next:
        if code in COORDINATOR_MOVED:
            return Next.FIND_COORDINATOR
        problem = self._refusal(doing, code)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or problem.code.retriable:
            return Next.RETRY
        raise problem

    def join_failed(self, problem: ClientError) -> None:
        """A request of the rebalance got no answer."""
        self.request_rejoin(f"rebalance failed due to {type(problem).__name__}")

    # Heartbeats

    def heartbeat_answered(self, sent: Generation, code: int) -> Next:
        """GO_ON, or FIND_COORDINATOR, or RETRY; raises what ends the membership."""
        if code == ErrorCode.NONE:
            return Next.GO_ON
        if code in COORDINATOR_MOVED:
            return Next.FIND_COORDINATOR
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            # While joining, the answer only says what is known already.
            if self.state is MemberState.STABLE:
                self.request_rejoin("group is already rebalancing")
            return Next.GO_ON
        if code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            if self.generation != sent:
                return Next.GO_ON
            self._reset_after("Heartbeat", code)
            if code == ErrorCode.FENCED_INSTANCE_ID:
                raise self.fenced()
            return Next.GO_ON
        problem = self._refusal("heartbeat to", code)
        if problem.code.retriable:
            return Next.RETRY
        raise problem

    # Commits

    def commit_generation(self) -> Generation:
        """What a commit is sent with; raises when there is no generation to commit for."""
        if self.state is MemberState.STABLE:
            return self.generation
        if self.is_rebalancing:
            raise RebalanceInProgress(
                f"group {self.group_id} is rebalancing; complete the rebalance by polling, then "
                "commit again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        raise self._commit_failed()

    def commit_refused(self, sent: Generation, code: int) -> ClientError:
        """The error of a commit that the coordinator refused for the sake of the membership."""
        is_unchanged = self.generation == sent
        is_joining = self.state is MemberState.PREPARING_REBALANCE
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("offset commit failed since group is already rebalancing")
            return RebalanceInProgress(
                f"group {self.group_id} is rebalancing; complete the rebalance by polling, then "
                "commit again",
                code,
            )
        if not is_unchanged and is_joining:
            return RebalanceInProgress(
                f"group {self.group_id}: the commit was of a generation that has ended; complete "
                "the rebalance by polling, then commit again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return self.fenced() if is_unchanged else self._commit_failed()
        self._reset_after("OffsetCommit", code)
        return self._commit_failed(code)

    # Leaving, rejoining

    def leaving(self) -> Generation | None:
        """Ends the membership. Returns what LeaveGroup needs, or None if none is to be sent."""
        left = self.generation
        was_joined = self.state is not MemberState.UNJOINED and bool(left.member_id)
        self.reset("consumer pro-actively leaving the group", keep_member_id=False)
        # A static member keeps its place until its session ends.
        return left if was_joined and self.group_instance_id is None else None

    def request_rejoin(self, reason: str) -> None:
        self.rejoin_needed = True
        self.rejoin_reason = reason

    def reset(self, reason: str, *, keep_member_id: bool) -> None:
        member_id = self.generation.member_id if keep_member_id else NO_MEMBER_ID
        self.state = MemberState.UNJOINED
        self.generation = Generation(NO_GENERATION_ID, member_id)
        self.needs_prepare = True
        self.request_rejoin(reason)

    def _reset_after(self, api: str, code: int) -> None:
        self.reset(
            f"encountered {ErrorCode.of(code).name} from {api} response",
            keep_member_id=code == ErrorCode.ILLEGAL_GENERATION,
        )

    def fenced(self) -> FencedInstance:
        return FencedInstance(
            f"group {self.group_id}: another consumer with group.instance.id "
            f"{self.group_instance_id} has taken this one's place",
            ErrorCode.FENCED_INSTANCE_ID,
        )

    def _commit_failed(self, code: int = ErrorCode.UNKNOWN_MEMBER_ID) -> CommitFailed:
        return CommitFailed(
            f"group {self.group_id}: the consumer is no member any more and its partitions belong "
            "to others; polls were too far apart (max.poll.interval.ms, max.poll.records) or "
            "heartbeats did not arrive (session.timeout.ms)",
            code,
        )

    def _refusal(self, doing: str, code: int) -> BrokerRefused:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return self.fenced()
        return refused(f"{doing} group {self.group_id}", code)
