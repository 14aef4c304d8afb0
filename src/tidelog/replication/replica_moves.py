"""Moves of replicas between the log directories of this broker (KIP-113).

    AlterReplicaLogDirs, or a copy found at start
      -> copying      pieces of the log, in a thread, while the log is used; should it grow faster
                      than its copy, on the loop, so that those who write share it with the copy
      -> catching up  the copy is synced, then what has been appended meanwhile follows
      -> swap         the last bytes and both renamings, in one turn of the loop
      -> settled      the renamings are synced, the old folder is deleted later

A move ends early when it is cancelled or its partition deleted (the copy goes), and when one of the
two directories fails (the copy stays; the next start goes on with it). A full disk is waited for. A
log that cannot be read as batches stays where it is until somebody cancels the move.

The cleaner keeps off a log that moves; retention does not. Touched only on the broker loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.clock import Clock
from tidelog.config.broker import BrokerConfig
from tidelog.errors import KafkaError
from tidelog.log.directory.checkpoints import CLEANER_FILE, LOG_START_FILE
from tidelog.log.directory.log_directory import LogDirectory
from tidelog.log.future_log import FutureLog, Piece, forget_replaced
from tidelog.log.log_errors import StorageError
from tidelog.log.log_manager import LogManager
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment.index_file import fsync_path
from tidelog.rate import RateLimiter
from tidelog.replication.flusher import LogFlusher
from tidelog.supervisor import attempted

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger(__name__)

PIECE_BYTES_MAX: Final = 1024 * 1024
TAIL_BYTES_MAX: Final = 64 * 1024  # so little is left to the turn of the swap
SWAP_BYTES_MAX: Final = 1024 * 1024  # above that the swap is put off
TAIL_ROUNDS_MAX: Final = 64
REST_S_MAX: Final = 1.0  # after so long, whoever waits looks whether anything has changed
THROTTLE_KEY: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
THREADS_KEY: Final = "num.replica.alter.log.dirs.threads"


class ReplicaMoves:
    """Stopped before the logs are closed."""

    def __init__(
        self,
        logs: LogManager,
        flusher: LogFlusher,
        config: BrokerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        self._logs = logs
        self._flusher = flusher
        self._loop = loop
        self._limiter = RateLimiter(config.get_int(THROTTLE_KEY), clock)
        self._threads = config[THREADS_KEY] or len(logs.directories)
        self._pool: ThreadPoolExecutor | None = None
        self._moves: dict[FutureLog, asyncio.Task[None]] = {}
        self._falling_behind: set[FutureLog] = set()
        self._halt = asyncio.Event()

    def configure(self, config: BrokerConfig) -> None:
        self._limiter.change(config.get_int(THROTTLE_KEY))

    def resume(self) -> None:
        """Go on with what an earlier run has begun."""
        for future in self._logs.futures:
            logger.info("going on to move %s to %s", future.current.directory, future.log.directory)
            self._begin(future)

    def move(self, log: PartitionLog, directory: LogDirectory) -> None:
        """To that directory, or not at all if it is there. StorageError if it cannot begin."""
        future = self._logs.futures.get(log.topic_partition)
        if future is not None and future.directory is directory:
            return
        if future is not None:
            self._cancel(future)
        if self._logs.directory_of(log.topic_partition) is directory:
            return
        if len(self._logs.directories.online) < len(self._logs.directories):
            raise StorageError("a log directory is offline; it may hold a copy of its own")
        future = self._logs.create_future(log.topic_partition, directory)
        logger.info("moving %s to %s", log.directory, future.log.directory)
        self._begin(future)

    async def stop(self) -> None:
        """Moves under way are left as they are, for the next start."""
        self._halt.set()
        if self._moves:
            await asyncio.wait(list(self._moves.values()))
        if self._pool is not None:
            self._pool.shutdown()

    def _begin(self, future: FutureLog) -> None:
        future.current.is_moving = True
        self._moves[future] = self._loop.create_task(self._run(future))

    def _cancel(self, future: FutureLog) -> None:
        logger.info("no longer moving %s to %s", future.current.directory, future.log.directory)
        self._logs.futures.pop(future.log.topic_partition)
        if future not in self._moves:
            self._logs.futures.discard(future)

    # One move

    async def _run(self, future: FutureLog) -> None:
        is_swapped = False

        async def step() -> None:
            nonlocal is_swapped
            is_swapped = await self._try_step(future)

        while not is_swapped and self._is_wanted(future):
            if await attempted(f"moving {future.current.directory}", step) is not None:
                await self._rest(REST_S_MAX)
        del self._moves[future]
        self._falling_behind.discard(future)
        self._end_move(future, is_swapped)

    def _end_move(self, future: FutureLog, is_swapped: bool) -> None:
        topic_partition = future.log.topic_partition
        registered = self._logs.futures.get(topic_partition)
        future.current.is_moving = registered is not None
        if (
            not is_swapped
            and registered is not future
            and self._logs.directories.is_online(future.directory)
        ):
            self._logs.futures.discard(future)

    def _is_wanted(self, future: FutureLog) -> bool:
        topic_partition = future.log.topic_partition
        return (
            not self._halt.is_set()
            and self._logs.futures.get(topic_partition) is future
            and self._logs.get(topic_partition) is future.current
            and self._logs.directories.is_online(future.directory)
        )

    async def _try_step(self, future: FutureLog) -> bool:
        """Whether the copy has taken the log's place."""
        truncations = future.current.truncations
        try:
            return await self._step(future)
        except KafkaError as error:
            # Unless the log was cut while it was being read.
            if isinstance(error, StorageError) or future.current.truncations == truncations:
                logger.error("cannot move %s now: %s", future.current.directory, error.message)
                await self._rest(REST_S_MAX)
        except OSError as error:
            logger.error("cannot move %s now: %s", future.current.directory, error)
            self._logs.failures.report(str(future.log.directory), "write a copy", error)
            await self._rest(REST_S_MAX)
        return False

    async def _step(self, future: FutureLog) -> bool:
        if await self._copy(future):
            return False
        await self._in_thread(future.make_ready)
        await self._note_offsets(future)
        for _ in range(TAIL_ROUNDS_MAX):
            if not await self._copy(future):
                break
        old_folder = str(future.current.directory)
        if not self._swap(future):
            return False
        await self._in_thread(partial(self._sync, future, old_folder))
        return True

    async def _note_offsets(self, future: FutureLog) -> None:
        """A log with gaps is only good if its directory says that it has been cleaned, and deleted
        records stay deleted only if it says where the log starts.
        """
        names = [LOG_START_FILE]
        if future.current.cleaner_offset >= 0:
            names.append(CLEANER_FILE)
        for write in self._logs.pending_checkpoints(*names):
            await self._in_thread(write.run)

    async def _copy(self, future: FutureLog) -> bool:
        """Copy one piece; False when so little is left that the swap can copy it."""
        if not self._is_wanted(future):
            return False
        piece = future.next_piece(
            self._within_rate(PIECE_BYTES_MAX), self._within_rate(TAIL_BYTES_MAX)
        )
        if piece is None or (piece.is_near_end and piece.size_bytes):
            return False
        await self._carry(future, piece)
        await self._pay(future, piece.size_bytes)
        return True

    async def _carry(self, future: FutureLog, piece: Piece) -> None:
        """In a thread; on the loop, a piece a turn, while the log grows faster than its copy."""
        end_offset, copied_offset = future.current.log_end_offset, future.log.log_end_offset
        if future in self._falling_behind:
            future.copy(piece)
            await asyncio.sleep(0)
        else:
            await self._in_thread(partial(future.copy, piece))
        grown = future.current.log_end_offset - end_offset
        if grown >= future.log.log_end_offset - copied_offset:
            self._falling_behind.add(future)
        else:
            self._falling_behind.discard(future)

    def _swap(self, future: FutureLog) -> bool:
        """Copy the rest and swap, all in one turn of the loop, so that no append comes between."""
        if not self._is_wanted(future):
            return False
        left_bytes = self._within_rate(SWAP_BYTES_MAX)
        while (piece := future.next_piece(PIECE_BYTES_MAX)) is not None:
            left_bytes -= piece.size_bytes
            if left_bytes < 0:
                return False
            future.copy(piece)
        future.catch_up_on_disk(flush_under_way=self._flusher.is_flushing(future.current))
        future.save_state()
        self._logs.replace_with_future(future)
        logger.info("moved %s to %s", future.current.topic_partition, future.directory.path)
        return True

    def _sync(self, future: FutureLog, old_folder: str) -> None:
        """In a thread: until this is done, `replaces` says which of two folders is the log."""
        folder = str(future.current.directory)
        for path in (str(future.directory.path), old_folder.rpartition("/")[0]):
            try:
                fsync_path(path)
            except OSError as error:
                logger.error("cannot sync %s: %s", path, error)
                self._logs.failures.report(path, "sync it", error)
                return
        with suppress(OSError):
            forget_replaced(folder)

    # Time and threads

    def _within_rate(self, byte_count: int) -> int:
        """Not more than a second's worth at once."""
        return min(byte_count, max(int(self._limiter.rate), 1))

    async def _pay(self, future: FutureLog, byte_count: int) -> None:
        self._limiter.spend(byte_count)
        while (wait_s := self._limiter.wait_s()) > 0 and self._is_wanted(future):
            await self._rest(min(wait_s, REST_S_MAX))

    async def _rest(self, seconds: float) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._halt.wait(), seconds)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # not needed by most brokers

            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="replica-move")
        await self._loop.run_in_executor(self._pool, work)
