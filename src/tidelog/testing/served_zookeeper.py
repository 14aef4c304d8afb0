"""The coordination of a cluster under test: `python -m tidelog.testing.served_zookeeper FD`.

FD is its end of a pair of sockets. The first line there says where its data is and where it
listens; it answers with its port, or with why it cannot start. When the other end closes, whatever
ended the test, it ends at once and takes the temporary directory with it.
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
from pathlib import Path

from tidelog.errors import StartupError
from tidelog.tools.cli.logging_setup import set_up_logging
from tidelog.zookeeper.server import EmbeddedZooKeeper


def main(arguments: list[str]) -> None:
    link = socket.socket(fileno=int(arguments[0]))
    lines = link.makefile("rb")
    settings = json.loads(lines.readline())
    set_up_logging("logfmt", settings["log_level"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test, which then ends us

    def end_with_the_test() -> None:
        lines.read()
        shutil.rmtree(settings["temporary"], ignore_errors=True)
        os._exit(0)

    threading.Thread(target=end_with_the_test, daemon=True).start()
    asyncio.run(_serve(Path(settings["data"]), settings["port"], link))


async def _serve(directory: Path, port: int, link: socket.socket) -> None:
    try:
        server = EmbeddedZooKeeper(directory, asyncio.get_running_loop())
        await server.start("127.0.0.1", port)
    except StartupError as error:
        link.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    link.sendall(json.dumps({"port": server.port}).encode() + b"\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
