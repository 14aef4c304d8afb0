"""Threads for work on records that would hold the event loop: codecs and conversions.

Records that wait for a thread are copies, because the frame they came in is gone. All copies
together may take HELD_BYTES_MAX. The loop itself does what does not fit, however long it takes: a
slow broker is better than one that runs out of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from tidelog.log.segment.segment_walk import Walk

from tidelog.pending import Pending

T = TypeVar("T")

THREADS: Final = 2  # as many batches are inflated at a time
HELD_BYTES_MAX: Final = 256 * 1024 * 1024


class RecordThreads:
    """Touched only on the broker loop."""

    __slots__ = ("_held_bytes", "_pool")

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None  # made with the first work
        self._held_bytes = 0

    def may_hold(self, size_bytes: int) -> bool:
        return self._held_bytes + size_bytes <= HELD_BYTES_MAX

    def hold(self, size_bytes: int) -> None:
        """For whoever lets go again."""
        self._held_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes

    def run(self, size_bytes: int, work: Callable[[], T]) -> Pending[T]:
        """So many bytes are held until the work is done."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "records")
        self._held_bytes += size_bytes
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: self.let_go(size_bytes))
        return Pending.of_future(future)

    async def walk(self, walk: Walk) -> None:
        """Come back when it has been made and settled."""
        await self.run(0, walk.run)
        walk.note_result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
