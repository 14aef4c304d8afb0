"""How far a long file has been read, on standard error, where that is a terminal of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

LONG_BYTES: Final = 32 << 20
REDRAW_S: Final = 0.1
WIDTH: Final = 30


class Progress:
    """Silent for short files, and where `stream` is no terminal."""

    def __init__(self, stream: TextIO | None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._now = now
        self._last_s = float("-inf")
        self._is_drawn = False

    def at(self, path: str, position: int, size: int) -> None:
        if self._stream is None or size < LONG_BYTES:
            return
        now = self._now()
        if now - self._last_s < REDRAW_S and position < size:
            return
        self._last_s = now
        self._is_drawn = True
        filled = WIDTH * position // size
        bar = "#" * filled + "." * (WIDTH - filled)
        percent = 100 * position // size
        self._stream.write(f"\r[{bar}] {percent:3d} %  {position >> 20} MB  {path}\x1b[K")
        self._stream.flush()

    def end(self) -> None:
        if self._is_drawn and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False
