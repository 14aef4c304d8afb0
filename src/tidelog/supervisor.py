"""The supervisor of background work: nothing that fails unexpectedly stays stopped.

Work handles the errors it expects. Any other error is logged here, with its cause and a name for
the work, and the work goes on: a loop begins anew after a pause (`keep_going`), a step of something
driven by events tells its caller that it failed (`attempt`, `attempted`), who pauses and tries
again. Where many wait for the same news, one that fails keeps it from no other (`tell_each`). Work
that is done once is only reported on (`report`). Cancellation passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.clock import Timer, pause

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
FAILED: Final = "%s failed: %r"


def attempt(name: str, work: Callable[[], object]) -> Exception | None:
    """What the work failed with, if it did."""
    try:
        work()
    except Exception as error:
        logger.exception(FAILED, name, error)
        return error
    return None


def tell_each(name: str, listeners: Iterable[Callable[[T], object]], news: T) -> None:
    for listener in listeners:
        attempt(name, partial(listener, news))


async def attempted(name: str, work: Callable[[], Awaitable[object]]) -> Exception | None:
    """What the work failed with, if it did."""
    try:
        await work()
    except Exception as error:
        logger.exception(FAILED, name, error)
        return error
    return None


async def keep_going(name: str, work: Callable[[], Awaitable[object]], timer: Timer) -> None:
    """Runs the work until it returns; one that fails begins anew, after pauses that grow."""
    pause_s = FIRST_PAUSE_S
    while await attempted(name, work) is not None:
        await pause(timer, pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def report(name: str, task: asyncio.Future[Any]) -> None:
    """Logs what the task fails with, if it does."""

    def done(task: asyncio.Future[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error(FAILED, name, error, exc_info=error)

    task.add_done_callback(done)
