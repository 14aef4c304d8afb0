"""Lines that redraw themselves on a terminal, and come now and then where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import TextIO

PLAIN_INTERVAL_S = 5.0


class LiveLines:
    """A block of lines at the bottom of the output; anything else is printed above it."""

    def __init__(
        self,
        stream: TextIO,
        *,
        plain_interval_s: float = PLAIN_INTERVAL_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._drawn = 0
        self._plain_interval_s = plain_interval_s
        self._now = now
        self._last_s = float("-inf")
        self._last_lines: list[str] = []

    def show(self, lines: Sequence[str], *, force: bool = False) -> None:
        """Lines wider than the terminal are cut. Where there is none, lines that say nothing new
        are left out."""
        if self._is_terminal:
            self._erase()
            self._drawn = len(lines)
            width = get_terminal_size().columns
            lines = [line[: width - 1] for line in lines]
        elif not force and (self._is_too_soon() or list(lines) == self._last_lines):
            return
        self._last_s = self._now()
        self._last_lines = list(lines)
        self._stream.write("".join(line + "\n" for line in lines))
        self._stream.flush()

    def end(self) -> None:
        """What is drawn stays."""
        self._drawn = 0

    def _is_too_soon(self) -> bool:
        return self._now() - self._last_s < self._plain_interval_s

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def painted(text: str, code: str, stream: TextIO) -> str:
    """`text` in a colour (an SGR code), on terminals alone."""
    return f"\x1b[{code}m{text}\x1b[0m" if stream.isatty() else text
