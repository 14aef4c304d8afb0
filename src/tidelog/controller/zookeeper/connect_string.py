"""`zookeeper.connect`: host:port,host:port/chroot, as the Java client reads it.

The port is 2181 where none is given; an IPv6 address stands in brackets. Everything from the first
slash on is the chroot: the node under which all of the cluster's nodes live.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.controller.metadata_store import BadArguments, require_valid_path
from tidelog.errors import StartupError

DEFAULT_PORT: Final = 2181


class Chroot:
    """Paths as the broker says them and as the server knows them."""

    def __init__(self, path: str) -> None:
        self.path = path

    def full(self, path: str) -> str:
        return (self.path + path if path != "/" else self.path) or "/"

    def below(self, full: str) -> str:
        return full.removeprefix(self.path) or "/"


class ConnectString(NamedTuple):
    hosts: tuple[tuple[str, int], ...]
    chroot: str  # empty, or a path without a slash at its end

    @property
    def servers(self) -> str:
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )


def parse_connect_string(text: str) -> ConnectString:
    servers, slash, rest = text.strip().partition("/")
    hosts = tuple(_host(each.strip(), text) for each in servers.split(",") if each.strip())
    if not hosts:
        raise StartupError(f"zookeeper.connect: there is no host in {text!r}")
    chroot = f"/{rest}".rstrip("/") if slash else ""
    try:
        require_valid_path(chroot or "/")
    except BadArguments:
        raise StartupError(f"zookeeper.connect: {chroot!r} is no path for a chroot") from None
    return ConnectString(hosts, chroot)


def _host(server: str, text: str) -> tuple[str, int]:
    if server.startswith("["):
        host, _, tail = server[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = server.partition(":")
    if not port:
        port = str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise StartupError(
            f"zookeeper.connect: {server!r} in {text!r} is not of the form host:port"
        )
    return host, int(port)
