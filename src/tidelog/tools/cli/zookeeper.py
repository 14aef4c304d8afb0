"""`tidelog zookeeper`: a ZooKeeper server for development, from the jars of the pyspark wheel.

Foreground and loopback only. Prints one line when it serves, `tidelog zookeeper ready HOST:PORT`.
SIGTERM, SIGINT or SIGHUP stops it: exit code 0. Exit code 1: it could not start, or it ended by
itself.

An ensemble is one command a member, all with the same --server list:
    tidelog zookeeper --port 2181 --data zk1 --myid 1 --server 1=2888:3888 --server 2=2889:3889 ...
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tidelog.errors import StartupError
from tidelog.stop_signals import end_at_the_next, stop_signals

if TYPE_CHECKING:
    from tidelog.tools.zookeeper_server import Member, ServerSettings

ENSEMBLE_START_TIMEOUT_S = 600.0
START_TIMEOUT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=2181, help="for clients; 0: any free one")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".data/zookeeper"),
        metavar="DIR",
        help="everything goes here",
    )
    parser.add_argument("--myid", type=int, metavar="N", help="this server's number in an ensemble")
    parser.add_argument(
        "--server",
        type=member,
        action="append",
        default=[],
        metavar="N=PEER_PORT:ELECTION_PORT",
        help="a member of the ensemble on this machine; once for each",
    )


def member(text: str) -> Member:
    from tidelog.tools.zookeeper_server import Member

    number, _, ports = text.partition("=")
    peer_port, _, election_port = ports.partition(":")
    try:
        return Member(int(number), int(peer_port), int(election_port))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form N=PEER_PORT:ELECTION_PORT"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    from tidelog.tools.zookeeper_server import ZooKeeperServer

    settings = settings_of(arguments)
    server = ZooKeeperServer(settings)
    for number in stop_signals():
        signal.signal(number, _interrupt)
    try:
        server.spawn()
        server.wait_until_ready(ENSEMBLE_START_TIMEOUT_S if settings.members else START_TIMEOUT_S)
        print(f"tidelog zookeeper ready {server.address}", flush=True)
        assert server.process is not None
        code = server.process.wait()
        raise StartupError(f"ZooKeeper ended by itself with exit code {code}")
    except KeyboardInterrupt:
        return 0
    finally:
        server.stop()


def settings_of(arguments: argparse.Namespace) -> ServerSettings:
    from tidelog.tools.zookeeper_server import ServerSettings, free_port

    members = tuple(arguments.server)
    if (arguments.myid is None) != (not members):
        raise argparse.ArgumentError(
            None, "--myid and --server go together: an ensemble needs both"
        )
    if members and arguments.myid not in {each.number for each in members}:
        raise argparse.ArgumentError(
            None, f"--myid {arguments.myid} is not among the --server numbers"
        )
    return ServerSettings(
        directory=arguments.data,
        port=arguments.port or free_port(),
        number=arguments.myid or 1,
        members=members,
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A second signal ends the process at once, and the kernel ends the server."""
    end_at_the_next()
    raise KeyboardInterrupt
