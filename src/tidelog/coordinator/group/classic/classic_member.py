"""A member of a classic group: what it said of itself, what it was assigned, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group.results import JoinGroupResult, SyncGroupResult
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinator.expiration import Expiration
    from tidelog.pending import Pending

UNKNOWN_MEMBER_ID: Final = ""

Protocols = list[tuple[str, bytes]]  # name and metadata, the favourite first


class ClassicGroupMember:
    """Lives from its first JoinGroup (or from loading) until it leaves or is silent too long; a
    static member that restarts goes on under a new member id.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id  # None for a dynamic member
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False  # until its first generation has begun
        self.join_waiter: Pending[JoinGroupResult] | None = None
        self.sync_waiter: Pending[SyncGroupResult] | None = None
        self.session: Expiration | None = None  # runs while the member lives

    @property
    def is_waiting(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    def await_join(self, pending: Pending[JoinGroupResult]) -> None:
        """A JoinGroup sent again, by another connection, takes the place of the first."""
        self.fail_join(ErrorCode.REBALANCE_IN_PROGRESS)
        self.join_waiter = pending

    def await_sync(self, pending: Pending[SyncGroupResult]) -> None:
        self.fail_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        self.sync_waiter = pending

    def answer_join(self, result: JoinGroupResult) -> None:
        pending, self.join_waiter = self.join_waiter, None
        if pending is not None:
            pending.complete(result)

    def fail_join(self, code: ErrorCode, member_id: str | None = None) -> None:
        whose = self.member_id if member_id is None else member_id
        self.answer_join(JoinGroupResult.failed(code, whose))

    def answer_sync(self, result: SyncGroupResult) -> None:
        pending, self.sync_waiter = self.sync_waiter, None
        if pending is not None:
            pending.complete(result)

    def fail_sync(self, code: ErrorCode) -> None:
        if self.sync_waiter is not None:
            self.answer_sync(SyncGroupResult(code))

    def end_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
