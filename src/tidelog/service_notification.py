"""What a process tells the service manager that started it: systemd's sd_notify, without a library.

systemd passes the address of a datagram socket in NOTIFY_SOCKET, and with a watchdog the time in
which it wants to hear from the process in WATCHDOG_USEC. The variables are taken out of the
environment, so that children do not speak for their parent. Without them nothing is said.

    READY=1       the broker serves
    STOPPING=1    a signal has come
    WATCHDOG=1    the event loop turns; twice in each interval
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)


class ServiceNotification:
    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        interval = environment.pop("WATCHDOG_USEC", "")
        watched_pid = environment.pop("WATCHDOG_PID", "")
        # An abstract socket has a name that begins with NUL, which a variable cannot hold.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval_s = int(interval) / 1_000_000 if interval.isdecimal() else 0.0
        if watched_pid not in ("", str(os.getpid())):
            self._interval_s = 0.0

    @property
    def watchdog_pause_s(self) -> float | None:
        """Half of the time in which WATCHDOG=1 is due; None without a watchdog."""
        return self._interval_s / 2 if self._address and self._interval_s else None

    def ready(self, status: str) -> None:
        self._tell(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        """Never waits. A manager that does not listen is no reason to stop serving."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as told:
                told.sendto(text.encode(), self._address)
        except OSError as error:
            logger.warning("the service manager cannot be told: %s", error)
