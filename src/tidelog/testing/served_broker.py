"""The process of a broker under test: `python -m tidelog.testing.served_broker FD`.

FD is its end of the pair of sockets by which it is steered. The first line there has the overrides
of its configuration, and whether its data is temporary and goes with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import threading
from typing import Any

from tidelog.event_loop import new_loop
from tidelog.testing.control import ControlListener
from tidelog.testing.steered_broker import SteeredBroker
from tidelog.tools.cli.logging_setup import set_up_logging


def main(arguments: list[str]) -> None:
    link = socket.socket(fileno=int(arguments[0]))
    settings = _first_line(link)
    set_up_logging("logfmt", settings["log_level"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which then ends us
    loop = new_loop()
    asyncio.set_event_loop(loop)
    broker = SteeredBroker(settings["overrides"], loop, settings["ahead_s"])

    def abandoned() -> None:
        if settings["temporary"]:
            shutil.rmtree(settings["temporary"], ignore_errors=True)
        os._exit(0)

    listener = ControlListener(link, broker, loop, abandoned=abandoned, left=lambda: os._exit(0))
    threading.Thread(target=listener.run, daemon=True, name="control").start()
    loop.run_forever()


def _first_line(link: socket.socket) -> dict[str, Any]:
    """Byte by byte: what follows is not for us."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = link.recv(1)
        if not byte:
            raise SystemExit(1)
        line += byte
    settings: dict[str, Any] = json.loads(line)
    return settings


if __name__ == "__main__":
    main(sys.argv[1:])
