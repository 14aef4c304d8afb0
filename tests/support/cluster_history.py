"""What clients did to a topic and what they were told, as the checker reads it (`history_check`).

Values are unique. Times are of one monotonic clock. Writers note a send before they make it and an
ack when it comes; what has neither ack nor failure may have been written or not.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Send(NamedTuple):
    producer: int
    partition: int
    value: bytes
    transaction: int | None = None


class Seen(NamedTuple):
    partition: int
    offset: int
    value: bytes


class Poll(NamedTuple):
    """What one call gave a consumer that was assigned its partitions."""

    consumer: str
    at: float
    records: list[Seen]


class Outcome(Enum):
    OPEN = "open"  # or nobody knows
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    outcome: Outcome = Outcome.OPEN
    commit_begun_at: float | None = None
    reads: list[bytes] = field(default_factory=list)


@dataclass
class History:
    sends: list[Send] = field(default_factory=list)  # a producer's in the order it sent them
    acks: dict[bytes, int | None] = field(default_factory=dict)  # value -> offset, where told
    ack_times: dict[int, list[float]] = field(default_factory=dict)  # by partition
    last_acked: dict[int, int] = field(default_factory=dict)  # offset, by partition
    failed: set[bytes] = field(default_factory=set)  # surely not written
    transactions: dict[int, Transaction] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)  # a consumer's in the order it made them
    deleted: dict[int, int] = field(default_factory=dict)  # partition -> below what, as asked for
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acked(self, partition: int, offset: int | None, value: bytes, at: float) -> None:
        """A client may know that a record was written by what was answered to later ones; then
        nobody has told it the offset.
        """
        self.acks[value] = offset
        if offset is not None:
            self.last_acked[partition] = max(self.last_acked.get(partition, -1), offset)
        self.ack_times.setdefault(partition, []).append(at)

    def new_transaction(self) -> int:
        with self.lock:
            number = len(self.transactions)
            self.transactions[number] = Transaction()
            return number
