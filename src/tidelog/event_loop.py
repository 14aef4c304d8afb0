"""The event loop of a process or thread: uvloop's where it is installed, else asyncio's.

And what keeps the garbage collector from holding it.
"""

from __future__ import annotations

import asyncio
import gc


def new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def settle_garbage_collector() -> None:
    """What lives after start-up lives until the end: do not let the collector walk it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
