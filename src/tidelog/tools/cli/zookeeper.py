"""`tidelog zookeeper`: ZooKeeper's protocol on this machine, for development and tests.

Foreground, and on the loopback address unless --host says otherwise. Prints one line when it
serves, `tidelog zookeeper ready HOST:PORT`. SIGTERM, SIGINT or SIGHUP stops it: exit code 0. Exit
code 1: it could not start, or it ended by itself.

tidelog's own server is one process (`tidelog/zookeeper/`). With --java Apache ZooKeeper runs from
the jars of the pyspark wheel, on the loopback address alone. An ensemble is one such command a
member, all with the same --server list:
    tidelog zookeeper --port 2181 --data zk1 --myid 1 --server 1=2888:3888 --server 2=2889:3889 ...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.errors import StartupError
from tidelog.stop_signals import interrupt_once
from tidelog.tools.cli.frame import Command, Parsed
from tidelog.tools.cli.logging_setup import set_up_logging
from tidelog.tools.cli.server_options import (
    data_option,
    log_format_option,
    log_level_option,
    port_option,
)

if TYPE_CHECKING:
    from tidelog.tools.zookeeper_server import Member, ServerSettings

ENSEMBLE_START_TIMEOUT_S = 600.0
START_TIMEOUT_S = 60.0
HOST: Final = "127.0.0.1"
LOOPBACK: Final = frozenset({HOST, "localhost", "::1"})
JOURNAL_NAME: Final = "tidelog-metadata.journal"
OURS: Final = "ours"
JAVA: Final = "java"


def member(text: str) -> Member:
    from tidelog.tools.zookeeper_server import Member

    number, _, ports = text.partition("=")
    peer_port, _, election_port = ports.partition(":")
    try:
        return Member(int(number), int(peer_port), int(election_port))
    except ValueError:
        raise ValueError(f"{text!r} is not of the form N=PEER_PORT:ELECTION_PORT") from None


@click.command("zookeeper", cls=Command)
@port_option("For clients; 0: any free one.", 2181)
@data_option("Everything goes here.", ".data/zookeeper")
@click.option("--host", default=HOST, metavar="HOST", show_default=True, help="To listen on.")
@click.option("--java", is_flag=True, help="Run Apache ZooKeeper, from pyspark's jars.")
@click.option(
    "--myid", type=int, metavar="N", help="With Java: this server's number in an ensemble."
)
@click.option(
    "--server",
    type=Parsed("MEMBER", member),
    multiple=True,
    metavar="N=PEER_PORT:ELECTION_PORT",
    help="With Java: a member of the ensemble on this machine; once for each.",
)
@click.option(
    "--loop-stall-warn-ms",
    type=click.IntRange(0),
    default=0,
    envvar="TIDELOG_LOOP_STALL_WARN_MS",
    hidden=True,  # as the broker's key of that name is internal
)
@log_level_option("warning")
@log_format_option
def command(
    port: int,
    data: Path,
    host: str,
    java: bool,
    myid: int | None,
    server: tuple[Member, ...],
    loop_stall_warn_ms: int,
    log_level: str,
    log_format: str,
) -> int:
    """Serve ZooKeeper's protocol on this machine, for development and tests."""
    if java or myid is not None or server:
        if host != HOST:
            raise click.UsageError("--host is not for Java's ZooKeeper, which is on 127.0.0.1")
        return _run_java(settings_of(port, data, myid, server))
    _require_not_of(JAVA, data)
    if host not in LOOPBACK:
        print(
            f"tidelog: WARNING: {host} is not a loopback address: whoever can reach this server "
            "can change all nodes that have no access list, and passwords travel in plain text.",
            file=sys.stderr,
            flush=True,
        )
    set_up_logging(log_format, log_level)
    from tidelog.zookeeper.process import run

    return run(data, host, port, loop_stall_warn_ms)


def _run_java(settings: ServerSettings) -> int:
    from tidelog.tools.zookeeper_server import ZooKeeperServer

    _require_not_of(OURS, settings.directory)
    process = ZooKeeperServer(settings)
    interrupt_once()
    try:
        process.spawn()
        process.wait_until_ready(ENSEMBLE_START_TIMEOUT_S if settings.members else START_TIMEOUT_S)
        print(f"tidelog zookeeper ready {process.address}", flush=True)
        assert process.process is not None
        code = process.process.wait()
        raise StartupError(f"ZooKeeper ended by itself with exit code {code}")
    except KeyboardInterrupt:
        return 0
    finally:
        process.stop()


def _require_not_of(other: str, data: Path) -> None:
    """Neither server reads the other's files; it would seem that everything is lost."""
    if other == JAVA and (data / "version-2").exists():
        raise StartupError(
            f"{data} has the data of Apache ZooKeeper: serve it with `tidelog zookeeper --java`, "
            "or choose another --data"
        )
    if other == OURS and (data / JOURNAL_NAME).exists():
        raise StartupError(f"{data} has the data of a server without --java: choose another --data")


def settings_of(
    port: int, data: Path, myid: int | None, members: tuple[Member, ...]
) -> ServerSettings:
    from tidelog.tools.free_ports import free_port
    from tidelog.tools.zookeeper_server import ServerSettings

    if (myid is None) != (not members):
        raise click.UsageError("--myid and --server go together: an ensemble needs both")
    if members and myid not in {each.number for each in members}:
        raise click.UsageError(f"--myid {myid} is not among the --server numbers")
    return ServerSettings(
        directory=data, port=port or free_port(), number=myid or 1, members=members
    )
