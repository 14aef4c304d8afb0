"""`--watch`: a table that is drawn anew until Ctrl-C."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Final

import click

from tidelog.tools.cli.frame import together
from tidelog.tools.cli.output import styled

HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"

watch_options = together(
    click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C."),
    click.option(
        "--interval",
        type=click.FloatRange(0.1, 3_600),
        default=2.0,
        metavar="SECONDS",
        show_default=True,
        help="How often --watch looks.",
    ),
)


def watched(watch: bool, interval_s: float, show: Callable[[], int]) -> int:
    """The exit code of `show`, which is called once, or for ever."""
    if not watch:
        return show()
    while True:
        _draw(show, interval_s)
        time.sleep(interval_s)


def _draw(show: Callable[[], int], interval_s: float) -> None:
    """On a terminal in one write, so that nothing flickers."""
    if not sys.stdout.isatty():
        show()
        sys.stdout.flush()
        return
    page = _Page()
    with redirect_stdout(page):
        show()
    clock = time.strftime("%H:%M:%S")
    head = styled(f"every {interval_s:g} s, Ctrl-C ends it  {clock}", "dim")
    sys.stdout.write(f"{HOME_AND_CLEAR}{head}\n\n{page.getvalue()}")
    sys.stdout.flush()


class _Page(io.StringIO):
    """Stands for the terminal while a table is made for it."""

    def isatty(self) -> bool:
        return True
