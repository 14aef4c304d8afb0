"""The signals that ask a process of tidelog to stop.

SIGHUP comes when the terminal closes. A process that was started to outlive it (nohup) finds it
ignored, and leaves it so.

A process that looks after others takes them as a KeyboardInterrupt too (`interrupt_once`).

A process that runs Spark takes them as a KeyboardInterrupt (`interrupt_on_signals`), wherever its
main thread is. That may be inside a call to Spark, whose libraries then log and warn at length of a
connection they lost; all of that is turned off, since the only thing left to do is to stop. A
second signal ends the process at once: Spark's JVM and whatever else dies with its parent follows.
One that comes within a second is the same request: `timeout` signals a process and then its group.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import warnings
from collections.abc import Callable
from types import FrameType

SAME_REQUEST_S = 1.0

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


class StopRequest:
    """Whether a signal has come: its KeyboardInterrupt is lost where Python cannot raise, in a
    finaliser for instance.

    Look at it in a loop that sleeps. An Event would do for neither side: its lock may be held by
    the thread that the handler interrupts.
    """

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        end_at_the_next()
        self.has_come = True
        raise KeyboardInterrupt


def interrupt_once() -> StopRequest:
    """The first signal is a KeyboardInterrupt. The next one is obeyed at once, and the kernel ends
    the children.
    """
    request = StopRequest()
    for number in stop_signals():
        signal.signal(number, request)
    return request


def interrupt_on_signals() -> None:
    """Again after Spark has started, which puts a handler of its own for SIGINT."""
    for number in stop_signals():
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    end_at_the_next(ExitAtOnce(time.monotonic()))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    raise KeyboardInterrupt


class ExitAtOnce:
    def __init__(self, asked_at_s: float) -> None:
        self.asked_at_s = asked_at_s

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self.asked_at_s > SAME_REQUEST_S:
            os._exit(128 + number)
