"""`tidelog top`: brokers, topics and groups of a cluster, drawn anew every second.

Groups have a word for how they did over the last looks, as Burrow judges (`group_watch`).

Keys: q ends it, s sorts by name or by the busiest. --once prints one frame and ends: it looks
twice, so that there are rates. The terminal is as it was before, however the command ends: with q,
Ctrl-C, SIGTERM, or an error.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from tidelog.tools.cli.session import ClusterCommand, Session, pass_session

if TYPE_CHECKING:
    from tidelog.client.blocking.admin import Admin
    from tidelog.tools.cluster_view import Look, Sort
    from tidelog.tools.group_watch import GroupWatch

ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
TO_END_OF_LINE: Final = "\x1b[K"
TO_END_OF_SCREEN: Final = "\x1b[J"
HELP: Final = "q quits, s sorts; sorted by "
ONCE_SIZE: Final = (80, 24)
ENDS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command("top", cls=ClusterCommand)
@click.option(
    "--metrics",
    multiple=True,
    metavar="URL",
    help="A broker's metrics, for bytes and latencies; may be given often.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3_600),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Print one frame and end.")
@pass_session
def command(session: Session, metrics: tuple[str, ...], interval: float, once: bool) -> int:
    """Watch brokers, topics and groups: lag, rates and latencies.

    \b
    tidelog top
    tidelog top --metrics http://127.0.0.1:9308/metrics
    """
    from tidelog.tools.cluster_view import frame, look

    with session.admin() as admin:
        if once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            before = look(admin, metrics, time.monotonic)
            time.sleep(interval)
            now = look(admin, metrics, time.monotonic)
            width, height = ONCE_SIZE
            lines = frame(now, before, width=width, height=height, metrics_urls=metrics)
            print("\n".join(lines))
            return 0
        with own_screen():
            _watch(admin, metrics, interval)
    return 0


def _watch(admin: Admin, metrics: tuple[str, ...], interval: float) -> None:
    from tidelog.tools.cluster_view import Sort, look
    from tidelog.tools.group_watch import GroupWatch

    before: Look | None = None
    sort = Sort.BUSIEST
    watch = GroupWatch()
    while True:
        now = look(admin, metrics, time.monotonic)
        health = health_of(watch, now)
        until = time.monotonic() + interval
        while True:
            _draw(now, before, sort, metrics, health)
            key = _key_within(until - time.monotonic())
            if key == "q":
                return
            if key == "s":
                sort = Sort.NAME if sort is Sort.BUSIEST else Sort.BUSIEST
            if key is None:
                break
        before = now


def health_of(watch: GroupWatch, now: Look) -> dict[str, str]:
    """Of each group, with this look."""
    at_ms = int(now.at_s * 1_000)
    return {
        group: str(watch.note(group, at_ms, now.partition_lags(group)).status)
        for group in now.states
    }


def _draw(
    now: Look,
    before: Look | None,
    sort: Sort,
    metrics: tuple[str, ...],
    health: Mapping[str, str],
) -> None:
    """In one write, and line over line, so that nothing flickers."""
    from tidelog.tools.cluster_view import frame

    width, height = shutil.get_terminal_size()
    lines = frame(
        now,
        before,
        width=width,
        height=max(height - 1, 1),
        sort=sort,
        metrics_urls=metrics,
        health=health,
    )
    text = "".join(f"{line}{TO_END_OF_LINE}\r\n" for line in lines)
    keys = f"{HELP}{sort.value}"[:width]
    sys.stdout.write(f"{HOME}{text}{keys}{TO_END_OF_LINE}{TO_END_OF_SCREEN}")
    sys.stdout.flush()


def _key_within(seconds: float) -> str | None:
    """None if no key was pressed. The end of the input is q."""
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], max(seconds, 0.0))
    if not ready:
        return None
    return os.read(descriptor, 1).decode("latin-1").lower() or "q"


@contextmanager
def own_screen() -> Iterator[None]:
    """The terminal's other screen, with keys read as they are pressed; both undone at the end."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    # Also Ctrl-C, which is ignored if whoever started us ignores it.
    handlers = {number: signal.signal(number, _interrupt) for number in ENDS}
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(ENTER)
        sys.stdout.flush()
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
