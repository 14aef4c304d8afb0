"""Whether a socket has news, whatever its number: `select` takes none above 1023, and a process
that runs thousands of tests gets there.
"""

from __future__ import annotations

import select
import socket


def is_readable(sock: socket.socket, within_s: float) -> bool:
    return socket_news(sock, within_s)[0]


def socket_news(
    sock: socket.socket, within_s: float, *, with_room: bool = False
) -> tuple[bool, bool]:
    """Whether it is readable, and (if asked for) whether it has room; neither if nothing comes."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | (select.POLLOUT if with_room else 0))
    found = dict(poll.poll(within_s * 1000)).get(sock.fileno(), 0)
    over = select.POLLERR | select.POLLHUP
    return bool(found & (select.POLLIN | over)), with_room and bool(found & (select.POLLOUT | over))
