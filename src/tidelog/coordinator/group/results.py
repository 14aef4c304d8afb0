"""What the group coordinator answers to members; handlers make messages of it, by version."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.coordinator.runtime import write_error
from tidelog.errors import ErrorCode
from tidelog.types import Uuid

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def commit_error(code: ErrorCode) -> ErrorCode:
    """What a client is told when its commit could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code in _TOO_LARGE else write_error(code)


def member_error(code: ErrorCode) -> ErrorCode:
    """What members are told when the records of their group could not be written."""
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return write_error(code)


class JoinedMember(NamedTuple):
    """As the leader of a classic group sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes  # for the protocol that was chosen


@dataclass(slots=True)
class JoinGroupResult:
    error_code: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None  # None with an error
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: Sequence[JoinedMember] = ()  # for the leader alone

    @classmethod
    def failed(cls, code: ErrorCode, member_id: str) -> JoinGroupResult:
        return cls(code, member_id=member_id)


@dataclass(slots=True)
class SyncGroupResult:
    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class ConsumerGroupHeartbeatResult:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[Uuid, Collection[int]] | None = None  # None: as the member has it

    @classmethod
    def failed(cls, code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResult:
        return cls(code, message or code.text)
