"""Threads that compress the batches whose compression would hold the event loop for too long.

A batch stays first in its partition's queue while a thread compresses it, so nothing overtakes it,
and it gets its sequence only afterwards, when it is drained. Its time limit, its share of
`buffer.memory` and whoever waits for a flush know nothing of this. A batch that fails meanwhile
takes no notice of what the thread makes of it.

Handing a batch to a thread and back takes about 70 µs, so small batches of a fast codec are
compressed where they are drained.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final

from tidelog.record.batch import Codec
from tidelog.record.compression import DEFAULT_LEVELS, compression_ns

# Batches that take longer go to a thread: 7 KiB with gzip, 32 KiB with zstd, 128 KiB with lz4.
ASIDE_NS: Final = 250_000
THREADS_MAX: Final = 4


class CompressionThreads:
    """Used under the producer's lock. The threads are started by the first batch that needs one."""

    def __init__(
        self,
        codec: Codec,
        level: int | None,
        *,
        on_done: Callable[[], object],
        executor: Executor | None = None,
    ) -> None:
        """`on_done` is called in the thread after every batch."""
        self._codec = codec
        self._level = level
        self._on_done = on_done
        self._executor = executor
        default_level = DEFAULT_LEVELS.get(codec)
        is_slow = level is not None and default_level is not None and level > default_level
        ns_per_kib = compression_ns(codec, 1024, level)
        if is_slow:
            self._aside_bytes: float = 0
        elif ns_per_kib:
            self._aside_bytes = ASIDE_NS * 1024 / ns_per_kib
        else:
            self._aside_bytes = float("inf")

    def are_for(self, size_bytes: int) -> bool:
        """Whether a batch of this size goes to a thread."""
        return size_bytes > self._aside_bytes

    def submit(self, compress: Callable[[Codec, int | None], bytearray]) -> Future[bytearray]:
        if self._executor is None:
            threads = min(THREADS_MAX, os.cpu_count() or 1)
            self._executor = ThreadPoolExecutor(threads, thread_name_prefix="tidelog-compression")
        compressed = self._executor.submit(compress, self._codec, self._level)
        compressed.add_done_callback(self._done)
        return compressed

    def _done(self, compressed: Future[bytearray]) -> None:
        if not compressed.cancelled():
            self._on_done()

    def close(self) -> None:
        """Drops the batches that no thread has begun, because their producer is closed."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
