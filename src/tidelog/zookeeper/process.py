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

from tidelog.event_loop import new_loop, settle_garbage_collector
from tidelog.loop_monitor import LoopMonitor
from tidelog.stop_signals import stop_signals
from tidelog.zookeeper.server import EmbeddedZooKeeper


def run(directory: Path, host: str, port: int, stall_warn_ms: int = 0) -> int:
    """Serve until a signal; the exit code. Warns of what holds the loop for that long, if not 0."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(directory, host, port, loop, stall_warn_ms))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _serve(
    directory: Path, host: str, port: int, loop: asyncio.AbstractEventLoop, stall_warn_ms: int
) -> int:
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
        settle_garbage_collector()
        with suppress(BrokenPipeError):  # nobody waits for the line
            sys.stdout.write(f"tidelog zookeeper ready {host}:{server.port}\n")
            sys.stdout.flush()
        monitor = LoopMonitor(loop, stall_warn_ms) if stall_warn_ms else None
        if monitor is not None:
            monitor.start()
        await stop.wait()
        if monitor is not None:
            monitor.stop()
    finally:
        await server.stop()
    return 0
