"""A broker as a process: its event loop, signals, garbage collector and exit code.

SIGTERM, SIGINT and SIGHUP stop the broker cleanly, with exit code 0. A second signal exits at once,
as a crash would, and so does one while logs are loaded, because the next start begins that again.
If the broker halts by itself, because it cannot go on without data, the exit code is 1.
A service manager is told when the broker serves and when it stops (`service_notification.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tidelog.broker.log_dir_failure_handler import exit_anyway
from tidelog.broker.server import Server
from tidelog.config.broker import BrokerConfig
from tidelog.event_loop import new_loop, settle_garbage_collector
from tidelog.service_notification import ServiceNotification
from tidelog.stop_signals import stop_signals

logger = logging.getLogger(__name__)

HALT_TIMEOUT_S: Final = 10.0


def run(config: BrokerConfig, on_ready: Callable[[str], object] | None = None) -> int:
    """Serve until a signal; the exit code. `on_ready` is given the ready line when the broker
    serves."""
    loop = new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(config, loop, on_ready))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """The loop's signal handlers go with it. A closing terminal may send SIGHUP until the process
    is gone, and that must not turn a clean stop into a kill.
    """
    hung_up = set(stop_signals()) - {signal.SIGTERM, signal.SIGINT}
    if hung_up:
        signal.pthread_sigmask(signal.SIG_BLOCK, hung_up)
    loop.close()
    for number in hung_up:
        signal.signal(number, signal.SIG_IGN)


async def _serve(
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    on_ready: Callable[[str], object] | None,
) -> int:
    stop = asyncio.Event()
    service = ServiceNotification(os.environ)
    signals = 0

    def on_signal(number: int) -> None:
        nonlocal signals
        if number == signal.SIGHUP and signals:
            return  # a closing terminal may send several
        signals += 1
        if signals > 1:
            os._exit(128 + number)
        logger.info(
            "stopping", extra={"event": "broker-stopping", "signal": signal.Signals(number).name}
        )
        service.stopping()
        stop.set()

    failures: list[str] = []

    def on_failure(message: str) -> None:
        logger.critical(message)
        failures.append(message)
        exit_anyway(HALT_TIMEOUT_S)
        stop.set()

    server = _new_server(config, loop)
    server.halt = on_failure
    numbers = stop_signals()
    for number in numbers:
        signal.signal(number, lambda number, frame: os._exit(128 + number))
    server.start()
    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    try:
        if await _joins(server, stop):
            settle_garbage_collector()
            server.serves()
            with suppress(BrokenPipeError):  # nobody waits for the line
                sys.stdout.write(server.ready_line() + "\n")
                sys.stdout.flush()
            service.ready(server.ready_line())
            if on_ready is not None:
                on_ready(server.ready_line())
            _feed_watchdog(service, loop)
            await _serve_until(stop, config, loop)
    finally:
        await server.stop()
    return 1 if failures else 0


def _feed_watchdog(service: ServiceNotification, loop: asyncio.AbstractEventLoop) -> None:
    """On the loop, so that a loop that hangs is noticed."""
    pause_s = service.watchdog_pause_s
    if pause_s is not None:
        service.alive()
        loop.call_later(pause_s, _feed_watchdog, service, loop)


async def _serve_until(
    stop: asyncio.Event, config: BrokerConfig, loop: asyncio.AbstractEventLoop
) -> None:
    warn_ms = config.get_int("tidelog.loop.stall.warn.ms")
    if not warn_ms:
        await stop.wait()
        return
    from tidelog.loop_monitor import LoopMonitor

    monitor = LoopMonitor(loop, warn_ms)
    monitor.start()
    try:
        await stop.wait()
    finally:
        monitor.stop()


def _new_server(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> Server:
    if not config["zookeeper.connect"]:
        return Server(config, loop)
    from tidelog.broker.cluster_server import ClusterServer  # not needed by a lone broker

    return ClusterServer(config, loop)


async def _joins(server: Server, stop: asyncio.Event) -> bool:
    """False if the broker is to stop before it has joined."""
    joining = asyncio.ensure_future(server.join())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set():
        stopping.cancel()
        await joining
        return True
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)
    return False
