"""Serves the console's application until a signal, with uvicorn, on a loop of its own."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import uvicorn
from starlette.applications import Starlette

from tidelog.errors import StartupError
from tidelog.stop_signals import ExitAtOnce, end_at_the_next, stop_signals
from tidelog.tools.console.application import console_application
from tidelog.tools.console.settings import ConsoleSettings, Listener

BACKLOG: Final = 128
GRACE_S: Final = 2  # for pages that are on their way when the console stops
CONNECTIONS_MAX: Final = 500


class ConsoleServer(uvicorn.Server):
    """Signals are its owner's. Live pages end before it waits for the other connections."""

    def __init__(self, app: Starlette) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.streams.end_all()
        await super().shutdown(sockets)


def bound(listener: Listener) -> tuple[socket.socket, Listener]:
    """The listening socket, and where it listens: port 0 becomes a real one."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listener.host, listener.port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise StartupError(f"cannot listen on {listener}: {error.strerror or error}") from error
    made.setblocking(False)
    return made, Listener(listener.host, made.getsockname()[1])


def serve(settings: ConsoleSettings, on_ready: Callable[[Listener], None]) -> int:
    """Until a signal; the exit code. `on_ready` is told where the console listens."""
    listening, listener = bound(settings.listener)
    with listening:
        app = console_application(replace(settings, listener=listener))
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(app, listening, lambda: on_ready(listener)))
    return 0


async def _serve(app: Starlette, listening: socket.socket, on_ready: Callable[[], None]) -> None:
    server = ConsoleServer(app)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True
        end_at_the_next(ExitAtOnce(time.monotonic()))

    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    on_ready()
    await server.serve([listening])
