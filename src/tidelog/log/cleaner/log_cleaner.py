"""Compaction beside the broker: log.cleaner.threads workers, each on one log at a time.

A worker takes the dirtiest log that is due and cleans it: the copying happens in a thread of the
cleaner's own pool, choosing and swapping on the loop. With nothing to do it rests for
log.cleaner.backoff.ms.

    a round ends because                           then
    all is swapped in                              the cleaner's checkpoint is written
    the log was deleted, truncated or went offline nothing; another round may follow
    the disk is full                               another try after the pause
    it meets records it cannot read                the partition is marked uncleanable
    the log directory fails                        all its partitions go offline
    a swap fails half-way                          the partition goes offline until the next start

New settings hold from the next round on; the throttle follows at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Final, TypeVar

from tidelog.clock import Clock
from tidelog.config.broker import BrokerConfig
from tidelog.log.cleaner.cleaner import CleanerConfig, CleanerStats
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager, Round
from tidelog.log.cleaner.segment_pass import IoThrottle
from tidelog.log.directory.checkpoints import CLEANER_FILE
from tidelog.log.directory.log_dir_failures import DISK_FULL
from tidelog.log.log_errors import CannotClean, CleaningAborted, StorageError
from tidelog.log.log_manager import LogManager
from tidelog.log.segment.segment_walk import WalkDue
from tidelog.slices import Slices
from tidelog.supervisor import attempted
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

POOL_THREADS_MAX: Final = 1024  # a bound for the pool; the workers are what counts


class CleanerTotals:
    """What finished rounds have done since the start."""

    __slots__ = ("bytes_read", "bytes_written", "rounds", "seconds")

    def __init__(self) -> None:
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.seconds = 0.0

    def add(self, stats: CleanerStats) -> None:
        self.rounds += 1
        self.bytes_read += stats.bytes_read
        self.bytes_written += stats.bytes_written
        self.seconds += stats.map_s + stats.filter_s


class LogCleaner:
    """Started when the broker serves, stopped before its logs are closed. Touched on the loop."""

    def __init__(
        self,
        logs: LogManager,
        take_offline: Callable[[TopicPartition, str], object],
        config: BrokerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self.manager = LogCleanerManager(logs, clock)
        self.totals = CleanerTotals()
        self._logs = logs
        self._take_offline = take_offline
        self._settings = CleanerConfig.of(config)
        self._loop = loop
        self._clock = clock
        self._slices = Slices()
        self._halt = Event()  # seen by the threads, too
        self._throttle = IoThrottle(self._settings.io_bytes_per_second, clock, self._halt.wait)
        self._pool = ThreadPoolExecutor(POOL_THREADS_MAX, thread_name_prefix="log-cleaner")
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._resting = 0

    @property
    def is_resting(self) -> bool:
        """Whether no worker has work."""
        return self._resting == len(self._workers)

    def start(self) -> None:
        if self._settings.is_enabled:
            for number in range(self._settings.threads):
                if number not in self._workers:
                    self._workers[number] = self._loop.create_task(self._work(number))

    def configure(self, config: BrokerConfig) -> None:
        self._settings = CleanerConfig.of(config)
        self._throttle.change(self._settings.io_bytes_per_second)
        self.end_rests()
        self.start()

    async def stop(self) -> None:
        """Rounds under way are given up; what they have swapped in stays."""
        self._halt.set()
        self.end_rests()
        await asyncio.gather(*self._workers.values())
        self._pool.shutdown()

    def end_rests(self) -> None:
        """Workers without work look for some now."""
        self._wake.set()
        self._wake = asyncio.Event()

    async def _work(self, number: int) -> None:
        while not self._halt.is_set() and number < self._settings.threads:
            found_work = False

            async def turn() -> None:
                nonlocal found_work
                found_work = await self._clean_dirtiest()
                for _ in self.manager.delete_old_segments():
                    await self._slices.breathe()

            await attempted(f"log cleaner {number}", turn)
            if not found_work and not self._halt.is_set():
                await self._rest()
        del self._workers[number]

    async def _rest(self) -> None:
        self._resting += 1
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._settings.backoff_ms / 1000)
        finally:
            self._resting -= 1

    async def _clean_dirtiest(self) -> bool:
        """Whether a log has been cleaned, so that it is worth looking for another at once."""
        try:
            found = []
            for dirty in self.manager.dirty_logs():
                found.append(dirty)
                await self._slices.breathe()
            begun = self.manager.begin_dirtiest(found)
        except WalkDue as due:
            await self._in_thread(due.walk.run)
            due.walk.note_result()
            return True
        if begun is None:
            return False
        log = begun.log
        try:
            end_offset = await self._clean(begun)
        except CleaningAborted:
            logger.info("gave up cleaning %s", log.topic_partition)
        except CannotClean as problem:
            self.manager.mark_uncleanable(log, str(problem))
        except StorageError as error:
            self._take_offline(log.topic_partition, error.message or "")
        except OSError as error:
            self._failed(begun, error)
        except Exception as error:
            logger.exception("cleaning %s failed", log.topic_partition)
            self.manager.mark_uncleanable(log, repr(error))
        else:
            self.manager.done(begun, end_offset)
            await self._write_checkpoints()
            return True
        self.manager.gave_up(begun)
        return False

    async def _clean(self, begun: Round) -> int:
        """The new first dirty offset."""
        from tidelog.log.cleaner.cleaner import Cleaner  # not needed to start a broker

        cleaning = Cleaner(
            begun.plan, self._settings, self._throttle, self._clock, partial(self._check, begun)
        )
        await self._in_thread(cleaning.build_map)
        for group in cleaning.groups:
            cleaned = await self._in_thread(partial(cleaning.clean, group))
            self.manager.swap(begun, group, cleaned)
            await self._in_thread(cleaning.sync_folder)
        stats = cleaning.stats
        self.totals.add(stats)
        logger.info(
            stats.summary(cleaning.end_offset),
            extra={
                "event": "log-cleaned",
                "partition": str(stats.topic_partition),
                "from_offset": stats.first_dirty_offset,
                "to_offset": cleaning.end_offset,
                "bytes_before": stats.bytes_read,
                "bytes_after": stats.bytes_written,
            },
        )
        if cleaning.stats.records_without_key:
            logger.warning(
                "%d records of %s had no key and are gone",
                cleaning.stats.records_without_key,
                begun.log.topic_partition,
            )
        return cleaning.end_offset

    def _check(self, begun: Round) -> None:
        """Called in the thread."""
        if self._halt.is_set() or not self.manager.is_current(begun):
            raise CleaningAborted

    def _failed(self, begun: Round, error: OSError) -> None:
        log = begun.log
        if not self.manager.is_current(begun):
            logger.info("gave up cleaning %s", log.topic_partition)
        elif error.errno in DISK_FULL:
            logger.error("cannot clean %s for now: %s", log.topic_partition, error)
        else:
            self.manager.failed(log, error)

    async def _write_checkpoints(self) -> None:
        for write in self._logs.pending_checkpoints(CLEANER_FILE):
            try:
                await self._in_thread(write.run)
            except OSError as error:
                logger.error("cannot write the cleaner's checkpoint: %s", error)
                self._logs.failures.report(write.path, "write a checkpoint", error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._pool, work)
