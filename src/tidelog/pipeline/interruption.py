"""SIGINT, SIGTERM and SIGHUP as one KeyboardInterrupt, wherever the main thread is.

That may be inside a call to Spark, whose libraries then log and warn at length of a connection they
lost; all of that is turned off, since the only thing left to do is to stop. A second signal ends
the process at once: Spark's JVM and whatever else dies with its parent follows.
"""

from __future__ import annotations

import logging
import os
import signal
import warnings
from types import FrameType

from tidelog.stop_signals import end_at_the_next, stop_signals


def interrupt_on_signals() -> None:
    """Again after Spark has started, which puts a handler of its own for SIGINT."""
    for number in stop_signals():
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    end_at_the_next(_exit_at_once)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    raise KeyboardInterrupt


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
