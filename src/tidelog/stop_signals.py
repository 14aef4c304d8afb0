"""The signals that ask a process of tidelog to stop.

SIGHUP comes when the terminal closes. A process that was started to outlive it (nohup) finds it
ignored, and leaves it so.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def stop_signals() -> tuple[signal.Signals, ...]:
    hung_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hung_up is None or signal.getsignal(hung_up) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, hung_up


def end_at_the_next(handler: Handler = signal.SIG_DFL) -> None:
    """For a process that has been asked to stop: the next signal ends it. Another SIGHUP does not,
    since a terminal that closes may send several.
    """
    for number in stop_signals():
        is_asked_again = number in (signal.SIGTERM, signal.SIGINT)
        signal.signal(number, handler if is_asked_again else signal.SIG_IGN)
