"""The server as a process: its loop, its signals and its exit code.

SIGTERM, SIGINT and SIGHUP end it with exit code 0; a second one ends it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tidelog.event_loop import new_loop
from tidelog.stop_signals import stop_signals
from tidelog.zookeeper.server import EmbeddedZooKeeper


def run(directory: Path, host: str, port: int) -> int:
    """Serve until a signal; the exit code."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(directory, host, port, loop))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _serve(directory: Path, host: str, port: int, loop: asyncio.AbstractEventLoop) -> int:
    stop = asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set() and number != signal.SIGHUP:
            os._exit(128 + number)
        stop.set()

    for number in stop_signals():
        loop.add_signal_handler(number, on_signal, number)
    server = EmbeddedZooKeeper(directory, loop)
    try:
        await server.start(host, port)
        with suppress(BrokenPipeError):  # nobody waits for the line
            sys.stdout.write(f"tidelog zookeeper ready {host}:{server.port}\n")
            sys.stdout.flush()
        await stop.wait()
    finally:
        await server.stop()
    return 0
