"""Lines that redraw themselves on a terminal, and come now and then where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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

    def show(self, lines: Sequence[str], *, force: bool = False) -> None:
        if not self._is_terminal:
            if not force and self._now() - self._last_s < self._plain_interval_s:
                return
            self._last_s = self._now()
        else:
            self._erase()
            self._drawn = len(lines)
        self._stream.write("".join(line + "\n" for line in lines))
        self._stream.flush()

    def end(self) -> None:
        """What is drawn stays."""
        self._drawn = 0

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def painted(text: str, code: str, stream: TextIO) -> str:
    """`text` in a colour (an SGR code), on terminals alone."""
    return f"\x1b[{code}m{text}\x1b[0m" if stream.isatty() else text


def short_count(number: float) -> str:
    return f"{number:,.0f}"
