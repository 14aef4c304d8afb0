"""Which log is cleaned next, which are being cleaned, and which cannot be.

    state of a log          how it gets there                   what may happen
    resting                                                     cleaning, retention
    being cleaned           `begin`                             neither, until `done` or `gave_up`
    moving                  to another log directory            retention, until it is there
    uncleanable             its content cannot be read          nothing until the next start

The dirtiest log comes first. Logs that are deleted, truncated or taken offline meanwhile need not
tell: a round asks `is_current` before every piece and every swap. Touched only on the broker loop,
bar `is_current`, which only looks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from tidelog.clock import Clock
from tidelog.errors import KafkaError
from tidelog.log.cleaner.log_to_clean import CleaningPlan, LogToClean, examine, plan_cleaning
from tidelog.log.directory.log_dir_failures import LogDirFailures
from tidelog.log.log_errors import CleaningAborted
from tidelog.log.partition_log import PartitionLog
from tidelog.log.retention import retain
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.cleaner.cleaned_segment import CleanedSegment
    from tidelog.log.cleaner.log_to_clean import SourceSegment

logger = logging.getLogger(__name__)


class Logs(Protocol):
    """What the manager needs of LogManager."""

    @property
    def failures(self) -> LogDirFailures: ...

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None: ...

    def all_logs(self) -> Collection[PartitionLog]: ...


class Round:
    """A cleaning of one log that is under way."""

    __slots__ = ("log", "plan", "truncations")

    def __init__(self, log: PartitionLog, plan: CleaningPlan) -> None:
        self.log = log
        self.plan = plan
        self.truncations = log.truncations  # a plan does not outlive a truncation


class LogCleanerManager:
    def __init__(self, logs: Logs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._rounds: dict[TopicPartition, Round] = {}
        self.uncleanable: dict[TopicPartition, PartitionLog] = {}
        self.max_dirty_ratio = 0.0  # of the logs found at the last look for work
        self.looked_ms: int | None = None  # when that was

    def dirty_logs(self) -> Iterator[LogToClean | None]:
        """Looks at all logs, in steps; None for one that cannot be cleaned."""
        self._forget_gone()
        for log in self._candidates():
            yield self._examine(log, self._clock.time_ms()) if self._is_candidate(log) else None

    def begin_dirtiest(self, dirty_logs: Iterable[LogToClean | None]) -> Round | None:
        """Of those that `dirty_logs` has found, the log that needs it most, marked as being
        cleaned; None when no log is due. What has changed since is looked at again.
        """
        now_ms = self._clock.time_ms()
        found = [dirty for dirty in dirty_logs if dirty]
        self.looked_ms = now_ms
        self.max_dirty_ratio = max((dirty.dirty_ratio for dirty in found), default=0.0)
        due = sorted(
            (dirty for dirty in found if dirty.is_due),
            key=lambda dirty: dirty.dirty_ratio,
            reverse=True,
        )
        for dirty in due:
            now_dirty = self._examine(dirty.log, now_ms) if self._is_candidate(dirty.log) else None
            begun = self._begin(now_dirty, now_ms) if now_dirty and now_dirty.is_due else None
            if begun is not None:
                return begun
        return None

    def _candidates(self) -> list[PartitionLog]:
        return [log for log in self._logs.all_logs() if self._is_candidate(log)]

    def _is_candidate(self, log: PartitionLog) -> bool:
        topic_partition = log.topic_partition
        return (
            log.config.compact
            and not log.is_moving
            and topic_partition not in self._rounds
            and topic_partition not in self.uncleanable
            and self._logs.get(topic_partition) is log
        )

    def _examine(self, log: PartitionLog, now_ms: int) -> LogToClean | None:
        if len(log.segments) == 1:
            return None
        try:
            return examine(log, now_ms)
        except (OSError, KafkaError) as error:
            self.failed(log, error)
            return None

    def _begin(self, dirty: LogToClean, now_ms: int) -> Round | None:
        log = dirty.log
        try:
            begun = Round(log, plan_cleaning(dirty, now_ms))
        except (OSError, KafkaError) as error:
            self.failed(log, error)
            return None
        self._rounds[log.topic_partition] = begun
        log.is_being_cleaned = True
        return begun

    def is_current(self, begun: Round) -> bool:
        """Whether the log still is the one that the plan is about. For any thread."""
        log = begun.log
        if self._logs.get(log.topic_partition) is not log or log.is_moving:
            return False
        return log.truncations == begun.truncations

    def swap(self, begun: Round, group: Sequence[SourceSegment], cleaned: CleanedSegment) -> None:
        """CleaningAborted when the log is not the same any more; StorageError when it fails."""
        if not self.is_current(begun):
            cleaned.discard()
            raise CleaningAborted
        begun.log.replace_segments(cleaned, [source.segment for source in group])
        if begun.log.cleaner_offset < 0:  # it has gaps from here on, even if the round ends early
            begun.log.cleaner_offset = begun.plan.first_dirty_offset

    def done(self, begun: Round, end_offset: int) -> None:
        """The whole round has been swapped in; `end_offset` is the new first dirty offset."""
        if self.is_current(begun):
            begun.log.cleaner_offset = end_offset
        self.gave_up(begun)

    def gave_up(self, begun: Round) -> None:
        """What has been swapped in stays; the rest is for another round."""
        begun.log.is_being_cleaned = False
        del self._rounds[begun.log.topic_partition]

    def failed(self, log: PartitionLog, error: OSError | KafkaError) -> None:
        """It is the log's failure, unless it is its directory's."""
        if isinstance(error, OSError):
            self._logs.failures.report(str(log.directory), "clean a log", error)
        if not self._logs.failures.covers(str(log.directory)):
            self.mark_uncleanable(log, str(error))

    def mark_uncleanable(self, log: PartitionLog, reason: str) -> None:
        logger.error(
            "%s cannot be cleaned and grows until the next start: %s", log.topic_partition, reason
        )
        self.uncleanable[log.topic_partition] = log

    def _forget_gone(self) -> None:
        gone = [key for key, log in self.uncleanable.items() if self._logs.get(key) is not log]
        for topic_partition in gone:
            del self.uncleanable[topic_partition]

    def delete_old_segments(self) -> Iterator[None]:
        """Retention of compacted logs, in steps; it and cleaning must not meet."""
        for log in self._candidates():
            if self._is_candidate(log):
                retain(log, self._logs.failures)
            yield
