"""What the leader of a replicated partition knows: its followers, and who of them is in sync.

The in-sync replicas (ISR) change by asking the controller (AlterPartition); one change is under way
at a time. Until it is answered nobody can know which of the two sets holds, so the high watermark
waits for both: the *maximal* ISR of KIP-497.

    state       committed ISR   proposed ISR        maximal ISR
    settled     isr             -                   isr
    expanding   isr             isr + follower      isr + follower
    shrinking   isr             isr - laggards      isr

    high watermark = min log end of the maximal ISR, and of followers about to join it;
                     it does not move while fewer than min.insync.replicas are in sync (KIP-966)

A follower joins when it has reached the high watermark and the start of this leader's epoch (it
might lack committed records otherwise), and leaves when it has not been caught up for
replica.lag.time.max.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tidelog.replication.remote_replica import RemoteReplica

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog
    from tidelog.replication.partition_host import PartitionHost

logger = logging.getLogger(__name__)


class Leadership:
    """Lives while this broker leads the partition; touched only on the broker loop."""

    __slots__ = (
        "_host",
        "_log",
        "epoch_start_offset",
        "isr",
        "maximal_isr",
        "proposed_epochs",
        "proposed_isr",
        "remotes",
    )

    def __init__(self, host: PartitionHost, log: PartitionLog) -> None:
        self._host = host
        self._log = log
        self.epoch_start_offset = log.log_end_offset
        self.isr: frozenset[int] = frozenset((host.broker_id,))
        self.proposed_isr: frozenset[int] | None = None  # asked for, not answered yet
        # The lives of its members that the proposal is about (KIP-903): what was known to be in
        # sync is not what comes back after a crash.
        self.proposed_epochs: dict[int, int] = {}
        self.maximal_isr = self.isr
        self.remotes: dict[int, RemoteReplica] = {}

    # What the controller says

    def enter_epoch(self, replicas: Iterable[int], isr: Collection[int], *, is_new: bool) -> None:
        """A new leader epoch begins. `is_new`: this broker did not lead in the one before."""
        host, log = self._host, self._log
        now_ms, end_offset = host.now_ms(), log.log_end_offset
        self.epoch_start_offset = end_offset
        self.assign(replicas)
        for remote in self.remotes.values():
            in_sync = remote.broker_id in isr
            if is_new:
                remote.begin(now_ms, in_sync=in_sync)
            else:
                remote.new_epoch(now_ms, end_offset, in_sync=in_sync)
        self.commit_isr(isr)

    def assign(self, replicas: Iterable[int]) -> None:
        others = [broker_id for broker_id in replicas if broker_id != self._host.broker_id]
        self.remotes = {
            broker_id: self.remotes.get(broker_id) or RemoteReplica(self._host.follower(broker_id))
            for broker_id in others
        }

    def commit_isr(self, isr: Collection[int]) -> None:
        """This is the committed ISR; nothing is under way."""
        self.isr = self.maximal_isr = frozenset(isr)
        self.proposed_isr = None

    def withdraw(self) -> None:
        """The controller has refused the change."""
        self.commit_isr(self.isr)

    # What is committed

    @property
    def min_insync_replicas(self) -> int:
        """A topic with fewer replicas than min.insync.replicas needs all of them."""
        return min(self._log.config.min_insync_replicas, len(self.remotes) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_insync_replicas

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether acks=all can be promised. A leader alone in its ISR cannot promise it while
        another may have been elected.
        """
        if self.is_under_min_isr:
            return False
        return len(self.isr) > 1 or not self._host.may_be_replaced()

    def committed_end(self, local_end_offset: int) -> int:
        """How far the high watermark may go; -1 if it may not move."""
        if not self.has_enough_in_sync:
            return -1
        end_offset = local_end_offset
        maximal = self.maximal_isr
        for remote in self.remotes.values():
            if remote.log_end_offset < end_offset and (
                remote.broker_id in maximal or self._is_about_to_join(remote)
            ):
                end_offset = remote.log_end_offset
        return end_offset

    def _is_about_to_join(self, remote: RemoteReplica) -> bool:
        host = self._host
        return remote.broker.is_alive and remote.is_caught_up(
            self._log.log_end_offset, host.now_ms(), host.replica_lag_time_max_ms
        )

    def low_watermark(self) -> int:
        """The lowest log start of all replicas that live: below it nobody has records."""
        offset = self._log.log_start_offset
        for remote in self.remotes.values():
            if remote.broker.is_alive and remote.log_start_offset < offset:
                offset = remote.log_start_offset
        return offset

    # Who is in sync

    def appended(self, end_offset_before: int, size_bytes: int) -> None:
        for remote in self.remotes.values():
            remote.leader_appended(end_offset_before, size_bytes)

    def high_watermark_moved(self) -> None:
        for remote in self.remotes.values():
            if remote.listener is not None:
                remote.listener.high_watermark_moved()

    def wake_follower_fetches(self) -> None:
        """Answer waiting fetches of followers now: leadership has ended, or the log start moved."""
        for remote in self.remotes.values():
            if remote.listener is not None:
                remote.listener.has_news(0)

    def is_surely_in_sync(self, broker_id: int) -> bool:
        """In the ISR, and no change is under way that might take it out."""
        return broker_id in self.isr and self.proposed_isr is None

    def _propose(self, isr: frozenset[int]) -> None:
        host = self._host
        self.proposed_isr = isr
        self.proposed_epochs = {
            broker_id: host.follower(broker_id).broker_epoch
            for broker_id in isr
            if broker_id != host.broker_id
        }

    def maybe_expand_isr(self, remote: RemoteReplica) -> bool:
        """Propose an ISR with the follower if it has caught up; whether there is a proposal."""
        if (
            self.proposed_isr is not None
            or remote.broker_id in self.isr
            or not remote.broker.is_alive
            or remote.log_end_offset < self._log.high_watermark
            or remote.log_end_offset < self.epoch_start_offset
        ):
            return False
        self._propose(self.isr | {remote.broker_id})
        self.maximal_isr = self.isr | {remote.broker_id}
        logger.info(
            "follower is in sync again",
            extra={
                "event": "isr-expanding",
                "partition": str(self._log.topic_partition),
                "follower": remote.broker_id,
                "isr": sorted(self.isr),
            },
        )
        return True

    def maybe_shrink_isr(self) -> bool:
        """Propose an ISR without the followers that lag; whether there is a proposal."""
        if self.proposed_isr is not None or len(self.isr) == 1:
            return False
        host, end_offset = self._host, self._log.log_end_offset
        now_ms, lag_max_ms = host.now_ms(), host.replica_lag_time_max_ms
        laggards = {
            broker_id
            for broker_id in self.isr
            if broker_id != host.broker_id
            and not (
                (remote := self.remotes.get(broker_id))
                and remote.is_caught_up(end_offset, now_ms, lag_max_ms)
            )
        }
        if not laggards:
            return False
        self._propose(self.isr - laggards)
        logger.info(
            "followers lag behind",
            extra={
                "event": "isr-shrinking",
                "partition": str(self._log.topic_partition),
                "laggards": sorted(laggards),
                "isr": sorted(self.isr),
                "high_watermark": self._log.high_watermark,
                "log_end_offset": end_offset,
                "lag_time_max_ms": lag_max_ms,
                "followers": self._lag_of(laggards, now_ms),
            },
        )
        return True

    def _lag_of(self, broker_ids: Iterable[int], now_ms: int) -> dict[str, dict[str, int | None]]:
        """For the log: where each stands, and how long it has not fetched, or not caught up."""
        found: dict[str, dict[str, int | None]] = {}
        for broker_id in broker_ids:
            remote = self.remotes.get(broker_id)
            if remote is not None:
                found[str(broker_id)] = {
                    "log_end_offset": remote.log_end_offset,
                    "silent_ms": _since(remote.broker.last_fetch_ms, now_ms),
                    "behind_ms": _since(remote.last_caught_up_ms, now_ms),
                }
        return found


def _since(then_ms: int, now_ms: int) -> int | None:
    """None for what never was: NEVER_MS, and 0 for a broker that has not fetched."""
    return None if then_ms <= 0 else max(0, now_ms - then_ms)
