"""A processor on a thread and an event loop of its own, for num.network.threads > 1.

The loop is of the broker loop's kind. Other threads reach it by `call` only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.network.processor import Processor
from tidelog.network.request_channel import ChannelConnection, Mailbox, RequestChannel

if TYPE_CHECKING:
    import socket
    from asyncio import AbstractEventLoop

    from tidelog.clock import Clock
    from tidelog.network.connection import Connection
    from tidelog.network.counters import Counters
    from tidelog.network.request import RequestHandler
    from tidelog.network.session import Session
    from tidelog.network.settings import NetworkSettings


class ProcessorThread(Processor):
    def __init__(
        self,
        index: int,
        broker_loop: AbstractEventLoop,
        channel: RequestChannel,
        handler: RequestHandler,
        settings: NetworkSettings,
        clock: Clock,
        request_counters: Counters,
        closed: Callable[[Connection], None],
        half_closed: Callable[[Connection], None],
    ) -> None:
        loop = type(broker_loop)()
        super().__init__(
            index, loop, handler, settings, clock, request_counters, closed, half_closed
        )
        self.channel = channel
        self.mailbox = Mailbox(loop)
        self._thread = threading.Thread(target=self._run, name=f"network-{index}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, action: Callable[[], object]) -> None:
        self.mailbox.post(action)

    def stop(self) -> None:
        """Closes all connections and waits for the thread to end."""
        if self._thread.is_alive():
            self.mailbox.post(self.loop.stop)
            self._thread.join()
            self.mailbox.close()
        elif not self.loop.is_closed():
            self.loop.close()

    def new_connection(
        self, sock: socket.socket, connection_id: str, session: Session
    ) -> Connection:
        return ChannelConnection(sock, self, connection_id, session)

    def _run(self) -> None:
        super().start()
        try:
            self.loop.run_forever()
        finally:
            super().stop()
            self.loop.close()
