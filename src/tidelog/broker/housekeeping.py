"""What the broker does by the clock: retention, flushes, checkpoints, deletions, expiry.

What is due is decided on the loop, in slices where every log has to be looked at; what blocks
(writing a checkpoint, removing files, fsync) runs in a thread, so that no client waits for the
house to be cleaned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.clock import Timer, TimerHandle
from tidelog.log.directory.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    PendingWrite,
)
from tidelog.log.directory.log_directory import remove_paths
from tidelog.log.partition_log import PartitionLog
from tidelog.slices import SlicedWork
from tidelog.supervisor import attempt, report

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

logger = logging.getLogger(__name__)

SECOND_MS: Final = 1000
CLIENT_METRICS_MS: Final = 10_000
IDLE_MAPS_MS: Final = 300_000


class Duty:
    """A function that runs again and again on the loop.

    A duty that may take long returns its steps, which are done in slices. Its next turn begins
    nothing while those of the last one are not done. A duty that fails is logged (`supervisor`) and
    tried again at its next turn; one failing duty stops neither the broker nor the other duties.
    """

    def __init__(
        self,
        name: str,
        interval_ms: Callable[[], int],
        run: Callable[[], object],
        timer: Timer,
        work: SlicedWork | None = None,
    ) -> None:
        self.name = name
        self._interval_ms = interval_ms  # asked before each turn: it may be configured anew
        self._run = run
        self._timer = timer
        self._work = work
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        self._handle = self._timer.call_later(self._interval_ms() / 1000, self._turn)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _turn(self) -> None:
        attempt(self.name, self._begin)
        if self._handle is not None:
            self.start()

    def _begin(self) -> None:
        steps = self._run()
        if isinstance(steps, Iterator):
            assert self._work is not None, "a duty in steps needs somebody to do them"
            self._work.repeat(self.name, self._supervised(steps))

    def _supervised(self, steps: Iterator[object]) -> Iterator[None]:
        is_done = False

        def step() -> None:
            nonlocal is_done
            is_done = next(steps, self) is self

        while attempt(self.name, step) is None and not is_done:
            yield


class Housekeeping:
    """Started when the broker serves, stopped before its logs are closed."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._in_thread: dict[str, asyncio.Future[None]] = {}
        self._work = SlicedWork(broker.clock, broker.timer)
        logs = broker.logs
        self._duties = [
            self._configured("log.retention.check.interval.ms", logs.delete_old_segments),
            self._configured("log.flush.scheduler.interval.ms", self._flush_due),
            self._configured(
                "producer.id.expiration.check.interval.ms", logs.remove_expired_producers
            ),
            self._configured("offsets.retention.check.interval.ms", broker.groups.expire_offsets),
            self._configured(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms",
                broker.transactions.abort_timed_out,
            ),
            self._configured(
                "transaction.remove.expired.transaction.cleanup.interval.ms",
                broker.transactions.remove_expired,
            ),
            self._configured(
                "log.flush.offset.checkpoint.interval.ms",
                partial(self._checkpoint, RECOVERY_POINT_FILE),
            ),
            self._configured(
                "log.flush.start.offset.checkpoint.interval.ms",
                self._checkpoint_starts,
            ),
            self._configured(
                "replica.high.watermark.checkpoint.interval.ms",
                partial(self._checkpoint, HIGH_WATERMARK_FILE),
            ),
            Duty("rolled segments", lambda: SECOND_MS, self._flush_rolled, broker.timer),
            Duty("deleted files", lambda: SECOND_MS, self._remove_deleted, broker.timer),
            Duty(
                "idle maps", lambda: IDLE_MAPS_MS, logs.release_idle_maps, broker.timer, self._work
            ),
        ]
        if broker.client_metrics is not None:
            expire = broker.client_metrics.expire
            self._duties.append(
                Duty("client metrics", lambda: CLIENT_METRICS_MS, expire, broker.timer, self._work)
            )
        if broker.delegation_tokens is not None:
            self._duties.append(
                self._configured(
                    "delegation.token.expiry.check.interval.ms", self._remove_expired_tokens
                )
            )
        if broker.cluster is not None:
            alter_partition = broker.cluster.host.alter_partition
            shrink = partial(broker.replicas.maybe_shrink_isrs, alter_partition)
            self._duties.append(
                Duty("in-sync sets", self._lag_check_ms, shrink, broker.timer, self._work)
            )

    def start(self) -> None:
        for duty in self._duties:
            duty.start()

    async def stop(self) -> None:
        """Begin nothing more, and wait for what runs in threads."""
        for duty in self._duties:
            duty.stop()
        self._work.give_up()
        await asyncio.gather(*self._in_thread.values(), return_exceptions=True)

    def _configured(self, key: str, run: Callable[[], object]) -> Duty:
        return Duty(
            key, lambda: self._broker.config.get_int(key), run, self._broker.timer, self._work
        )

    def _remove_expired_tokens(self) -> None:
        """In a cluster it is the controller's task."""
        tokens = self._broker.delegation_tokens
        if tokens is not None and self._broker.may_administer_topics:
            tokens.begin_removal()

    def _lag_check_ms(self) -> int:
        return self._broker.config.get_int("replica.lag.time.max.ms") // 2

    def _checkpoint_starts(self) -> None:
        """And which logs have gaps by right: a follower gets them from its leader, and its own
        cleaner may never come to say so.
        """
        self._checkpoint(LOG_START_FILE)
        self._write(CLEANER_FILE, self._broker.logs.pending_cleaner_checkpoints())

    def _checkpoint(self, name: str) -> None:
        self._write(name, self._broker.logs.pending_checkpoints(name))

    def _write(self, name: str, writes: Sequence[PendingWrite]) -> None:
        if writes:
            failed = self._broker.logs.failures.report
            self._run_in_thread(name, partial(write_checkpoints, writes, failed))

    def _remove_deleted(self) -> None:
        paths = self._broker.logs.take_due_deletions()
        if paths:
            failed = self._broker.logs.failures.report
            self._run_in_thread("deleted files", lambda: remove_paths(paths, failed))

    def _flush_rolled(self) -> None:
        """A segment that is written no more goes to disk, so that recovery need not read it."""
        for log in self._broker.logs.take_rolled_logs():
            self._broker.flusher.flush(log, partial(self._flushed, log))

    def _flush_due(self) -> Iterator[None]:
        for log in self._broker.logs.logs_due_for_flush():
            if log is not None:
                self._broker.flusher.flush(log, partial(self._flushed, log))
            yield

    def _flushed(self, log: PartitionLog, error: OSError | None) -> None:
        partition = self._broker.replicas.get(*log.topic_partition)
        if partition is not None and partition.log is log and error is None:
            partition.flushed()

    def _run_in_thread(self, name: str, work: Callable[[], object]) -> None:
        """After earlier work of the same name, so that two of them never meet in a file."""
        earlier = self._in_thread.get(name)

        async def run() -> None:
            if earlier is not None:
                await asyncio.wait([earlier])
            await self._loop.run_in_executor(None, work)

        def finished(done: asyncio.Future[None]) -> None:
            if self._in_thread.get(name) is done:
                del self._in_thread[name]

        task = self._loop.create_task(run())
        self._in_thread[name] = task
        task.add_done_callback(finished)
        report(name, task)


def write_checkpoints(
    writes: Sequence[PendingWrite], failed: Callable[[str, str, OSError], object]
) -> None:
    """Each is in another directory, so write the others even if one fails."""
    for write in writes:
        try:
            write.run()
        except OSError as error:
            logger.error("cannot write a checkpoint", extra={"path": write.path, "error": error})
            failed(write.path, "write a checkpoint", error)
