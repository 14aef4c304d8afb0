"""What the coordinator asks of any group, whatever its kind.

A group id names one group of one kind: classic, or consumer (KIP-848). Committed offsets are the
same for all kinds, stay when a group becomes one of another kind, and are the shard's. A kind says
which records make it, who may commit, which offsets expire, and when and how the group goes.

Another kind joins by a subclass of `Group`, a row in `shard.KIND_OF_RECORD` for its records and, if
its members use the classic protocol, a row in `GroupCoordinator`'s table of member requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

from tidelog.errors import ErrorCode, KafkaError
from tidelog.types import Uuid

if TYPE_CHECKING:
    from typing import Self

    from tidelog.coordinator.group.offsets import NewOffset, OffsetCommitter
    from tidelog.coordinator.stored_record import CoordinatorRecord
    from tidelog.protocol.message import Message

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
UNKNOWN_MEMBER_ID: Final = ""

TopicAndPartition = tuple[str, int]


class GroupType(Enum):
    """The values are the names that clients are told."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Topic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Sequence[object]: ...


class Topics(Protocol):
    """The topics as the group coordinator sees them. The broker's catalogue is one."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def by_id(self) -> Mapping[Uuid, Topic]: ...


class OffsetExpiry(NamedTuple):
    """Which offsets of a group may expire."""

    subscribed_topics: frozenset[str]  # theirs stay
    idle_since_ms: int | None  # retention counts from here; None: from each commit


class Group(ABC):
    """Lives in a shard, from its first member, record or offset until it dies there. Touched only
    on the broker loop.
    """

    __slots__ = ("group_id", "shard_index")

    type: ClassVar[GroupType]
    last_record_type: ClassVar[int]  # its tombstone ends the group
    goes_with_deleted_offsets: ClassVar[bool]  # else it stays until offsets are expired next

    def __init__(self, group_id: str, shard_index: int) -> None:
        self.group_id = group_id
        self.shard_index = shard_index

    @classmethod
    @abstractmethod
    def new(cls, group_id: str, shard_index: int, now_ms: int) -> Self: ...

    @staticmethod
    @abstractmethod
    def id_in(key: Message) -> str:
        """The group id in the key of one of its records."""

    # What it looks like

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """None as long as nobody has ever joined."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As clients are told."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Without members."""

    @property
    def expects_members(self) -> bool:
        """Whether somebody was told a member id, and is to come back with it."""
        return False

    @property
    def has_record(self) -> bool:
        """Whether the log knows more of it than committed offsets."""
        return True

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """True as well when it has members and their subscriptions cannot be read."""

    # Replaying

    @abstractmethod
    def replay(self, record: CoordinatorRecord) -> None:
        """Any record about it, except the tombstone that ends it, which is the shard's."""

    # Offsets

    @abstractmethod
    def require_commit(
        self, committer: OffsetCommitter, offsets: Sequence[NewOffset], topics: Topics
    ) -> None:
        """KafkaError for a committer that may not commit these offsets."""

    def note_commit(self, member_id: str) -> None:
        """The member has committed, and may have shown by it that it lives."""
        return

    def require_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """KafkaError for a member that may not read offsets. By default everybody may."""
        return

    def require_offset_deletion(self) -> None:
        """KafkaError if no offset may be deleted, of whatever topic."""
        return

    @abstractmethod
    def offset_expiry(self) -> OffsetExpiry | None:
        """None while no offset may expire."""

    def topics_changed(self, topics: Collection[str]) -> int:
        """Some topics are new, have changed or are gone; how many it had to look at."""
        return 0

    # Going

    def require_deletion(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def stop_expecting(self) -> None:
        """Whoever was told a member id may not come back with it."""
        return

    @property
    def may_go(self) -> bool:
        """It has no members and expects none; with no offsets left, it goes."""
        return self.is_empty and not self.expects_members

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """They end it; none if the log knows nothing of it."""

    @abstractmethod
    def die(self, now_ms: int, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """Nothing will happen to it any more; members that wait are told `code`."""
